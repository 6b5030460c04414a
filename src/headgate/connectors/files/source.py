"""Files of lines as sources: text, CSV, JSON; and PyFlink's builder for all file sources.

Paths name files, folders (read recursively) or patterns like ``logs/*.txt``, on this machine or on
a file system of pyarrow (``s3://``); the workers must see the same files. Large files are read in
several splits. With ``follow`` the source never ends: new files are found, and lines that are
appended. Packed files (``.gz``, ``.bz2``, ``.xz``, ``.zst``) are unpacked, each in one split, and
their positions count unpacked bytes. ``parquet_source`` has the source for Parquet. Law: a source's
description holds no open file; each record is read by one split.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.api.types.types import RowTypeInfo, TypeInformation
from headgate.base.errors import PlanInvalid, StateBroken
from headgate.connectors.checks import CHARACTER, COUNT, check_settings, optional
from headgate.connectors.files.enumerator import FileEnumerator, FilesPosition
from headgate.connectors.files.file_access import FileAccess, ListedFile, check_local_paths
from headgate.connectors.files.line_reader import LineReader, RecordFormat
from headgate.connectors.files.splits import FileSplit
from headgate.connectors.formats.csv import CsvDialect, CsvFormat, check_fields
from headgate.connectors.formats.json import JsonLinesFormat
from headgate.connectors.formats.lines import MAX_LINE_BYTES, TextFormat
from headgate.connectors.formats.schemas import check_row_type
from headgate.connectors.paths import AnyPath, readable_path, short_places
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position, Source, SplitReader
from headgate.functions.time import Duration
from headgate.functions.type_variables import OUT

SPLIT_BYTES: Final = 64 << 20
"""Larger files are read by several tasks."""
DISCOVER_MS: Final = 1000
"""How often a source that follows its files looks for new ones."""


@dataclass(unsafe_hash=True, kw_only=True)
class FilesSource(Source[OUT]):
    """What all sources of files share: where the files are, how they are cut and followed."""

    paths: tuple[str, ...] = field(repr=False)  # may have a login
    follow: bool = False
    discover_ms: int = DISCOVER_MS
    split_bytes: int | None = SPLIT_BYTES
    skip_missing: bool = False
    """A file that is gone when it is to be read is counted, and is no error."""

    untimed = True
    finds_more = True
    splits_end = True
    kind = "files"
    max_line_bytes = MAX_LINE_BYTES

    @property
    def default_name(self) -> str:
        return f"{self.kind} {short_places(self.paths)}"

    @property
    def bounded(self) -> bool:
        return not self.follow

    @property
    @abstractmethod
    def by_lines(self) -> bool:
        """Whether a file can be cut, and read while it grows, at a newline."""

    @property
    def can_cut(self) -> bool:
        """Whether a file that is not packed may be read in several pieces."""
        return self.by_lines

    def is_finished(self, access: FileAccess, file: ListedFile) -> bool | None:
        """Whether a file is whole; None: the file does not tell."""
        return None

    def splits(self, parallelism: int) -> Sequence[object]:
        return self.create_enumerator(parallelism, None).discover()

    def create_enumerator(self, parallelism: int, position: Position) -> FileEnumerator:
        if position is not None:
            if not isinstance(position, FilesPosition):
                raise StateBroken(
                    f"{self.default_name}: the checkpoint has a position of another kind of "
                    f"source; give this source another uid"
                )
            if self.follow != (position.folders is not None):
                raise _not_followed(self.default_name)
        if position is None and not self.follow:
            check_local_paths(self.paths)  # before tasks are started for nothing
        return FileEnumerator(self, position)

    def former_split(self, split: object) -> object | None:
        """Earlier releases read each file as a whole, and did not follow any."""
        if self.follow:
            raise _not_followed(self.default_name)
        return split.path if isinstance(split, FileSplit) else None

    def open(self, split: object, position: object, context: ConnectorContext) -> SplitReader:
        if isinstance(split, str):  # a whole file
            split = FileSplit(split)
        assert isinstance(split, FileSplit), split
        return self.open_file(split, position, context)

    @abstractmethod
    def open_file(
        self, split: FileSplit, position: object, context: ConnectorContext
    ) -> SplitReader:
        """A reader of one piece."""

    def _set_files(
        self,
        paths: tuple[AnyPath, ...],
        follow: bool,
        discover_ms: int,
        split_bytes: int | None,
        skip_missing: bool,
    ) -> None:
        """Called by the constructors."""
        if not paths:
            raise PlanInvalid("a source of files needs a path; give at least one")
        self.paths = tuple(map(readable_path, paths))
        self.follow = bool(follow)
        self.discover_ms = int(discover_ms)
        self.split_bytes = split_bytes
        self.skip_missing = bool(skip_missing)
        check_settings(self, {"split_bytes": optional(COUNT), "discover_ms": COUNT})


@dataclass(unsafe_hash=True, kw_only=True)
class LineFilesSource(FilesSource[OUT]):
    """Files that are read line by line, in some format."""

    form: RecordFormat = field(default_factory=TextFormat)

    @property
    def by_lines(self) -> bool:
        return not self.form.spans_lines

    @property
    def max_line_bytes(self) -> int:  # type: ignore[override]
        return self.form.max_line_bytes

    def open_file(
        self, split: FileSplit, position: object, context: ConnectorContext
    ) -> LineReader:
        access = FileAccess(self.paths)
        return LineReader(split, position, self.form, context, access, self.skip_missing)


@dataclass(unsafe_hash=True, init=False)
class TextFileSource(LineFilesSource[str]):
    """The lines of all files at ``paths``, without their ends.

    Several paths that lead to the same file read it once.
    """

    def __init__(
        self,
        *paths: AnyPath,
        encoding: str = "utf-8",
        errors: str = "strict",
        max_line_bytes: int = MAX_LINE_BYTES,
        follow: bool = False,
        discover_ms: int = DISCOVER_MS,
        split_bytes: int | None = SPLIT_BYTES,
        skip_missing: bool = False,
    ) -> None:
        self._set_files(paths, follow, discover_ms, split_bytes, skip_missing)
        self.form = TextFormat(encoding, errors, max_line_bytes)


@dataclass(unsafe_hash=True, init=False)
class JsonLinesSource(LineFilesSource):
    """The JSON values of files with one on each line: dicts, lists, or rows of ``type_info``."""

    kind = "JSON files"

    def __init__(
        self,
        *paths: AnyPath,
        type_info: TypeInformation | None = None,
        max_line_bytes: int = MAX_LINE_BYTES,
        follow: bool = False,
        discover_ms: int = DISCOVER_MS,
        split_bytes: int | None = SPLIT_BYTES,
        skip_missing: bool = False,
    ) -> None:
        """``type_info``: names that a row has and an object has not are None."""
        self._set_files(paths, follow, discover_ms, split_bytes, skip_missing)
        row_type = _row_type(type_info, "JsonLinesSource")
        self.form = JsonLinesFormat(row_type, max_line_bytes)
        self.form.parser(b"", "")  # refuses types that have no form in JSON


@dataclass(unsafe_hash=True, init=False)
class CsvSource(LineFilesSource):
    """The rows of CSV files: of ``type_info``, or of texts.

    A row is a line; with ``multiline`` fields in quotes may hold line ends, and a file is read by
    one task, as a whole.
    """

    kind = "CSV files"

    def __init__(
        self,
        *paths: AnyPath,
        type_info: TypeInformation | None = None,
        header: bool = False,
        delimiter: str = ",",
        dialect: CsvDialect | None = None,
        multiline: bool = False,
        encoding: str = "utf-8",
        follow: bool = False,
        discover_ms: int = DISCOVER_MS,
        split_bytes: int | None = SPLIT_BYTES,
        skip_missing: bool = False,
    ) -> None:
        """``header``: columns are found by the names in a file's first line."""
        self._set_files(paths, follow, discover_ms, split_bytes, skip_missing)
        if not CHARACTER.is_right(delimiter):
            raise PlanInvalid(f"CsvSource: delimiter is {delimiter!r}; give {CHARACTER.wanted}")
        row_type = _row_type(type_info, "CsvSource")
        if row_type is not None:
            check_fields("CsvSource", row_type)
        way = dialect or CsvDialect(delimiter)
        form = CsvFormat(row_type, way, bool(header), bool(multiline), encoding)
        self.form = form


def _not_followed(name: str) -> StateBroken:
    return StateBroken(
        f"{name}: the checkpoint was written with another value of follow, and does not tell how "
        f"much of each file was read; set follow as it was, or give this source another uid"
    )


def _row_type(type_info: TypeInformation | None, source: str) -> RowTypeInfo | None:
    return None if type_info is None else check_row_type(type_info, source)


class StreamFormat:
    """The formats that ``FileSource`` reads, under PyFlink's names."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> TextFormat:
        return TextFormat(charset_name)


BulkSource = Callable[..., FilesSource]
"""Makes the source of a format of whole files, given paths and how they are followed."""


class FileSource:
    """Builds a source of files in the words of PyFlink; see ``TextFileSource`` for shorter ones."""

    @staticmethod
    def for_record_stream_format(
        stream_format: RecordFormat, *paths: AnyPath
    ) -> "FileSourceBuilder":
        """Records line by line: ``StreamFormat.text_line_format()`` or ``CsvReaderFormat``."""
        if not hasattr(stream_format, "parser"):
            raise PlanInvalid(
                f"FileSource.for_record_stream_format was given {stream_format!r}; "
                f"give for instance StreamFormat.text_line_format()"
            )

        def make(*paths: AnyPath, follow: bool, discover_ms: int) -> FilesSource:
            source = TextFileSource(*paths, follow=follow, discover_ms=discover_ms)
            source.form = stream_format
            return source

        return FileSourceBuilder(make, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: object, *paths: AnyPath) -> "FileSourceBuilder":
        """A format of whole files: ``ParquetColumnarRowInputFormat``."""
        make = getattr(bulk_format, "make_source", None)
        if make is None:
            raise PlanInvalid(
                f"FileSource.for_bulk_file_format was given {bulk_format!r}; "
                f"give for instance ParquetColumnarRowInputFormat(row_type)"
            )
        return FileSourceBuilder(make, paths)


class FileSourceBuilder:
    """Made by ``FileSource``."""

    def __init__(self, make: BulkSource, paths: tuple[AnyPath, ...]) -> None:
        self._make = make
        self._paths = paths
        self._discover_ms: int | None = None

    def monitor_continuously(self, discovery_interval: Duration) -> "FileSourceBuilder":
        """Go on with new files, and with lines that are appended, which PyFlink does not."""
        self._discover_ms = max(1, discovery_interval.to_millis())
        return self

    def process_static_file_set(self) -> "FileSourceBuilder":
        """Read the files that are there when the job starts, and end."""
        self._discover_ms = None
        return self

    def build(self) -> FilesSource:
        follow = self._discover_ms is not None
        return self._make(*self._paths, follow=follow, discover_ms=self._discover_ms or DISCOVER_MS)
