"""Actions on a DataFrame whose job needs no barrier stage: a run for each process of Spark's.

Tasks that exchange nothing need not run at the same time, so Spark runs them as it runs any other
function: over the partitions that the DataFrame has, as many at a time as there are cores, and no
more of them than the action wants. Each process that computes some is a run of its own in the
driver, with one task. Law: what fails by a function's own fault, or is cancelled, ends the action
at once; a process that is lost, or whose rows nobody wants any more, is Spark's to replace or not.
To observers all runs of a query are one job, which ends with its query.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from itertools import count
from typing import TYPE_CHECKING, Final

from headgate.api.program import Program
from headgate.base.figures import TaskManagerFigures
from headgate.base.inspections import Found, Inspection
from headgate.base.job_records import FailureRecord
from headgate.base.messages import TaskFigures
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.host.driver.checkpoint_keeper import added_figures
from headgate.host.driver.driver_run import DriverRun, RunKey, call_safely
from headgate.host.driver.inspections import refused
from headgate.host.driver.job_records import JobRecords
from headgate.spark.dataframe.actions import Actions
from headgate.spark.dataframe.row_limits import has_ended, query_of, stage_of
from headgate.spark.failures import with_absence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S: Final = 0.2
"""Between two looks at whether an action is over."""
MOST_OVER: Final = 1024
"""How many actions are remembered that are over."""


class PartitionRuns:
    """All runs of one action as one; see ``ActionRun``. Any thread may call any method."""

    def __init__(self, key: RunKey, end_stage: Callable[[str, Outcome], None]) -> None:
        """``key``: of the first of its stages; ``end_stage``: ends one of Spark's."""
        self.key = key
        self.records = JobRecords()
        self.records.reached(JobState.RUNNING)
        self.outcome: Outcome | None = None
        self._end_stage = end_stage
        self._stages: set[str] = set()
        self._lock = threading.Lock()  # of what follows
        self._runs: dict[str, DriverRun] = {}  # that have not ended, by key
        self._is_given_up = False
        self._before: dict[str, TaskFigures] = {}  # by task: of runs that have ended
        self._listeners: list[Callable[[], None]] = []

    def begun(self, run: DriverRun) -> None:
        """A process has begun its first partition."""
        with self._lock:
            self._runs[str(run.key)] = run
            self._stages.add(stage_of(run.key.stage))
            ended = self.outcome
        if ended is not None:  # Spark does not know yet
            run.cancel(ended.problem)

    def ended(self, key: RunKey, outcome: Outcome) -> None:
        """One has ended; if by its own fault, so does the action."""
        with self._lock:
            run = self._runs.pop(str(key), None)
            if run is None:
                return
        for figures in run.figures:
            with self._lock:
                before = self._before.get(figures.task)
                self._before[figures.task] = added_figures(before, figures)
        if outcome.is_own_failure:
            self._give_up(outcome, run.records.failures())

    @property
    def is_idle(self) -> bool:
        """Whether no process works for it."""
        return not self._runs

    def finish(self, outcome: Outcome) -> None:
        """The action is over."""
        with self._lock:
            if self.outcome is not None:
                return
            self.outcome = outcome
            listeners, self._listeners = self._listeners, []
        self.records.reached(outcome.state)
        for call in listeners:
            call_safely(call)

    def _give_up(self, outcome: Outcome, failures: Iterable[FailureRecord] = ()) -> None:
        """Other processes may fail by the same function: the first failure counts."""
        with self._lock:
            if self._is_given_up or self.outcome is not None:
                return
            self._is_given_up, stages = True, sorted(self._stages)
        for record in failures:
            self.records.add(record)
        self.finish(outcome)  # before the query is over, whose end would be taken for success
        for stage in stages:
            self._end_stage(stage, outcome)

    # What observers see.

    @property
    def state(self) -> JobState:
        outcome = self.outcome
        return JobState.RUNNING if outcome is None else outcome.state

    @property
    def figures(self) -> list[TaskFigures]:
        with self._lock:
            sums, runs = dict(self._before), list(self._runs.values())
        for run in runs:
            for figures in run.figures:
                sums[figures.task] = added_figures(sums.get(figures.task), figures)
        return [sums[task] for task in sorted(sums)]

    @property
    def task_managers(self) -> list[TaskManagerFigures]:
        with self._lock:
            runs = list(self._runs.values())
        return [manager for run in runs for manager in run.task_managers]

    def when_ended(self, call: Callable[[], None]) -> None:
        with self._lock:
            if self.outcome is None:
                self._listeners.append(call)
                return
        call()

    def inspect(self, task: str, what: Inspection, timeout_s: float) -> "Future[Found]":
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            if task in run.tasks:
                return run.inspect(task, what, timeout_s)
        return refused(task, "it does not run at the moment")

    def cancel(self, reason: str) -> None:
        self._give_up(Outcome(JobState.CANCELLED, reason=reason))


class PartitionActions(Actions):
    """See ``Actions``; a run is a process of Spark's, and an action has any number of them."""

    def __init__(self, session: "SparkSession", program: Program, parallelism: int) -> None:
        """``parallelism``: of the job; each run has one of its tasks."""
        super().__init__(session, program)
        self._parallelism = parallelism
        self._runs_lock = threading.Lock()  # of what follows
        self._numbers: dict[str, int] = {}  # of runs that have not ended, by key
        self._actions: dict[str, PartitionRuns] = {}  # by query, or stage if there is none
        self._over: deque[str] = deque(maxlen=MOST_OVER)
        self._thread: threading.Thread | None = None

    def rows_wanted(self, key: RunKey) -> int | None:
        """All: Spark runs no more tasks than it needs, and takes no more rows of them."""
        return None

    def task_of(self, key: RunKey) -> int:
        """Which task of the job a run has: tasks that run at the same time share the numbers."""
        with self._runs_lock:
            used = set(self._numbers.values())
            number = next(number for number in count() if number not in used)
            self._numbers[str(key)] = number
        return number % self._parallelism

    def begun(self, run: DriverRun) -> None:
        action = _action_of(run.key)
        with self._runs_lock:
            if action in self._over:  # a process that Spark has not waited for
                return
            runs = self._actions.get(action)
            is_new = runs is None
            if runs is None:
                key = RunKey(run.key.job, run.key.stage, 0)
                runs = self._actions[action] = PartitionRuns(key, self.end_stage)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._look_for_ends, name="headgate-action-ends", daemon=True
                )
                self._thread.start()
        runs.begun(run)
        if is_new:
            self.show_run(runs)
            runs.when_ended(self.close_log)

    def ended(self, key: RunKey, outcome: Outcome) -> None:
        action = _action_of(key)
        with self._runs_lock:
            self._numbers.pop(str(key), None)
            runs = self._actions.get(action)
        if runs is None:
            return
        runs.ended(key, outcome)
        found = with_absence(outcome, self._cluster.absence)
        if found is not outcome:
            self._give_up(stage_of(key.stage), found)
            runs.finish(found)

    def _look_for_ends(self) -> None:
        """Nobody says that a query has ended: look, as long as there is an action."""
        while True:
            time.sleep(LOOK_S)
            with self._runs_lock:
                actions = dict(self._actions)
                if not actions:
                    self._thread = None
                    return
            for action, runs in actions.items():
                query = query_of(runs.key.stage)
                if has_ended(self._session, query) if query else runs.is_idle:
                    with self._runs_lock:
                        del self._actions[action]
                        self._over.append(action)
                    runs.finish(Outcome(JobState.FINISHED))


def _action_of(key: RunKey) -> str:
    return query_of(key.stage) or f"stage {stage_of(key.stage)}"
