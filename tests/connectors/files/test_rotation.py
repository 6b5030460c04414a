"""Files that are renamed at the worst moments: while they are listed, looked into or opened.

A format, a source and a folder of the tests rename them there; all else is the real thing.
"""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from headgate.connectors.files import file_access, splits
from headgate.connectors.files.enumerator import FileEnumerator
from headgate.connectors.files.file_access import ListedFile
from headgate.connectors.files.source import TextFileSource
from headgate.connectors.formats.lines import LineParser, TextFormat
from tests.connectors.files_kit import read_splits


class Moment:
    """Something that happens once, when it is armed and its time has come."""

    def __init__(self) -> None:
        self.armed: Callable[[], None] | None = None

    def comes(self) -> None:
        armed, self.armed = self.armed, None
        if armed is not None:
            armed()


class LookedInto(TextFileSource):
    """Its files are renamed when they were listed and are looked into."""

    moment = Moment()

    @property
    def by_lines(self) -> bool:
        self.moment.comes()
        return True


@dataclass(frozen=True)
class Opened(TextFormat):
    """The file of a split is renamed when it was found and is to be opened."""

    moment: Moment | None = None

    def parser(self, header: bytes, where: str) -> LineParser:
        if self.moment is not None:
            self.moment.comes()
        return super().parser(header, where)


def rotate(log: Path, text: str) -> None:
    """``app.log.1`` becomes ``app.log.2`` if it is there."""
    first = log.with_name("app.log.1")
    if first.exists():
        first.rename(log.with_name("app.log.2"))
    log.rename(first)
    log.write_text(text)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_file_that_is_rotated_after_it_was_listed_is_read_once(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("1\n2\n")
    source = LookedInto(tmp_path, follow=True)
    enumerator = FileEnumerator(source)
    assert read_splits(source, enumerator.discover()) == ["1", "2"]
    append(log, "3\n")
    source.moment.armed = lambda: rotate(log, "4\n5\n")
    found: list[Any] = []
    for _ in range(3):
        found += read_splits(source, enumerator.discover())
    assert sorted(found) == ["3", "4", "5"]


def test_a_file_that_is_removed_after_it_was_listed_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("1\n")
    (tmp_path / "other").write_text("2\n")
    source = LookedInto(tmp_path, follow=True)
    source.moment.armed = log.unlink
    assert read_splits(source, FileEnumerator(source).discover()) == ["2"]


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_file_that_is_listed_under_its_old_and_its_new_name_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    log = tmp_path / "app.log"
    log.write_text("1\n2\n")
    (tmp_path / "app.log.1").write_text("0\n")
    source = TextFileSource(tmp_path, follow=True)
    enumerator = FileEnumerator(source)
    assert sorted(read_splits(source, enumerator.discover())) == ["0", "1", "2"]
    moment, look = Moment(), file_access.local_file

    def looked_at(path: str) -> ListedFile | None:
        file = look(path)
        if os.path.basename(path) == "app.log":
            moment.comes()
        return file

    def rename() -> None:
        if not is_kept:
            (tmp_path / "app.log.1").unlink()
        rotate(log, "3\n4\n5\n")

    monkeypatch.setattr(file_access, "local_file", looked_at)
    moment.armed = rename
    found: list[Any] = []
    for _ in range(3):
        found += read_splits(source, enumerator.discover())
    assert sorted(found) == ["3", "4", "5"]


def test_a_file_that_is_rotated_while_its_split_is_opened_is_read_and_not_its_successor(
    tmp_path: Path,
) -> None:
    log = tmp_path / "app.log"
    log.write_text("1\n2\n")
    source = TextFileSource(tmp_path, follow=True)
    moment = Moment()
    source.form = Opened(moment=moment)
    found = FileEnumerator(source).discover()
    moment.armed = lambda: rotate(log, "8\n9\n")
    assert read_splits(source, found) == ["1", "2"]
    moment.armed = lambda: log.with_name("app.log.1").rename(log.with_name("app.log.2"))
    assert read_splits(source, found) == ["1", "2"], "it has left both names"


def test_a_folder_is_listed_only_for_files_that_were_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "app.log"
    log.write_text("1\n")
    source = TextFileSource(tmp_path, follow=True)
    found = FileEnumerator(source).discover()
    listed: list[str] = []
    inodes_in = splits.inodes_in
    monkeypatch.setattr(
        splits, "inodes_in", lambda folder: listed.append(folder) or inodes_in(folder)
    )
    assert read_splits(source, found) == ["1"]
    assert not listed
    rotate(log, "2\n")
    assert read_splits(source, found) == ["1"]
    assert listed


def test_files_are_read_where_inodes_change_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "app.log"
    log.write_text("1\n2\n")
    inodes, look = itertools.count(1), file_access.local_file

    def looked_at(path: str) -> ListedFile | None:
        file = look(path)
        return None if file is None else replace(file, inode=(1, next(inodes)))

    monkeypatch.setattr(file_access, "local_file", looked_at)
    source = TextFileSource(tmp_path, follow=True)
    enumerator = FileEnumerator(source)
    assert read_splits(source, enumerator.discover()) == ["1", "2"]
    append(log, "3\n")
    assert read_splits(source, enumerator.discover()) == ["3"]
    assert read_splits(source, enumerator.discover()) == []
