"""The actions on a DataFrame that a job is behind: each one is a run, from its begin to its end.

Each is shown as a job of its own: on the page, in the terminal under ``headgate run``, below the
cell of a notebook. Law: a run that fails by a task's own fault, or is cancelled, ends its action at
once, with the error that ``execute`` would raise; if a process is lost, Spark tries the stage
again. An action that wants only some rows ends the run when they are there. One that has to wait
for slots says so. What is opened for an action is closed at its end.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from headgate.api.program import Program
from headgate.base.settings import JobSettings, RestSettings
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.host.driver.driver_run import DriverRun, RunKey
from headgate.observe.notebook import kernel_shell, shows_progress
from headgate.observe.web.server import page_server, print_link
from headgate.spark.archives import archive_at_end
from headgate.spark.cluster import cluster_of, signal_behind
from headgate.spark.dataframe.action_errors import note_failure
from headgate.spark.dataframe.frame_job import CANCEL_S, ActionRun, FrameJob
from headgate.spark.dataframe.lazy_jobs import lazy_jobs
from headgate.spark.dataframe.row_limits import (
    is_behind,
    next_query,
    query_of,
    rows_wanted,
    stage_number,
    stage_of,
)
from headgate.spark.executors import QueryStage
from headgate.spark.failures import gone_failure, with_absence
from headgate.spark.job import PreparedJob
from headgate.spark.slot_watch import SlotWatch
from headgate.spark.submission import on_action_begun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

INTERRUPTED: Final = "the user interrupted it"
MOST_FINISHED: Final = 1024
"""How many queries are remembered; Spark repeats a stage while its query runs."""
MOST_MISSED: Final = 3
"""Looks at a query without stages, until it is taken to be over."""
_numbers: Final = count()
_running: Final[dict[str, FrameJob]] = {}
"""Actions of this process that run, by id."""
_shells: Final[list[object]] = []
"""Notebooks that tell when a cell has ended."""


class Actions:
    """Of one DataFrame and whatever is derived from it; called by the coordinator's threads."""

    def __init__(self, session: "SparkSession", program: Program) -> None:
        self._session = session
        self._cluster = cluster_of(session)
        self.application = self._cluster.application_id
        self._name = program.name
        self._rest = RestSettings.parse(program.configuration)
        self._settings = JobSettings.parse(program.configuration)
        self._job: PreparedJob | None = None
        self._number: int | None = None
        self._lock = threading.Lock()  # of what follows
        self._open = 0
        self._waiting: dict[str, WaitingAction] = {}  # by query
        self._begun: deque[str] = deque(maxlen=MOST_FINISHED)  # queries
        self._finished: deque[str] = deque(maxlen=MOST_FINISHED)  # queries
        self._others: set[str] = set()  # queries of others; of the thread that looks
        self._interrupted_below = 0  # queries with numbers below it
        self._is_announced = False
        _watch_cells()

    def planned(self, job: PreparedJob, number: int | None) -> None:
        """Before the first action; ``number``: by which Spark's plans name the job, if they do."""
        self._job = job
        self._number = number

    def rows_wanted(self, key: RunKey) -> int | None:
        """How many rows are enough for the action that a run is for; None: all.

        Rows of a run that has finished may be lost with an executor after the query has read some
        partitions. These it does not read again, and the next run may send other rows first: then
        only whole partitions surely have as many rows as the lost ones.
        """
        with self._lock:
            is_repeated = query_of(key.stage) in self._finished
        return None if is_repeated else rows_wanted(self._session, key.stage, self._number)

    def look(self, stages: Sequence[QueryStage]) -> None:
        """Say of actions on hand what they wait for; see ``JobActions``."""
        by_query: dict[str, list[QueryStage]] = {}
        for stage in stages:
            by_query.setdefault(stage.query, []).append(stage)
        self._others &= by_query.keys()
        for query in by_query.keys() - self._others:
            self._meet(query)
        with self._lock:
            waiting = dict(self._waiting)
        for query, action in waiting.items():
            action.look(by_query.get(query, ()), self._show)
            if action.absence:
                self._give_up(f":{query}", Outcome(JobState.FAILED, gone_failure(action.absence)))
            if action.is_over:
                with self._lock:
                    is_own = self._waiting.pop(query, None) is not None
                if is_own:
                    action.end()

    def _meet(self, query: str) -> None:
        """A query runs or waits: is it an action on this DataFrame whose run has not begun?"""
        with self._lock:
            is_known = query in self._begun or query in self._waiting
        if is_known:
            return
        if not self._is_behind(query):
            self._others.add(query)
            return
        with self._lock:
            if query not in self._begun:
                self._waiting[query] = WaitingAction(self._prepared, self._withdraw)

    def interrupt(self, reason: str) -> None:
        """End the actions whose runs have not begun; see ``JobActions``.

        One that Spark is just planning has nothing to be ended. It ends when its run begins.
        """
        self._interrupted_below = next_query(self._session) or 0
        try:
            stages = self._cluster.query_stages()
        except Exception as error:
            log.debug("the stages of %s are not known: %s", self.application, error)
            return
        with self._lock:
            begun = set(self._begun)
        for stage in stages:
            if stage.query not in begun and self._is_behind(stage.query):
                self._withdraw(stage, reason)

    def begun(self, run: DriverRun) -> None:
        """A run has begun."""
        self.show_run(run)

    def show_run(self, run: ActionRun) -> None:
        """What runs for an action is a job for observers from now on."""
        self._open_log(self._prepared)
        query = query_of(run.key.stage)
        with self._lock:
            self._begun.append(query)
            waiting = self._waiting.pop(query, None)
        job = None if waiting is None else waiting.job
        is_new = job is None or job.has_ended()
        if job is None or is_new:
            again = f"-{run.key.generation}" if run.key.generation else ""
            job = FrameJob(self._prepared, f"{stage_number(run.key.stage)}{again}")
        job.begin(run)
        if is_new:
            self._show(job)
        if query.isdecimal() and int(query) < self._interrupted_below:
            job.cancel_soon(INTERRUPTED)

    def ended(self, key: RunKey, outcome: Outcome) -> None:
        """A run has ended.

        Spark would repeat the stage three times, although a task's own fault is there again. It
        would do the same with one that was cancelled.
        """
        if outcome.state is JobState.FINISHED and (query := query_of(key.stage)):
            with self._lock:
                self._finished.append(query)
        found = with_absence(outcome, self._cluster.absence)
        if found is not outcome:
            self._give_up(stage_of(key.stage), found)
        elif outcome.is_own_failure or outcome.state is JobState.CANCELLED:
            self.end_stage(stage_of(key.stage), outcome)
        else:
            note_failure(self.application, stage_of(key.stage), self._name, outcome)
        self.close_log()

    @property
    def _prepared(self) -> PreparedJob:
        assert self._job is not None, "no action can begin before there is a DataFrame"
        return self._job

    def _is_behind(self, query: str) -> bool:
        return self._number is not None and is_behind(self._session, query, self._number)

    def _withdraw(self, stage: QueryStage, reason: str) -> None:
        self.end_stage(stage.stage, Outcome(JobState.CANCELLED, reason=reason))

    def end_stage(self, stage: str, outcome: Outcome) -> None:
        """End a stage of Spark; the action raises what the outcome says."""
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

    def _show(self, job: FrameJob) -> None:
        """On the page, of which it says once where it is; in the terminal; and for later."""
        _running[job.job_id] = job
        job.when_ended(lambda: _ended(job))
        for notify in on_action_begun:
            notify(job)
        page, link = page_server(self._rest), ""
        if self._settings.archive_folder:
            jobs = None if page is None else page.jobs
            archive_at_end(job, self._settings.archive_folder, jobs)
        if page is not None:
            address, link = page.show(job), page.link(job.job_id)
            if not self._is_announced:
                self._is_announced = True
                print_link(job.name, address)
        if shows_progress(self._settings.progress):
            from headgate.observe.display import display

            display().watch(job, link)

    def _open_log(self, job: PreparedJob) -> None:
        with self._lock:
            self._open += 1
            if self._open == 1:
                job.log.open()

    def close_log(self) -> None:
        """What ``show_run`` has shown is over."""
        with self._lock:
            self._open -= 1
            if not self._open and self._job is not None:
                self._job.log.close()


class WaitingAction:
    """One that Spark has submitted, and whose run has not begun.

    It is a job for its observers as soon as it waits for slots. One thread looks at it, any other
    may withdraw it.
    """

    def __init__(self, prepared: PreparedJob, end: Callable[[QueryStage, str], None]) -> None:
        """``end``: ends a stage, with a reason."""
        self.job: FrameJob | None = None
        self.absence = ""
        """Why it waits in vain, in words."""
        self._prepared = prepared
        self._end_stage = end
        self._stages: Sequence[QueryStage] = ()
        self._watch: SlotWatch | None = None
        self._needed = 0
        self._missed = 0

    @property
    def is_over(self) -> bool:
        """Whether its query is gone; between two of its stages it seems to be."""
        return bool(self.absence) or self._missed >= MOST_MISSED

    def look(self, stages: Sequence[QueryStage], show: Callable[[FrameJob], None]) -> None:
        """``stages``: of its query."""
        self._missed = 0 if stages else self._missed + 1
        if not stages:
            return
        self._stages, job = stages, self._prepared
        needed = max(stage.needed for stage in stages) or job.slots
        if self._watch is None or needed != self._needed:
            self._needed = needed
            self._watch = SlotWatch(job.cluster, job.graph.name, needed, self._running, job.profile)
        self._watch.look()
        self.absence, reason = self._watch.absence, self._watch.reason
        if reason and self.job is None:
            self.job = FrameJob(job, f"q{next(_numbers)}", self.withdraw)
            self.job.reason = reason
            show(self.job)
        if self.job is not None:
            self.job.reason = reason

    def withdraw(self, reason: str) -> None:
        """End it before its run begins."""
        for stage in self._stages:
            self._end_stage(stage, reason)
        self.end()

    def end(self) -> None:
        """It has no run."""
        if self._watch is not None:
            self._watch.ended()
        if self.job is not None:
            self.job.withdrawn()

    def _running(self) -> int:
        return sum(stage.running for stage in self._stages)


def _ended(job: FrameJob) -> None:
    _running.pop(job.job_id, None)


def _watch_cells() -> None:
    """In a notebook, whoever interrupts a cell wants its actions to end, too."""
    shell = kernel_shell()
    if shell is not None and shell not in _shells:
        _shells.append(shell)
        shell.events.register("post_run_cell", _cell_ended)


def _cell_ended(result: Any = None, *_: object) -> None:
    if isinstance(signal_behind(getattr(result, "error_in_exec", None)), KeyboardInterrupt):
        jobs = list(_running.values())
        for job in jobs:
            job.cancel_soon(INTERRUPTED)
        lazy_jobs.interrupt(INTERRUPTED)
        for job in jobs:
            job.wait(CANCEL_S)
