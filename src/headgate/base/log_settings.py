"""Settings of log lines: how they look, which are written, which are sent to the driver.

They travel to the workers with the job's contact, because the driver's environment does not reach
those of a cluster.
"""

from dataclasses import dataclass
from enum import Enum

from headgate.base.setting_fields import SettingsGroup, setting


class LogFormat(str, Enum):
    """What a line looks like."""

    TEXT = "text"
    JSON = "json"


class LogLevel(str, Enum):
    """Lines of this level and above."""

    WARNING = "warning"
    DEBUG = "debug"
    INFO = "info"
    ERROR = "error"


class ShipLevel(str, Enum):
    """The lowest level of lines that are sent; debugging lines are too many for that."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class LogSettings(SettingsGroup):
    """How driver and workers of a job log, if nothing else was set up there."""

    format: LogFormat = setting(
        "headgate.log.format",
        LogFormat.TEXT,
        "`text`, or `json`: one object a line. Flag `--log-format` of `headgate run`.",
    )
    level: LogLevel = setting(
        "headgate.log.level",
        LogLevel.WARNING,
        "Lines that driver and workers write: `debug`, `info`, `warning` or `error` and above. "
        "Flag `--log-level` of `headgate run`.",
    )
    ship_level: ShipLevel = setting(
        "headgate.log.ship-level",
        ShipLevel.WARNING,
        "Of these, lines that workers send to the driver, for `headgate logs` and the page: "
        "`info`, `warning` or `error` and above, or `off`.",
    )
