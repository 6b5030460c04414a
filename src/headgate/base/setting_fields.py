"""Groups of settings: frozen dataclasses whose fields know their keys.

Law: a field knows its key, meaning and bounds; a text that is no such value is refused with
the key and what would be right. A former key of Flink's stands for the one of today, and of two
that are given the one of today counts. Bytes and milliseconds may have a unit after the number.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from typing import Any, Final, TypeVar

from headgate.base.errors import SettingsInvalid
from headgate.base.redaction import is_secret, shown_setting

FORMER_KEYS: Final = {
    "execution.buffer-timeout": "execution.buffer-timeout.interval",
    "execution.checkpointing.alignment-timeout": (
        "execution.checkpointing.aligned-checkpoint-timeout"
    ),
    "execution.checkpointing.recover-without-channel-state.checkpoint-id": (
        "execution.state-recovery.without-channel-state.checkpoint-id"
    ),
    "execution.checkpointing.unaligned": "execution.checkpointing.unaligned.enabled",
    "execution.savepoint.ignore-unclaimed-state": (
        "execution.state-recovery.ignore-unclaimed-state"
    ),
    "execution.savepoint.path": "execution.state-recovery.path",
    "pipeline.operator-chaining": "pipeline.operator-chaining.enabled",
    "restart-strategy": "restart-strategy.type",
    "state.backend": "state.backend.type",
    "state.backend.changelog.enabled": "state.changelog.enabled",
    "state.backend.incremental": "execution.checkpointing.incremental",
    "state.checkpoint-storage": "execution.checkpointing.storage",
    "state.checkpoints.dir": "execution.checkpointing.dir",
    "state.backend.fs.checkpointdir": "execution.checkpointing.dir",
    "state.checkpoints.num-retained": "execution.checkpointing.num-retained",
    "state.savepoints.dir": "execution.checkpointing.savepoint-dir",
    "savepoints.state.backend.fs.dir": "execution.checkpointing.savepoint-dir",
    "state.storage.fs.memory-threshold": "execution.checkpointing.data-inline-threshold",
    "state.backend.fs.memory-threshold": "execution.checkpointing.data-inline-threshold",
    "taskmanager.net.request-backoff.initial": "taskmanager.network.request-backoff.initial",
    "taskmanager.net.request-backoff.max": "taskmanager.network.request-backoff.max",
    "taskmanager.network.memory.fraction": "taskmanager.memory.network.fraction",
    "taskmanager.network.memory.max": "taskmanager.memory.network.max",
    "taskmanager.network.memory.min": "taskmanager.memory.network.min",
    "web.address": "rest.bind-address",
    "jobmanager.web.address": "rest.bind-address",
    "web.port": "rest.port",
}
"""Deprecated and fallback keys that Flink 2.3 reads, with the keys of today.

If several stand for the same key, the first of them counts.
"""


def setting(
    key: str,
    default: Any,
    meaning: str,
    low: float | None = None,
    *,
    high: float | None = None,
    below: float | None = None,
) -> Any:
    """A field of a dataclass of settings; one that is a secret is not shown with the others.

    A value is refused if it is less than ``low``, more than ``high``, or not less than ``below``.
    """
    metadata = {"key": key, "meaning": meaning, "low": low, "high": high, "below": below}
    return field(default=default, metadata=metadata, repr=not is_secret(key))


def under_current_keys(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts, with those of former keys under the keys of today, unless these are given too."""
    given = dict(texts)
    for former, key in FORMER_KEYS.items():
        if former in texts:
            given.setdefault(key, texts[former])
    return given


@dataclass(frozen=True, slots=True)
class SettingsGroup:
    """Base of the groups; each is a frozen dataclass whose fields are made by ``setting``."""

    def __post_init__(self) -> None:
        for f in fields(self):
            low, high, below = (f.metadata[bound] for bound in ("low", "high", "below"))
            value = getattr(self, f.name)
            if low is not None and not value >= low:
                raise self._refused(f.name, f"{value} is below {low}")
            if high is not None and value > high:
                raise self._refused(f.name, f"{value} is above {high:g}")
            if below is not None and value >= below:
                raise self._refused(f.name, f"{value} is not below {below}")
        self._check()

    def _refused(self, name: str, problem: str) -> SettingsInvalid:
        """The error to raise for the setting of a field."""
        key = next(f.metadata["key"] for f in fields(self) if f.name == name)
        return SettingsInvalid(key, problem)

    def _check(self) -> None:
        """Refuse values within their bounds that cannot work together."""

    @classmethod
    def _spelled_out(cls, texts: dict[str, str]) -> None:
        """Replace abbreviations and implied settings in the texts, before they are parsed."""

    @classmethod
    def parse(cls: "type[Settings]", texts: Mapping[str, str]) -> "Settings":
        """Settings from keys and texts; keys of other groups are left alone."""
        given = under_current_keys(texts)
        cls._spelled_out(given)
        known = {f.metadata["key"]: f for f in fields(cls)}
        values: dict[str, Any] = {
            known[key].name: _parse_value(_as_written(key, texts), known[key], text.strip())
            for key, text in given.items()
            if key in known
        }
        return cls(**values)

    @classmethod
    def describe(cls) -> list[tuple[str, str, str]]:
        """Key, default and meaning of every setting of the group."""
        rows = []
        for f in fields(cls):
            default = f.default.value if isinstance(f.default, Enum) else f.default
            rows.append((str(f.metadata["key"]), str(default), str(f.metadata["meaning"])))
        return rows


Settings = TypeVar("Settings", bound=SettingsGroup)


_KIB: Final = 1024
_UNITS: Final[dict[str, dict[str, int]]] = {
    "bytes": {
        "kb": _KIB,
        "k": _KIB,
        "mb": _KIB**2,
        "m": _KIB**2,
        "gb": _KIB**3,
        "g": _KIB**3,
        "b": 1,
    },
    "ms": {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000},
}
"""What may follow a number, by the unit that ends the field's name."""


def _as_written(key: str, texts: Mapping[str, str]) -> str:
    """The key under which a setting stands: this one, or a former one."""
    written = [former for former, new in FORMER_KEYS.items() if new == key and former in texts]
    return written[0] if written and key not in texts else key


def _parse_value(key: str, setting: Field[Any], text: str) -> object:
    default = setting.default
    if isinstance(default, bool):
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise SettingsInvalid(key, f"{shown_setting(key, text)!r} is neither true nor false")
    if isinstance(default, Enum):
        choices = [str(choice.value) for choice in type(default)]
        if text.lower() in choices:
            return type(default)(text.lower())
        raise SettingsInvalid(key, f"{shown_setting(key, text)!r} is none of {', '.join(choices)}")
    if isinstance(default, float):
        try:
            return float(text)
        except ValueError:
            raise SettingsInvalid(key, f"{shown_setting(key, text)!r} is not a number") from None
    if isinstance(default, int):
        return _parse_amount(key, text, _UNITS.get(setting.name.rpartition("_")[2], {}))
    return text


def _parse_amount(key: str, text: str, units: Mapping[str, int]) -> int:
    number = text.lower().rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text.lower()[len(number) :]
    if not unit or unit in units:
        with suppress(ValueError):
            return int(number) * units.get(unit, 1)
    units_text = f"; it may end with a unit: {', '.join(units)}" if units else ""
    raise SettingsInvalid(key, f"{shown_setting(key, text)!r} is not a whole number{units_text}")
