"""Sinks that write files of text, JSON or CSV lines, and PyFlink's builder for all file sinks.

With checkpoints, parts appear when a checkpoint completes, each record once; without, one part of
each task appears when the task has read its whole input (see ``part_writer``). ``parquet`` has the
sink for Parquet. Law: a sink's description holds no open file; each writer has its own.
"""

import copy
import csv
import io
import uuid
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final

import msgspec

from headgate.api.row import Row
from headgate.api.types.types import TypeInformation
from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, PlanInvalid, shown
from headgate.connectors.checks import CHARACTER, check_settings
from headgate.connectors.files.layout import (
    Buckets,
    OutputFileConfig,
    PartPlan,
    RollingPolicy,
    read_buckets,
)
from headgate.connectors.files.part_commits import PartCommitter
from headgate.connectors.files.part_writer import (
    Lines,
    PartFormat,
    PartsWriter,
    part_names,
)
from headgate.connectors.formats.lines import MAX_LINE_BYTES, check_text
from headgate.connectors.formats.record_text import written_text
from headgate.connectors.paths import AnyPath, short_folder
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import TwoPhaseCommittingSink


@dataclass(unsafe_hash=True)
class PartSink(TwoPhaseCommittingSink):
    """What all file sinks are asked for: where their parts stand, and when a part ends."""

    folder: AnyPath = field(repr=False)  # may have a login
    prefix: str = "part"
    suffix: str = ""
    _: KW_ONLY
    overwrite: bool = False
    rolling_policy: RollingPolicy | None = None
    bucket_assigner: object = None
    readers_take_parts: bool = False
    """Readers move or delete parts: one that a checkpoint names and that is gone is no error."""

    kind = "files"

    def __post_init__(self) -> None:
        rolling = self.rolling_policy or RollingPolicy.on_checkpoint_rolling_policy()
        if not isinstance(rolling, RollingPolicy):
            raise PlanInvalid(
                f"the rolling policy of a file sink is {rolling!r}; give a RollingPolicy"
            )
        self.names = part_names(self.folder, self.prefix, self.suffix, self.overwrite)
        self.plan = PartPlan(rolling, read_buckets(self.bucket_assigner))

    @property
    def default_name(self) -> str:
        return f"{self.kind} {short_folder(self.names.folder)}"

    def create_writer(self, context: ConnectorContext) -> PartsWriter:
        return PartsWriter(self.names, self.make_format(context), self.plan, context)

    def create_committer(self, context: ConnectorContext) -> PartCommitter:
        return PartCommitter(self.readers_take_parts)

    @abstractmethod
    def make_format(self, context: ConnectorContext) -> PartFormat:
        """What makes bytes of the records of one task."""


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
                    f"text file: {shown(error.object[error.start : error.end])} does not exist in "
                    f"{encoding}; clean the records, or write in utf-8"
                ) from error

        return encode


@dataclass(unsafe_hash=True)
class TextFileSink(PartSink):
    """Lines of text: what ``str`` makes of a record, or Java if it has a declared type."""

    suffix: str = ".txt"
    _: KW_ONLY
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.encoder = TextEncoder(self.encoding)

    def for_type(self, type_info: TypeInformation | None) -> "TextFileSink":
        """The sink for records that a program has declared to be of this type."""
        typed = copy.copy(self)
        typed.encoder = TextEncoder(self.encoding, type_info)
        return typed

    def make_format(self, context: ConnectorContext) -> Lines:
        return Lines(self.encoder.make(), context.malformed)


@dataclass(unsafe_hash=True)
class JsonLinesSink(PartSink):
    """Each record as JSON on a line: rows with names as objects, without as arrays."""

    suffix: str = ".jsonl"

    kind = "JSON files"

    def make_format(self, context: ConnectorContext) -> Lines:
        return Lines(_json_lines, context.malformed)


@dataclass(unsafe_hash=True)
class CsvSink(PartSink):
    """Each record as a row of values; a record that is no tuple, list or Row is the only value."""

    suffix: str = ".csv"
    _: KW_ONLY
    header: Sequence[str] = ()
    delimiter: str = ","

    kind = "CSV files"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, {"delimiter": CHARACTER})
        self.header = tuple(self.header)

    def make_format(self, context: ConnectorContext) -> Lines:
        head = self._lines([self.header]) if self.header else b""
        return Lines(self._lines, context.malformed, head)

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


MakeSink = Callable[..., PartSink]
"""Makes the sink of a format, given the settings of ``PartSink``."""


FLINKS_DEFAULT: Final = RollingPolicy.default_rolling_policy()


class Encoder:
    """The encodings of ``FileSink``, under PyFlink's names."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> TextEncoder:
        return TextEncoder(charset_name)


class FileSink:
    """Builds a sink of files: ``FileSink.for_row_format(folder, encoder).build()``."""

    RowFormatBuilder: "type[FileSinkBuilder]"
    BulkFormatBuilder: "type[FileSinkBuilder]"

    @staticmethod
    def for_row_format(base_path: AnyPath, encoder: TextEncoder) -> "FileSinkBuilder":
        """Records as lines of text; parts go on over checkpoints."""
        make = partial(TextFileSink, encoding=encoder.encoding)
        return FileSinkBuilder(base_path, make, FLINKS_DEFAULT)

    @staticmethod
    def for_bulk_format(base_path: AnyPath, writer_factory: object) -> "FileSinkBuilder":
        """A format of whole files, such as Parquet; a part ends with each checkpoint."""
        make = getattr(writer_factory, "make_sink", None)
        if make is None:
            raise PlanInvalid(
                f"FileSink.for_bulk_format was given {writer_factory!r}; "
                f"give for instance ParquetBulkWriters.for_row_type(row_type)"
            )
        return FileSinkBuilder(base_path, make, RollingPolicy.on_checkpoint_rolling_policy())


class FileSinkBuilder:
    """Made by ``FileSink.for_row_format`` and ``for_bulk_format``."""

    def __init__(self, base_path: AnyPath, make: MakeSink, rolling: RollingPolicy) -> None:
        self._base_path = base_path
        self._make = make
        self._rolling = rolling
        self._buckets: Buckets | None = None
        self._config = OutputFileConfig()
        self._readers_take_parts = False

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> "FileSinkBuilder":
        self._config = output_file_config
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> "FileSinkBuilder":
        self._rolling = rolling_policy
        return self

    def with_bucket_assigner(self, bucket_assigner: object) -> "FileSinkBuilder":
        """A ``BucketAssigner``, names of columns, or a function from a record to a path."""
        self._buckets = read_buckets(bucket_assigner)
        return self

    def with_bucket_check_interval(self, interval: int) -> "FileSinkBuilder":
        """Taken for PyFlink's sake: ages of parts are looked at with each checkpoint."""
        return self

    def with_readers_taking_parts(self) -> "FileSinkBuilder":
        """Readers move or delete parts; PyFlink has no such method."""
        self._readers_take_parts = True
        return self

    def build(self) -> PartSink:
        """Each sink that is built has parts of its own, so that a second run adds to the first."""
        return self._make(
            self._base_path,
            f"{self._config.part_prefix}-{uuid.uuid4()}",
            self._config.part_suffix,
            rolling_policy=self._rolling,
            bucket_assigner=self._buckets,
            readers_take_parts=self._readers_take_parts,
        )


# PyFlink has them inside of the class that they belong to.
FileSink.RowFormatBuilder = FileSink.BulkFormatBuilder = FileSinkBuilder
