"""Runs that take checkpoints and begin anew: the driver's real port and storage, task managers by
hand, and some real ones in processes.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from headgate.base.checkpoints import CheckpointFigures, Stop
from headgate.base.checkpoints import SubtaskState as WrittenState
from headgate.base.elements import Record
from headgate.base.errors import HeadgateError, SavepointFailed
from headgate.base.messages import (
    Cancel,
    CheckpointAcked,
    CheckpointCompleted,
    CheckpointTriggered,
    Deploy,
    Failure,
    Refused,
    Register,
    TaskChanged,
    TaskState,
    ToTaskManager,
)
from headgate.control.life_cycle import JobState
from headgate.core.operators.one_input import MapOperator
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.operators.source import SourceOperator
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader
from headgate.host.checkpoints import job_checkpoints
from headgate.host.driver.checkpoint_setup import CheckpointSetup
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.driver_run import DriverRun
from headgate.host.net.contact import DriverContact
from headgate.host.net.control_client import ConnectionLost, ControlConnection
from headgate.plan import ship_strategies as ships
from headgate.plan.execution_graph import build_execution_graph, checkpointed_job
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamEdge, StreamGraph, StreamNode
from tests.host.checkpoint_kit import names
from tests.host.control_rig import SECRET, SETTINGS, TIMES, ended, replace_times, workers
from tests.host.jobs import LineFile, job_of, written
from tests.host.recovering_kit import SOON, Job, completed
from tests.host.rig import eventually

BOOM = Failure("ValueError", "boom")


class Scripted:
    """A task manager by hand: its tasks run when they are deployed, and take every checkpoint."""

    def __init__(self, job: Job, slot: int = 0, stage: str = "") -> None:
        self.job, self.slot = job, slot
        self.heard: list[ToTaskManager | ConnectionLost] = []
        self.run = ""
        self.tasks: list[str] = []
        self.answers_cancel = self.acks = True
        self.line = ControlConnection(job.contact(stage), self.hear)
        self.line.send(Register(stage, slot, ("127.0.0.1", 9 + slot), os.getpid(), "here"))

    def hear(self, message: ToTaskManager | ConnectionLost) -> None:
        self.heard.append(message)
        match message:
            case Deploy(run=run, tasks=tasks):
                self.run, self.tasks = run, [task.id for task in tasks]
                self.report(TaskState.RUNNING)
            case Cancel() if self.answers_cancel:
                self.report(TaskState.CANCELLED)
            case CheckpointTriggered(checkpoint=checkpoint) if self.acks:
                self.ack(checkpoint)
            case _:
                pass

    def report(self, state: TaskState, failure: Failure | None = None, *tasks: str) -> None:
        for task in tasks or self.tasks:
            self.line.send(TaskChanged(self.run, task, state, failure))

    def ack(self, checkpoint: int) -> None:
        execution = build_execution_graph(self.job.graph, self.run, 0)
        for member in checkpointed_job(self.job.graph, execution).members:
            if member.task in self.tasks:
                blank = member.blank
                state = WrittenState(
                    blank.task,
                    blank.vertex,
                    blank.subtask,
                    blank.parallelism,
                    blank.max_parallelism,
                    blank.operators,
                )
                report = CheckpointAcked(self.run, checkpoint, state, CheckpointFigures())
                self.line.send(report)

    def all_of(self, kind: type) -> list[ToTaskManager | ConnectionLost]:
        return [message for message in self.heard if isinstance(message, kind)]


@pytest.fixture
def server(no_leaks: None) -> Iterator[ControlServer]:
    times = replace_times(TIMES, cancel_ms=2_000, settle_ms=50, loss_ms=10)
    with ControlServer(times=times) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def opened(server: ControlServer) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def job(server: ControlServer, tmp_path: Path, folder: Path, opened: ExitStack) -> Job:
    graph = job_of(tmp_path, parallelism=1)
    job = Job(server, graph, **{"execution.checkpointing.dir": str(folder)})
    opened.callback(job.close)
    return job


def worker(opened: ExitStack, job: Job, slot: int = 0, stage: str = "") -> Scripted:
    manager = Scripted(job, slot, stage)
    opened.enter_context(manager.line)
    return manager


def started(opened: ExitStack, job: Job) -> tuple[DriverRun, Scripted]:
    run = job.begin()
    manager = worker(opened, job)
    eventually(lambda: run.state is JobState.RUNNING, "it runs")
    return run, manager


def test_checkpoints_are_stored_and_told_while_the_job_runs(
    job: Job, opened: ExitStack, folder: Path
) -> None:
    run, manager = started(opened, job)
    eventually(lambda: completed(job) >= 3, "checkpoints")
    eventually(lambda: len(manager.all_of(CheckpointCompleted)) >= 3, "they are told")
    eventually(lambda: len(names(folder)) <= 2, "older ones are dropped")
    run.cancel("enough")
    ended(run)
    job.close(JobState.CANCELLED)
    assert names(folder) == []


def test_a_failed_task_is_restarted_in_the_same_task_manager(
    job: Job, opened: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    run, manager = started(opened, job)
    eventually(lambda: completed(job) >= 1, "a checkpoint")
    first = str(run.key)
    manager.report(TaskState.FAILED, BOOM, manager.tasks[0])
    eventually(lambda: len(manager.all_of(Deploy)) == 2, "deployed once more")
    again = manager.all_of(Deploy)[1]
    assert isinstance(again, Deploy) and again.checkpoints is not None
    assert again.run == str(run.key) != first
    assert again.attempt == 1
    assert again.checkpoints.restored_from.startswith(job.keeper.storage.uri)
    assert all(task.restore is not None for task in again.tasks)
    assert "the job has failed: boom; it goes on from checkpoint" in caplog.text
    eventually(lambda: run.state is JobState.RUNNING, "it runs again")
    before = completed(job)
    eventually(lambda: completed(job) > before, "and takes checkpoints")
    manager.line.send(TaskChanged(first, manager.tasks[0], TaskState.FAILED, BOOM))
    manager.report(TaskState.FINISHED)
    assert ended(run).state is JobState.FINISHED
    assert job.keeper.restarts == 1


def test_a_checkpoint_that_is_being_stored_counts_for_the_next_attempt(
    job: Job, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, waits, store = threading.Event(), threading.Event(), job_checkpoints.complete

    def slow(*given: object) -> None:
        waits.set()
        assert go.wait(20)
        store(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(job_checkpoints, "complete", slow)
    run, manager = started(opened, job)
    assert waits.wait(20)
    manager.report(TaskState.FAILED, BOOM, manager.tasks[0])
    eventually(lambda: run.state is JobState.RESTARTING, "it waits")
    assert len(manager.all_of(Deploy)) == 1
    go.set()
    eventually(lambda: len(manager.all_of(Deploy)) == 2, "deployed once more")
    again = manager.all_of(Deploy)[1]
    assert isinstance(again, Deploy)
    assert [task.restore.checkpoint for task in again.tasks if task.restore] == [1] * 3
    run.cancel("enough")


def test_storage_that_fails_fails_the_checkpoint_and_not_the_older_one(
    server: ControlServer, tmp_path: Path, folder: Path, opened: ExitStack
) -> None:
    more = {
        "execution.checkpointing.dir": str(folder),
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
    }
    job = Job(server, job_of(tmp_path, parallelism=1), **more)
    opened.callback(job.close)
    run, _ = started(opened, job)
    eventually(lambda: completed(job) >= 1, "a checkpoint")
    hidden = tmp_path / "hidden"
    folder.rename(hidden)
    folder.write_text("in the way")
    eventually(lambda: job.keeper.statistics().failed >= 2, "checkpoints fail")
    assert run.state is JobState.RUNNING
    folder.unlink()
    hidden.rename(folder)
    before = completed(job)
    eventually(lambda: completed(job) > before, "it is well again")
    run.cancel("enough")


def test_storage_that_fails_for_good_fails_the_job_with_the_path(
    server: ControlServer, tmp_path: Path, folder: Path, opened: ExitStack
) -> None:
    more = {"execution.checkpointing.dir": str(folder), "restart-strategy.type": "none"}
    job = Job(server, job_of(tmp_path, parallelism=1), **more)
    opened.callback(job.close)
    run, _ = started(opened, job)
    eventually(lambda: completed(job) >= 1, "a checkpoint")
    folder.rename(tmp_path / "hidden")
    folder.write_text("in the way")
    outcome = ended(run)
    assert outcome.failure is not None
    assert outcome.failure.kind.endswith("CheckpointsFailed")
    assert str(folder) in outcome.failure.message


def test_savepoints_are_answered_with_their_path(
    job: Job, opened: ExitStack, tmp_path: Path
) -> None:
    run, manager = started(opened, job)
    where = str(tmp_path / "savepoint")
    assert run.savepoint(where).result(20) == where
    assert names(Path(where)) == ["_metadata"]
    manager.acks = False
    refused = run.savepoint(str(tmp_path / "other"))
    manager.report(TaskState.FAILED, BOOM, manager.tasks[0])
    with pytest.raises(SavepointFailed, match="the run has ended: boom"):
        refused.result(20)
    run.cancel("enough")
    late = run.savepoint(str(tmp_path / "late"))
    with pytest.raises(SavepointFailed, match="late: the job is"):
        late.result(20)


def test_who_stops_the_job_is_answered_when_it_has_finished(
    job: Job, opened: ExitStack, tmp_path: Path
) -> None:
    run, manager = started(opened, job)
    where = str(tmp_path / "savepoint")
    future = run.savepoint(where, Stop.SUSPEND)
    eventually(lambda: (tmp_path / "savepoint" / "_metadata").exists(), "it is there")
    assert not future.done()
    manager.report(TaskState.FINISHED)
    assert future.result(20) == where
    assert ended(run).state is JobState.FINISHED


def test_a_job_that_fails_while_it_stops_goes_on_and_says_so(
    job: Job, opened: ExitStack, tmp_path: Path
) -> None:
    run, manager = started(opened, job)
    future = run.savepoint(str(tmp_path / "savepoint"), Stop.SUSPEND)
    eventually(lambda: (tmp_path / "savepoint" / "_metadata").exists(), "it is there")
    eventually(lambda: job.keeper.latest is not None and bool(job.keeper.latest.directory), "known")
    manager.report(TaskState.FAILED, BOOM, manager.tasks[0])
    with pytest.raises(SavepointFailed, match="it is there, but the job has not ended with it"):
        future.result(20)
    eventually(lambda: len(manager.all_of(Deploy)) == 2, "it goes on")
    again = manager.all_of(Deploy)[1]
    assert isinstance(again, Deploy) and again.checkpoints is not None
    assert again.checkpoints.restored_from == str(tmp_path / "savepoint")
    run.cancel("enough")


def test_a_checkpoint_that_does_not_fit_any_more_ends_the_job(
    job: Job, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, manager = started(opened, job)

    def refuse(*given: object) -> None:
        raise HeadgateError("it cannot be planned")

    monkeypatch.setattr(job.setup, "plan", refuse)
    manager.report(TaskState.FAILED, BOOM, manager.tasks[0])
    outcome = ended(run)
    assert outcome.failure is not None and outcome.restart_in_ms is None
    assert outcome.failure.message == "it cannot be planned"


def test_a_lost_task_manager_ends_the_run_and_the_next_one_takes_nobody_of_it(
    job: Job, opened: ExitStack
) -> None:
    run, manager = started(opened, job)
    eventually(lambda: completed(job) >= 1, "a checkpoint")
    with pytest.raises(HeadgateError), manager.line:
        raise HeadgateError("killed")
    outcome = ended(run)
    assert outcome.restart_in_ms is not None
    assert job.keeper.settled().wait(20)
    again = job.begin("1")
    late = worker(opened, job)  # Spark was slow to start it, or it has been frozen
    eventually(lambda: bool(late.heard), "an answer")
    assert late.heard[0] == Refused("no run has begun for stage ''")
    two = worker(opened, job, stage="1")
    eventually(lambda: again.state is JobState.RUNNING, "the next run")
    (order,) = two.all_of(Deploy)
    assert isinstance(order, Deploy)
    assert order.run == "x/1/0" and order.attempt == 1
    assert all(task.restore is not None for task in order.tasks)
    again.cancel("enough")
    assert ended(again).state is JobState.CANCELLED


def test_a_driver_that_was_killed_has_a_successor_that_goes_on(
    server: ControlServer, tmp_path: Path, folder: Path, opened: ExitStack
) -> None:
    settings = {"execution.checkpointing.dir": str(folder)}
    graph = job_of(tmp_path, parallelism=1)
    with ControlServer(times=TIMES) as first:
        old = Job(first, graph, **settings)
        run, _ = started(opened, old)
        eventually(lambda: completed(old) >= 2, "checkpoints")
        old.close(JobState.FAILED)
    newest = old.keeper.latest
    assert newest is not None
    new = Job(server, graph, **settings)
    opened.callback(new.close)
    run, manager = started(opened, new)
    (order,) = manager.all_of(Deploy)
    assert isinstance(order, Deploy)
    numbers = {task.restore.checkpoint for task in order.tasks if task.restore}
    assert numbers == {newest.metadata.checkpoint}
    eventually(lambda: completed(new) >= 1, "it goes on")
    latest = new.keeper.latest
    assert latest is not None and latest.metadata.checkpoint > newest.metadata.checkpoint
    run.cancel("enough")


def test_a_driver_whose_job_was_taken_over_fails_for_good_and_tells_no_checkpoint(
    job: Job, opened: ExitStack, tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, manager = started(opened, job)
    eventually(lambda: completed(job) >= 1, "a checkpoint")
    with ControlServer(times=TIMES) as other:
        new = Job(other, job.graph, **{"execution.checkpointing.dir": str(folder)})
        newest = new.keeper.latest
        assert newest is not None
        outcome = ended(run)
        assert outcome.state is JobState.FAILED and outcome.restart_in_ms is None
        assert outcome.failure is not None and outcome.failure.is_final
        assert outcome.failure.message.startswith("another driver has taken over job 'x'")
        reported = [m.checkpoint for m in manager.all_of(CheckpointCompleted)]  # type: ignore[union-attr]
        assert max(reported) <= newest.metadata.checkpoint, "or the other one would commit it again"
        job.close(JobState.FINISHED)
        assert new.keeper.storage.location(newest.metadata.checkpoint, "").is_complete()
        new.close(JobState.FINISHED)
    assert names(folder) == []


def test_a_driver_that_is_lost_while_it_stops_has_a_successor_that_knows_it(
    job: Job, server: ControlServer, opened: ExitStack, tmp_path: Path, folder: Path
) -> None:
    run, manager = started(opened, job)
    where = str(tmp_path / "savepoint")
    run.savepoint(where, Stop.SUSPEND)
    eventually(lambda: job.keeper.latest is not None and bool(job.keeper.latest.directory), "known")
    eventually(lambda: bool(manager.all_of(CheckpointCompleted)), "sinks commit")
    new = CheckpointSetup({**SOON, "execution.checkpointing.dir": str(folder)}, job.graph)
    keeper = new.open(is_local=True)
    assert keeper.latest is not None and keeper.latest.directory == where
    keeper.close(JobState.FAILED)


def test_times_of_a_job_are_those_of_its_connections(
    server: ControlServer, tmp_path: Path, opened: ExitStack
) -> None:
    """A worker that freezes is given up after the job's own time, not the server's."""
    graph = job_of(tmp_path, parallelism=1)
    setup = CheckpointSetup({}, graph)
    keeper = setup.open(is_local=True)
    server.open_job(
        "x",
        SECRET,
        lambda key: setup.plan(keeper, str(key), b"", {}),
        times=replace_times(TIMES, heartbeat_timeout_ms=100, heartbeat_interval_ms=50),
        keeper=keeper,
    )
    run = server.begin("x")
    contact = server.contact("x", SETTINGS)
    silent = ControlConnection(
        DriverContact(contact.address, "x", SECRET, times=TIMES), lambda message: None
    )
    with silent:
        silent.send(Register("", 0, ("127.0.0.1", 9), 1, "here"))
        outcome = ended(run)
    assert outcome.failure is not None
    assert "nothing was heard from it for 0.1 s" in outcome.failure.message
    keeper.close(JobState.FAILED)


# Real task managers, in processes of their own.


class Slow(Source):
    """Numbers from a position on, so slowly that checkpoints come between them."""

    bounded = True
    finds_more = False

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, split: int, position: int | None, context: ConnectorContext) -> "SlowReader":
        return SlowReader(split if position is None else position, self.count)


class SlowReader(SplitReader):
    def __init__(self, number: int, count: int) -> None:
        self.number, self.count = number, count

    def poll(self, limit: int) -> Sequence[int] | None:
        if self.number >= self.count:
            return None
        time.sleep(0.001)
        self.number += 2
        return [self.number - 2]

    def wait_ms(self) -> float:
        return 1.0

    def position(self) -> int:
        return self.number

    def close(self) -> None:
        pass


class Trouble:
    """Does something bad once, when there is a checkpoint."""

    def __init__(self, mark: Path, checkpoints: Path, kill: bool) -> None:
        self.mark, self.checkpoints, self.kill = mark, checkpoints, kill

    def __call__(self, number: Record) -> Record:
        if (
            not self.mark.exists()
            and any(self.checkpoints.glob("x/chk-*/_metadata"))
            and self._is_first()
        ):
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("once")
        return number

    def _is_first(self) -> bool:
        """Of the tasks that see the checkpoint at the same moment."""
        written = self.mark.with_name(f"mark-{os.getpid()}")
        written.write_text(str(os.getpid()))
        try:
            os.link(written, self.mark)
        except FileExistsError:
            return False
        return True


def real_job(folder: Path, function: Callable[[Record], Record], count: int) -> JobGraph:
    graph = StreamGraph("numbers", buffer_timeout_ms=5)
    makers = [
        ("numbers", NodeKind.SOURCE, partial(SourceOperator, Slow(count), (0, 1))),
        ("map", NodeKind.OPERATOR, partial(MapOperator, function)),
        ("lines", NodeKind.SINK, partial(SinkFunctionOperator, LineFile(folder))),
    ]
    for number, (name, kind, make) in enumerate(makers, 1):
        graph.nodes[number] = StreamNode(number, name, kind, make, 2)
    for source in (1, 2):
        graph.edges.append(StreamEdge(source, source + 1, 0, ships.rebalance()))
    return build_job_graph(graph)


COUNT = 1_000


@pytest.mark.parametrize("kill", [False, True])
def test_real_task_managers_go_on_from_the_last_checkpoint(
    server: ControlServer,
    tmp_path: Path,
    folder: Path,
    opened: ExitStack,
    caplog: pytest.LogCaptureFixture,
    kill: bool,
) -> None:
    caplog.set_level(logging.INFO)
    lines, mark = tmp_path / "lines", tmp_path / "mark"
    lines.mkdir()
    graph = real_job(lines, Trouble(mark, folder, kill), COUNT)
    job = Job(server, graph, **{"execution.checkpointing.dir": str(folder)})
    opened.callback(job.close)
    with workers(3) as all_workers:
        run = job.begin()
        for slot in (0, 1):
            all_workers[slot].serve(job.contact(), slot)
        if kill:
            outcome = ended(run)
            assert outcome.restart_in_ms is not None
            killed = int(mark.read_text())
            alive = [worker for worker in all_workers if worker.process.pid != killed]
            alive[0].returned()
            assert job.keeper.settled().wait(20)
            run = job.begin("1")
            for slot in (0, 1):
                alive[slot].serve(job.contact("1"), slot)
        assert ended(run).state is JobState.FINISHED
    assert job.keeper.restarts == 1
    found = written(lines)
    assert {*found} == {str(number) for number in range(COUNT)}, "nothing is lost"
    assert "job x goes on from checkpoint" in caplog.text
    job.close(JobState.FINISHED)
    assert names(folder) == []


def test_a_worker_that_was_frozen_cannot_disturb_the_run_that_followed(
    server: ControlServer, tmp_path: Path, folder: Path, opened: ExitStack
) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    graph = real_job(lines, Trouble(tmp_path / "mark", tmp_path / "never", False), 10**9)
    job = Job(
        server,
        graph,
        replace_times(TIMES, heartbeat_timeout_ms=1_000),
        **{"execution.checkpointing.dir": str(folder)},
    )
    opened.callback(job.close)
    with workers(3) as (first, two, three):
        run = job.begin()
        first.serve(job.contact(), 0)
        two.serve(job.contact(), 1)
        eventually(lambda: completed(job) >= 1, "a checkpoint")
        two.signal(signal.SIGSTOP)
        assert ended(run).restart_in_ms is not None
        first.returned()
        again = job.begin("1")
        first.serve(job.contact("1"), 0)
        three.serve(job.contact("1"), 1)
        eventually(lambda: again.state is JobState.RUNNING, "it runs again")
        before = completed(job)
        two.signal(signal.SIGCONT)
        kind, _ = two.raised()
        assert kind == "DriverLost"
        eventually(lambda: completed(job) > before, "it goes on")
        assert again.state is JobState.RUNNING
        again.cancel("enough")
        ended(again)
        first.returned()
        three.returned()
