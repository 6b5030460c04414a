"""A run that fails and begins anew, and the checkpoints that it takes on the way."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.base.checkpoints import CheckpointOptions, Stop
from headgate.base.messages import (
    Cancel,
    CheckpointAborted,
    CheckpointAcked,
    CheckpointCompleted,
    CheckpointDeclined,
    CheckpointTriggered,
    CheckpointWanted,
    Deploy,
    Failure,
    Shutdown,
    TaskState,
)
from headgate.base.recovery_settings import CheckpointSettings
from headgate.control.attempt import FIRST_REMINDER_MS
from headgate.control.checkpoint_history import CheckpointHistory
from headgate.control.deployment import RunPlan
from headgate.control.effects import (
    DiscardStates,
    DropCheckpoint,
    Effect,
    Outcome,
    Replan,
    RunEnded,
    SavepointDone,
    Send,
    StoreCheckpoint,
    Warn,
)
from headgate.control.job import JobRun
from headgate.control.life_cycle import JobState
from headgate.control.recovery import FixedDelay, Recovery
from tests.control.checkpoint_kit import FIGURES, row, state, wall
from tests.control.kit import BOOM, PEER_LOST, TIMES, address, plan

ALL = ("0.0", "0.1", "1.0", "1.1")
DELAY_MS = 500


def name(number: int) -> str:
    return f"job/0/{number}"


def attempt(number: int, history: CheckpointHistory | None = None) -> RunPlan:
    latest = None if history is None else history.latest
    restored = None if latest is None else latest.metadata.checkpoint
    return replace(
        plan(), run=name(number), attempt=number, checkpointed=row(2, 2), restored=restored
    )


def recovery(attempts: int = 9, *, in_place: bool = True, **settings: object) -> Recovery:
    given = {"interval_ms": 1_000, "unaligned": False, **settings}
    how = CheckpointSettings(**given)  # type: ignore[arg-type]
    return Recovery(how, FixedDelay(attempts, DELAY_MS), in_place=in_place, wall_ms=wall)


def deployed(job: Recovery | None) -> JobRun:
    run = JobRun(attempt(0), TIMES, job)
    for slot in (0, 1):
        run.manager_registered(slot, address(slot), 0)
    return run


def running(job: Recovery | None) -> JobRun:
    run = deployed(job)
    change(run, TaskState.RUNNING, *ALL)
    assert run.state is JobState.RUNNING
    return run


def change(
    run: JobRun, to: TaskState, *tasks: str, failure: Failure | None = None, now: float = 0
) -> list[Effect]:
    of = run.plan.run
    return [effect for task in tasks for effect in run.task_changed(of, task, to, failure, now)]


def messages(effects: list[Effect], kind: type) -> list[tuple[int, object]]:
    return [
        (effect.slot, effect.message)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, kind)
    ]


def ending(effects: list[Effect]) -> Outcome | None:
    found = [effect.outcome for effect in effects if isinstance(effect, RunEnded)]
    return found[0] if found else None


def acked(run: JobRun, checkpoint: int, *tasks: str, now: float = 0) -> list[Effect]:
    effects: list[Effect] = []
    for task in tasks:
        report = CheckpointAcked(run.plan.run, checkpoint, state(task, checkpoint), FIGURES)
        effects += run.checkpoint_reported(report, now)
    return effects


def fail(run: JobRun, now: float = 0) -> list[Effect]:
    """A task fails, the others are cancelled."""
    effects = change(run, TaskState.FAILED, "0.0", failure=BOOM, now=now)
    return effects + change(run, TaskState.CANCELLED, *ALL[1:], now=now)


# Checkpoints of a run.


def test_sources_are_triggered_and_all_are_told_when_it_is_complete() -> None:
    run = running(recovery())
    assert run.next_deadline_ms == 1_000
    options = CheckpointOptions(wall())
    assert messages(run.tick(1_000), CheckpointTriggered) == [
        (0, CheckpointTriggered(name(0), "0.0", 1, options)),
        (1, CheckpointTriggered(name(0), "0.1", 1, options)),
    ]
    (store,) = acked(run, 1, *ALL, now=1_100)
    assert isinstance(store, StoreCheckpoint) and store.metadata.checkpoint == 1
    effects = run.stored(1, "", 1_200)
    assert messages(effects, CheckpointCompleted) == [
        (slot, CheckpointCompleted(name(0), 1)) for slot in (0, 1)
    ]
    run.check()


def test_a_checkpoint_that_is_declined_is_aborted_everywhere() -> None:
    run = running(recovery(tolerable_failures=1))
    run.tick(1_000)
    report = CheckpointDeclined(name(0), 1, "1.0", "disk full")
    effects = run.checkpoint_reported(report, 1_010)
    assert len(messages(effects, CheckpointAborted)) == 2
    assert run.state is JobState.RUNNING


def test_too_many_failed_checkpoints_fail_the_run_with_a_name() -> None:
    run = running(recovery(0))
    run.tick(1_000)
    effects = run.checkpoint_reported(CheckpointDeclined(name(0), 1, "1.0", "disk full"), 1_010)
    assert len(messages(effects, Cancel)) == 2
    outcome = ending(change(run, TaskState.CANCELLED, *ALL, now=1_020))
    assert outcome is not None and outcome.failure is not None
    assert outcome.failure.kind.endswith("CheckpointsFailed")
    assert "task 1.0 declined it: disk full" in outcome.failure.message


def test_a_task_that_waits_for_a_last_checkpoint_gets_it_before_the_interval() -> None:
    run = running(recovery())
    change(run, TaskState.FINISHED, "0.0", "0.1", now=10)
    effects = run.checkpoint_reported(CheckpointWanted(name(0), "1.0"), 20)
    triggered = [message.task for _, message in messages(effects, CheckpointTriggered)]  # type: ignore[attr-defined]
    assert triggered == ["1.0", "1.1"]


def test_who_waits_for_a_last_checkpoint_before_all_run_gets_it_as_soon_as_they_do() -> None:
    run = deployed(recovery(interval_ms=600_000))
    change(run, TaskState.RUNNING, *ALL[:3])
    change(run, TaskState.FINISHED, "0.0", "0.1", now=10)
    assert run.checkpoint_reported(CheckpointWanted(name(0), "1.0"), 20) == []
    assert run.next_deadline_ms == FIRST_REMINDER_MS, "only the start of a task is waited for"
    effects = change(run, TaskState.RUNNING, "1.1", now=30)
    assert len(messages(effects, CheckpointTriggered)) == 2


def test_reports_of_an_earlier_attempt_count_for_nothing() -> None:
    job = recovery()
    run = running(job)
    run.tick(1_000)
    acked(run, 1, *ALL[:3], now=1_000)
    fail(run, 1_001)
    run.tick(2_000)
    run.planned(attempt(1), 2_000)
    change(run, TaskState.RUNNING, *ALL, now=2_000)
    late = CheckpointAcked(name(0), 1, state("1.1", 1), FIGURES)
    assert run.checkpoint_reported(late, 2_001) == []
    assert run.checkpoint_reported(CheckpointWanted(name(0), "1.1"), 2_001) == []
    assert run.task_changed(name(0), "1.1", TaskState.FAILED, BOOM, 2_001) == []
    assert run.time_reported(name(0), "0.0", "group", 5) == []
    assert run.state is JobState.RUNNING


def test_a_run_without_recovery_has_no_savepoints() -> None:
    run = running(None)
    (done,) = run.savepoint_wanted("/here", Stop.NO, 0)
    assert done == SavepointDone("/here", None, "this job cannot take savepoints")


def test_a_savepoint_that_the_run_cannot_finish_is_told() -> None:
    run = running(recovery())
    assert messages(run.savepoint_wanted("/here", Stop.NO, 0), CheckpointTriggered)
    done = [effect for effect in fail(run) if isinstance(effect, SavepointDone)]
    assert [effect.directory for effect in done] == ["/here"] and done[0].checkpoint is None
    (refused,) = run.savepoint_wanted("/there", Stop.NO, 0)
    assert refused == SavepointDone("/there", None, "the job is restarting")


# Restarts in place.


def test_a_failed_run_begins_anew_in_the_same_task_managers() -> None:
    run = running(recovery())
    effects = fail(run, 100)
    assert ending(effects) is None
    assert messages(effects, Shutdown) == []
    (warning,) = [effect for effect in effects if isinstance(effect, Warn)]
    assert warning.text == (
        "the job has failed: boom; it goes on from the beginning in 0.5 s (restart 1)\n"
        "Traceback …\nboom"
    )
    assert run.state is JobState.RESTARTING
    assert run.next_deadline_ms == 100 + DELAY_MS
    assert run.tick(100 + DELAY_MS) == [Replan()]
    planning_ms = 100 + DELAY_MS
    assert run.next_deadline_ms == planning_ms + FIRST_REMINDER_MS, "nothing but to remind"
    assert run.tick(2_000) == []
    orders = messages(run.planned(attempt(1), 2_000), Deploy)
    assert [slot for slot, _ in orders] == [0, 1]
    for _, order in orders:
        assert isinstance(order, Deploy)
        assert (order.run, order.attempt, order.code) == (name(1), 1, b"code")
        assert {*order.places} == {"0.0", "0.1"}, "all places are known"
    assert run.state is JobState.DEPLOYING
    change(run, TaskState.RUNNING, *ALL)
    assert run.state is JobState.RUNNING
    assert ending(change(run, TaskState.FINISHED, *ALL)) == Outcome(JobState.FINISHED)


def test_the_pause_counts_from_the_failure() -> None:
    run = running(recovery())
    change(run, TaskState.FAILED, "0.0", failure=BOOM, now=100)
    effects = change(run, TaskState.CANCELLED, *ALL[1:], now=900)
    assert effects[-1] == Replan()


def test_what_merely_follows_is_restarted_too_after_it_has_settled() -> None:
    run = running(recovery())
    change(run, TaskState.FAILED, "1.0", failure=PEER_LOST)
    run.tick(TIMES.settle_ms)
    change(run, TaskState.CANCELLED, "0.0", "0.1", "1.1", now=TIMES.settle_ms)
    assert run.state is JobState.RESTARTING


def test_a_strategy_that_has_enough_ends_the_run_and_says_why() -> None:
    run = running(recovery(1))
    fail(run)
    run.tick(DELAY_MS)
    run.planned(attempt(1), DELAY_MS)
    outcome = ending(fail(run, 1_000))
    assert outcome is not None
    assert (outcome.state, outcome.failure) == (JobState.FAILED, BOOM)
    assert outcome.restart_in_ms is None
    assert "restart-strategy.fixed-delay.attempts is 1" in outcome.reason


def test_a_failure_that_is_final_is_not_restarted() -> None:
    run = running(recovery())
    final = Failure("CodeUnloadable", "no module", is_final=True)
    change(run, TaskState.FAILED, "0.0", failure=final)
    outcome = ending(change(run, TaskState.CANCELLED, *ALL[1:]))
    assert outcome == Outcome(JobState.FAILED, final, "0.0")


def test_a_storage_that_does_not_answer_is_told_again_and_again() -> None:
    run = running(recovery())
    run.tick(1_000)
    acked(run, 1, *ALL, now=1_100)
    silent_ms = 1_100 + TIMES.storage_ms
    warnings = [effect for effect in run.tick(silent_ms) if isinstance(effect, Warn)]
    assert [effect.text for effect in warnings] == [
        f"checkpoint 1 waits for the storage to take its metadata, and has had no answer for "
        f"{TIMES.storage_ms} ms; check that the storage is there and can be written"
    ]
    again = [
        effect for effect in run.tick(silent_ms + TIMES.storage_ms) if isinstance(effect, Warn)
    ]
    assert f"no answer for {2 * TIMES.storage_ms} ms" in again[0].text
    run.stored(1, "", silent_ms + TIMES.storage_ms)
    later = run.tick(silent_ms + 3 * TIMES.storage_ms)
    assert not [effect for effect in later if isinstance(effect, Warn)]
    assert run.state is JobState.RUNNING


def test_a_restart_that_waits_for_the_storage_says_so() -> None:
    run = running(recovery())
    fail(run)
    run.tick(DELAY_MS)
    (warning,) = run.tick(DELAY_MS + FIRST_REMINDER_MS)
    assert isinstance(warning, Warn)
    assert "it waits for the storage of its checkpoints" in warning.text
    assert messages(run.planned(attempt(1), DELAY_MS + FIRST_REMINDER_MS), Deploy)


def test_a_plan_that_cannot_be_made_ends_the_run_with_its_reason() -> None:
    run = running(recovery())
    fail(run)
    run.tick(DELAY_MS)
    refused = Failure("RestoreRefused", "no way", is_final=True)
    effects = run.plan_failed(refused, 600)
    assert ending(effects) == Outcome(JobState.FAILED, refused)
    assert len(messages(effects, Shutdown)) == 2
    assert run.planned(attempt(1), 700) == []


def test_a_plan_that_cannot_be_made_now_is_made_after_another_pause() -> None:
    job = recovery(2)
    run = running(job)
    fail(run)
    assert run.tick(DELAY_MS) == [Replan()]
    unusable = Failure("StorageUnusable", "it does not answer")
    assert ending(run.plan_failed(unusable, 600)) is None
    assert run.state is JobState.RESTARTING and run.next_deadline_ms == 600 + DELAY_MS
    assert run.tick(600 + DELAY_MS) == [Replan()]
    assert messages(run.planned(attempt(1), 1_200), Deploy)
    assert job.restarts == 2


def test_a_lost_task_manager_ends_the_run_and_asks_for_another_one() -> None:
    run = running(recovery())
    run.manager_lost(1, "killed", 100)
    assert run.next_deadline_ms == 100 + TIMES.loss_ms
    run.tick(100 + TIMES.loss_ms)
    effects = change(run, TaskState.CANCELLED, "0.0", "1.0", now=210)
    outcome = ending(effects)
    assert outcome is not None and outcome.failure is not None
    assert outcome.failure.kind.endswith("TaskManagerLost")
    assert outcome.restart_in_ms == 100 + DELAY_MS - 210
    assert [slot for slot, _ in messages(effects, Shutdown)] == [0]


def test_a_loss_while_it_waits_to_begin_anew_does_not_count_twice() -> None:
    job = recovery(1)
    run = running(job)
    fail(run, 100)
    effects = run.manager_lost(0, "killed", 300)
    outcome = ending(effects)
    assert outcome is not None and outcome.restart_in_ms == 100 + DELAY_MS - 300
    assert job.restarts == 1


def test_a_loss_while_the_plan_is_made_ends_the_run() -> None:
    run = running(recovery())
    fail(run)
    assert run.tick(DELAY_MS) == [Replan()]
    outcome = ending(run.manager_lost(0, "killed", DELAY_MS))
    assert outcome is not None and outcome.restart_in_ms == 0
    assert run.planned(attempt(1), 600) == [] == run.plan_failed(BOOM, 600)


def test_a_failure_before_all_task_managers_are_there_needs_a_new_run() -> None:
    run = JobRun(attempt(0), TIMES, recovery())
    run.manager_registered(0, address(0), 0)
    change(run, TaskState.FAILED, "0.0", failure=BOOM)
    outcome = ending(change(run, TaskState.CANCELLED, "1.0", now=100))
    assert outcome is not None and outcome.restart_in_ms == DELAY_MS - 100
    assert run.refusal(1) == "the run is failed", "or it would get tasks of a dead attempt"


def test_tasks_that_do_not_come_back_need_new_processes() -> None:
    run = running(recovery())
    change(run, TaskState.FAILED, "0.0", failure=BOOM)
    outcome = ending(run.tick(TIMES.cancel_ms))
    assert outcome is not None and outcome.failure == BOOM
    assert outcome.restart_in_ms == 0


def test_a_job_that_cannot_restart_in_place_ends_its_run() -> None:
    outcome = ending(fail(running(recovery(in_place=False))))
    assert outcome is not None and outcome.restart_in_ms == DELAY_MS


def test_whoever_started_the_task_managers_may_say_that_they_are_gone() -> None:
    run = running(recovery())
    run.failed(Failure("Py4JJavaError", "executor lost"), 0)
    run.tick(TIMES.settle_ms)
    outcome = ending(change(run, TaskState.CANCELLED, *ALL, now=TIMES.settle_ms))
    assert outcome is not None and outcome.restart_in_ms is not None


@pytest.mark.parametrize("planning", [False, True])
def test_a_cancellation_while_it_restarts_ends_it(planning: bool) -> None:
    run = running(recovery())
    fail(run)
    if planning:
        run.tick(DELAY_MS)
    effects = run.cancel("enough", DELAY_MS)
    assert ending(effects) == Outcome(JobState.CANCELLED, reason="enough")
    assert run.planned(attempt(1), 900) == []


def test_who_cancels_a_run_that_would_begin_anew_has_cancelled_it() -> None:
    run = running(recovery())
    change(run, TaskState.FAILED, "0.0", failure=BOOM)
    assert run.cancel("enough", 0) == []
    effects = change(run, TaskState.CANCELLED, *ALL[1:])
    assert ending(effects) == Outcome(JobState.CANCELLED, reason="enough")
    assert not [effect for effect in effects if isinstance(effect, Warn)]


def test_the_next_attempt_waits_for_a_checkpoint_that_is_being_stored() -> None:
    job = recovery()
    run = running(job)
    run.tick(1_000)
    acked(run, 1, *ALL, now=1_100)
    fail(run, 1_200)
    assert run.next_deadline_ms == 1_200 + TIMES.cancel_ms
    assert run.tick(1_200 + DELAY_MS) == []
    effects = run.stored(1, "", 1_900)
    assert effects == [Replan()], "and nobody is told: its tasks have ended"
    assert job.history.latest is not None
    run.planned(attempt(1, job.history), 1_900)
    assert run.plan.restored == 1


def test_a_storage_that_does_not_answer_holds_up_nobody_for_ever() -> None:
    job = recovery()
    run = running(job)
    run.tick(1_000)
    acked(run, 1, *ALL, now=1_100)
    fail(run, 1_200)
    assert run.tick(1_200 + TIMES.cancel_ms) == [Replan()]
    run.planned(attempt(1), 2_300)
    change(run, TaskState.RUNNING, *ALL, now=2_300)
    assert run.stored(1, "", 2_400) == [], "late, and still the newest"
    assert job.history.latest is not None and job.history.latest.metadata.checkpoint == 1


def test_a_checkpoint_that_is_stored_after_the_end_is_still_entered() -> None:
    job = recovery()
    run = running(job)
    run.tick(1_000)
    acked(run, 1, *ALL, now=1_100)
    assert ending(change(run, TaskState.FINISHED, *ALL, now=1_200))
    assert run.stored(1, "", 1_300) == []
    assert [metadata.checkpoint for metadata in job.history.complete] == [1]


def test_damage_leads_to_the_older_checkpoint() -> None:
    job = Recovery(
        CheckpointSettings(interval_ms=1_000, unaligned=False),
        FixedDelay(9, 0),
        CheckpointHistory(2),
        wall_ms=wall,
    )
    run = running(job)
    for number in (1, 2):
        run.tick(1_000 * number)
        acked(run, number, *ALL, now=1_000 * number)
        run.stored(number, "", 1_000 * number)
    assert fail(run, 2_500)[-1] == Replan()
    run.planned(attempt(1, job.history), 2_500)
    assert run.plan.restored == 2
    damage = Failure("CheckpointCorrupt", "chk-2: cut", is_damage=True)
    change(run, TaskState.FAILED, "0.0", failure=damage, now=2_600)
    change(run, TaskState.CANCELLED, *ALL[1:], now=2_600)
    run.planned(attempt(2, job.history), 2_600)
    assert run.plan.restored == 1


class RestartTwin(RuleBasedStateMachine):
    """Tasks, task managers and a storage that do what they like; the law holds over attempts."""

    @initialize(attempts=st.integers(0, 4), in_place=st.booleans())
    def a_job(self, attempts: int, in_place: bool) -> None:
        self.job = recovery(attempts, in_place=in_place, tolerable_failures=2)
        self.run = JobRun(attempt(0), TIMES, self.job)
        self.now = 0.0
        self.alive: list[int] = []
        self.open: dict[str, int] = {}  # tasks that were deployed and have not ended, their slots
        self.current = name(0)
        self.number = 0
        self.planning = False
        self.storing: list[int] = []
        self.stored: list[int] = []
        self.pending: list[int] = []
        self.completed: list[int] = []  # what tasks of the present attempt were told
        self.restored: int | None = None
        self.outcome: Outcome | None = None

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(slot, message):
                    assert self.outcome is None and slot in self.alive
                    assert message.run == self.current
                    self.received(slot, message)
                case Replan():
                    assert not self.planning and not self.open
                    assert self.run.state is JobState.RESTARTING
                    self.planning = True
                case StoreCheckpoint(metadata):
                    self.storing.append(metadata.checkpoint)
                case RunEnded(outcome):
                    assert self.outcome is None, "it ends once"
                    self.outcome = outcome
                case DropCheckpoint() | DiscardStates() | SavepointDone() | Warn():
                    pass

    def received(self, slot: int, message: object) -> None:
        match message:
            case Deploy(tasks=tasks):
                assert not any(task.id in self.open for task in tasks)
                self.open.update((task.id, slot) for task in tasks)
            case CheckpointTriggered(checkpoint=checkpoint):
                assert checkpoint > max(self.stored, default=0)
                if checkpoint not in self.pending:
                    self.pending.append(checkpoint)
            case CheckpointCompleted(checkpoint=checkpoint):
                assert checkpoint in self.stored
                self.completed.append(checkpoint)
            case _:
                pass

    @rule(slot=st.integers(0, 1))
    def one_registers(self, slot: int) -> None:
        if self.run.refusal(slot) is None:
            self.alive.append(slot)
            self.carry_out(self.run.manager_registered(slot, address(slot), self.now))

    @rule(data=st.data(), to=st.sampled_from([TaskState.RUNNING] * 3 + [TaskState.FINISHED]))
    def a_task_goes_on(self, data: st.DataObject, to: TaskState) -> None:
        if self.open and self.outcome is None:
            task = data.draw(st.sampled_from(sorted(self.open)))
            if to.has_ended:
                del self.open[task]
            self.carry_out(self.run.task_changed(self.current, task, to, None, self.now))

    @rule()
    def all_tasks_run(self) -> None:
        for task in sorted(self.open) if self.outcome is None else ():
            self.carry_out(
                self.run.task_changed(self.current, task, TaskState.RUNNING, None, self.now)
            )

    @rule(data=st.data(), own=st.booleans(), final=st.integers(0, 9))
    def a_task_fails(self, data: st.DataObject, own: bool, final: int) -> None:
        if self.open and self.outcome is None:
            task = data.draw(st.sampled_from(sorted(self.open)))
            del self.open[task]
            failure = Failure(
                "E", "x", is_consequence=not own, is_final=final == 0, is_damage=final == 1
            )
            self.carry_out(
                self.run.task_changed(self.current, task, TaskState.FAILED, failure, self.now)
            )

    @rule()
    @precondition(lambda self: self.run.state.is_ending)
    def all_tasks_are_cancelled(self) -> None:
        for task in sorted(self.open):
            del self.open[task]
            self.carry_out(
                self.run.task_changed(self.current, task, TaskState.CANCELLED, None, self.now)
            )

    @rule(slot=st.integers(0, 9))
    def one_is_lost(self, slot: int) -> None:
        if slot in self.alive:
            self.alive.remove(slot)
            self.open = {task: at for task, at in self.open.items() if at != slot}
            self.carry_out(self.run.manager_lost(slot, "gone", self.now))

    @rule(data=st.data())
    def a_checkpoint_is_acked(self, data: st.DataObject) -> None:
        if self.pending:
            checkpoint = data.draw(st.sampled_from(self.pending))
            for task in ALL:
                report = CheckpointAcked(self.current, checkpoint, state(task, checkpoint), FIGURES)
                self.carry_out(self.run.checkpoint_reported(report, self.now))

    @rule(data=st.data())
    def a_checkpoint_is_declined(self, data: st.DataObject) -> None:
        if self.pending:
            checkpoint = data.draw(st.sampled_from(self.pending))
            report = CheckpointDeclined(self.current, checkpoint, "1.0", "no")
            self.carry_out(self.run.checkpoint_reported(report, self.now))

    @rule(problem=st.sampled_from(["", "", "", "full"]))
    def the_storage_answers(self, problem: str) -> None:
        if self.storing:
            checkpoint = self.storing.pop(0)
            if not problem:
                self.stored.append(checkpoint)
            self.carry_out(self.run.stored(checkpoint, problem, self.now))

    @rule(fails=st.integers(0, 9))
    def a_plan_is_made(self, fails: int) -> None:
        if not self.planning:
            return
        self.planning = False
        if fails == 0:
            failure = Failure("RestoreRefused", "no", is_final=True)
            self.carry_out(self.run.plan_failed(failure, self.now))
            return
        self.number += 1
        made = attempt(self.number, self.job.history)
        if self.run.state is JobState.RESTARTING:
            self.current, self.restored = made.run, made.restored
            self.pending, self.completed = [], []
        self.carry_out(self.run.planned(made, self.now))

    @rule(chance=st.integers(0, 9))
    def somebody_cancels(self, chance: int) -> None:
        if chance == 0:
            self.carry_out(self.run.cancel("enough", self.now))

    @rule(passed=st.integers(1, 1_200))
    def time_passes(self, passed: int) -> None:
        self.now += passed
        self.carry_out(self.run.tick(self.now))

    @rule(task=st.sampled_from(ALL))
    def an_earlier_attempt_reports(self, task: str) -> None:
        if self.number:
            old = name(self.number - 1)
            if old != self.current:
                assert self.run.task_changed(old, task, TaskState.FAILED, BOOM, self.now) == []
                report = CheckpointDeclined(old, 1, task, "late")
                assert self.run.checkpoint_reported(report, self.now) == []

    @invariant()
    def the_law_holds(self) -> None:
        self.run.check()
        assert (self.outcome is not None) == self.run.state.has_ended
        due = self.run.next_deadline_ms
        if due is not None and due <= self.now:
            self.carry_out(self.run.tick(self.now))
            after = self.run.next_deadline_ms
            assert after is None or after > self.now, "a deadline that is over calls for ever"

    @invariant()
    def what_was_committed_is_never_gone_back_behind(self) -> None:
        latest = self.job.history.latest
        if self.completed and latest is not None:
            assert latest.metadata.checkpoint >= max(self.completed)

    @invariant()
    def it_waits_for_something_that_will_come(self) -> None:
        if self.run.state is JobState.RESTARTING:
            assert self.planning or self.run.next_deadline_ms is not None
        if self.outcome is not None and self.outcome.restart_in_ms is not None:
            assert self.outcome.state is JobState.FAILED and self.outcome.restart_in_ms >= 0


TestRestartTwin = RestartTwin.TestCase
