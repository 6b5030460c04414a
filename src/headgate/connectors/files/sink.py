"""Sinks that write files: lines of text, JSON or CSV; ``parquet_sink`` has the one for Parquet.

With checkpoints parts appear when a checkpoint is complete, each record once; without, one part of
each task appears when the task has read its whole input (see ``part_files``). Law: the description
holds no open file; each writer has its own.
"""

import copy
import csv
import io
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from headgate.api.row import Row
from headgate.api.source import TwoPhaseCommittingSink
from headgate.api.types.types import TypeInformation
from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, PlanInvalid
from headgate.connectors.files.buckets import read_buckets
from headgate.connectors.files.part_commits import PartCommitter
from headgate.connectors.files.part_files import Lines, PartFormat, PartsWriter
from headgate.connectors.files.part_names import PartNames, part_names
from headgate.connectors.files.rolling import PartPlan, RollingPolicy
from headgate.connectors.formats.lines import MAX_LINE_BYTES, check_text
from headgate.connectors.formats.record_text import written_text
from headgate.connectors.paths import AnyPath, short_folder
from headgate.core.chain.context import OperatorContext


@dataclass(frozen=True, kw_only=True)
class PartSink(TwoPhaseCommittingSink):
    """What all file sinks share: where their parts stand, and when a part ends."""

    names: PartNames
    plan: PartPlan = field(default_factory=PartPlan)
    readers_take_parts: bool = False
    """Readers move or delete parts: one that a checkpoint names and that is gone is no error."""

    kind = "files"

    @property
    def default_name(self) -> str:
        return f"{self.kind} {short_folder(self.names.folder)}"

    def create_writer(self, context: OperatorContext) -> PartsWriter:
        return PartsWriter(self.names, self.make_format(context), self.plan, context)

    def create_committer(self, context: OperatorContext) -> PartCommitter:
        return PartCommitter(self.readers_take_parts)

    @abstractmethod
    def make_format(self, context: OperatorContext) -> PartFormat:
        """What makes bytes of the records of one task."""

    def _set_parts(
        self,
        names: tuple[AnyPath, str, str, bool],
        rolling_policy: RollingPolicy | None,
        bucket_assigner: object,
        readers_take_parts: bool,
    ) -> None:
        """Called by the constructors."""
        rolling = rolling_policy or RollingPolicy.on_checkpoint_rolling_policy()
        if not isinstance(rolling, RollingPolicy):
            raise PlanInvalid(
                f"the rolling policy of a file sink is {rolling!r}; give a RollingPolicy"
            )
        object.__setattr__(self, "names", part_names(*names))
        object.__setattr__(self, "plan", PartPlan(rolling, read_buckets(bucket_assigner)))
        object.__setattr__(self, "readers_take_parts", bool(readers_take_parts))


@dataclass(frozen=True)
class TextEncoder:
    """Each record as a line of text."""

    encoding: str = "utf-8"
    type_info: TypeInformation | None = None
    """What a program has declared the records to be."""

    def __post_init__(self) -> None:
        check_text("text encoder", self.encoding, "strict", MAX_LINE_BYTES)

    def make(self) -> Callable[[list[Record]], bytes]:
        """What makes bytes of the records of one task."""
        encoding, text = self.encoding, written_text(self.type_info)

        def encode(records: list[Record]) -> bytes:
            try:
                return "".join([f"{text(record)}\n" for record in records]).encode(encoding)
            except UnicodeEncodeError as error:
                raise ConnectorError(
                    f"text file: {error.object[error.start : error.end]!r} does not exist in "
                    f"{encoding}; clean the records, or write in utf-8"
                ) from error

        return encode


@dataclass(frozen=True, init=False)
class TextFileSink(PartSink):
    """Lines of text: what ``str`` makes of a record, or Java if it has a declared type."""

    encoder: TextEncoder

    def __init__(
        self,
        folder: AnyPath,
        prefix: str = "part",
        suffix: str = ".txt",
        *,
        encoding: str = "utf-8",
        overwrite: bool = False,
        rolling_policy: RollingPolicy | None = None,
        bucket_assigner: object = None,
        readers_take_parts: bool = False,
    ) -> None:
        names = (folder, prefix, suffix, overwrite)
        self._set_parts(names, rolling_policy, bucket_assigner, readers_take_parts)
        object.__setattr__(self, "encoder", TextEncoder(encoding))

    def for_type(self, type_info: TypeInformation | None) -> "TextFileSink":
        """The same for records that a program has declared to be of this type."""
        typed = copy.copy(self)
        object.__setattr__(typed, "encoder", TextEncoder(self.encoder.encoding, type_info))
        return typed

    def make_format(self, context: OperatorContext) -> Lines:
        return Lines(self.encoder.make())


@dataclass(frozen=True, init=False)
class JsonLinesSink(PartSink):
    """Each record as JSON on a line: rows with names as objects, without as arrays."""

    kind = "JSON files"

    def __init__(
        self,
        folder: AnyPath,
        prefix: str = "part",
        suffix: str = ".jsonl",
        *,
        overwrite: bool = False,
        rolling_policy: RollingPolicy | None = None,
        bucket_assigner: object = None,
        readers_take_parts: bool = False,
    ) -> None:
        names = (folder, prefix, suffix, overwrite)
        self._set_parts(names, rolling_policy, bucket_assigner, readers_take_parts)

    def make_format(self, context: OperatorContext) -> Lines:
        return Lines(_json_lines)


@dataclass(frozen=True, init=False)
class CsvSink(PartSink):
    """Each record as a row of values; a record that is no tuple, list or Row is the only value."""

    kind = "CSV files"

    header: tuple[str, ...]
    delimiter: str

    def __init__(
        self,
        folder: AnyPath,
        prefix: str = "part",
        suffix: str = ".csv",
        *,
        header: Sequence[str] = (),
        delimiter: str = ",",
        overwrite: bool = False,
        rolling_policy: RollingPolicy | None = None,
        bucket_assigner: object = None,
        readers_take_parts: bool = False,
    ) -> None:
        if len(delimiter) != 1:
            raise PlanInvalid(f"CsvSink: the delimiter is {delimiter!r}; give one character")
        names = (folder, prefix, suffix, overwrite)
        self._set_parts(names, rolling_policy, bucket_assigner, readers_take_parts)
        object.__setattr__(self, "header", tuple(header))
        object.__setattr__(self, "delimiter", delimiter)

    def make_format(self, context: OperatorContext) -> Lines:
        return Lines(self._lines, self._lines([self.header]) if self.header else b"")

    def _lines(self, records: list[Record]) -> bytes:
        text = io.StringIO()
        csv.writer(text, delimiter=self.delimiter, lineterminator="\n").writerows(
            record if isinstance(record, tuple | list | Row) else (record,) for record in records
        )
        return text.getvalue().encode()


def _json_lines(records: list[Record]) -> bytes:
    try:
        return _JSON.encode_lines(records)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConnectorError(
            f"JsonLinesSink: {error}; make dicts, lists, strings and numbers of the records first"
        ) from error


def _plain(record: Record) -> Record:
    if not isinstance(record, Row):
        raise TypeError(f"a record of type {type(record).__name__} has no form in JSON")
    return list(record) if record.get_field_names() is None else record.as_dict()


_JSON = msgspec.json.Encoder(enc_hook=_plain)
