"""Files of lines: what is found, what a line is, where a new reader goes on, what is refused."""

import bz2
import gzip
import lzma
import os
import pickle
import re
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.api.row import Row
from headgate.api.types.types import Types
from headgate.base.errors import (
    FileGone,
    LineMalformed,
    LineTooLong,
    LineUndecodable,
    PathUnusable,
    PlanInvalid,
)
from headgate.connectors.files.file_access import FileAccess
from headgate.connectors.files.line_reader import LineReader
from headgate.connectors.files.source import (
    CsvSource,
    FileSource,
    FilesSource,
    JsonLinesSource,
    StreamFormat,
    TextFileSource,
)
from headgate.connectors.files.splits import FileSplit
from headgate.connectors.formats.csv import CsvDialect
from headgate.connectors.formats.lines import TextFormat
from headgate.functions.source import SplitLag
from headgate.functions.time import Duration
from tests.connectors.files_kit import make, read_source, split_path
from tests.connectors.kit import read_to_end, task_context
from tests.host.leaks import descriptors, left_open

PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])


def names(source: FilesSource) -> list[str]:
    return [os.path.basename(split_path(split)) for split in source.splits(1)]


def line_reader(path: Path, position: object = None, **settings: int) -> LineReader:
    form = TextFormat(max_line_bytes=settings.get("max_line_bytes", 1 << 20))
    return LineReader(
        FileSplit(str(path)),
        position,
        form,
        task_context(),
        FileAccess(()),
        block_bytes=settings.get("block_bytes", 1 << 16),
    )


def test_lines_come_without_their_ends(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("one\ntwo\r\nthree\rvier ü\n\n\x0b\x1c\u2028\nlast".encode())
    expected = ["one", "two", "three", "vier ü", "", "\x0b\x1c\u2028", "last"]
    assert read_source(TextFileSource(path)) == expected


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert read_source(TextFileSource(tmp_path / "empty")) == []


def test_packed_files_are_unpacked_each_in_one_split(tmp_path: Path) -> None:
    data = b"one\ntwo\n"
    (tmp_path / "1.gz").write_bytes(gzip.compress(data))
    (tmp_path / "2.bz2").write_bytes(bz2.compress(data))
    (tmp_path / "3.xz").write_bytes(lzma.compress(data))
    with pa.CompressedOutputStream(str(tmp_path / "4.zst"), "zstd") as file:
        file.write(data)
    before = descriptors()
    source = TextFileSource(tmp_path, split_bytes=2)
    assert len(source.splits(1)) == 4
    assert read_source(source) == ["one", "two"] * 4
    assert left_open(before) == []


def test_a_folder_is_read_in_order_with_all_below_it_but_what_is_hidden(tmp_path: Path) -> None:
    make(tmp_path, "b", "a", "c/d", "c/.e", "_f", ".g", "_h/i")
    source = TextFileSource(tmp_path)
    assert names(source) == ["a", "b", "d"]
    assert read_source(source) == ["in a", "in b", "in c/d"]


def test_a_hidden_file_is_read_if_it_is_named(tmp_path: Path) -> None:
    make(tmp_path, "_f")
    assert read_source(TextFileSource(tmp_path / "_f")) == ["in _f"]


def test_patterns_are_sorted_and_no_file_is_read_twice(tmp_path: Path) -> None:
    make(tmp_path, "x2.txt", "x1.txt", "_x3.txt", "x4.log", "deep/x5.txt")
    assert names(TextFileSource(tmp_path / "*.txt", tmp_path / "x1.txt")) == ["x1.txt", "x2.txt"]
    assert names(TextFileSource(tmp_path / "**" / "*5.txt")) == ["x5.txt"]


def test_a_name_that_looks_like_a_pattern_is_found(tmp_path: Path) -> None:
    make(tmp_path, "day[1].txt")
    assert names(TextFileSource(tmp_path / "day[1].txt")) == ["day[1].txt"]


def test_a_name_that_is_no_utf8_is_read_and_shown(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    Path(path).write_bytes(b"ok\n\xff\n")
    source = pickle.loads(pickle.dumps(TextFileSource(tmp_path)))
    (split,) = source.splits(1)
    reader = source.open(pickle.loads(pickle.dumps(split)), None, task_context())
    assert reader.poll(9) == ["ok"]
    with pytest.raises(LineUndecodable, match=r"caf\\xe9, line 2"):
        reader.poll(9)
    reader.close()


def test_a_link_that_leads_back_up_is_not_followed_for_ever(tmp_path: Path) -> None:
    make(tmp_path, "a/b")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a" / "self")
    assert names(TextFileSource(tmp_path)) == ["b"]


def test_an_empty_folder_is_no_split(tmp_path: Path) -> None:
    assert TextFileSource(tmp_path).splits(3) == []


def test_addresses_of_local_files_are_paths(tmp_path: Path) -> None:
    make(tmp_path, "a")
    assert read_source(TextFileSource(f"file://{tmp_path}/a")) == ["in a"]


def test_a_missing_path_is_named_when_the_job_starts(tmp_path: Path) -> None:
    for path in (tmp_path / "no", tmp_path / "*.txt"):
        with pytest.raises(PathUnusable, match=f"{re.escape(str(path))}: does not exist"):
            TextFileSource(path).splits(1)


def test_a_file_system_that_nobody_knows_is_refused_without_its_password() -> None:
    source = TextFileSource("zfs://me:secret@host/logs?key=hidden")
    with pytest.raises(PathUnusable, match=r"^zfs://host/logs: .*give a path") as caught:
        source.splits(1)
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert "secret" not in source.default_name


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PathUnusable, match="neither a file nor a folder"):
        TextFileSource(tmp_path / "pipe").splits(1)


def test_a_file_that_this_worker_does_not_see_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = str(tmp_path / "gone")
    reader = TextFileSource("x").open(gone, None, task_context())
    with pytest.raises(FileGone, match="gone: cannot be read here.*every worker"):
        reader.poll(1)
    patient = TextFileSource("x", skip_missing=True)
    assert patient.open(gone, None, task_context()).poll(1) is None
    assert caplog.messages == [f"{gone} is not there any more; what was left of it was not read"]


def test_many_readers_hold_no_file_before_they_are_read(tmp_path: Path) -> None:
    make(tmp_path, *(f"{number}" for number in range(50)))
    source = TextFileSource(tmp_path)
    before = descriptors()
    readers = [source.open(split, None, task_context()) for split in source.splits(1)]
    for reader in readers:
        assert len(read_to_end(reader)) == 1
        assert left_open(before) == []
    for reader in readers:
        reader.close()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: TextFileSource(), "at least one"),
        (lambda: TextFileSource("a", encoding="utf-99"), "unknown encoding"),
        (lambda: TextFileSource("a", encoding="utf-16"), "convert the text to UTF-8"),
        (lambda: TextFileSource("a", max_line_bytes=0), "max_line_bytes is 0"),
        (lambda: TextFileSource("a", split_bytes=0), "split_bytes is 0; give a whole number"),
        (lambda: TextFileSource("a", discover_ms=0), "discover_ms is 0; give a whole number"),
        (lambda: CsvSource("a", delimiter="::"), "delimiter is '::'; give one character"),
        (lambda: CsvSource("a", type_info=Types.INT()), "give the rows' type"),
        (
            lambda: CsvSource("a", type_info=Types.ROW([Types.MAP(Types.INT(), Types.INT())])),
            "CsvSource: field 'f0' .* no form in CSV",
        ),
        (
            lambda: JsonLinesSource("a", type_info=Types.ROW([Types.PICKLED_BYTE_ARRAY()])),
            "no form in JSON",
        ),
        (lambda: FileSource.for_record_stream_format("text", "a"), "text_line_format"),  # type: ignore[arg-type]
        (lambda: FileSource.for_bulk_file_format("orc", "a"), "ParquetColumnarRowInputFormat"),
    ],
)
def test_nonsense_is_refused(build: type[TextFileSource], words: str) -> None:
    with pytest.raises(PlanInvalid, match=words):
        build()


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("start", [0, 8])
def test_bytes_that_are_no_text_name_file_and_line(tmp_path: Path, suffix: str, start: int) -> None:
    path = tmp_path / f"text{suffix}"
    data = b"aa\r\nb\rc\nd\n" + b"e\n" * 50 + b"bad \xff\n"
    path.write_bytes(gzip.compress(data) if suffix else data)
    # Blocks of 3 bytes also cut the first line's end in two.
    reader = line_reader(path, start, block_bytes=3)
    with pytest.raises(LineUndecodable, match="line 55: no utf-8 text") as caught:
        read_to_end(reader)
    assert caught.value.where == str(path)
    reader.close()


def test_bytes_that_are_no_text_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"bad \xff\n")
    assert read_source(TextFileSource(tmp_path, errors="replace")) == ["bad �"]
    assert read_source(TextFileSource(tmp_path, encoding="latin-1")) == ["bad ÿ"]


def test_the_mark_before_utf8_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\n", encoding="utf-8-sig")
    assert read_source(TextFileSource(tmp_path, encoding="utf-8-sig")) == ["x", "y"]


def test_a_line_above_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 10 + b"\r\n" + b"y" * 11 + b"\n")
    assert read_source(TextFileSource(path, max_line_bytes=11)) == ["x" * 10, "y" * 11]
    for block_bytes in (1, 2, 12, 13, 64):
        reader = line_reader(path, max_line_bytes=10, block_bytes=block_bytes)
        assert reader.poll(9) == ["x" * 10]
        with pytest.raises(LineTooLong, match="more than 10 bytes; raise max_line_bytes"):
            read_to_end(reader)
        reader.close()


def test_a_file_that_became_shorter_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "a", tmp_path / "a.gz"):
        path.write_bytes(gzip.compress(b"12\n") if path.suffix else b"12\n")
        reader = TextFileSource(path).open(str(path), 9, task_context())
        with pytest.raises(PathUnusable, match="up to byte 9 before, and now has only 3"):
            reader.poll(1)


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"line\n" * 10)
    reader = line_reader(path, block_bytes=10)
    assert reader.poll(9) == ["line"] * 2
    os.truncate(path, 5)
    with pytest.raises(PathUnusable, match="had 10 bytes and has 5 now"):
        reader.poll(9)
    reader.close()
    piece = TextFileSource(path).open(FileSplit(str(path), 0, 20), None, task_context())
    with pytest.raises(PathUnusable, match="had 20 bytes and has 5 now"):
        read_to_end(piece)
    piece.close()


def test_a_damaged_packed_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"line\n" * 1000)
    damaged = [b"no gzip at all", whole[:-20], whole[:15] + b"\xff\xff" + whole[17:]]
    for number, data in enumerate(damaged):
        path = tmp_path / f"{number}.gz"
        path.write_bytes(data)
        reader = TextFileSource(path).open(str(path), None, task_context())
        with pytest.raises(PathUnusable, match=rf"{number}\.gz: cannot be read"):
            read_to_end(reader)
        reader.close()


def test_the_builder_speaks_pyflink(tmp_path: Path) -> None:
    make(tmp_path, "a", "b")
    form = StreamFormat.text_line_format()
    builder = FileSource.for_record_stream_format(form, str(tmp_path / "a"), str(tmp_path / "b"))
    source = builder.process_static_file_set().build()
    assert source.bounded
    assert read_source(source) == ["in a", "in b"]
    followed = builder.monitor_continuously(Duration.of_seconds(2)).build()
    assert not followed.bounded
    assert followed.discover_ms == 2000


def test_the_description_travels(tmp_path: Path) -> None:
    for source in (
        TextFileSource(tmp_path, encoding="latin-1", follow=True),
        CsvSource(tmp_path, type_info=PERSON, header=True, dialect=CsvDialect(null="-")),
        JsonLinesSource(tmp_path, type_info=PERSON),
    ):
        assert pickle.loads(pickle.dumps(source)) == source


def test_the_lag_of_a_file_is_what_is_left_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("line\n" * 100)
    reader = line_reader(path, 100, block_bytes=50)
    assert reader.lag() == SplitLag(bytes=400)
    assert reader.poll(3) == ["line"] * 3
    assert reader.lag() == SplitLag(bytes=385)
    while reader.poll(100) is not None:
        pass
    assert reader.lag() == SplitLag(bytes=0)
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert line_reader(packed).lag() is None
    assert line_reader(tmp_path / "gone").lag() == SplitLag(bytes=0)


# Rows.


def test_json_lines_are_values_or_rows(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'\xef\xbb\xbf{"name": "Ada", "age": 36}\r\n\n  \n[1, "x"]\n3')
    assert read_source(JsonLinesSource(tmp_path)) == [{"name": "Ada", "age": 36}, [1, "x"], 3]
    (tmp_path / "a").write_bytes(b'{"name": "Ada", "age": 36, "more": 1}\n{"name": null}\n')
    rows = read_source(JsonLinesSource(tmp_path, type_info=PERSON))
    assert rows == [Row(name="Ada", age=36), Row(name=None, age=None)]


def test_csv_without_a_type_is_texts(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'\xef\xbb\xbfname,age\nAda,"36"\n\nAlan,41\n')
    texts = [("name", "age"), ("Ada", "36"), ("Alan", "41")]
    assert read_source(CsvSource(tmp_path)) == texts
    rows = [Row(name="Ada", age="36"), Row(name="Alan", age="41")]
    assert read_source(CsvSource(tmp_path, header=True)) == rows


def test_csv_columns_are_found_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("id,age,name\n1,36,Ada\n2,,Alan\n")
    (tmp_path / "b").write_text("name,age\nGrace,-\n")
    dialect = CsvDialect(null="-")
    source = CsvSource(tmp_path, type_info=PERSON, header=True, dialect=dialect, split_bytes=9)
    assert len(source.splits(1)) > 2
    assert read_source(source) == [
        Row(name="Ada", age=36),
        Row(name="Alan", age=None),
        Row(name="Grace", age=None),
    ]
    (tmp_path / "b").write_text("first,age\nGrace,85\n")
    with pytest.raises(PathUnusable, match="b: has no column 'name', its header is first, age"):
        read_source(source)


def test_a_csv_field_may_hold_line_ends_if_the_source_says_so(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'name,age\n"Ada\r\nKing",36\n"Alan ""T""",41\n')
    spanning = CsvSource(tmp_path, type_info=PERSON, header=True, multiline=True, split_bytes=3)
    assert len(spanning.splits(1)) == 1
    expected = [Row(name="Ada\r\nKing", age=36), Row(name='Alan "T"', age=41)]
    assert read_source(spanning) == expected
    with pytest.raises(LineMalformed, match="line 2: unexpected end of data; set multiline=True"):
        read_source(CsvSource(tmp_path, type_info=PERSON, header=True))


@pytest.mark.parametrize("multiline", [False, True])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Alan", "line 3: the row has 1 fields and should have 2"),
        ("Alan,old", "line 3: column 'age': 'old' is no Types.INT()"),
        ("Alan,99999999999", "line 3: .*out of range"),
        ('"Al"an,3', "line 3: ',' expected after '\"'"),
    ],
)
def test_a_malformed_row_is_named(tmp_path: Path, line: str, words: str, multiline: bool) -> None:
    (tmp_path / "a").write_text(f"Ada,36\nGrace,85\n{line}\nKurt,71\n")
    source = CsvSource(tmp_path, type_info=PERSON, multiline=multiline)
    reader = source.open(source.splits(1)[0], None, task_context())
    assert len(reader.poll(9) or ()) == 2
    with pytest.raises(LineMalformed, match=words):
        reader.poll(9)
    reader.close()


def test_malformed_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"name": "Ada"}\n{"name": 1\n')
    with pytest.raises(LineMalformed, match=r"a, line 2: .*truncated"):
        read_source(JsonLinesSource(tmp_path))
    (tmp_path / "a").write_bytes(b'{"age": "old"}\n')
    with pytest.raises(LineMalformed, match=r"a, line 1: Expected `int \| null`.*age"):
        read_source(JsonLinesSource(tmp_path, type_info=PERSON))
