"""Sinks that write files: lines of text, JSON or CSV, one part file for each task.

A part appears under its name when its task has read the whole input (see ``part_files``), so these
sinks are for jobs that end. Law: the description holds no open file; each writer has its own.
"""

import csv
import io
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from headgate.api.row import Row
from headgate.api.source import Sink
from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, PlanInvalid
from headgate.connectors.files import AnyPath
from headgate.connectors.lines import MAX_LINE_BYTES, check_text
from headgate.connectors.part_files import PartNames, PartWriter, part_names
from headgate.connectors.record_text import record_text
from headgate.core.chain.context import OperatorContext


@dataclass(frozen=True)
class TextEncoder:
    """Each record as a line of text."""

    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        check_text("text encoder", self.encoding, "strict", MAX_LINE_BYTES)

    def __call__(self, records: list[Record]) -> bytes:
        try:
            return "".join([f"{record_text(record)}\n" for record in records]).encode(self.encoding)
        except UnicodeEncodeError as error:
            raise ConnectorError(
                f"text file: {error.object[error.start : error.end]!r} does not exist in "
                f"{self.encoding}; clean the records, or write in utf-8"
            ) from error


class Encoder:
    """The encodings of ``FileSink``, under PyFlink's names."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> TextEncoder:
        return TextEncoder(charset_name)


@dataclass(frozen=True, init=False)
class TextFileSink(Sink):
    """Lines of text: strings as they are, rows as ``print`` shows them, the rest by ``str``."""

    names: PartNames
    encoder: TextEncoder

    def __init__(
        self,
        folder: AnyPath,
        prefix: str = "part",
        suffix: str = ".txt",
        *,
        encoding: str = "utf-8",
        overwrite: bool = False,
    ) -> None:
        object.__setattr__(self, "names", part_names(folder, prefix, suffix, overwrite))
        object.__setattr__(self, "encoder", TextEncoder(encoding))

    def create_writer(self, context: OperatorContext) -> PartWriter:
        return PartWriter(self.names, context.task, self.encoder)


@dataclass(frozen=True, init=False)
class JsonLinesSink(Sink):
    """Each record as JSON on a line: rows with names as objects, without as arrays."""

    names: PartNames

    def __init__(
        self,
        folder: AnyPath,
        prefix: str = "part",
        suffix: str = ".jsonl",
        *,
        overwrite: bool = False,
    ) -> None:
        object.__setattr__(self, "names", part_names(folder, prefix, suffix, overwrite))

    def create_writer(self, context: OperatorContext) -> PartWriter:
        return PartWriter(self.names, context.task, _json_lines)


@dataclass(frozen=True, init=False)
class CsvSink(Sink):
    """Each record as a row of values; a record that is no tuple, list or Row is the only value."""

    names: PartNames
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
    ) -> None:
        if len(delimiter) != 1:
            raise PlanInvalid(f"CsvSink: the delimiter is {delimiter!r}; give one character")
        object.__setattr__(self, "names", part_names(folder, prefix, suffix, overwrite))
        object.__setattr__(self, "header", tuple(header))
        object.__setattr__(self, "delimiter", delimiter)

    def create_writer(self, context: OperatorContext) -> PartWriter:
        head = self._lines([self.header]) if self.header else b""
        return PartWriter(self.names, context.task, self._lines, head)

    def _lines(self, records: list[Record]) -> bytes:
        text = io.StringIO()
        csv.writer(text, delimiter=self.delimiter, lineterminator="\n").writerows(
            record if isinstance(record, tuple | list | Row) else (record,) for record in records
        )
        return text.getvalue().encode()


class FileSink:
    """Builds a sink of text files in the words of PyFlink; ``TextFileSink`` says it shorter."""

    @staticmethod
    def for_row_format(base_path: AnyPath, encoder: TextEncoder) -> "FileSinkBuilder":
        return FileSinkBuilder(base_path, encoder)


class FileSinkBuilder:
    """Made by ``FileSink.for_row_format``."""

    def __init__(self, base_path: AnyPath, encoder: TextEncoder) -> None:
        self._base_path = base_path
        self._encoder = encoder
        self._config = OutputFileConfig()

    def with_output_file_config(self, output_file_config: "OutputFileConfig") -> "FileSinkBuilder":
        self._config = output_file_config
        return self

    def with_rolling_policy(self, rolling_policy: "RollingPolicy") -> "FileSinkBuilder":
        """Taken for PyFlink's sake; see ``RollingPolicy``."""
        return self

    def build(self) -> TextFileSink:
        """Each sink that is built has parts of its own, so that a second run adds to the first."""
        config = self._config
        return TextFileSink(
            self._base_path,
            f"{config.prefix}-{uuid.uuid4()}",
            config.suffix,
            encoding=self._encoder.encoding,
        )


@dataclass(frozen=True)
class OutputFileConfig:
    """How part files are called."""

    prefix: str = "part"
    suffix: str = ""

    @staticmethod
    def builder() -> "OutputFileConfigBuilder":
        return OutputFileConfigBuilder()


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


class RollingPolicy:
    """When a part is full, in the words of PyFlink. Today a part ends with its task, whatever
    the policy says."""

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 << 20,
        rollover_interval: int = 60_000,
        inactivity_interval: int = 60_000,
    ) -> "RollingPolicy":
        return RollingPolicy()

    @staticmethod
    def on_checkpoint_rolling_policy() -> "RollingPolicy":
        return RollingPolicy()


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
