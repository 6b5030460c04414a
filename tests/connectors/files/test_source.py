"""Files of lines: what is found, how it is cut, where a new reader goes on, what is refused."""

import gzip
import os
import pickle
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import LineTooLong, LineUndecodable, PathUnusable, PlanInvalid
from headgate.connectors.files.source import (
    FileSource,
    StreamFormat,
    TextFileSource,
    TextFormat,
    TextLineReader,
)
from headgate.functions.source import SplitLag
from tests.connectors.kit import open_files, read_some, read_to_end, task_context


def read(source: TextFileSource) -> list[str]:
    lines: list[str] = []
    for split in source.splits(2):
        reader = source.open(split, None, task_context())
        lines += read_to_end(reader)
        reader.close()
    return lines


def names(source: TextFileSource) -> list[str]:
    return [os.path.basename(split) for split in source.splits(1)]


def make(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"in {path}\n")


def test_lines_come_without_their_ends(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("one\ntwo\r\nthree\rvier ü\n\n\x0b\x1c\u2028\nlast".encode())
    expected = ["one", "two", "three", "vier ü", "", "\x0b\x1c\u2028", "last"]
    assert read(TextFileSource(path)) == expected


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert read(TextFileSource(tmp_path / "empty")) == []


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "log.gz", "wb") as file:
        file.write(b"one\ntwo\n")
    assert read(TextFileSource(tmp_path)) == ["one", "two"]


def test_a_folder_is_read_in_order_with_all_below_it_but_what_is_hidden(tmp_path: Path) -> None:
    make(tmp_path, "b", "a", "c/d", "c/.e", "_f", ".g", "_h/i")
    source = TextFileSource(tmp_path)
    assert names(source) == ["a", "b", "d"]
    assert read(source) == ["in a", "in b", "in c/d"]


def test_a_hidden_file_is_read_if_it_is_named(tmp_path: Path) -> None:
    make(tmp_path, "_f")
    assert read(TextFileSource(tmp_path / "_f")) == ["in _f"]


def test_patterns_are_sorted_and_no_file_is_read_twice(tmp_path: Path) -> None:
    make(tmp_path, "x2.txt", "x1.txt", "_x3.txt", "x4.log", "deep/x5.txt")
    assert names(TextFileSource(tmp_path / "*.txt", tmp_path / "x1.txt")) == ["x1.txt", "x2.txt"]
    assert names(TextFileSource(tmp_path / "**" / "*5.txt")) == ["x5.txt"]


def test_a_name_that_looks_like_a_pattern_is_found(tmp_path: Path) -> None:
    make(tmp_path, "day[1].txt")
    assert names(TextFileSource(tmp_path / "day[1].txt")) == ["day[1].txt"]


def test_a_link_that_leads_back_up_is_not_followed_for_ever(tmp_path: Path) -> None:
    make(tmp_path, "a/b")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    assert names(TextFileSource(tmp_path)) == ["b"]


def test_an_empty_folder_is_no_split(tmp_path: Path) -> None:
    assert TextFileSource(tmp_path).splits(3) == []


def test_addresses_of_local_files_are_paths(tmp_path: Path) -> None:
    make(tmp_path, "a")
    assert read(TextFileSource(f"file://{tmp_path}/a")) == ["in a"]


def test_a_missing_path_is_named_when_the_job_starts(tmp_path: Path) -> None:
    for path in (tmp_path / "no", tmp_path / "*.txt"):
        with pytest.raises(PathUnusable, match=f"{re.escape(str(path))}: does not exist"):
            TextFileSource(path).splits(1)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PathUnusable, match="neither a file nor a folder"):
        TextFileSource(tmp_path / "pipe").splits(1)


def test_a_file_that_this_worker_does_not_see_is_named(tmp_path: Path) -> None:
    reader = TextFileSource("x").open(str(tmp_path / "gone"), None, task_context())
    with pytest.raises(PathUnusable, match="gone: cannot be read here.*every worker"):
        reader.poll(1)


def test_many_readers_hold_no_file_before_they_are_read(tmp_path: Path) -> None:
    make(tmp_path, *(f"{number}" for number in range(50)))
    source = TextFileSource(tmp_path)
    before = open_files()
    readers = [source.open(split, None, task_context()) for split in source.splits(1)]
    for reader in readers:
        assert len(read_to_end(reader)) == 1
        assert open_files() == before
    for reader in readers:
        reader.close()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: TextFileSource(), "at least one"),
        (lambda: TextFileSource("s3://bucket/a"), "no local file system"),
        (lambda: TextFileSource("a", encoding="utf-99"), "unknown encoding"),
        (lambda: TextFileSource("a", encoding="utf-16"), "convert the text to UTF-8"),
        (lambda: TextFileSource("a", max_line_bytes=0), "max_line_bytes is 0"),
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
    reader = TextLineReader(str(path), start, TextFormat(), block_bytes=3)
    with pytest.raises(LineUndecodable, match="line 55: no utf-8 text") as caught:
        read_to_end(reader)
    assert caught.value.where == str(path)
    reader.close()


def test_bytes_that_are_no_text_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"bad \xff\n")
    assert read(TextFileSource(tmp_path, errors="replace")) == ["bad �"]
    assert read(TextFileSource(tmp_path, encoding="latin-1")) == ["bad ÿ"]


def test_the_mark_before_utf8_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\n", encoding="utf-8-sig")
    assert read(TextFileSource(tmp_path, encoding="utf-8-sig")) == ["x", "y"]


def test_a_line_above_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 10 + b"\r\n" + b"y" * 11 + b"\n")
    assert read(TextFileSource(path, max_line_bytes=11)) == ["x" * 10, "y" * 11]
    for block_bytes in (1, 2, 12, 13, 64):
        form = TextFormat(max_line_bytes=10)
        reader = TextLineReader(str(path), None, form, block_bytes=block_bytes)
        with pytest.raises(LineTooLong, match="more than 10 bytes; raise max_line_bytes"):
            read_to_end(reader)
        reader.close()


def test_a_file_that_became_shorter_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "a", tmp_path / "a.gz"):
        path.write_bytes(gzip.compress(b"12\n") if path.suffix else b"12\n")
        reader = TextFileSource(path).open(str(path), 9, task_context())
        with pytest.raises(PathUnusable, match="up to byte 9 before, and now has only 3"):
            reader.poll(1)


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
    assert read(source) == ["in a", "in b"]


def test_the_description_travels(tmp_path: Path) -> None:
    source = TextFileSource(tmp_path, encoding="latin-1")
    assert pickle.loads(pickle.dumps(source)) == source


@given(
    text=st.text(alphabet="a\n\ré\x0b", min_size=20, max_size=60),
    block_bytes=st.integers(1, 9),
    limits=st.lists(st.integers(1, 5), min_size=1, max_size=9),
    packed=st.booleans(),
)
def test_nothing_is_lost_or_repeated_from_any_position(
    text: str, block_bytes: int, limits: list[int], packed: bool
) -> None:
    data = text.encode()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "text.gz" if packed else "text")
        Path(path).write_bytes(gzip.compress(data) if packed else data)
        lines: list[str] = []
        reader = TextLineReader(path, None, TextFormat(), block_bytes)
        for limit in limits:
            lines += read_some(reader, limit) or []
            position = pickle.loads(pickle.dumps(reader.position()))
            if limit % 2:
                reader.close()
                reader = TextLineReader(path, position, TextFormat(), block_bytes)
        lines += read_to_end(reader)
        assert reader.position() == len(data)
        reader.close()
    assert lines == [line.decode() for line in data.splitlines()]


def test_the_lag_of_a_file_is_what_is_left_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("line\n" * 100)
    reader = TextLineReader(str(path), 100, TextFormat(), 50)
    assert reader.lag() == SplitLag(bytes=400)
    assert reader.poll(3) == ["line"] * 3
    assert reader.lag() == SplitLag(bytes=385)
    while reader.poll(100) is not None:
        pass
    assert reader.lag() == SplitLag(bytes=0)
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert TextLineReader(str(packed), None, TextFormat()).lag() is None
    with pytest.raises(FileNotFoundError):
        TextLineReader(str(tmp_path / "gone"), None, TextFormat()).lag()
