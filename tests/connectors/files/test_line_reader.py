"""Pieces of files of lines: any cut gives each record once, any position goes on after it."""

import gzip
import json
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.types.types import Types
from headgate.connectors.files.file_access import FileAccess
from headgate.connectors.files.line_reader import LineReader, RecordFormat, line_start
from headgate.connectors.files.splits import FileSplit, cut
from headgate.connectors.formats.csv import CsvFormat
from headgate.connectors.formats.json import JsonLinesFormat
from headgate.connectors.formats.lines import TextFormat
from tests.connectors.kit import read_some, task_context

Malformed = Callable[[object, Exception], None]

PAIR = Types.ROW_NAMED(["n", "text"], [Types.INT(), Types.STRING()])
ROWS = {"1,x": (1, "x"), "2,y": (2, "y"), "[3]": None, "4": None, '"5,z': None, '6,"z"z': None}
TEXTS = st.text(alphabet="ab\n\ré\x0b", max_size=60)
CUTS = st.lists(st.integers(0, 80), max_size=6)
BLOCKS = st.integers(1, 9)
LIMITS = st.lists(st.integers(1, 5), min_size=1, max_size=9)


@contextmanager
def file_of(data: bytes, suffix: str = "") -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"data{suffix}"
        path.write_bytes(data)
        yield str(path)


def open_reader(
    split: FileSplit,
    position: object,
    form: RecordFormat,
    block_bytes: int,
    malformed: Malformed | None = None,
) -> LineReader:
    context = task_context()
    if malformed is not None:
        context = replace(context, malformed=malformed)
    return LineReader(split, position, form, context, FileAccess(()), block_bytes=block_bytes)


def pieces(path: str, cuts: list[int], size: int) -> list[FileSplit]:
    places = sorted({place for place in cuts if 0 < place <= size})
    starts, ends = [0, *places], [*places, None]
    return [FileSplit(path, *ends_of) for ends_of in zip(starts, ends, strict=True)]  # type: ignore[arg-type]


def read_on(
    split: FileSplit, form: RecordFormat, block_bytes: int, limits: list[int], skips: bool = False
) -> list[Any]:
    """With a new reader after every other poll, as after a restart.

    ``skips``: malformed lines do not fail, but stand with the name of their error in the result.
    """
    records: list[Any] = []

    def malformed(raw: object, error: Exception) -> None:
        records.append((raw, type(error).__name__))

    keep = malformed if skips else None
    reader = open_reader(split, None, form, block_bytes, keep)
    for turn in range(10_000):
        limit = limits[turn % len(limits)]
        found = read_some(reader, limit)
        if found is None:
            break
        assert len(found) <= limit
        records += found
        if turn % 2:
            position = pickle.loads(pickle.dumps(reader.position()))
            reader.close()
            reader = open_reader(split, position, form, block_bytes, keep)
    else:
        raise AssertionError("no end")
    reader.close()
    return records


@given(TEXTS, CUTS, BLOCKS, LIMITS)
def test_in_any_cut_of_a_text_each_line_comes_once_and_in_order(
    text: str, cuts: list[int], block_bytes: int, limits: list[int]
) -> None:
    data = text.encode()
    with file_of(data) as path:
        found: list[str] = []
        for split in pieces(path, cuts, len(data)):
            found += read_on(split, TextFormat(), block_bytes, limits)
    assert found == [line.decode() for line in data.splitlines()]


@given(TEXTS, BLOCKS, LIMITS)
def test_a_packed_text_goes_on_from_any_position(
    text: str, block_bytes: int, limits: list[int]
) -> None:
    data = text.encode()
    with file_of(gzip.compress(data), ".gz") as path:
        found = read_on(FileSplit(path), TextFormat(), block_bytes, limits)
    assert found == [line.decode() for line in data.splitlines()]


@given(TEXTS, BLOCKS)
def test_the_position_after_the_last_line_is_the_end_of_the_file(
    text: str, block_bytes: int
) -> None:
    data = text.encode()
    with file_of(data) as path:
        reader = open_reader(FileSplit(path), None, TextFormat(), block_bytes)
        while reader.poll(3) is not None:
            pass
        assert reader.position() == len(data)
        reader.close()


@given(
    st.lists(st.sampled_from([b"a", b"b", b"\n", b"\r", b"\xff", b"1234"]), max_size=40),
    CUTS,
    BLOCKS,
    LIMITS,
)
def test_in_any_cut_each_malformed_line_is_reported_once_and_in_its_place(
    parts: list[bytes], cuts: list[int], block_bytes: int, limits: list[int]
) -> None:
    data = b"".join(parts)
    form = TextFormat(max_line_bytes=6)
    expected: list[Any] = []
    for line in data.splitlines():
        if len(line) > 6:
            expected.append((line[:7], "LineTooLong"))
        elif b"\xff" in line:
            expected.append((line, "LineUndecodable"))
        else:
            expected.append(line.decode())
    with file_of(data) as path:
        found: list[Any] = []
        for split in pieces(path, cuts, len(data)):
            found += read_on(split, form, block_bytes, limits, skips=True)
    short = [(item[0][:7], item[1]) if isinstance(item, tuple) else item for item in found]
    assert short == expected


@given(st.lists(st.sampled_from([*ROWS, ""]), max_size=12), CUTS, BLOCKS, LIMITS)
def test_malformed_rows_are_reported_once_and_in_their_place(
    lines: list[str], cuts: list[int], block_bytes: int, limits: list[int]
) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    expected = [ROWS[line] or (line.encode(), "LineMalformed") for line in lines if line]
    with file_of(data) as path:
        found: list[Any] = []
        for split in pieces(path, cuts, len(data)):
            found += read_on(split, CsvFormat(PAIR), block_bytes, limits, skips=True)
    assert [tuple(item) for item in found] == expected


@given(st.lists(st.sampled_from(["[1]", "{}", "{", "tru", ""]), max_size=12), BLOCKS, LIMITS)
def test_malformed_json_is_reported_once_and_in_its_place(
    lines: list[str], block_bytes: int, limits: list[int]
) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    with file_of(data) as path:
        found = read_on(FileSplit(path), JsonLinesFormat(), block_bytes, limits, skips=True)
    good: dict[str, Any] = {"[1]": [1], "{}": {}}
    assert found == [good.get(line, (line.encode(), "LineMalformed")) for line in lines if line]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='a\n"é', max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner),
    max_leaves=4,
)


@given(
    st.lists(st.tuples(JSON_VALUES, st.sampled_from(["\n", "\r\n", "\n\n", "\r", "\n \t\n"]))),
    CUTS,
    BLOCKS,
    LIMITS,
)
def test_in_any_cut_of_json_lines_each_value_comes_once(
    lines: list[tuple[Any, str]], cuts: list[int], block_bytes: int, limits: list[int]
) -> None:
    data = "".join(json.dumps(value) + end for value, end in lines).encode()
    with file_of(data) as path:
        found: list[Any] = []
        for split in pieces(path, cuts, len(data)):
            found += read_on(split, JsonLinesFormat(), block_bytes, limits)
    assert found == [value for value, _ in lines]


FIELDS = st.text(alphabet='a,"é ', max_size=4)
SPANNING = st.text(alphabet='a,"é\r\n', max_size=4)


def csv_of(rows: list[tuple[int, str]], ends: str) -> bytes:
    text = "text,n\n"
    for number, field in rows:
        text += '"' + field.replace('"', '""') + f'",{number}{ends}'
    return text.encode()


@given(
    st.lists(st.tuples(st.integers(-9, 99), FIELDS), max_size=9),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    CUTS,
    BLOCKS,
    LIMITS,
)
def test_in_any_cut_of_csv_each_row_comes_once(
    rows: list[tuple[int, str]], ends: str, cuts: list[int], block_bytes: int, limits: list[int]
) -> None:
    data = csv_of(rows, ends)
    with file_of(data) as path:
        found: list[Any] = []
        for split in pieces(path, cuts, len(data)):
            found += read_on(split, CsvFormat(PAIR, header=True), block_bytes, limits)
    assert [tuple(row) for row in found] == rows


@given(st.lists(st.tuples(st.integers(-9, 99), SPANNING), max_size=9), BLOCKS, LIMITS)
def test_csv_with_line_ends_in_fields_goes_on_from_any_position(
    rows: list[tuple[int, str]], block_bytes: int, limits: list[int]
) -> None:
    with file_of(csv_of(rows, "\n")) as path:
        form = CsvFormat(PAIR, header=True, multiline=True)
        found = read_on(FileSplit(path), form, block_bytes, limits)
    assert [tuple(row) for row in found] == rows


@pytest.mark.parametrize("size", [0, 1, 99, 100, 109, 110, 111, 1000])
def test_a_cut_has_no_gap_and_no_overlap(size: int) -> None:
    for start, end in ((0, None), (size // 2, size)):
        found = list(cut("a", start, end, size, 100))
        assert found[0].start == start
        assert found[-1].end == end
        for before, after in pairwise(found):
            assert before.end == after.start
        assert list(cut("a", start, end, size, None)) == [FileSplit("a", start, end)]


def test_the_start_of_a_line_may_need_one_more_byte() -> None:
    assert line_start(b"a\nb", 1, False) == 2
    assert line_start(b"a\nb", 2, False) == 2
    assert line_start(b"a\r", 1, False) == -1
    assert line_start(b"a\r", 1, True) == 2
    assert line_start(b"a\r\nb", 1, False) == 3
    assert line_start(b"a\r\nb", 2, False) == 3
    assert line_start(b"a\rb\n", 1, False) == 2
    assert line_start(b"ab", 1, False) == -1
    assert line_start(b"ab", 1, True) == 2
