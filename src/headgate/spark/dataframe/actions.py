"""The actions on a DataFrame that comes out of a job: each is a query of Spark, and a job to show.

A barrier stage is one run with all tasks; in partitions each process of Spark's is a run with one
task, and an action has any number of them. Law: a run that fails by a task's own fault, or is
cancelled, ends its action at once, with the error that ``execute`` would raise; if a process is
lost, Spark tries the stage, or its partition, again. What is opened for an action is closed at its
end.

``LazyJobs`` keeps the job as long as somebody can still execute it: every plan with the job holds
the Java object that is the function of its stage. Law: a job is closed some seconds after Java has
collected that object, or after its session has ended, and never before.
"""

import gc
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from headgate.api.program import Program
from headgate.base.settings import JobSettings, RestSettings
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.host.driver.driver_run import DriverRun, RunKey, call_safely
from headgate.observe.notebook import kernel_shell
from headgate.observe.web.server import page_server
from headgate.spark.cluster import SparkCluster, cluster_of, signal_of
from headgate.spark.dataframe.frame_job import CANCEL_S, FrameJob
from headgate.spark.dataframe.queries import Queries, queries_of
from headgate.spark.executors import QueryStage
from headgate.spark.failures import gone_failure, note_failure, with_absence
from headgate.spark.job import PreparedJob
from headgate.spark.slot_watch import LOOK_S, SlotWatch
from headgate.spark.spark_task import query_of, stage_number, stage_of
from headgate.spark.submission import on_action_begun, show_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

INTERRUPTED: Final = "the user interrupted it"
MOST_ENDED: Final = 1024
"""How many actions are remembered that have ended; a process may be late."""
_numbers: Final = count()
_running: Final[dict[str, FrameJob]] = {}
"""Actions of this process that run, by id."""
_shells: Final[list[object]] = []
"""Notebooks that tell when a cell has ended."""
FORGET_LOOKS: Final = 3
"""So many looks at actions for one at what is forgotten."""
MOST_UNASKED: Final = 64
"""With this many jobs Java is asked to collect, then with twice as many as that has left."""


class Actions:
    """The actions on one DataFrame and what is derived from it; called by coordinator threads."""

    def __init__(self, session: "SparkSession", program: Program, tasks: int | None = None) -> None:
        """``tasks``: of a job that runs in partitions; None: it runs in a barrier stage."""
        self._cluster = cluster_of(session)
        self.application = self._cluster.application_id
        self._queries = queries_of(session)
        self._name = program.name
        self._tasks = tasks
        self._rest = RestSettings.parse(program.configuration)
        self._settings = JobSettings.parse(program.configuration)
        self._job: PreparedJob | None = None
        self._number: int | None = None
        self._lock = threading.Lock()  # of what follows
        self._open = 0
        self._jobs: dict[str, FrameJob] = {}  # that run: by query, in a barrier stage by run
        self._ended: deque[str] = deque(maxlen=MOST_ENDED)  # those in partitions, by query
        self._waiting: dict[str, WaitingAction] = {}  # by query
        self._begun: set[str] = set()  # queries of which a run has begun
        self._finished: set[str] = set()  # queries of which a barrier stage has finished
        self._others: set[str] = set()  # queries that run and are none of these actions
        self._subtasks: dict[str, int] = {}  # of runs in partitions, by key
        self._interrupted: set[str] = set()  # queries whose runs had not begun then
        self._is_announced = False
        _watch_cells()

    def planned(self, job: PreparedJob, number: int | None) -> None:
        """Before the first action; ``number``: by which Spark's plans name the job, if they do."""
        self._job = job
        self._number = number

    # Runs.

    def rows_wanted(self, key: RunKey) -> int | None:
        """How many rows are enough for the action that a run is for; None: all.

        In partitions Spark itself runs no more tasks than it needs. Rows of a run that has finished
        may be lost with an executor after the query has read some partitions. These it does not
        read again, and the next run may send other rows first: then only whole partitions surely
        have as many rows as the lost ones.
        """
        query = query_of(key.stage)
        with self._lock:
            wants_all = not query or self._tasks is not None or query in self._finished
        return None if wants_all else self._queries.rows_wanted(query, self._number)

    def subtask(self, key: RunKey) -> int | None:
        """Which task of the job a run has; None: all. Runs at the same time share the numbers."""
        if self._tasks is None:
            return None
        with self._lock:
            used = set(self._subtasks.values())
            number = next(number for number in count() if number not in used)
            self._subtasks[str(key)] = number
        return number % self._tasks

    def begun(self, run: DriverRun) -> None:
        """A run has begun: its action is a job for observers from now on."""
        query, action = query_of(run.key.stage), self._action_of(run.key)
        with self._lock:
            if action in self._ended:  # a process that Spark has not waited for
                return
            waiting = self._waiting.pop(query, None)
            if query:
                self._begun.add(query)
            job = before = self._jobs.get(action)
            if job is None and waiting is not None and waiting.job is not None:
                job = None if waiting.job.has_ended() else waiting.job
            is_shown = job is not None
            job = self._jobs[action] = job or self._job_of(run.key)
        is_known = before is not None
        if not is_known:
            self._open_log()
        job.begin(run)
        if not is_known:
            job.when_ended(lambda: self._job_ended(action))
        if not is_shown:
            self._show(job)
        if (outcome := run.outcome) is not None:  # before there was a job to tell
            self._run_ended(run.key, outcome)
        if query in self._interrupted:
            job.cancel_soon(INTERRUPTED)
        elif query and self._tasks is not None and self._queries.has_ended(query):
            job.query_ended()

    def ended(self, key: RunKey, outcome: Outcome) -> None:
        """A run has ended.

        Spark would repeat a stage three times, although a task's own fault is there again. It would
        do the same with one that was cancelled.
        """
        query, stage = query_of(key.stage), stage_of(key.stage)
        with self._lock:
            self._subtasks.pop(str(key), None)
            if query and self._tasks is None and outcome.state is JobState.FINISHED:
                self._finished.add(query)
        found = with_absence(outcome, self._cluster.absence)
        is_over = self._run_ended(key, found)
        if found is not outcome:
            self._give_up(stage, found)
        elif is_over and (outcome.is_own_failure or outcome.state is JobState.CANCELLED):
            if self._tasks is not None:
                self._end_query(query, outcome)
            self._end_stage(stage, outcome)
        elif is_over:
            note_failure(self.application, stage, self._name, outcome)

    def _run_ended(self, key: RunKey, outcome: Outcome) -> bool:
        """Tell the job; says whether its action is over with this run.

        In partitions a process may leave or be lost, and the action goes on.
        """
        with self._lock:
            job = self._jobs.get(self._action_of(key))
        is_last = self._tasks is None or outcome.state is JobState.CANCELLED
        ends_job = is_last or outcome.is_own_failure
        is_over = job is not None and job.run_ended(key, outcome, ends_job=ends_job)
        if job is not None and not query_of(key.stage) and job.is_idle:
            job.query_ended()  # there is none: a job of Spark's on an RDD, whose end nobody tells
        return is_over or self._tasks is None

    def query_ended(self, query: str) -> None:
        """A query of the application has ended."""
        with self._lock:
            self._begun.discard(query)
            self._finished.discard(query)
            self._interrupted.discard(query)
            waiting, job = self._waiting.pop(query, None), self._jobs.get(query)
        if waiting is not None:
            waiting.end()
        if job is not None:
            job.query_ended()

    def _action_of(self, key: RunKey) -> str:
        if self._tasks is None:
            return str(key)
        return query_of(key.stage) or f"stage {stage_of(key.stage)}"

    def _job_of(self, key: RunKey) -> FrameJob:
        attempt = key.generation if self._tasks is None else 0
        again = f"-{attempt}" if attempt else ""
        label = f"{stage_number(key.stage)}{again}"
        return FrameJob(self._prepared, label, self._withdraw_from(query_of(key.stage)), attempt)

    def _job_ended(self, action: str) -> None:
        with self._lock:
            self._jobs.pop(action, None)
            self._ended.append(action)
            self._open -= 1
            if not self._open:
                self._prepared.log.close()

    # Actions whose runs have not begun.

    def look(self, stages: Sequence[QueryStage]) -> None:
        """Say of actions on hand what they wait for; ``stages``: those that run or wait."""
        by_query: dict[str, list[QueryStage]] = {}
        for stage in stages:
            by_query.setdefault(stage.query, []).append(stage)
        self._others &= by_query.keys()
        with self._lock:
            known = {*self._begun, *self._waiting}
        for query in by_query.keys() - known - self._others:
            if not self._holds(query):
                self._others.add(query)
                continue
            with self._lock:
                if query not in self._begun:
                    self._waiting[query] = WaitingAction(self._prepared, self._withdraw_from(query))
        for query in known - by_query.keys():
            if self._queries.has_ended(query):  # and the word of it was lost
                self.query_ended(query)
        with self._lock:
            waiting = dict(self._waiting)
        for query, action in waiting.items():
            if query in by_query:
                action.look(by_query[query], self._show)
            if action.absence:
                self._give_up(f":{query}", Outcome(JobState.FAILED, gone_failure(action.absence)))
                self.query_ended(query)

    def interrupt(self, reason: str) -> None:
        """End the actions whose runs have not begun.

        One that Spark is just planning has nothing to be ended. It ends when its run begins.
        """
        running = self._queries.running()
        with self._lock:
            begun = set(self._begun)
            self._interrupted |= running - begun
        for query in {stage.query for stage in self._stages()} - begun:
            if self._holds(query):
                self._end_query(query, Outcome(JobState.CANCELLED, reason=reason))

    @property
    def _prepared(self) -> PreparedJob:
        assert self._job is not None, "no action can begin before there is a DataFrame"
        return self._job

    def _holds(self, query: str) -> bool:
        return self._number is not None and self._queries.holds(query, self._number)

    def _stages(self) -> Sequence[QueryStage]:
        try:
            return self._cluster.query_stages()
        except Exception as error:
            log.debug("the stages of %s are not known: %s", self.application, error)
            return ()

    # Ends.

    def _withdraw_from(self, query: str) -> Callable[[str], None]:
        return lambda reason: self._end_query(query, Outcome(JobState.CANCELLED, reason=reason))

    def _end_query(self, query: str, outcome: Outcome) -> None:
        """End what Spark runs of it; the action raises what the outcome says."""
        for stage in self._stages():
            if stage.query == query:
                self._end_stage(stage.stage, outcome)

    def _end_stage(self, stage: str, outcome: Outcome) -> None:
        note_failure(self.application, stage, self._name, outcome)
        try:
            # error_of looks for the stage.
            reason = f"{outcome.problem}\n\n(in stage {stage.partition(':')[0]})"
            self._cluster.cancel_stage(stage, reason)
        except Exception as error:
            log.info("stage %s could not be ended: %s", stage, error)

    def _give_up(self, stage: str, outcome: Outcome) -> None:
        """Spark is gone: whoever waits for its answer is to know."""
        note_failure(self.application, stage, self._name, outcome)
        self._cluster.give_up()

    # What observers see.

    def _show(self, job: FrameJob) -> None:
        """On the page, of which it says once where it is; in the terminal; and for later."""
        _running[job.job_id] = job
        job.when_ended(lambda: _shown_no_more(job))
        announces, self._is_announced = not self._is_announced, True
        page = page_server(self._rest)
        show_job(job, page, self._settings, on_action_begun, announces=announces)

    def _open_log(self) -> None:
        with self._lock:
            self._open += 1
            if self._open == 1:
                self._prepared.log.open()


class WaitingAction:
    """One that Spark has submitted, and whose run has not begun.

    It is a job for its observers as soon as it waits for slots. One thread looks at it, any other
    may end it.
    """

    def __init__(self, prepared: PreparedJob, withdraw: Callable[[str], None]) -> None:
        """``withdraw``: ends it in Spark, with a reason."""
        self.job: FrameJob | None = None
        self._prepared = prepared
        self._withdraw = withdraw
        self._stages: Sequence[QueryStage] = ()
        self._watch: SlotWatch | None = None
        self._needed = 0

    @property
    def absence(self) -> str:
        """Why it waits in vain, in words."""
        return "" if self._watch is None else self._watch.absence

    def look(self, stages: Sequence[QueryStage], show: Callable[[FrameJob], None]) -> None:
        """``stages``: of its query."""
        self._stages, job = stages, self._prepared
        needed = max(stage.needed for stage in stages) or job.slots
        if self._watch is None or needed != self._needed:
            self._needed = needed
            self._watch = SlotWatch(job.cluster, job.graph.name, needed, self._running, job.profile)
        self._watch.look()
        reason = self._watch.reason
        if reason and self.job is None:
            self.job = FrameJob(job, f"q{next(_numbers)}", self._withdraw)
            self.job.reason = reason
            show(self.job)
        if self.job is not None and not self.job.has_ended():
            self.job.reason = reason

    def end(self) -> None:
        """Its query has ended without a run."""
        if self._watch is not None:
            self._watch.ended()
        if self.job is not None:
            self.job.query_ended()

    def _running(self) -> int:
        return sum(stage.running for stage in self._stages)


def _shown_no_more(job: FrameJob) -> None:
    _running.pop(job.job_id, None)


def _watch_cells() -> None:
    """In a notebook, whoever interrupts a cell wants its actions to end, too."""
    shell = kernel_shell()
    if shell is not None and shell not in _shells:
        _shells.append(shell)
        shell.events.register("post_run_cell", _cell_ended)


def _cell_ended(result: Any = None, *_: object) -> None:
    if isinstance(signal_of(getattr(result, "error_in_exec", None)), KeyboardInterrupt):
        jobs = list(_running.values())
        for job in jobs:
            job.cancel_soon(INTERRUPTED)
        lazy_jobs.interrupt(INTERRUPTED)
        for job in jobs:
            job.wait(CANCEL_S)


@dataclass(frozen=True, slots=True)
class LazyJob:
    """A job, and Java's weak reference to its function; None: it lives as long as its session."""

    job: PreparedJob
    function: Any
    actions: Actions

    @property
    def is_forgotten(self) -> bool:
        try:
            if self.function is not None and self.function.refersTo(None):
                return True
        except Exception as error:  # Java may be gone
            log.debug("job %s: %s", self.job.job_id, error)
        return self.job.cluster.is_stopped()


class LazyJobs:
    """All of this process; a thread looks after those of an application while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: list[LazyJob] = []
        self._watched: set[str] = set()  # applications
        self._ask_at = MOST_UNASKED

    def add(self, job: LazyJob) -> None:
        """Keep it until it is forgotten."""
        self.forget()
        application = job.actions.application
        with self._lock:
            self._jobs.append(job)
            if application in self._watched:
                return
            self._watched.add(application)
        queries = queries_of(job.job.session)
        arguments = (application, job.job.cluster, queries)
        name = "headgate-lazy-jobs"
        threading.Thread(target=self._look_after, args=arguments, name=name, daemon=True).start()

    def forget(self) -> None:
        """Close those that nobody can execute any more."""
        with self._lock:
            jobs = list(self._jobs)
        gone = [lazy for lazy in jobs if lazy.is_forgotten]
        if len(jobs) - len(gone) >= self._ask_at:
            _collect(jobs[-1].job)
            gone = [lazy for lazy in jobs if lazy.is_forgotten]
            self._ask_at = max(MOST_UNASKED, 2 * (len(jobs) - len(gone)))
        with self._lock:
            own = [lazy for lazy in gone if lazy in self._jobs]
            self._jobs = [lazy for lazy in self._jobs if lazy not in gone]
        for lazy in own:
            lazy.job.close()

    def interrupt(self, reason: str) -> None:
        """End the actions whose runs have not begun yet."""
        with self._lock:
            jobs = list(self._jobs)
        for lazy in jobs:
            lazy.actions.interrupt(reason)

    def _actions(self, application: str) -> list[Actions]:
        with self._lock:
            found = [lazy.actions for lazy in self._jobs]
        return [actions for actions in found if actions.application == application]

    def _look_after(self, application: str, cluster: SparkCluster, queries: Queries) -> None:
        looked_at_s = time.monotonic()
        for number in count(1):
            while (left_s := looked_at_s + LOOK_S - time.monotonic()) > 0:
                if query := queries.await_end(left_s):
                    for actions in self._actions(application):
                        call_safely(actions.query_ended, query)
            looked_at_s = time.monotonic()
            try:
                stages = cluster.query_stages()
            except Exception as error:  # another version of Spark, or it is gone
                log.debug("the stages of %s are not known: %s", application, error)
            else:
                for actions in self._actions(application):
                    call_safely(actions.look, stages)
            if number % FORGET_LOOKS == 0:
                call_safely(self.forget)
            with self._lock:
                if not any(lazy.actions.application == application for lazy in self._jobs):
                    self._watched.remove(application)
                    break
        queries.close()


lazy_jobs: Final = LazyJobs()


def keep_until_forgotten(job: PreparedJob, function: Any, actions: Actions) -> None:
    """``function``: Java's object that every plan with the job holds; None: it is not known."""
    weak = None
    if function is not None:
        weak = job.cluster.java.java.lang.ref.WeakReference(function)
    lazy_jobs.add(LazyJob(job, weak, actions))


def _collect(job: PreparedJob) -> None:
    """Python first: its objects keep those of Java."""
    gc.collect()
    try:
        job.cluster.java.System.gc()
    except Exception as error:
        log.debug("Java cannot be asked to collect: %s", error)
