"""Files that are followed: what is new is found once, whatever happens to the files' names."""

import gzip
import logging
import os
import pickle
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import FileGone, LineTooLong, PathUnusable, StateBroken
from headgate.base.messages import SplitsAssigned
from headgate.connectors.files.enumerator import FileEnumerator, FilesPosition, KnownFile
from headgate.connectors.files.source import CsvSource, FilesSource, TextFileSource
from headgate.core.chain.operator import PollResult
from headgate.core.operators.source import SourceOperator
from headgate.core.operators.split_discovery import pickled_splits
from tests.connectors.files_kit import read_splits
from tests.connectors.kit import read_to_end, task_context
from tests.core.chain.kit import context, open_operator
from tests.core.chain.restore_kit import StoredState, restored, stored_state


class Follower:
    """A source that is followed by hand, with a restart whenever the test wants one."""

    def __init__(self, source: FilesSource) -> None:
        self.source = source
        self.enumerator = source.create_enumerator(1, None)

    def look(self) -> list[Any]:
        """The records of what is new."""
        return read_splits(self.source, self.enumerator.discover())

    def restart(self) -> None:
        position = pickle.loads(pickle.dumps(self.enumerator.position()))
        self.enumerator = self.source.create_enumerator(1, position)

    @property
    def known(self) -> list[str]:
        return [os.path.basename(path) for path in self.files]

    @property
    def files(self) -> dict[str, KnownFile]:
        position = self.enumerator.position()
        assert isinstance(position, FilesPosition)
        return position.files


def follow(*paths: Path, **settings: Any) -> Follower:
    return Follower(TextFileSource(*paths, follow=True, **settings))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.fixture(params=[False, True], ids=["goes on", "restarts"])
def restarts(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_folder_that_is_empty_for_a_while_is_not_read_again(
    tmp_path: Path, restarts: bool
) -> None:
    folder, away = tmp_path / "mount", tmp_path / "away"
    (folder / "deep").mkdir(parents=True)
    (folder / "a").write_text("1\n")
    (folder / "deep" / "b").write_text("2\n")
    follower = follow(folder)
    assert follower.look() == ["1", "2"]
    folder.rename(away)
    folder.mkdir()
    assert follower.look() == []
    if restarts:
        follower.restart()
    assert follower.look() == []
    folder.rmdir()
    away.rename(folder)
    append(folder / "a", "3\n")
    assert follower.look() == ["3"]
    (folder / "a").unlink()
    follower.look()
    assert follower.known == ["b"], "a file that is gone from a folder with others is forgotten"


def test_positions_of_earlier_releases_are_read() -> None:
    position = FilesPosition({"/logs/a": KnownFile(1, 2, 3, (4, 5), b"6")}, frozenset({"/logs"}))
    earlier = FilesPosition.__new__(FilesPosition)
    earlier.__setstate__([position.files, position.folders])  # type: ignore[attr-defined]
    assert earlier == position == pickle.loads(pickle.dumps(position))


def test_new_files_and_appended_lines_are_found_once(tmp_path: Path, restarts: bool) -> None:
    (tmp_path / "a").write_text("1\n2\nhal")
    follower = follow(tmp_path)
    assert follower.enumerator.interval_ms == 1000
    assert follower.look() == ["1", "2"]
    if restarts:
        follower.restart()
    assert follower.look() == []
    append(tmp_path / "a", "f\n3\n")
    (tmp_path / "b").write_text("4\n")
    assert follower.look() == ["half", "3", "4"]
    if restarts:
        follower.restart()
    append(tmp_path / "b", "5\n6")
    assert follower.look() == ["5"]


def test_a_source_that_does_not_follow_finds_all_at_once_and_after_a_restart_what_is_new(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_text("1\n")
    follower = Follower(TextFileSource(tmp_path))
    assert follower.enumerator.interval_ms is None
    assert follower.look() == ["1"]
    follower.restart()
    append(tmp_path / "a", "2\n")
    (tmp_path / "b").write_text("3\n")
    assert follower.look() == ["3"]


def test_a_checkpoint_fits_the_way_of_reading_that_it_was_taken_in(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    for follows in (False, True):
        source = TextFileSource(tmp_path, follow=follows)
        finder = source.create_enumerator(1, None)
        finder.discover()
        other = TextFileSource(tmp_path, follow=not follows)
        with pytest.raises(StateBroken, match="another value of follow"):
            other.create_enumerator(1, finder.position())
        with pytest.raises(StateBroken, match="another kind of source"):
            source.create_enumerator(1, ("kafka", 7))


@pytest.mark.parametrize("pattern", ["", "*.txt", "a.txt"])
def test_files_that_are_gone_when_a_bounded_job_goes_on_are_no_error(
    tmp_path: Path, pattern: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("1\n")
    source = TextFileSource(folder / pattern)
    finder = source.create_enumerator(1, None)
    assert read_splits(source, finder.discover()) == ["1"]
    (folder / "a.txt").unlink()
    folder.rmdir()
    assert source.create_enumerator(1, finder.position()).discover() == []


def test_a_large_file_is_handed_out_in_pieces(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(100)]
    (tmp_path / "a").write_text("\n".join(lines) + "\nrest")
    follower = follow(tmp_path, split_bytes=50)
    splits = follower.enumerator.discover()
    assert len(splits) > 10
    assert read_splits(follower.source, splits) == lines


@pytest.mark.parametrize("pattern", ["*", "app.log"])
def test_a_rotated_log_is_not_read_twice_and_its_last_lines_are_not_lost(
    tmp_path: Path, pattern: str, restarts: bool
) -> None:
    log = tmp_path / "app.log"
    log.write_text("1\n2\n")
    follower = follow(tmp_path / pattern)
    assert follower.look() == ["1", "2"]
    append(log, "3\n")
    log.rename(tmp_path / "app.log.1")
    log.write_text("4\n")
    if restarts:
        follower.restart()
    assert sorted(follower.look()) == ["3", "4"]
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    log.rename(tmp_path / "app.log.1")
    if restarts:
        follower.restart()
    assert follower.look() == []
    append(tmp_path / "app.log.2", "5\n")
    append(tmp_path / "app.log.1", "6\n")
    log.write_text("7\n")
    assert sorted(follower.look()) == ["5", "6", "7"]


def test_a_file_that_takes_the_place_of_another_is_read_from_its_beginning(
    tmp_path: Path, restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a"
    path.write_text("old 1\nold 2\n")
    follower = follow(tmp_path)
    assert len(follower.look()) == 2
    if restarts:
        follower.restart()
    path.write_text("new 1\n")  # cut and written anew: the inode stays
    with caplog.at_level(logging.WARNING):
        assert follower.look() == ["new 1"]
    assert "was cut or replaced; it is read from its beginning" in caplog.text
    other = tmp_path / ".other"
    other.write_text("newer 1\nnewer 2\nnewer 3\n")
    other.rename(path)  # put in its place: another inode
    assert follower.look() == ["newer 1", "newer 2", "newer 3"]


def test_an_inode_that_is_used_again_is_another_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    follower = follow(tmp_path)
    follower.look()
    (known,) = follower.files.values()
    assert known.inode is not None
    (tmp_path / "a").unlink()
    for number in range(1000):  # most file systems give the number to one of the next files
        path = tmp_path / f"b{number}"
        path.write_text("3\n4\n5\n")
        if path.stat().st_ino == known.inode[1]:
            break
    found = follower.look()
    assert found == ["3", "4", "5"] * (number + 1)


def test_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("1\n")
    follower = follow(tmp_path)
    follower.look()
    (tmp_path / "b").unlink()
    follower.look()
    assert follower.known == ["a", "c"]


def test_a_piece_is_found_after_its_file_was_renamed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1\n2\n")
    follower = follow(tmp_path)
    splits = follower.enumerator.discover()
    path.rename(tmp_path / "b")
    path.write_text("other\n")
    assert read_splits(follower.source, splits) == ["1", "2"]


@pytest.mark.parametrize("skip_missing", [False, True])
@pytest.mark.parametrize("what", ["is gone", "was cut or replaced"])
def test_a_file_that_vanishes_before_it_is_read_is_named(
    tmp_path: Path, what: str, skip_missing: bool
) -> None:
    path = tmp_path / "a"
    path.write_text("1\n2\n")
    follower = follow(tmp_path, skip_missing=skip_missing)
    (split,) = follower.enumerator.discover()
    path.unlink()
    if what != "is gone":
        path.write_text("3\n4\n5\n")
    reader = follower.source.open(split, None, task_context())
    if skip_missing:
        assert read_to_end(reader) == []
    else:
        with pytest.raises(FileGone, match=f"a: {what} before its bytes 0 to 4 were read; keep"):
            reader.poll(1)
    reader.close()


def test_packed_files_are_read_when_they_are_finished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.gz"
    packed = gzip.compress(b"1\n2\n")
    path.write_bytes(packed[:5])
    follower = follow(tmp_path)
    assert follower.look() == []
    path.write_bytes(packed)
    os.utime(path, ns=(1, 1))
    assert follower.look() == []
    assert follower.look() == ["1", "2"]
    with path.open("ab") as file:
        file.write(packed)
    with caplog.at_level(logging.WARNING):
        assert follower.look() == follower.look() == []
    assert "has grown after it was read as a whole" in caplog.text


def test_rows_that_span_lines_are_read_with_their_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('"1\n2",3\n')
    follower = Follower(CsvSource(tmp_path, multiline=True, follow=True))
    assert follower.look() == []
    assert follower.look() == [("1\n2", "3")]
    assert follower.look() == []


def test_a_folder_that_vanishes_is_named_and_read_again_when_it_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a").write_text("1\n")
    follower = follow(folder)
    assert follower.look() == ["1"]
    folder.rename(tmp_path / "away")
    with pytest.raises(PathUnusable, match="logs: does not exist"):
        follower.look()
    (tmp_path / "away").rename(folder)
    append(folder / "a", "2\n")
    assert follower.look() == ["2"]


def test_a_pattern_may_match_nothing_yet_but_its_folder_must_be_there(tmp_path: Path) -> None:
    follower = follow(tmp_path / "*.log")
    assert follower.look() == []
    (tmp_path / "a.log").write_text("1\n")
    assert follower.look() == ["1"]
    for path in (tmp_path / "none" / "*.log", tmp_path / "none.log"):
        with pytest.raises(PathUnusable, match="does not exist"):
            follow(path).look()


def test_a_file_that_may_not_be_read_fails_the_start_and_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: FileEnumerator, file: Any, start: int) -> int:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a").write_text("1\n")
    follower = follow(tmp_path)
    with monkeypatch.context() as patch:  # tests may run as a user who may read all
        patch.setattr(FileEnumerator, "_last_line_end", refuse)
        with pytest.raises(PathUnusable, match="a: cannot be read: Permission denied"):
            follow(tmp_path).look()
    assert follower.look() == ["1"]
    append(tmp_path / "a", "2\n")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(FileEnumerator, "_last_line_end", refuse)
        assert follower.look() == follower.look() == []
    assert caplog.text.count("cannot be read: Permission denied; it is tried again") == 1
    assert follower.look() == ["2"]


def test_a_line_that_is_too_long_is_left_to_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1\n")
    follower = follow(tmp_path, max_line_bytes=50)
    assert follower.look() == ["1"]
    append(path, "x" * 100_000)  # it would be waited for without an end
    with pytest.raises(LineTooLong, match="more than 50 bytes"):
        follower.look()
    append(path, "x\n2\n")
    assert follower.look() == ["2"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "rotate", "create", "look", "look", "restart"]),
            st.text(alphabet="a\n", max_size=6),
        ),
        max_size=25,
    )
)
def test_whatever_is_appended_and_rotated_each_line_comes_once(
    steps: list[tuple[str, str]],
) -> None:
    number = 0
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.write_text("begin\n")
        follower = follow(Path(folder), split_bytes=16)
        written, found = ["begin"], follower.look()
        rest = ""
        for step, text in steps:
            number += 1
            if step == "append":
                marked = text.replace("a", f"<{number}>")
                append(log, marked)
                *lines, rest = (rest + marked).split("\n")
                written += lines
            elif step == "rotate":
                log.rename(Path(folder) / f"log.{number}")
                log.write_text("")
                rest = ""
            elif step == "create":
                (Path(folder) / f"new {number}").write_text(f"{number}\n")
                written.append(f"{number}")
            elif step == "restart":
                follower.restart()
            else:
                found += follower.look()
        found += follower.look()
    assert sorted(found) == sorted(written)


# Checkpoints of releases that listed the files of a job at its start, each as one split.


def listed_before(folder: Path, read: int) -> list[StoredState]:
    """The state of a task that has read so many lines of the files, one after the other."""
    source = TextFileSource(folder, split_bytes=None)
    operator = SourceOperator(source, tuple(source.splits(1)))
    output = open_operator(operator)
    for _ in range(read):
        operator.poll(1)
    assert len(output.records) == read
    states = [stored_state(operator)]
    operator.close()
    return states


def go_on(source: FilesSource, states: list[StoredState]) -> list[Any]:
    operator = SourceOperator(source, (), assigned=True)
    within = replace(context(), restored=restored(states, 0, 1))
    output = open_operator(operator, within=within)
    try:
        found = source.create_enumerator(1, None).discover()
        operator.obey(SplitsAssigned("run", "task", tuple(pickled_splits(found)), False, True))
        for _ in range(10_000):
            if operator.poll(7) is PollResult.ENDED:
                return output.records
        raise AssertionError("no end")
    finally:
        operator.close()


@pytest.mark.parametrize("read", [10, 50, 75])
def test_files_that_an_earlier_release_has_read_are_not_cut_and_read_again(
    tmp_path: Path, read: int
) -> None:
    lines = [f"line {number:02}" for number in range(80)]
    (tmp_path / "a").write_text("".join(f"{line}\n" for line in lines[:40]))
    (tmp_path / "b").write_text("".join(f"{line}\n" for line in lines[40:]))
    states = listed_before(tmp_path, read)
    (tmp_path / "c").write_text("new 1\nnew 2\n")
    found = go_on(TextFileSource(tmp_path, split_bytes=50), states)
    assert sorted(found) == sorted([*lines[read:], "new 1", "new 2"])
    with pytest.raises(StateBroken, match="another value of follow"):
        go_on(TextFileSource(tmp_path, follow=True), states)
