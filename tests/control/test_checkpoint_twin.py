"""The coordinator of checkpoints among honest tasks that answer, finish and fail in any order."""

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.base.checkpoints import CheckpointKind, CheckpointOptions, Metadata, Stop
from headgate.base.messages import CheckpointAborted, CheckpointCompleted, CheckpointTriggered
from headgate.base.recovery_settings import CheckpointSettings
from headgate.control.checkpoint_coordinator import CheckpointCoordinator
from headgate.control.checkpoint_history import KEPT, CheckpointHistory
from headgate.control.effects import (
    CheckpointEffect,
    DiscardStates,
    DropCheckpoint,
    FailRun,
    SavepointDone,
    Send,
    StoreCheckpoint,
)
from tests.control.checkpoint_kit import FIGURES, RUN, row, state, wall

TIMEOUT_MS = 400
SHAPES = [(1,), (2, 2), (1, 2, 1), (2, 1, 2)]


class Tasks:
    """What the tasks of one run do with barriers: they keep to the contract."""

    def __init__(self, job_members: dict[str, tuple[str, ...]]) -> None:
        self.producers = job_members
        self.finished: list[str] = []
        self.triggered: dict[int, list[str]] = {}
        self.taken: dict[int, list[str]] = {}
        self.over: list[int] = []  # checkpoints that were aborted
        self.unsent: list[tuple[int, str]] = []

    def may_take(self, checkpoint: int, task: str) -> bool:
        taken = self.taken[checkpoint]
        if task in taken or task in self.finished or checkpoint in self.over:
            return False
        older = [other for other in self.taken if other < checkpoint and other not in self.over]
        if any(self.is_behind(other, task) for other in older):
            return False
        producers = self.producers[task]
        ended = [producer for producer in producers if producer in self.finished]
        if len(ended) == len(producers):
            is_told = task in self.triggered[checkpoint]
            return is_told or any(producer in taken for producer in producers)
        return all(producer in taken or producer in self.finished for producer in producers)

    def is_behind(self, checkpoint: int, task: str) -> bool:
        """A barrier, or an order, of this one is still on its way to the task."""
        if task in self.taken[checkpoint]:
            return False
        producers = self.producers[task]
        return task in self.triggered[checkpoint] or any(
            producer in self.taken[checkpoint] or producer not in self.finished
            for producer in producers
        )

    def take(self, checkpoint: int, task: str) -> None:
        self.taken[checkpoint].append(task)
        self.unsent.append((checkpoint, task))

    def may_finish(self, task: str) -> bool:
        if task in self.finished or any(name == task for _, name in self.unsent):
            return False
        producers = self.producers[task]
        if any(producer not in self.finished for producer in producers):
            return False
        barriers = [
            other
            for other, taken in self.taken.items()
            if other not in self.over and any(producer in taken for producer in producers)
        ]
        return all(task in self.taken[other] for other in barriers)


class CheckpointTwin(RuleBasedStateMachine):
    """Several runs of one job, one after the other."""

    @initialize(
        shape=st.sampled_from(SHAPES),
        interval=st.sampled_from([-1, 100, 100, 100]),
        pause=st.sampled_from([0, 0, 150]),
        concurrent=st.integers(1, 3),
        tolerable=st.sampled_from([0, 1, 3, 9]),
        retained=st.integers(1, 3),
        unaligned=st.booleans(),
    )
    def a_job(
        self,
        shape: tuple[int, ...],
        interval: int,
        pause: int,
        concurrent: int,
        tolerable: int,
        retained: int,
        unaligned: bool,
    ) -> None:
        self.job = row(*shape)
        self.names = [member.task for member in self.job.members]
        self.settings = CheckpointSettings(
            interval_ms=interval,
            timeout_ms=TIMEOUT_MS,
            min_pause_ms=pause,
            max_concurrent=concurrent,
            tolerable_failures=tolerable,
            unaligned=unaligned,
        )
        self.limit = 1 if pause or unaligned else concurrent
        self.retained = retained
        self.history = CheckpointHistory(retained)
        self.now = 0.0
        self.options: dict[int, CheckpointOptions] = {}
        self.stores: list[tuple[CheckpointCoordinator, StoreCheckpoint]] = []
        self.disk: dict[int, Metadata] = {}
        self.completed: list[int] = []  # told to tasks, of all runs
        self.wanted: list[str] = []
        self.answered: list[str] = []
        self.stored_once: set[int] = set()
        self.counter = 0
        self.begin()

    def begin(self) -> None:
        self.tasks = Tasks({m.task: m.producers for m in self.job.members})
        self.machine = CheckpointCoordinator(RUN, self.job, self.settings, self.history, wall)
        self.open: list[int] = []  # checkpoints of this run that have not ended
        self.ended_at = -1e9
        self.began_at = self.now
        self.hurried = False
        self.failures = 0
        self.has_failed = False
        self.carry_out(self.machine.started(self.now))

    def carry_out(self, effects: list[CheckpointEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(_, CheckpointTriggered() as order):
                    self.trigger(order)
                case StoreCheckpoint(metadata):
                    self.judge(metadata)
                    self.stores.append((self.machine, effect))
                case Send(0, CheckpointCompleted(_, checkpoint)):
                    assert not self.completed or checkpoint > self.completed[-1]
                    self.completed.append(checkpoint)
                    assert checkpoint in self.disk
                case Send(0, CheckpointAborted(_, checkpoint)):
                    self.open.remove(checkpoint)
                    self.tasks.over.append(checkpoint)
                    self.ended_at = self.now
                case DropCheckpoint(metadata):
                    assert metadata.kind is CheckpointKind.CHECKPOINT or (
                        metadata.checkpoint not in self.disk
                    )
                    self.disk.pop(metadata.checkpoint, None)
                case DiscardStates(checkpoint, states):
                    assert checkpoint not in self.disk
                    assert states
                case FailRun(reason):
                    assert not self.has_failed
                    self.has_failed = True
                    if "in a row" in reason:  # a tick may end several at once
                        assert self.failures + self.limit > self.settings.tolerable_failures
                case SavepointDone(directory, checkpoint, error):
                    assert bool(error) == (checkpoint is None)
                    assert checkpoint is None or checkpoint in self.disk
                    self.answered.append(directory)

    def trigger(self, effect: CheckpointTriggered) -> None:
        checkpoint = effect.checkpoint
        assert not self.has_failed
        if checkpoint not in self.options:
            assert checkpoint == self.history.next_id - 1
            self.options[checkpoint] = effect.options
            self.tasks.triggered[checkpoint] = []
            self.tasks.taken[checkpoint] = []
            if effect.options.kind is CheckpointKind.CHECKPOINT:
                self.judge_begin()
            else:
                assert not self.unstored(), "a savepoint is alone"
            self.open.append(checkpoint)
        assert effect.task not in self.tasks.triggered[checkpoint]
        assert effect.task not in self.tasks.finished
        producers = self.tasks.producers[effect.task]
        assert all(producer in self.tasks.finished for producer in producers)
        self.tasks.triggered[checkpoint].append(effect.task)

    def judge_begin(self) -> None:
        pause_ms, interval_ms = self.settings.min_pause_ms, self.settings.interval_ms
        assert self.now >= self.ended_at + pause_ms
        assert self.hurried or self.now >= self.began_at + interval_ms
        self.began_at, self.hurried = self.now, False
        by_clock = [pending for pending in self.open if not self.is_savepoint(pending)]
        assert len(by_clock) < self.limit
        assert not any(self.is_savepoint(pending) for pending in self.unstored())

    def judge(self, metadata: Metadata) -> None:
        checkpoint = metadata.checkpoint
        assert [task.task for task in metadata.tasks] == self.names
        for task in metadata.tasks:
            if task.finished:
                assert task.task in self.tasks.finished
                assert task.task not in self.tasks.taken[checkpoint]
            else:
                assert task == state(task.task, checkpoint)
        behind = {task.task: task.finished for task in metadata.tasks}
        for task, finished in behind.items():
            if finished:
                assert all(behind[producer] for producer in self.tasks.producers[task])

    def is_savepoint(self, checkpoint: int) -> bool:
        return self.options[checkpoint].kind is CheckpointKind.SAVEPOINT

    def unstored(self) -> list[int]:
        storing = [store.metadata.checkpoint for _, store in self.stores]
        return [pending for pending in self.open if pending not in storing]

    def expect_failure(self, checkpoint: int) -> None:
        """A checkpoint of the clock has failed: the run too, if there were too many."""
        if self.is_savepoint(checkpoint):
            if self.options[checkpoint].stop is Stop.DRAIN:
                assert self.has_failed
            return
        self.failures += 1
        assert self.has_failed or self.failures <= self.settings.tolerable_failures

    # What happens.

    @rule(data=st.data(), count=st.integers(1, 4))
    def tasks_take_their_part(self, data: st.DataObject, count: int) -> None:
        for _ in range(count):
            able = [
                (pending, task)
                for pending in self.tasks.taken
                for task in self.names
                if self.tasks.may_take(pending, task)
            ]
            if able:
                self.tasks.take(*data.draw(st.sampled_from(able)))

    @rule(data=st.data(), count=st.integers(1, 4))
    def answers_arrive(self, data: st.DataObject, count: int) -> None:
        for _ in range(count):
            if self.tasks.unsent:
                self.answer(*data.draw(st.sampled_from(self.tasks.unsent)))

    def answer(self, checkpoint: int, task: str) -> None:
        self.tasks.unsent.remove((checkpoint, task))
        part = state(task, checkpoint)
        self.carry_out(self.machine.acked(checkpoint, part, FIGURES, self.now))

    @rule(data=st.data())
    def a_task_declines(self, data: st.DataObject) -> None:
        able = [
            (pending, task)
            for pending in self.unstored()
            for task in self.names
            if self.tasks.may_take(pending, task)
        ]
        if able:
            checkpoint, task = data.draw(st.sampled_from(able))
            self.carry_out(self.machine.declined(checkpoint, task, "no", self.now))
            assert checkpoint not in self.open
            self.expect_failure(checkpoint)

    @rule(data=st.data())
    def a_task_finishes(self, data: st.DataObject) -> None:
        able = [task for task in self.names if self.tasks.may_finish(task)]
        if able:
            task = data.draw(st.sampled_from(able))
            self.tasks.finished.append(task)
            self.carry_out(self.machine.task_finished(task, self.now))
            assert self.machine.task_finished(task, self.now) == []

    @rule(passed=st.sampled_from([1, 50, 100, 150, 400]))
    def the_clock_goes(self, passed: int) -> None:
        self.time_passes(passed)

    def time_passes(self, passed: int) -> None:
        end = self.now + passed
        while (due := self.machine.next_deadline_ms) is not None and due <= end:
            self.now = max(self.now, due)
            before = self.unstored()
            self.carry_out(self.machine.tick(self.now))
            for checkpoint in before:
                if checkpoint not in self.open:
                    self.expect_failure(checkpoint)
            assert self.machine.next_deadline_ms != due, "the deadline stays"
        self.now = end

    @rule(data=st.data())
    def one_is_stored(self, data: st.DataObject) -> None:
        if self.stores:
            self.store(data.draw(st.integers(0, len(self.stores) - 1)))

    def store(self, index: int) -> None:
        machine, store = self.stores.pop(index)
        checkpoint = store.metadata.checkpoint
        self.disk[checkpoint] = store.metadata
        self.stored_once.add(checkpoint)
        if machine is not self.machine:
            effects = machine.stored(checkpoint, self.now)
            assert not any(isinstance(effect, Send) for effect in effects)
            self.carry_out(effects)
            return
        self.open.remove(checkpoint)
        self.ended_at = self.now
        if not self.is_savepoint(checkpoint):
            newer = [newest for newest in self.completed if newest > checkpoint]
            self.failures = self.failures if newer else 0
        self.carry_out(machine.stored(checkpoint, self.now))

    @rule(data=st.data())
    def one_cannot_be_stored(self, data: st.DataObject) -> None:
        if not self.stores:
            return
        machine, store = self.stores.pop(data.draw(st.integers(0, len(self.stores) - 1)))
        checkpoint = store.metadata.checkpoint
        is_subsumed = any(newest > checkpoint for newest in self.completed)
        self.carry_out(machine.store_failed(checkpoint, "full", self.now))
        if machine is self.machine and not is_subsumed:
            self.expect_failure(checkpoint)

    @rule(stop=st.sampled_from([Stop.NO] * 6 + [Stop.SUSPEND, Stop.DRAIN]))
    def a_savepoint_is_wanted(self, stop: Stop) -> None:
        self.counter += 1
        directory = f"savepoint {self.counter}"
        self.wanted.append(directory)
        self.carry_out(self.machine.savepoint_wanted(directory, stop, self.now))

    @rule()
    @precondition(lambda self: self.settings.is_enabled)
    def a_task_wants_a_checkpoint(self) -> None:
        self.hurried = True
        self.carry_out(self.machine.checkpoint_wanted(self.now))

    @rule(data=st.data())
    def somebody_unknown_answers(self, data: st.DataObject) -> None:
        checkpoint = data.draw(st.integers(0, 3))
        assert self.machine.acked(checkpoint, state("9.9", 1), FIGURES, self.now) == []
        assert self.machine.declined(999, "0.0", "no", self.now) == []

    @rule(still_runs=st.sampled_from([True] * 4 + [False]))
    def the_run_is_lost_and_another_begins(self, still_runs: bool) -> None:
        if self.has_failed or not still_runs:
            self.end_run()
            self.begin()

    def end_run(self) -> None:
        effects = self.machine.run_ending("a task manager is lost", self.now)
        assert not any(isinstance(effect, Send) for effect in effects)
        self.carry_out(effects)
        assert sorted(self.wanted) == sorted(self.answered + self.being_stored())
        assert self.machine.next_deadline_ms is None

    @rule()
    def everybody_answers(self) -> None:
        self.everybody_answers_everything()

    def everybody_answers_everything(self) -> None:
        """Then nothing stays open, and a checkpoint that was begun is complete."""
        for _ in range(50):
            if not self.open:
                break
            for checkpoint in list(self.tasks.taken):
                for task in self.names:
                    if self.tasks.may_take(checkpoint, task):
                        self.tasks.take(checkpoint, task)
            while self.tasks.unsent:
                self.answer(*self.tasks.unsent[0])
            assert self.stores, f"{self.open} wait for ever"
            while self.stores:
                self.store(0)
        self.machine.check()

    @rule(rounds=st.integers(1, 4))
    def all_goes_well(self, rounds: int) -> None:
        for _ in range(rounds):
            self.time_passes(100)
            self.everybody_answers_everything()

    def being_stored(self) -> list[str]:
        return [store.directory for _, store in self.stores if store.directory]

    # What always holds.

    @invariant()
    def the_law_holds(self) -> None:
        self.machine.check()
        by_clock = [pending for pending in self.open if not self.is_savepoint(pending)]
        assert len(by_clock) <= self.limit
        late = [
            store.metadata.kind for machine, store in self.stores if machine is not self.machine
        ]
        storing = late.count(CheckpointKind.CHECKPOINT)
        assert self.history.log.statistics().pending == len(by_clock) + storing
        assert len(set(self.answered)) == len(self.answered), "somebody was told twice"

    @invariant()
    def what_is_kept_is_on_the_disk(self) -> None:
        kept = [metadata.checkpoint for metadata in self.history.complete]
        assert kept == sorted(kept)
        assert len(kept) <= self.retained
        by_clock = [
            number
            for number, metadata in self.disk.items()
            if metadata.kind is CheckpointKind.CHECKPOINT
        ]
        assert sorted(by_clock) == kept
        latest = self.history.latest
        if latest is not None:
            assert self.disk[latest.metadata.checkpoint] == latest.metadata
            assert latest.metadata.checkpoint >= max(kept, default=0)

    @invariant()
    def people_see_every_checkpoint_with_its_end(self) -> None:
        records = self.history.log.records(self.now)
        numbers = [record.checkpoint for record in records]
        assert numbers == sorted(self.options, reverse=True)[: len(numbers)]
        assert len(numbers) == min(KEPT, len(self.options))
        late = [store.metadata.checkpoint for _, store in self.stores]
        for record in records:
            number = record.checkpoint
            is_open = number in self.open or number in late
            assert (record.status == "in_progress") == is_open
            assert (record.status == "failed") == bool(record.problem)
            assert record.kind == self.options[number].kind.value
            assert len(record.parts) <= record.tasks <= len(self.names)
            if record.status == "completed":
                assert number in self.stored_once
                assert len(record.parts) == record.tasks
            assert record.took_ms >= max((part.took_ms for part in record.parts), default=0)

    def teardown(self) -> None:
        if hasattr(self, "machine"):
            self.end_run()
            while self.stores:
                self.store(0)
            assert sorted(self.wanted) == sorted(self.answered)


TestCheckpointTwin = CheckpointTwin.TestCase
TestCheckpointTwin.settings = hypothesis_settings(stateful_step_count=80)
