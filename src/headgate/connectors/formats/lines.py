"""What all sources of lines share: encodings, limits, and how a block of lines becomes records.

A reader hands whole lines to a parser, a block at a time; the parser returns the records and the
lines that are none. Law: records and rejected lines tell after how many lines of the block each
ends, so that a position can be found between any two of them.
"""

import codecs
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, LineMalformed, LineUndecodable, PlanInvalid

MAX_LINE_BYTES: Final = 16 << 20
"""A longer line is more likely a wrong delimiter or a binary file than a record."""

NO_RECORD: Final = object()
"""Stands for a line that is to be left out: an empty one, a comment."""

_MARK: Final = codecs.BOM_UTF8
"""What some programs put in front of UTF-8 (``utf-8-sig``)."""

LineError: TypeAlias = Callable[[str, int], ConnectorError]
"""The error of a line, given the name of the file and the line's number."""


@dataclass(frozen=True, slots=True)
class RejectedLine:
    """A line that is no record."""

    before: int
    """How many records of the block stand before it."""
    line: int
    """Its number in the block, from 0."""
    end: int
    """How many lines of the block end with it."""
    raw: bytes
    error: LineError


@dataclass(slots=True)
class LineBlock:
    """What became of some lines."""

    records: list[Record]
    ends: list[int] | None = None
    """After how many lines each record ends; None: each line is a record."""
    rejected: deque[RejectedLine] = field(default_factory=deque)
    used: int | None = None
    """How many lines were read; the others are to be handed in again, with more. None: all."""


class LineParser(Protocol):
    """Makes records of the lines of one file."""

    def parse(self, data: bytes, first: bool, last: bool) -> LineBlock:
        """``data``: whole lines; ``first`` and ``last``: whether the file begins or ends there."""


@dataclass(frozen=True)
class TextFormat:
    """Each line is a record: a text without its end."""

    encoding: str = "utf-8"
    errors: str = "strict"
    max_line_bytes: int = MAX_LINE_BYTES

    has_header = False
    spans_lines = False

    def __post_init__(self) -> None:
        check_text("text files", self.encoding, self.errors, self.max_line_bytes)

    def parser(self, header: bytes, where: str) -> "TextParser":
        return TextParser(self.encoding, self.errors)


class TextParser:
    """Decodes a block at once; line by line only if one of them is no text."""

    def __init__(self, encoding: str, errors: str = "strict") -> None:
        self._name = encoding
        self._skips_mark = encoding_name(encoding) == "utf-8-sig"
        self._encoding = "utf-8" if self._skips_mark else encoding
        self._errors = errors

    def parse(self, data: bytes, first: bool, last: bool) -> LineBlock:
        if first and self._skips_mark:
            data = data.removeprefix(_MARK)
        data = with_newlines(data)
        try:
            return LineBlock(self.lines(data))
        except UnicodeDecodeError:
            return each_line(data, self._line, self._error)

    def lines(self, data: bytes) -> list[str]:
        """Raises UnicodeDecodeError."""
        lines = data.decode(self._encoding, self._errors).split("\n")
        if not lines[-1]:
            lines.pop()
        return lines

    def _line(self, line: bytes) -> str:
        return line.decode(self._encoding, self._errors)

    def _error(self, line: bytes, error: Exception) -> LineError:
        reason = error.reason if isinstance(error, UnicodeDecodeError) else str(error)
        return lambda where, number: LineUndecodable(where, number, self._name, reason)


def with_newlines(data: bytes) -> bytes:
    """The lines with ``\\n`` at the end of each."""
    if b"\r" in data:
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data


def without_mark(data: bytes) -> bytes:
    """A file's first bytes without the mark of UTF-8."""
    return data.removeprefix(_MARK)


def each_line(
    data: bytes,
    read: Callable[[bytes], Record],
    error_of: Callable[[bytes, Exception], LineError],
) -> LineBlock:
    """One line after the other: the way for blocks that hold what is no record."""
    records: list[Record] = []
    ends: list[int] = []
    rejected: deque[RejectedLine] = deque()
    for number, line in enumerate(data.splitlines()):
        try:
            record = read(line)
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            cause = error_of(line, error)
            rejected.append(RejectedLine(len(records), number, number + 1, line, cause))
            continue
        if record is not NO_RECORD:
            records.append(record)
            ends.append(number + 1)
    return LineBlock(records, ends, rejected)


def malformed(line: bytes, error: Exception) -> LineError:
    """The error of a line that a parser refuses."""
    problem = str(error)
    return lambda where, number: LineMalformed(where, number, problem)


def check_text(source: str, encoding: str, errors: str, max_line_bytes: int) -> None:
    """Refuse in the driver what no task could read."""
    try:
        codecs.lookup(encoding)
        codecs.lookup_error(errors)
    except LookupError as error:
        raise PlanInvalid(f"{source}: {error}; name one that Python knows") from None
    if not encoding_name(encoding).startswith("utf-8") and "\r\n".encode(encoding) != b"\r\n":
        raise PlanInvalid(
            f"{source}: in {encoding} a line does not end with a newline byte; "
            f"convert the text to UTF-8"
        )
    if max_line_bytes < 1:
        raise PlanInvalid(f"{source}: max_line_bytes is {max_line_bytes}; give 1 or more")


def encoding_name(encoding: str) -> str:
    """As Python itself calls it: ``UTF8`` becomes ``utf-8``."""
    return codecs.lookup(encoding).name
