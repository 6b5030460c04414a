"""Splits that are found while a job runs: handed out, checkpointed, restored; bad enumerators."""

from pathlib import Path

import pytest

from headgate.control.life_cycle import JobState
from tests.host.control_rig import ended
from tests.host.discovery_kit import Shelf, lines_in, notes, put, shelf_job, shelf_jobs
from tests.host.rig import eventually


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    made = tmp_path / "shelf"
    made.mkdir()
    return made


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_splits_that_appear_while_the_job_runs_are_read(shelf: Path, out: Path) -> None:
    there = put(shelf, "a", "b", "c")
    with shelf_jobs(shelf_job(Shelf(shelf), out), shelf.parent) as job:
        run = job.begin()
        eventually(lambda: len(lines_in(out)) == len(there), "what was there is read")
        there += put(shelf, "d", "e", "f", "g")
        eventually(lambda: len(lines_in(out)) == len(there), "what has come is read")
        there += put(shelf, "h")
        (shelf.parent / "end").touch()
        assert ended(run).state is JobState.FINISHED
    assert sorted(there) == lines_in(out)
    assert notes(shelf).count("closed") == 2  # the one that was asked for at planning, too
