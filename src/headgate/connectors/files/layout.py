"""How a file sink lays out its parts: buckets, rolling policy and file names, in PyFlink's words.

Buckets are subfolders, chosen by the clock or by the records. Law: a bucket is a path below the
sink's folder that never leads out of it, and none of its components is hidden, so readers of the
folder find it. Without checkpoints a part ends with its task, whatever the rolling policy says:
nobody would see it earlier.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from typing import Final, Protocol, cast
from urllib.parse import quote
from zoneinfo import ZoneInfo

from headgate.api.row import Row
from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, PlanInvalid
from headgate.connectors.checks import COUNT, check_settings

PART_BYTES: Final = 128 << 20
PART_MS: Final = 60_000
NULL_BUCKET: Final = "__HIVE_DEFAULT_PARTITION__"
"""For None and empty texts, as Hive and Spark call it."""


class Buckets(Protocol):
    """Says where records go; travels with the sink."""

    def split(self, records: list[Record], now_ms: int) -> Iterable[tuple[str, list[Record]]]:
        """Each bucket with its records, in order."""


class BucketAssigner:
    """The assigners of ``FileSink``, under PyFlink's names, and ``columns``."""

    @staticmethod
    def base_path_bucket_assigner() -> None:
        """All parts in the folder itself."""
        return None

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> "TimeBuckets":
        """By the clock, when records are written; in the time zone of the worker if none is given.

        The format knows yyyy, MM, dd, HH, mm and ss; other letters stand in quotes: ``'day='dd``.
        """
        return TimeBuckets(format_str, timezone_id)

    @staticmethod
    def columns(*names: str) -> "ColumnBuckets":
        """A folder ``name=value`` for each of these columns, as Hive and Spark read them."""
        return ColumnBuckets(names)

    @staticmethod
    def by(bucket_of: Callable[[Record], str]) -> "FunctionBuckets":
        """The path that a function says."""
        return FunctionBuckets(bucket_of)


@dataclass(frozen=True)
class TimeBuckets:
    """By the clock: one bucket for all records that are written at once."""

    pattern: str
    time_zone: str | None = None
    _form: str = field(init=False, repr=False)
    _zone: tzinfo | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_form", _strftime(self.pattern))
        object.__setattr__(self, "_zone", _zone(self.time_zone))

    def split(self, records: list[Record], now_ms: int) -> Iterable[tuple[str, list[Record]]]:
        now = datetime.fromtimestamp(now_ms / 1000, self._zone)
        return [(now.strftime(self._form), records)]


@dataclass(frozen=True)
class ColumnBuckets:
    """By the values of columns of Rows and dicts."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        names: tuple[object, ...] = self.names
        if not names or not all(isinstance(name, str) and name for name in names):
            raise PlanInvalid(f"BucketAssigner.columns: {self.names!r}; name one column or more")

    def split(self, records: list[Record], now_ms: int) -> Iterable[tuple[str, list[Record]]]:
        names = self.names
        found: dict[tuple[Record, ...], list[Record]] = {}
        try:
            if len(names) == 1:
                (name,) = names
                for record in records:
                    found.setdefault((record[name],), []).append(record)
            else:
                for record in records:
                    found.setdefault(tuple([record[name] for name in names]), []).append(record)
        except (KeyError, TypeError, IndexError) as error:
            raise ConnectorError(
                f"buckets by {', '.join(names)}: a record has no such column, or a value that is "
                f"no key ({error}); write Rows with names, or dicts"
            ) from error
        return [(self._path(values), some) for values, some in found.items()]

    def _path(self, values: Sequence[Record]) -> str:
        return "/".join(
            f"{_visible(_escaped(name))}={_escaped(_text(value))}"
            for name, value in zip(self.names, values, strict=True)
        )


@dataclass(frozen=True)
class FunctionBuckets:
    """By a user's function."""

    bucket_of: Callable[[Record], str]

    def split(self, records: list[Record], now_ms: int) -> Iterable[tuple[str, list[Record]]]:
        found: dict[str, list[Record]] = {}
        for record in records:
            found.setdefault(self.bucket_of(record), []).append(record)
        return [(_checked(bucket), some) for bucket, some in found.items()]


def read_buckets(assigner: object) -> Buckets | None:
    """What a user has given: an assigner, the names of columns, a function, or nothing."""
    if assigner is None:
        return None
    if isinstance(assigner, str):
        return ColumnBuckets((assigner,))
    if hasattr(assigner, "split") and not isinstance(assigner, type):
        return cast(Buckets, assigner)
    if isinstance(assigner, list | tuple):
        return ColumnBuckets(tuple(assigner))
    if callable(assigner):
        return FunctionBuckets(assigner)
    raise PlanInvalid(
        f"the bucket assigner of a file sink is {assigner!r}; give a BucketAssigner, names of "
        f"columns, or a function from a record to a path"
    )


_LETTERS: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


_TOKEN: Final = re.compile(r"'([^']*)'|([A-Za-z])\2*|[^A-Za-z']+")


def _strftime(pattern: str) -> str:
    parts: list[str] = []
    at = 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if token.start() != at or (text[0].isalpha() and text not in _LETTERS):
            break
        at = token.end()
        plain = token[1] if token[1] is not None else text
        parts.append(_LETTERS.get(text) or plain.replace("%", "%%"))
    if at != len(pattern) or not pattern:
        raise PlanInvalid(
            f"date_time_bucket_assigner: {pattern!r} is no format; write it with yyyy, MM, dd, HH, "
            f"mm and ss, and other letters in quotes"
        )
    form = "".join(parts)
    _checked(datetime(2000, 1, 1).strftime(form), PlanInvalid)
    return form


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise PlanInvalid(
            f"date_time_bucket_assigner: {name!r} is no time zone; name one such as Europe/Berlin"
        ) from error


def _text(value: Record) -> str:
    if value is None or value == "":
        return NULL_BUCKET
    return str(list(value)) if isinstance(value, Row) else str(value)


def _escaped(text: str) -> str:
    return quote(text, safe=" !()+,;@[]{}")


def _visible(name: str) -> str:
    return f"%{ord(name[0]):02X}{name[1:]}" if name[0] in "._" else name


def _checked(bucket: Record, error: type[Exception] = ConnectorError) -> str:
    if isinstance(bucket, str):
        parts = bucket.split("/") if bucket else []
        if all(part and not part.startswith((".", "_")) for part in parts):
            return bucket
    raise error(
        f"a file sink cannot have the bucket {bucket!r}; give a path of folders that do not begin "
        f"with . or _, with / between them"
    )


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
        names = ("part_size", "rollover_interval", "inactivity_interval")
        check_settings(self, dict.fromkeys(names, COUNT))

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
        self._config = OutputFileConfig()

    def with_part_prefix(self, prefix: str) -> "OutputFileConfigBuilder":
        self._config = replace(self._config, part_prefix=prefix)
        return self

    def with_part_suffix(self, suffix: str) -> "OutputFileConfigBuilder":
        self._config = replace(self._config, part_suffix=suffix)
        return self

    def build(self) -> OutputFileConfig:
        return self._config


# PyFlink has it inside of the class that it belongs to.
OutputFileConfig.OutputFileConfigBuilder = OutputFileConfigBuilder  # type: ignore[attr-defined]
