"""When a part file is full, and what parts are called, in the words of PyFlink.

Without checkpoints a part ends with its task, whatever the policy says: nobody would see it before.
"""

from dataclasses import dataclass, field
from typing import Final

from headgate.base.errors import PlanInvalid
from headgate.connectors.files.buckets import Buckets

PART_BYTES: Final = 128 << 20
PART_MS: Final = 60_000


@dataclass(frozen=True)
class RollingPolicy:
    """A part ends when it is this large, or this old, or was not written to for so long.

    Size counts at once, ages at the next checkpoint: a part appears with a checkpoint only.
    """

    part_size: int = PART_BYTES
    rollover_interval: int = PART_MS
    inactivity_interval: int = PART_MS
    each_checkpoint: bool = False
    """It ends with every checkpoint, too."""

    def __post_init__(self) -> None:
        for name in ("part_size", "rollover_interval", "inactivity_interval"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise PlanInvalid(
                    f"RollingPolicy: {name} is {value!r}; give a whole number above 0 "
                    f"({'bytes' if name == 'part_size' else 'milliseconds'})"
                )

    @staticmethod
    def default_rolling_policy(
        part_size: int = PART_BYTES,
        rollover_interval: int = PART_MS,
        inactivity_interval: int = PART_MS,
    ) -> "RollingPolicy":
        """Parts go on over checkpoints; sizes in bytes, times in milliseconds."""
        return RollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> "RollingPolicy":
        """Each checkpoint shows what was written before it."""
        return RollingPolicy(each_checkpoint=True)

    def is_over(self, opened_ms: int, written_ms: int, now_ms: int) -> bool:
        """Whether a part ends with a checkpoint that is taken now."""
        return (
            self.each_checkpoint
            or now_ms - opened_ms >= self.rollover_interval
            or now_ms - written_ms >= self.inactivity_interval
        )


@dataclass(frozen=True)
class PartPlan:
    """Where records go within the folder, and how they are cut into parts."""

    rolling: RollingPolicy = field(default_factory=RollingPolicy.on_checkpoint_rolling_policy)
    buckets: Buckets | None = None
    """None: all parts stand in the folder itself."""


@dataclass(frozen=True)
class OutputFileConfig:
    """How part files are called."""

    part_prefix: str = "part"
    part_suffix: str = ""

    @staticmethod
    def builder() -> "OutputFileConfigBuilder":
        return OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        return self.part_prefix

    def get_part_suffix(self) -> str:
        return self.part_suffix


class OutputFileConfigBuilder:
    """Made by ``OutputFileConfig.builder``."""

    def __init__(self) -> None:
        self._prefix = "part"
        self._suffix = ""

    def with_part_prefix(self, prefix: str) -> "OutputFileConfigBuilder":
        self._prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> "OutputFileConfigBuilder":
        self._suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        return OutputFileConfig(self._prefix, self._suffix)


# PyFlink has it inside of the class that it belongs to.
OutputFileConfig.OutputFileConfigBuilder = OutputFileConfigBuilder  # type: ignore[attr-defined]
