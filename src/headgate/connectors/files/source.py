"""Files of text lines as a source: one split for each file.

Paths name files, folders (read with all that is below them) or patterns like ``logs/*.txt``. They
are looked up in the driver when the job starts; the workers must see the same files. Names that
begin with ``.`` or ``_`` are hidden: folders and patterns leave them out.
"""

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headgate.api.source import Source
from headgate.base.errors import PathUnusable, PlanInvalid
from headgate.connectors.files.line_reader import TextFormat, TextLineReader
from headgate.connectors.formats.lines import MAX_LINE_BYTES
from headgate.connectors.paths import AnyPath, local_path, short_places
from headgate.core.chain.context import OperatorContext


@dataclass(frozen=True, init=False)
class TextFileSource(Source):
    """The lines of all files at ``paths``, without their ends; ``.gz`` files are unpacked.

    Several paths that lead to the same file read it once.
    """

    paths: tuple[str, ...]
    form: TextFormat

    bounded = True
    untimed = True
    finds_more = True

    def __init__(
        self,
        *paths: AnyPath,
        encoding: str = "utf-8",
        errors: str = "strict",
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        if not paths:
            raise PlanInvalid("a source of files needs a path; give at least one")
        object.__setattr__(self, "paths", tuple(map(local_path, paths)))
        object.__setattr__(self, "form", TextFormat(encoding, errors, max_line_bytes))

    @property
    def default_name(self) -> str:
        return f"files {short_places(self.paths)}"

    def splits(self, parallelism: int) -> Sequence[str]:
        return find_files(self.paths)

    def open(self, split: object, position: object, context: OperatorContext) -> TextLineReader:
        assert isinstance(split, str), split
        return self.form.open(split, position)


class StreamFormat:
    """The formats that ``FileSource`` reads, under PyFlink's names."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> TextFormat:
        return TextFormat(charset_name)


class FileSource:
    """Builds a source of files in the words of PyFlink; see ``TextFileSource`` for shorter ones."""

    @staticmethod
    def for_record_stream_format(stream_format: TextFormat, *paths: AnyPath) -> "FileSourceBuilder":
        return FileSourceBuilder(stream_format, paths)


class FileSourceBuilder:
    """Made by ``FileSource.for_record_stream_format``."""

    def __init__(self, stream_format: TextFormat, paths: tuple[AnyPath, ...]) -> None:
        self._format = stream_format
        self._paths = paths

    def process_static_file_set(self) -> "FileSourceBuilder":
        """Read the files that are there when the job starts: the only way today."""
        return self

    def build(self) -> TextFileSource:
        form = self._format
        return TextFileSource(
            *self._paths,
            encoding=form.encoding,
            errors=form.errors,
            max_line_bytes=form.max_line_bytes,
        )


def find_files(paths: Sequence[str]) -> list[str]:
    """All files that the paths lead to, each once, sorted within a folder or pattern."""
    found: dict[str, None] = {}
    for path in paths:
        found.update(dict.fromkeys(_files_at(os.path.abspath(path))))
    return list(found)


def _files_at(path: str) -> Iterator[str]:
    if os.path.isdir(path):
        yield from _files_below(path, ())
    elif os.path.isfile(path):
        yield path
    elif os.path.exists(path):
        raise PathUnusable(path, "is neither a file nor a folder; read pipes with a SourceFunction")
    elif matches := [] if not glob.has_magic(path) else glob.glob(path, recursive=True):
        for match in sorted(matches):
            if not _hidden(match):
                yield from _files_at(match)
    else:
        raise PathUnusable(path, "does not exist; check the path, also on the driver's machine")


def _files_below(folder: str, above: tuple[str, ...]) -> Iterator[str]:
    real = os.path.realpath(folder)
    if real in above:  # a link that leads back up
        return
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise PathUnusable(folder, f"cannot be listed: {error.strerror}") from error
    for name in names:
        path = os.path.join(folder, name)
        if _hidden(path):
            continue
        if os.path.isdir(path):
            yield from _files_below(path, (*above, real))
        elif os.path.isfile(path):
            yield path


def _hidden(path: str) -> bool:
    return os.path.basename(path).startswith((".", "_"))
