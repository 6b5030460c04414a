"""A run as the driver sees it: deployment, ends, and which failure is told."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.base.messages import (
    Cancel,
    Deploy,
    Failure,
    Placed,
    Shutdown,
    TaskState,
    TimeAnnounced,
)
from headgate.control.attempt import FIRST_REMINDER_MS
from headgate.control.effects import Effect, Outcome, RunEnded, Send
from headgate.control.job import JobRun
from headgate.control.life_cycle import JobState
from tests.control.kit import BOOM, PEER_LOST, TIMES, address, plan

RUN = "job/0/0"
MORE_BOOM = Failure("KeyError", "later")


def sent(effects: list[Effect]) -> list[tuple[int, str]]:
    return [(e.slot, type(e.message).__name__) for e in effects if isinstance(e, Send)]


def ending(effects: list[Effect]) -> Outcome | None:
    found = [effect.outcome for effect in effects if isinstance(effect, RunEnded)]
    assert len(found) < 2
    return found[0] if found else None


def changed(
    run: JobRun, state: TaskState, *tasks: str, failure: Failure | None = None, now: float = 0
) -> list[Effect]:
    return [effect for task in tasks for effect in run.task_changed(RUN, task, state, failure, now)]


def running(*, batch: bool = False) -> JobRun:
    run = JobRun(plan(batch=batch), TIMES)
    for slot in (0, 1):
        run.manager_registered(slot, address(slot), 0)
    changed(run, TaskState.RUNNING, *run.states)
    assert run.state is JobState.RUNNING
    return run


ALL = ("0.0", "0.1", "1.0", "1.1")


def test_a_run_goes_from_registration_to_its_end() -> None:
    run = JobRun(plan(), TIMES)
    assert run.state is JobState.CREATED
    assert sent(run.manager_registered(0, address(0), 0)) == [(0, "Deploy")]
    assert run.state is JobState.DEPLOYING
    assert sent(run.manager_registered(1, address(1), 0)) == [(0, "Placed"), (1, "Deploy")]
    assert changed(run, TaskState.RUNNING, *ALL) == []
    assert run.state is JobState.RUNNING
    assert changed(run, TaskState.FINISHED, *ALL[:3]) == []
    last = changed(run, TaskState.FINISHED, ALL[3])
    assert sent(last) == [(0, "Shutdown"), (1, "Shutdown")]
    assert ending(last) == Outcome(JobState.FINISHED)
    assert run.next_deadline_ms is None
    run.check()


def test_sources_of_a_group_learn_how_far_the_slowest_is() -> None:
    run = running()

    def report(task: str, watermark_ms: int | None, of: str = RUN) -> list[object]:
        effects = run.time_reported(of, task, "group", watermark_ms)
        return [(effect.slot, effect.message) for effect in effects if isinstance(effect, Send)]

    assert report("0.0", 5) == [(0, TimeAnnounced(RUN, "group", 5))]
    assert report("0.1", 3) == [(slot, TimeAnnounced(RUN, "group", 3)) for slot in (0, 1)]
    assert report("0.1", 1, of="job/0/1") == report("nobody", 1) == []
    assert sent(changed(run, TaskState.FINISHED, "0.1")) == [(0, "TimeAnnounced")]
    assert report("0.1", 1) == [], "it has ended"
    run.manager_lost(0, "gone", 0)
    assert report("0.0", 9) == [], "nobody is there to be told"


def test_task_managers_learn_whether_the_run_has_finished_and_why_not() -> None:
    def problems(effects: list[Effect]) -> list[str]:
        return [
            effect.message.problem
            for effect in effects
            if isinstance(effect, Send) and isinstance(effect.message, Shutdown)
        ]

    assert problems(changed(running(), TaskState.FINISHED, *ALL)) == ["", ""]
    failing = running()
    changed(failing, TaskState.FAILED, "0.1", failure=BOOM)
    for problem in problems(changed(failing, TaskState.CANCELLED, "0.0", "1.0", "1.1")):
        assert problem.startswith(BOOM.message)
    cancelled = running()
    cancelled.cancel("enough", 0)
    reported = problems(changed(cancelled, TaskState.CANCELLED, *ALL))
    assert reported == ["the run was cancelled: enough"] * 2


def test_only_a_task_that_fails_by_itself_is_an_own_failure() -> None:
    assert Outcome(JobState.FAILED, BOOM, "0.1").is_own_failure
    assert not Outcome(JobState.FAILED, PEER_LOST, "0.1").is_own_failure
    assert not Outcome(JobState.FAILED, BOOM).is_own_failure
    assert not Outcome(JobState.FINISHED).is_own_failure


def test_a_batch_run_deploys_vertex_after_vertex() -> None:
    run = JobRun(plan(batch=True), TIMES)
    run.manager_registered(0, address(0), 0)
    run.manager_registered(1, address(1), 0)
    changed(run, TaskState.RUNNING, "0.0", "0.1")
    assert run.state is JobState.RUNNING
    assert changed(run, TaskState.FINISHED, "0.0") == []
    assert sent(changed(run, TaskState.FINISHED, "0.1")) == [(0, "Deploy"), (1, "Deploy")]
    assert ending(changed(run, TaskState.FINISHED, "1.0", "1.1")) == Outcome(JobState.FINISHED)


def test_a_failure_cancels_all_and_is_told_when_all_have_ended() -> None:
    run = running()
    effects = changed(run, TaskState.FAILED, "0.1", failure=BOOM)
    assert sent(effects) == [(0, "Cancel"), (1, "Cancel")]
    assert run.state is JobState.FAILING
    assert changed(run, TaskState.CANCELLED, "0.0", "1.0") == []
    last = changed(run, TaskState.CANCELLED, "1.1")
    assert sent(last) == [(0, "Shutdown"), (1, "Shutdown")]
    assert ending(last) == Outcome(JobState.FAILED, BOOM, "0.1")


def test_what_follows_from_a_failure_does_not_hide_it_even_if_it_is_told_first() -> None:
    run = running()
    assert changed(run, TaskState.FAILED, "1.0", failure=PEER_LOST) == []
    assert run.next_deadline_ms == TIMES.settle_ms
    assert run.manager_lost(1, "reset", 1) == []
    effects = changed(run, TaskState.FAILED, "0.0", failure=BOOM, now=2)
    assert sent(effects) == [(0, "Cancel"), (0, "Shutdown")]
    assert ending(effects) == Outcome(JobState.FAILED, BOOM, "0.0")


def test_a_lost_task_manager_explains_more_than_a_lost_peer() -> None:
    run = running()
    changed(run, TaskState.FAILED, "1.0", failure=PEER_LOST)
    run.manager_lost(1, "its connection was reset", 5)
    changed(run, TaskState.FAILED, "0.0", failure=PEER_LOST)
    outcome = ending(run.tick(TIMES.settle_ms))
    assert outcome is not None and outcome.failure is not None
    assert outcome.failure.kind.endswith("TaskManagerLost")
    assert "slot 1 is lost: its connection was reset" in outcome.failure.message


def test_who_has_started_the_workers_says_why_one_is_lost() -> None:
    run = running()
    run.manager_lost(1, "its connection was reset", 5)
    run.failed(Failure("SparkException", "Spark: code 137", is_consequence=True), 50)
    changed(run, TaskState.FAILED, "0.0", "1.0", failure=PEER_LOST)
    outcome = ending(run.tick(TIMES.settle_ms + 5))
    assert outcome is not None and outcome.failure is not None
    assert "slot 1 is lost: its connection was reset" in outcome.failure.message
    assert outcome.failure.message.endswith("(Spark: code 137)")


def test_what_no_worker_can_do_is_told_before_a_lost_one() -> None:
    run = running()
    run.manager_lost(1, "its connection was reset", 5)
    run.failed(Failure("CodeUnloadable", "no module 'shop'", is_final=True), 50)
    last = changed(run, TaskState.CANCELLED, "0.0", "1.0", now=60)
    outcome = ending(last)
    assert outcome is not None and outcome.failure is not None and outcome.failure.is_final


def test_without_a_better_cause_the_first_one_is_told() -> None:
    run = running()
    other = Failure("PeerLost", "another", is_consequence=True)
    changed(run, TaskState.FAILED, "1.0", failure=PEER_LOST)
    changed(run, TaskState.FAILED, "1.1", failure=other)
    assert sent(run.tick(TIMES.settle_ms)) == [(0, "Cancel"), (1, "Cancel")]
    last = changed(run, TaskState.CANCELLED, "0.0", "0.1", now=TIMES.settle_ms)
    assert ending(last) == Outcome(JobState.FAILED, PEER_LOST, "1.0")


def test_the_first_of_two_own_failures_is_the_cause() -> None:
    run = running()
    changed(run, TaskState.FAILED, "0.0", failure=BOOM)
    changed(run, TaskState.FAILED, "0.1", failure=MORE_BOOM)
    last = changed(run, TaskState.CANCELLED, "1.0", "1.1")
    assert ending(last) == Outcome(JobState.FAILED, BOOM, "0.0")


def test_tasks_that_do_not_come_back_are_given_up_after_their_time() -> None:
    run = running()
    run.cancel("enough", 0)
    assert run.tick(TIMES.cancel_ms - 1) == []
    last = run.tick(TIMES.cancel_ms)
    assert sent(last) == [(0, "Shutdown"), (1, "Shutdown")]
    assert ending(last) == Outcome(JobState.CANCELLED, reason="enough")


def test_a_cancellation_ends_when_all_tasks_have_ended_however() -> None:
    run = running()
    assert sent(run.cancel("enough", 0)) == [(0, "Cancel"), (1, "Cancel")]
    assert run.cancel("once more", 0) == []
    changed(run, TaskState.FAILED, "0.0", failure=BOOM)
    changed(run, TaskState.FINISHED, "0.1")
    assert ending(run.manager_lost(1, "gone", 0)) is None
    last = changed(run, TaskState.CANCELLED, "1.0")
    assert sent(last) == [(0, "Shutdown")]
    assert ending(last) == Outcome(JobState.CANCELLED, reason="enough")


def test_a_task_whose_neighbour_was_cancelled_first_counts_as_cancelled() -> None:
    run = running()
    run.cancel("enough", 0)
    changed(run, TaskState.FAILED, "1.0", failure=PEER_LOST)
    changed(run, TaskState.FAILED, "1.1", failure=BOOM)
    assert run.states["1.0"] is TaskState.CANCELLED
    assert run.states["1.1"] is TaskState.FAILED


def limited(rows: int) -> JobRun:
    return JobRun(replace(plan(), rows_wanted=rows), TIMES)


def test_a_run_finishes_when_its_processes_together_have_sent_enough_rows() -> None:
    run = limited(100)
    effects = run.manager_registered(0, address(0), 0) + run.manager_registered(1, address(1), 0)
    orders = [effect.message for effect in effects if isinstance(effect, Send)]
    assert {order.rows_wanted for order in orders if isinstance(order, Deploy)} == {100}
    changed(run, TaskState.RUNNING, *ALL)
    assert run.rows_sent(RUN, 0, 60, 0) == []
    assert run.rows_sent(RUN, 0, 70, 0) == [], "a sum of its own, not one more part"
    assert run.rows_sent("job/0/1", 1, 99, 0) == [], "of another run"
    assert sent(run.rows_sent(RUN, 1, 30, 0)) == [(0, "Cancel"), (1, "Cancel")]
    assert run.rows_sent(RUN, 1, 50, 0) == []
    changed(run, TaskState.FAILED, "0.0", failure=BOOM)
    last = changed(run, TaskState.CANCELLED, *ALL[1:])
    assert ending(last) == Outcome(JobState.FINISHED)
    assert [e.message for e in last if isinstance(e, Send)] == [Shutdown(RUN)] * 2
    run.check()


def test_a_run_with_enough_rows_waits_for_the_task_managers_that_spark_still_starts() -> None:
    run = limited(5)
    run.manager_registered(0, address(0), 0)
    assert run.rows_sent(RUN, 0, 64, 0) == []
    effects = run.manager_registered(1, address(1), 10)
    assert sent(effects) == [(0, "Placed"), (1, "Deploy"), (0, "Cancel"), (1, "Cancel")]
    assert ending(changed(run, TaskState.CANCELLED, *ALL)) == Outcome(JobState.FINISHED)


def test_a_run_with_enough_rows_waits_for_user_code_until_somebody_cancels_it() -> None:
    run = limited(5)
    for slot in (0, 1):
        run.manager_registered(slot, address(slot), 0)
    changed(run, TaskState.RUNNING, *ALL)
    early = [e.message for e in run.rows_sent(RUN, 0, 5, 0) if isinstance(e, Send)]
    assert [m.is_patient for m in early if isinstance(m, Cancel)] == [True, True]
    assert run.next_deadline_ms is None and run.tick(1e9) == []
    late = [e.message for e in run.cancel("no more", 1e9) if isinstance(e, Send)]
    assert [m.is_patient for m in late if isinstance(m, Cancel)] == [False, False]
    outcome = ending(run.tick(1e9 + TIMES.cancel_ms))
    assert outcome == Outcome(JobState.CANCELLED, reason="no more")


def test_who_wants_all_rows_gets_all() -> None:
    run = running()
    assert run.rows_sent(RUN, 0, 1_000_000, 0) == []
    assert run.state is JobState.RUNNING


@pytest.mark.parametrize("slot", [None, 1])
def test_a_run_that_is_given_up_while_it_ends_early_has_not_finished(slot: int | None) -> None:
    run = limited(1)
    for number in (0, 1):
        run.manager_registered(number, address(number), 0)
    run.rows_sent(RUN, 0, 1, 0)
    outcome = ending(run.given_up("the end", 0) if slot is None else run.superseded(slot, 0))
    assert outcome is not None and outcome.state is JobState.CANCELLED


def test_a_run_without_task_managers_is_cancelled_at_once() -> None:
    run = JobRun(plan(), TIMES)
    assert ending(run.cancel("never mind", 0)) == Outcome(JobState.CANCELLED, reason="never mind")


def test_who_cancels_a_failing_run_learns_why_it_failed() -> None:
    run = running()
    changed(run, TaskState.FAILED, "0.0", failure=BOOM)
    assert run.cancel("enough", 0) == []
    last = changed(run, TaskState.CANCELLED, *ALL[1:])
    assert ending(last) == Outcome(JobState.FAILED, BOOM, "0.0")


def test_task_managers_that_do_not_come_fail_the_run() -> None:
    run = JobRun(plan(parallelism=3), TIMES)
    run.manager_registered(1, address(1), 10)
    assert run.next_deadline_ms == 10 + TIMES.register_ms
    run.tick(10 + TIMES.register_ms)
    assert run.state is JobState.FAILING
    assert run.refusal(0) == "the run is failing"
    run.tick(10 + TIMES.register_ms + TIMES.settle_ms)
    outcome = ending(changed(run, TaskState.CANCELLED, "0.1", "1.1", now=10_000))
    assert outcome is not None and outcome.failure is not None
    assert "slot 0, 2 is lost: it did not register" in outcome.failure.message


def test_a_task_manager_that_cannot_start_fails_the_run_with_its_reason() -> None:
    run = JobRun(plan(), TIMES)
    run.manager_registered(0, address(0), 0)
    assert sent(run.manager_failed(1, BOOM, 0)) == [(0, "Cancel")]
    last = changed(run, TaskState.CANCELLED, "0.0", "1.0")
    assert ending(last) == Outcome(JobState.FAILED, BOOM, slot=1)


def test_the_launcher_may_report_a_failure_that_a_task_explains_better() -> None:
    run = running()
    assert run.failed(Failure("Py4JJavaError", "stage failed"), 0) == []
    changed(run, TaskState.FAILED, "0.0", failure=BOOM)
    last = changed(run, TaskState.CANCELLED, *ALL[1:])
    assert ending(last) == Outcome(JobState.FAILED, BOOM, "0.0")


def test_a_task_that_is_cancelled_by_nobody_fails_the_run() -> None:
    run = running()
    changed(run, TaskState.CANCELLED, "0.0")
    assert run.state is JobState.FAILING


def test_messages_of_another_run_are_ignored() -> None:
    run = running()
    assert run.task_changed("job/0/1", "0.0", TaskState.FAILED, BOOM, 0) == []
    assert run.task_changed(RUN, "9.9", TaskState.FAILED, BOOM, 0) == []
    assert run.state is JobState.RUNNING


def test_what_a_task_says_after_its_end_or_before_its_deployment_is_ignored() -> None:
    run = JobRun(plan(), TIMES)
    assert changed(run, TaskState.FINISHED, *ALL) == []
    run.manager_registered(0, address(0), 0)
    changed(run, TaskState.FINISHED, "0.0")
    assert changed(run, TaskState.FAILED, "0.0", failure=BOOM) == []
    assert run.states["0.0"] is TaskState.FINISHED


def test_a_superseded_run_ends_at_once_and_hears_no_more() -> None:
    run = running()
    last = run.superseded(1, 0)
    assert sent(last) == [(0, "Shutdown"), (1, "Shutdown")]
    outcome = ending(last)
    assert outcome is not None and outcome.failure is not None
    assert outcome.failure.kind.endswith("RunSuperseded")
    assert run.superseded(1, 0) == run.given_up("closed", 0) == run.cancel("x", 0) == []
    assert changed(run, TaskState.FAILED, "0.0", failure=BOOM) == []


def test_a_driver_that_closes_ends_its_runs() -> None:
    run = running()
    assert ending(run.given_up("closing", 0)) == Outcome(JobState.CANCELLED, reason="closing")
    failing = running()
    changed(failing, TaskState.FAILED, "0.0", failure=BOOM)
    assert ending(failing.given_up("closing", 0)) == Outcome(JobState.FAILED, BOOM, "0.0")


@pytest.mark.parametrize(
    ("slot", "problem"), [(2, "no slot 2; the job has 2"), (-1, "no slot"), (0, "slot 0 is taken")]
)
def test_a_slot_is_taken_once(slot: int, problem: str) -> None:
    run = JobRun(plan(), TIMES)
    run.manager_registered(0, address(0), 0)
    assert problem in (run.refusal(slot) or "")
    run.manager_lost(0, "gone", 0)
    assert run.knows(0) and not run.knows(1)


class JobTwin(RuleBasedStateMachine):
    """Task managers that come, die and report in any order; the law of the run holds."""

    @initialize(batch=st.booleans(), parallelism=st.integers(1, 3), vertices=st.integers(1, 3))
    def a_job(self, batch: bool, parallelism: int, vertices: int) -> None:
        self.run = JobRun(plan(vertices, parallelism, batch=batch), TIMES)
        self.now = 0.0
        self.outcome: Outcome | None = None
        self.alive: list[int] = []
        self.deployed: dict[str, bool] = {}  # and whether it has ended
        self.placed: dict[tuple[int, str], int] = {}  # (slot, producer) → times told
        self.unplaced: set[tuple[int, str]] = set()
        self.own: list[Failure] = []
        self.cancelled_at: float | None = None

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert self.outcome is None, "something follows the end"
            match effect:
                case RunEnded(outcome):
                    self.outcome = outcome
                case Send(slot, message):
                    assert slot in self.alive
                    self.received(slot, message)

    def received(self, slot: int, message: Deploy | Placed | Cancel | Shutdown) -> None:
        if isinstance(message, Deploy):
            for task in message.tasks:
                assert task.id not in self.deployed and task.slot == slot
                self.deployed[task.id] = False
                missing = [p for p in task.producers if p not in message.places]
                self.unplaced |= {(slot, producer) for producer in missing}
        elif isinstance(message, Placed):
            for producer in message.places:
                key = slot, producer
                self.placed[key] = self.placed.get(key, 0) + 1
        elif isinstance(message, Cancel) and self.cancelled_at is None:
            self.cancelled_at = self.now

    def open_tasks(self) -> list[str]:
        return sorted(t for t, ended in self.deployed.items() if not ended)

    @rule(data=st.data())
    def one_registers(self, data: st.DataObject) -> None:
        free = [s for s in range(self.run.plan.slots) if self.run.refusal(s) is None]
        if free:
            slot = data.draw(st.sampled_from(free))
            self.alive.append(slot)
            self.carry_out(self.run.manager_registered(slot, address(slot), self.now))

    @rule(data=st.data(), state=st.sampled_from([TaskState.RUNNING, TaskState.FINISHED] * 2))
    def a_task_goes_on(self, data: st.DataObject, state: TaskState) -> None:
        if self.open_tasks() and self.outcome is None:
            task = data.draw(st.sampled_from(self.open_tasks()))
            self.deployed[task] = state.has_ended
            self.carry_out(self.run.task_changed(RUN, task, state, None, self.now))

    @rule(data=st.data(), own=st.booleans())
    def a_task_fails(self, data: st.DataObject, own: bool) -> None:
        if self.open_tasks() and self.outcome is None:
            task = data.draw(st.sampled_from(self.open_tasks()))
            self.deployed[task] = True
            failure = Failure("E", f"{task} at {self.now}", is_consequence=not own)
            if own and self.run.state is not JobState.CANCELLING:
                self.own.append(failure)
            self.carry_out(self.run.task_changed(RUN, task, TaskState.FAILED, failure, self.now))

    @rule(data=st.data())
    @precondition(lambda self: self.run.state.is_ending)
    def a_task_is_cancelled(self, data: st.DataObject) -> None:
        if self.open_tasks():
            task = data.draw(st.sampled_from(self.open_tasks()))
            self.deployed[task] = True
            self.carry_out(self.run.task_changed(RUN, task, TaskState.CANCELLED, None, self.now))

    @rule(data=st.data())
    def one_is_lost(self, data: st.DataObject) -> None:
        if self.alive:
            slot = data.draw(st.sampled_from(self.alive))
            self.alive.remove(slot)
            for task in self.run.plan.tasks:
                if task.slot == slot and task.id in self.deployed:
                    self.deployed[task.id] = True
            self.carry_out(self.run.manager_lost(slot, "gone", self.now))

    @rule()
    def somebody_cancels(self) -> None:
        self.carry_out(self.run.cancel("enough", self.now))

    @rule(passed=st.integers(1, 2_000))
    def time_passes(self, passed: int) -> None:
        self.now += passed
        self.carry_out(self.run.tick(self.now))

    @rule(data=st.data(), state=st.sampled_from([TaskState.RUNNING, TaskState.FAILED]))
    def a_task_speaks_after_its_end(self, data: st.DataObject, state: TaskState) -> None:
        closed = sorted(task for task, ended in self.deployed.items() if ended)
        if closed and self.outcome is None:
            task = data.draw(st.sampled_from(closed))
            assert self.run.task_changed(RUN, task, state, BOOM, self.now) == []

    @rule(task=st.sampled_from(ALL))
    def an_old_run_reports(self, task: str) -> None:
        assert self.run.task_changed("old", task, TaskState.FAILED, BOOM, self.now) == []

    @invariant()
    def the_law_holds(self) -> None:
        self.run.check()
        assert (self.outcome is not None) == self.run.state.has_ended
        assert all(count == 1 for count in self.placed.values())
        assert self.placed.keys() <= self.unplaced

    @invariant()
    def every_deployed_task_has_ended_or_had_its_time(self) -> None:
        if self.outcome is not None and self.open_tasks():
            assert self.cancelled_at is not None
            assert self.now >= self.cancelled_at + TIMES.cancel_ms

    @invariant()
    def the_root_cause_is_told(self) -> None:
        if self.outcome is not None and self.outcome.state is JobState.FAILED and self.own:
            assert self.outcome.failure == self.own[0]

    @invariant()
    def whoever_waits_for_a_place_is_told_when_it_is_known(self) -> None:
        if self.run.state in (JobState.DEPLOYING, JobState.RUNNING):
            for slot, producer in self.unplaced:
                there = next(t.slot for t in self.run.plan.tasks if t.id == producer)
                assert ((slot, producer) in self.placed) == self.run.knows(there)


TestJobTwin = JobTwin.TestCase


# Who waits for whom.


def test_from_the_first_task_manager_on_the_others_have_their_own_time() -> None:
    run = JobRun(plan(), TIMES)
    run.begun(0)
    run.manager_registered(0, address(0), 500)
    assert run.next_deadline_ms == 500 + TIMES.register_ms


def test_tasks_that_follow_others_are_waited_for_until_they_have_started() -> None:
    run = running()
    assert run.next_deadline_ms is None
    run = running(batch=True)
    changed(run, TaskState.FINISHED, "0.0", "0.1")  # the next vertex is deployed now
    assert run.next_deadline_ms == FIRST_REMINDER_MS
    run.tick(TIMES.start_ms)
    assert run.state is JobState.FAILING
    run = running(batch=True)
    changed(run, TaskState.FINISHED, "0.0", "0.1")
    changed(run, TaskState.RUNNING, "1.0", "1.1")
    assert run.next_deadline_ms is None


def test_who_wants_to_look_at_a_task_learns_its_slot_or_why_it_cannot() -> None:
    run = JobRun(plan(), TIMES)
    assert run.slot_of("0.0") == (-1, "it is not deployed yet")
    assert run.slot_of("9.0") == (-1, "the job has no such task")
    run = running()
    assert run.slot_of("1.1") == (1, "")
    changed(run, TaskState.FINISHED, "0.0")
    assert run.slot_of("0.0") == (-1, "it is finished")
    run.given_up("the driver closes", 0)
    assert run.slot_of("1.1") == (-1, "the run is cancelled")
