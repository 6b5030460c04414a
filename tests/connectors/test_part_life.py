"""The life of part files, closed, killed, crashed or restarted between any two steps.

The twin of the file sinks: a job of one sink, whose tasks are real and write real files. Its law:
what can be seen are records of complete checkpoints, each once; a run that goes on from one shows
all of its records; at the end everything is there, and nothing hidden is left but what a complete
savepoint needs.
"""

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headgate.api.row import Row
from headgate.base.checkpoints import Stop
from headgate.base.elements import Bundle
from headgate.base.errors import HeadgateError
from headgate.connectors.files import part_commits, part_writer
from headgate.connectors.files.layout import RollingPolicy
from headgate.connectors.files.part_writer import SAVEPOINT_METADATA
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.functions.context import SnapshotMoment
from headgate.host.checkpoints.metadata import METADATA_FILE
from tests.connectors.part_disk import MEMORY, CrashingFolder, Disk
from tests.connectors.part_kit import hidden, make_sink, read_numbers
from tests.core.chain.sink_lab import JUNK, open_sink, sink_context

POLICIES = (
    RollingPolicy.default_rolling_policy(part_size=12),
    RollingPolicy.default_rolling_policy(part_size=25),
    RollingPolicy.default_rolling_policy(part_size=40, rollover_interval=1000),
    RollingPolicy.on_checkpoint_rolling_policy(),
)


@dataclass
class Taken:
    """A checkpoint or savepoint, on its way or complete."""

    moment: SnapshotMoment
    position: int
    states: list[bytes | None]


class PartLife(RuleBasedStateMachine):
    """Records are numbers from 0 on; number ``n`` goes to task ``n % parallelism``."""

    kinds = ("text", "csv")

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(dir=MEMORY)
        self.folder = Path(self.root, "out")
        CrashingFolder.disk = Disk()
        self.now_ms = 1_000_000
        self.position = self.number = self.attempt = 0
        self.pending: dict[int, Taken] = {}
        self.complete: Taken | None = None
        self.savepoints: list[Taken] = []
        self.tasks: list[TwoPhaseSinkOperator] = []
        self.frozen: list[TwoPhaseSinkOperator] = []
        self.repeats = False
        """It went on from an older savepoint: what was committed since comes again."""

    @initialize(
        kind=st.integers(0, 9),
        policy=st.sampled_from(POLICIES),
        bucketed=st.booleans(),
        parallelism=st.integers(1, 3),
    )
    def start(self, kind: int, policy: RollingPolicy, bucketed: bool, parallelism: int) -> None:
        self.kind = self.kinds[kind % len(self.kinds)]
        buckets: Any = (lambda n: f"b{n % 3}") if self.kind == "text" else ["v"]
        self.sink = make_sink(self.kind, self.folder, policy, buckets if bucketed else None)
        self.begin(parallelism, None)

    # What happens in a run.

    @rule(count=st.integers(1, 9))
    def write(self, count: int) -> None:
        for subtask, task in enumerate(self.tasks):
            numbers = range(self.position, self.position + count)
            own = [number for number in numbers if number % len(self.tasks) == subtask]
            if own:
                task.process(Bundle([self.record(number) for number in own]), 0)
        self.position += count

    @rule(count=st.integers(2, 20), time_ms=st.sampled_from([1, 1, 1, 2000]))
    def write_one_by_one(self, count: int, time_ms: int) -> None:
        self.now_ms += time_ms
        for _ in range(count):
            self.write(1)

    @rule(count=st.integers(1, 3), notified=st.sampled_from([3, 3, 0, 1]))
    def checkpoint(self, count: int, notified: int) -> None:
        self.write(count)
        self.completed(self.take(False, Stop.NO, len(self.tasks)), notified)

    @rule(savepoint=st.booleans(), reached=st.integers(0, 6))
    def barrier(self, savepoint: bool, reached: int) -> None:
        """Tasks take their snapshots; not all, if the barrier does not reach them in time."""
        self.take(savepoint, Stop.NO, min(reached, len(self.tasks)))

    @precondition(lambda self: any(self.is_whole(taken) for taken in self.pending.values()))
    @rule(which=st.integers(0, 2), notified=st.sampled_from([3, 0, 1]), twice=st.booleans())
    def checkpoint_completes(self, which: int, notified: int, twice: bool) -> None:
        whole = [number for number, taken in self.pending.items() if self.is_whole(taken)]
        self.completed(whole[which % len(whole)], notified, twice)

    @precondition(lambda self: self.pending)
    @rule()
    def checkpoint_is_aborted(self) -> None:
        number = min(self.pending)
        del self.pending[number]
        for task in self.tasks:
            task.checkpoint_aborted(number)

    # How a run ends, and the next one begins.

    @rule(
        how=st.sampled_from(
            ["close", "kill", "crash", "freeze", "stop", "stop fails", "savepoint"]
        ),
        parallelism=st.integers(1, 3),
        new_driver=st.booleans(),
        more=st.sampled_from([0, 3, 12]),
        some=st.sampled_from([0, 1, 2, 100]),
    )
    def run_ends(self, how: str, parallelism: int, new_driver: bool, more: int, some: int) -> None:
        """``some``: so many tasks hear of it, or bytes and names outlive the crash."""
        for _ in range(more):
            self.write(1)
        if how == "stop":  # the savepoint is complete, but perhaps not all tasks come to commit
            self.completed(self.take(True, Stop.SUSPEND, len(self.tasks)), some)
        elif how == "stop fails":
            self.take(True, Stop.SUSPEND, some)
        elif how == "savepoint" and self.savepoints:
            saved = self.savepoints[some % len(self.savepoints)]
            newest = self.complete
            if newest is not None and newest.moment.checkpoint > saved.moment.checkpoint:
                self.repeats = True
            shutil.rmtree(saved.moment.directory, ignore_errors=True)  # it was moved
            self.complete = saved
        self.end_tasks(how, some)
        self.go_on(parallelism, self.complete, new_driver or how == "crash")

    @precondition(lambda self: self.frozen)
    @rule(ends=st.sampled_from(["close", "kill"]), is_over=st.booleans())
    def a_frozen_run_wakes(self, ends: str, is_over: bool = False) -> None:
        """It commits, writes, takes a snapshot that nobody waits for, and perhaps reads to its end;
        then it is ended.
        """
        for task in self.frozen:
            with contextlib.suppress(HeadgateError):
                task.checkpoint_completed(self.woken)
                task.process(Bundle([self.record(JUNK) for _ in range(3)]), 0)
                task.snapshot(SnapshotMoment(self.number + 1000, self.now_ms))
                task.process(Bundle([self.record(JUNK)]), 0)
                if is_over:
                    task.finish()
        for task in self.frozen:
            self.end_task(task, ends)
        self.frozen = []

    # What must hold.

    @invariant()
    def nothing_counts_twice_or_too_early(self) -> None:
        found = read_numbers(self.folder, self.kind)
        held = 0 if self.complete is None else self.complete.position
        assert JUNK not in found
        assert self.repeats or len(set(found)) == len(found), f"twice: {sorted(found)}"
        assert self.repeats or max(found, default=-1) < held, f"too early: {found}, {held}"

    def teardown(self) -> None:
        try:
            if self.tasks:
                self.a_frozen_run_wakes("close")
                self.finish()
        finally:
            for task in (*self.tasks, *self.frozen):
                task.close()
            shutil.rmtree(self.root)
            shutil.rmtree(CrashingFolder.disk.trash)

    def finish(self) -> None:
        """The end of the input, and one more checkpoint."""
        self.pending.clear()
        for task in self.tasks:
            task.end_input(0)
            task.finish()
        self.completed(self.take(False, Stop.NO, len(self.tasks)), len(self.tasks))
        for task in self.tasks:
            assert not task.awaits_checkpoint
            task.close()
        self.everything_is_there(self.position)
        kept = {path.name.replace(".inprogress-", ".kept-") for path in hidden(self.folder)}
        assert not kept or self.savepoints
        assert {name for name in kept if ".kept-" not in name} == set()
        there = {path.name for path in hidden(self.folder)}
        assert kept <= there, f"hidden for good: {there}"

    def everything_is_there(self, position: int) -> None:
        found = read_numbers(self.folder, self.kind)
        assert set(found) >= set(range(position)), f"lost: {set(range(position)) - set(found)}"
        assert self.repeats or len(found) == position

    # How it is done.

    def record(self, number: int) -> Any:
        return number if self.kind == "text" else Row("n", "v")(number, "x" * (number % 3))

    def is_whole(self, taken: Taken) -> bool:
        return len(taken.states) == len(self.tasks)

    def take(self, savepoint: bool, stop: Stop, reached: int) -> int:
        self.number += 1
        where = os.path.join(self.root, f"savepoint-{self.number}") if savepoint else ""
        moment = SnapshotMoment(self.number, self.now_ms, savepoint, stop, directory=where)
        states = [task.snapshot(moment).sink for task in self.tasks[:reached]]
        self.pending[self.number] = Taken(moment, self.position, states)
        return self.number

    def completed(self, number: int, notified: int, twice: bool = False) -> None:
        """Only ``notified`` tasks learn of it."""
        taken = self.pending.pop(number)
        if taken.moment.is_savepoint:
            os.mkdir(taken.moment.directory)
            Path(taken.moment.directory, SAVEPOINT_METADATA).touch()
            self.savepoints.append(taken)
            if not taken.moment.stop.ends:
                return
        self.complete = taken
        for older in [checkpoint for checkpoint in self.pending if checkpoint < number]:
            del self.pending[older]
        for task in self.tasks[:notified]:
            for _ in range(1 + twice):
                task.checkpoint_completed(number)

    def end_tasks(self, how: str, torn: int) -> None:
        tasks, self.tasks = self.tasks, []
        self.pending.clear()
        if how == "freeze":
            self.frozen += tasks
            self.woken = 0 if self.complete is None else self.complete.moment.checkpoint
            return
        if how == "crash":
            tasks, self.frozen = tasks + self.frozen, []
        for task in tasks:
            self.end_task(task, "kill" if how in ("kill", "crash") else "close")
        if how == "crash":
            CrashingFolder.disk.crash(
                str(self.folder), lambda size: min(size, torn), lambda count: min(count, torn)
            )

    def end_task(self, task: TwoPhaseSinkOperator, how: str) -> None:
        if how == "kill":
            kill(task)
        task.close()

    def go_on(self, parallelism: int, taken: Taken | None, new_driver: bool = False) -> None:
        self.attempt = 0 if new_driver else self.attempt + 1
        self.begin(parallelism, taken)
        if taken is not None:
            self.everything_is_there(taken.position)

    def begin(self, parallelism: int, taken: Taken | None) -> None:
        self.now_ms += 1
        self.position = 0 if taken is None else taken.position
        for subtask in range(parallelism):
            restored = None
            if taken is not None:
                states = [state for state in taken.states[subtask::parallelism] if state]
                restored = OperatorRestored(taken.moment.checkpoint, sinks=tuple(states))
            context = sink_context(
                subtask, parallelism, self.attempt, restored=restored, now_ms=lambda: self.now_ms
            )
            self.tasks.append(open_sink(self.sink, context))


def kill(task: TwoPhaseSinkOperator) -> None:
    """What it has not written yet is never written, and it removes nothing."""
    writer: Any = task._writer
    for part in writer._open.values():
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, part.file.fileno())
        os.close(nowhere)
        part.named = True
    for part in writer._ended:
        part.named = True


def test_the_file_that_completes_a_savepoint_has_the_name_that_sinks_look_for() -> None:
    assert SAVEPOINT_METADATA == METADATA_FILE


def test_whatever_happens_to_a_job_its_parts_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (part_writer, part_commits):
        monkeypatch.setattr(module, "open_folder", CrashingFolder)
    monkeypatch.setattr(part_writer, "MOST_OPEN", 2)
    run_state_machine_as_test(PartLife, settings=settings(stateful_step_count=30))
