"""State of tasks in other processes is read while they run; none of it harms the job."""

import signal
from pathlib import Path

import pytest

from headgate.base.errors import StateUnreadable
from headgate.base.messages import StateLineOpened
from headgate.control.life_cycle import JobState
from headgate.host.driver.state_reads import StateRead, shown_state
from tests.host.control_rig import Launcher, ended, serving, workers
from tests.host.reading_kit import KEYS, Halt, ReadJob, Shape, counted_job
from tests.host.rig import eventually

PATIENCE_S = 60.0


def read(job: ReadJob, state: str, *keys: object) -> list[object]:
    return StateRead(job, "counts", state, keys, PATIENCE_S).result()


def test_every_kind_of_state_is_read_from_the_task_that_has_the_key(launcher: Launcher) -> None:
    graph = counted_job(count=100)
    run, contact = launcher.begin(graph)
    job = ReadJob(graph, run)
    early = StateRead(job, "counts", "count", [1], PATIENCE_S)
    with serving(contact) as (first, second):
        assert early.result() is not None, "it waits for the job to start"
        keys = range(KEYS)
        eventually(lambda: read(job, "count", *keys) == [10] * KEYS, "all records counted")
        eventually(lambda: len(run._lines) == 2, "a line to each task manager")
        assert read(job, "last", 3, "3") == [[73, 83, 93], []]
        assert read(job, "tens", 4, 44) == [{f"{n}": 10 * n + 4 for n in range(10)}, {}]
        assert read(job, "sum", 5, 55) == [5 * 10 + 450, None]
        assert read(job, "mean", 6, 66) == [51.0, None]
        assert read(job, "shape", 7) == [Shape(97)]
        assert read(job, "never", 1) == [None]
        (shown,) = shown_state(job, "counts", "last", ["3"]).values
        assert (shown.key, shown.found, shown.value) == (3, True, [73, 83, 93])
        (shown,) = shown_state(job, "counts", "shape", ["3"]).values
        assert (shown.value, shown.text) == (None, "Shape 93")
        with pytest.raises(StateUnreadable, match=r"no state 'x'; it has 'count' \(value\)"):
            read(job, "x", 1)
        with pytest.raises(StateUnreadable, match="'sink' .*: it keeps no state by key"):
            StateRead(job, "sink", "x", [1], 5).result()
        run.cancel("enough")
        assert ended(run).state is JobState.CANCELLED
        with pytest.raises(StateUnreadable, match="cannot be read: task 1.[01]: .*cancelled"):
            read(job, "count", 1)
        first.returned()
        second.returned()


def test_a_task_that_is_busy_with_a_record_answers_when_that_is_through(
    launcher: Launcher, tmp_path: Path
) -> None:
    graph = counted_job(count=100, parallelism=1, function=Halt(tmp_path))
    run, contact = launcher.begin(graph)
    job = ReadJob(graph, run)
    with workers(1) as (worker,):
        worker.serve(contact, 0)
        eventually((tmp_path / "halted").exists, "the function halts")
        with pytest.raises(
            StateUnreadable, match="in a function of the user's most likely"
        ) as busy:
            StateRead(job, "counts", "count", [1], 0.5).result()
        assert busy.value.is_passing
        eventually(lambda: len(run._lines) == 1, "a line to the task manager")
        line, process = run._lines[0], run._processes[0]
        opened = StateLineOpened(run.key.stage, 0, process.pid, process.host)
        reads = [StateRead(job, "counts", "count", [1], PATIENCE_S)]
        assert not reads[0].done()
        assert run.line_opened(opened, line), "as a task manager whose older line has broken"
        assert reads[0].done(), "it is asked again"
        reads.append(StateRead(job, "counts", "count", [1], PATIENCE_S))
        line.hang_up("it was cut")
        eventually(reads[1].done, "the driver notices")
        (tmp_path / "go").touch()
        eventually(lambda: read(job, "count", 1) == [10], "the function goes on")
        assert [len(asked.result()) for asked in reads] == [1, 1], "over the control connection"
        run.cancel("enough")
        ended(run)
        worker.returned()


def test_what_was_asked_of_a_process_that_dies_is_answered(launcher: Launcher) -> None:
    graph = counted_job(parallelism=1)
    run, contact = launcher.begin(graph)
    job = ReadJob(graph, run)
    with workers(1) as (worker,):
        worker.serve(contact, 0)
        eventually(lambda: read(job, "count", 1) == [10], "all counted")
        eventually(lambda: len(run._lines) == 1, "a line to the task manager")
        worker.signal(signal.SIGSTOP)
        asked = StateRead(job, "counts", "count", [1], PATIENCE_S)
        worker.signal(signal.SIGKILL)
        assert ended(run).state is JobState.FAILED
        with pytest.raises(StateUnreadable, match=r"cannot be read: task 1\.0: ") as lost:
            asked.result()
        assert lost.value.is_passing
