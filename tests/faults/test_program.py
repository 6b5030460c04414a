"""The check itself, which names what is lost or came twice; and which runs there are."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.conftest import ALONE, FAULTS, SINKS, part
from tests.faults.program import (
    BACKENDS,
    KEYS,
    MODES,
    NUMBERS,
    Place,
    Trial,
    check,
    expected_windows,
)

FILES = Trial("aligned", "hashmap", "files", 7)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A run without faults has left this."""
    write(tmp_path, "counts", [(n % KEYS, n // KEYS + 1, n) for n in range(NUMBERS)])
    write(tmp_path, "windows", expected_windows())
    return Place(str(tmp_path))


def write(folder: Path, name: str, records: list[tuple[int, ...]], part: int = 0) -> None:
    (folder / name).mkdir(exist_ok=True)
    path = folder / name / f"part-0-{part}.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def test_what_is_right_is_taken(place: Place) -> None:
    check(FILES, place)


def test_a_record_that_came_twice_is_named_with_the_seed(place: Place) -> None:
    write(Path(place.folder), "counts", [(5, 1001, 45)], part=1)
    with pytest.raises(AssertionError, match="seed=7") as caught:
        check(FILES, place)
    assert "numbers: 1 too many, such as [45]" in str(caught.value)
    assert "counts of keys: 1 too many, such as [(5, 1001)]" in str(caught.value)


def test_a_part_that_was_lost_is_named(place: Place) -> None:
    Path(place.folder, "windows", "part-0-0.jsonl").unlink()
    with pytest.raises(AssertionError, match=r"windows: 1600 lost, such as \[\(0, 0, 25, 12000\)"):
        check(FILES, place)


def test_what_was_not_committed_does_not_count(place: Place) -> None:
    Path(place.folder, "counts", ".part-0-9.jsonl.inprogress").write_text("[1, 2, 3]\n")
    check(FILES, place)


def test_the_rows_of_a_database_are_checked_in_the_same_way(place: Place) -> None:
    trial = Trial("aligned", "hashmap", "sqlite")
    with closing(sqlite3.connect(place.database)) as database, database:
        database.execute("CREATE TABLE windows (key INT, start INT, count INT, sum INT)")
        database.executemany("INSERT INTO windows VALUES (?, ?, ?, ?)", expected_windows()[1:])
    with pytest.raises(AssertionError, match="windows: 1 lost, such as"):
        check(trial, place)


def test_the_part_that_all_tests_run_has_every_pair_but_some_of_fault_and_mode() -> None:
    runs = {fault: part(fault, 1) for fault in FAULTS if fault not in ALONE}
    trials = [trial for found in runs.values() for trial in found]
    for found in runs.values():
        assert {trial.backend for trial in found} == set(BACKENDS)
        assert {trial.sink for trial in found} == set(SINKS)
        assert len({trial.mode for trial in found}) == 2
    for mode in MODES:
        own = [trial for trial in trials if trial.mode == mode]
        assert {trial.backend for trial in own} == set(BACKENDS)
        assert {trial.sink for trial in own} == set(SINKS)
