"""What the driver remembers of a job: states, failures, processes, checkpoints."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headgate.base.messages import Failure, TaskOrder
from headgate.control.life_cycle import JobState
from headgate.host.driver.checkpoint_keeper import (
    FAILURES_KEPT,
    MESSAGE_CHARS,
    TRACEBACK_CHARS,
    JobRecords,
    wall_ms,
)
from headgate.host.driver.control_server import ControlServer
from tests.host.control_rig import TIMES, Launcher, ended, replace_times, workers
from tests.host.jobs import job_of
from tests.host.recovering_kit import Job, completed
from tests.host.rig import eventually

FAILED = "operator 'map' failed: ValueError: failure {}"
BOOM = Failure("builtins.ValueError", "boom", "map", "Traceback …\n", record="7")


@pytest.fixture
def server(no_leaks: None) -> Iterator[ControlServer]:
    times = replace_times(TIMES, settle_ms=50, loss_ms=10)
    with ControlServer(times=times) as server:
        yield server


class FailsTwice:
    """Raises in the first two attempts, as soon as some checkpoints of the attempt are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def map(self, number: int) -> int:
        time.sleep(0.001)
        marks = sorted(int(mark.suffix[1:]) for mark in self.folder.glob("mark.*"))
        if len(marks) < 2:
            stored = self.folder.glob("checkpoints/*/chk-*/_metadata")
            newest = max((int(path.parent.name[4:]) for path in stored), default=0)
            if newest > sum(marks) + 3:  # no other task of the attempt comes so far
                (self.folder / f"mark.{newest}").touch()
                raise ValueError(f"failure {len(marks)}")
        return number


# The records alone.


def test_a_failure_names_its_task_process_operator_and_record() -> None:
    records = JobRecords()
    before = wall_ms()
    records.failed(BOOM, 3, TaskOrder("1.0", 1, 0, 5), "here:9")
    [record] = records.failures()
    assert before <= record.at_ms <= wall_ms()
    assert (record.attempt, record.kind, record.message) == (3, "builtins.ValueError", "boom")
    assert (record.task, record.vertex, record.subtask, record.host) == ("1.0", 1, 0, "here:9")
    assert (record.operator, record.record, record.traceback) == ("map", "7", "Traceback …")
    assert not record.restarted


def test_failures_are_marked_when_the_job_goes_on_and_the_last_one_is_not() -> None:
    records = JobRecords()
    records.failed(BOOM, 0)
    records.failed(BOOM, 0)  # the first restart could not begin
    records.attempt_begun()
    records.failed(BOOM, 1)
    assert [record.restarted for record in records.failures()] == [False, True, True]


def test_failures_are_bounded_in_number_and_length() -> None:
    records = JobRecords()
    long = Failure("E", "m" * 100_000, traceback="t" * 100_000 + "the end")
    for attempt in range(FAILURES_KEPT + 5):
        records.failed(long, attempt)
    found = records.failures()
    assert [record.attempt for record in found] == list(range(FAILURES_KEPT + 4, 4, -1))
    assert len(found[0].message) == MESSAGE_CHARS + 1
    assert len(found[0].traceback) == TRACEBACK_CHARS + 1
    assert found[0].traceback.endswith("the end")


def test_a_state_keeps_the_time_when_it_was_last_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr("headgate.host.driver.checkpoint_keeper.wall_ms", lambda: next(clock))
    records = JobRecords()
    running, restarting = JobState.RUNNING, JobState.RESTARTING
    for state in (running, running, restarting, running):
        records.reached(state)
    assert records.state_times() == {running: 2, restarting: 1}


# With real workers.


def test_a_job_that_fails_twice_shows_both_failures_and_its_checkpoints(
    server: ControlServer, tmp_path: Path
) -> None:
    lines, folder = tmp_path / "lines", tmp_path / "checkpoints"
    lines.mkdir()
    job = Job(
        server,
        job_of(lines, FailsTwice(tmp_path), count=None),
        **{"execution.checkpointing.dir": str(folder)},
    )
    with ExitStack() as opened, workers(2) as (first, second):
        opened.callback(job.close)
        run = job.begin()
        assert run.records.failures() == run.task_managers == []
        first.serve(job.contact(), 0)
        second.serve(job.contact(), 1)
        eventually(lambda: job.keeper.restarts == 2, "it has failed twice")
        before = completed(job)
        eventually(lambda: completed(job) >= before + 2, "it runs on")
        eventually(lambda: all(m.memory_bytes > 0 for m in run.task_managers), "processes report")
        pids = [worker.process.pid for worker in (first, second)]
        assert [(m.slot, m.pid) for m in run.task_managers] == list(enumerate(pids))
        newest, oldest = run.records.failures()
        assert (oldest.message, newest.message) == (FAILED.format(0), FAILED.format(1))
        assert (oldest.attempt, newest.attempt) == (0, 1)
        assert oldest.restarted and newest.restarted
        assert oldest.task == f"{oldest.vertex}.{oldest.subtask}" and oldest.vertex == 1
        assert oldest.host == f"{run.task_managers[oldest.subtask].host}:{pids[oldest.subtask]}"
        assert "in map\n" in oldest.traceback and oldest.operator and oldest.record
        assert oldest.at_ms <= newest.at_ms <= wall_ms()
        seen = job.keeper.checkpoints(run.restored_from)
        assert seen.restored_from.startswith(str(folder))
        done = [record for record in seen.records if record.status == "completed"]
        assert {part.task for part in done[0].parts} == {
            f"{v}.{s}" for v in (0, 1, 2) for s in (0, 1)
        }
        assert all(0 <= part.took_ms <= done[0].took_ms for part in done[0].parts)
        assert seen.triggered >= seen.completed >= 3
        run.cancel("enough")
        ended(run)
        first.returned()
        second.returned()
        eventually(lambda: run.task_managers == [], "the processes are gone")
    times = run.records.state_times()
    order = [JobState.RESTARTING, JobState.RUNNING, JobState.CANCELLING, JobState.CANCELLED]
    assert sorted(order, key=times.__getitem__) == order
    assert JobState.FAILED not in times


def test_a_lost_process_is_named_and_its_job_goes_on_in_another(
    server: ControlServer, tmp_path: Path
) -> None:
    lines, folder = tmp_path / "lines", tmp_path / "checkpoints"
    lines.mkdir()
    job = Job(server, job_of(lines, count=None), **{"execution.checkpointing.dir": str(folder)})
    with ExitStack() as opened, workers(3) as (first, second, third):
        opened.callback(job.close)
        run = job.begin()
        first.serve(job.contact(), 0)
        second.serve(job.contact(), 1)
        eventually(lambda: completed(job) >= 1, "a checkpoint")
        [host] = {manager.host for manager in run.task_managers}
        second.signal(signal.SIGKILL)
        assert ended(run).restart_in_ms is not None
        first.returned()
        [lost] = run.records.failures()
        assert lost.kind == "headgate.base.errors.TaskManagerLost"
        assert lost.host == f"{host}:{second.process.pid}"
        assert (lost.task, lost.vertex, lost.restarted) == ("", -1, False)
        assert JobState.RESTARTING in run.records.state_times()
        assert JobState.FAILED not in run.records.state_times()
        again = job.begin("1")
        assert [failure.restarted for failure in again.records.failures()] == [True]
        assert again.task_managers == []
        first.serve(job.contact("1"), 0)
        third.serve(job.contact("1"), 1)
        eventually(lambda: again.state is JobState.RUNNING, "it runs again")
        again.cancel("enough")
        ended(again)
        first.returned()
        third.returned()


def test_a_task_manager_that_cannot_start_is_a_failure_of_the_attempt(
    server: ControlServer, tmp_path: Path
) -> None:
    class Unloadable:
        def __reduce__(self) -> tuple[object, ...]:
            return os.listdir, (str(tmp_path / "nothing here"),)

        def map(self, number: int) -> int:
            return number

    run, contact = Launcher(server).begin(job_of(tmp_path, Unloadable(), parallelism=1))
    with workers(1) as (worker,):
        worker.serve(contact, 0)
        outcome = ended(run)
        worker.report()
    [record] = run.records.failures()
    assert outcome.failure is not None
    assert record.message == outcome.failure.message
    assert "nothing here" in record.message
    assert not record.restarted
    assert run.records.state_times()[JobState.FAILED] >= record.at_ms
