"""A job on Spark, from its preparation to its end: its runs, and the Spark job of each.

A thread watches over the job, and each Spark job runs on another. Spark starts task managers,
which register with the coordinator in this process. A run whose processes are lost is followed by
another one, with a Spark job of its own, if the restart strategy says so. Law: when ``wait``
returns, the tasks have ended and Spark's job too, or it was cancelled; there is one run at a time,
and whatever remains of an earlier one is refused. Closing a prepared job releases everything,
however far it has come; one that never ran, or that a later driver is to resume, keeps its
checkpoints.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.api.job import JobExecutionResult, JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.errors import (
    JobCancelled,
    RestoreRefused,
    SavepointFailed,
    SessionFailed,
    SlotsShort,
)
from headgate.base.figures import TaskManagerFigures
from headgate.base.inspections import Found, Inspection, ShownState
from headgate.base.job_records import CheckpointsRecord, FailureRecord, LogLine
from headgate.base.messages import Failure, TaskFigures
from headgate.base.settings import LogSettings, StateSettings
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.core.chain.log_facts import log_always_with
from headgate.host.checkpoints.checkpoint_store import discard
from headgate.host.checkpoints.folder import open_folder
from headgate.host.checkpoints.location import prepare_savepoint, savepoint_location
from headgate.host.driver.checkpoint_keeper import CheckpointKeeper
from headgate.host.driver.driver_run import DriverRun
from headgate.host.driver.inspections import refused
from headgate.host.driver.job_endpoint import JobEndpoint
from headgate.host.driver.job_log import JobLog
from headgate.host.driver.results import ResultAddress
from headgate.host.driver.state_reads import StateRead, shown_state
from headgate.host.net.contact import DriverContact
from headgate.host.net.loop import now_ms, wall_ms
from headgate.host.shipping.failures import describe
from headgate.observe.observed import job_metrics, task_metrics
from headgate.plan.exchange_memory import ExchangeMemory
from headgate.plan.job_graph import JobGraph
from headgate.spark import failures, slot_watch
from headgate.spark.cluster import Slots, SparkCluster, cluster_of
from headgate.spark.driver_services import DriverServices
from headgate.spark.job_files import JobFiles
from headgate.spark.security import PublicContact, SecretDelivery
from headgate.spark.slot_watch import SlotWatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.spark.streaming.job_streams import JobStreams

log = logging.getLogger(__name__)

SETTLE_S: Final = 30.0
"""How long a run that has failed may still store a checkpoint before the next one begins."""
EXECUTORS_S: Final = 30.0
"""How long executors that were lost may take to be replaced."""
LOOK_S: Final = 0.1
SPARK_END_S: Final = 10.0
"""How long Spark's job may take to end after its task managers have been told to."""
SPARK_FAILED_S: Final = 1.5
"""How long Spark's job may take to end after a run that has failed; Spark may retry its stage."""
SPARK_CANCEL_S: Final = 30.0
EXIT_S: Final = 5.0
"""How long a program that ends waits for the jobs that it leaves behind."""
DESCRIBED_CHARS: Final = 300

STATUS: Final = {
    JobState.CREATED: JobStatus.CREATED,
    JobState.DEPLOYING: JobStatus.INITIALIZING,
    JobState.RUNNING: JobStatus.RUNNING,
    JobState.CANCELLING: JobStatus.CANCELLING,
    JobState.FAILING: JobStatus.FAILING,
    JobState.RESTARTING: JobStatus.RESTARTING,
    JobState.FINISHED: JobStatus.FINISHED,
    JobState.CANCELLED: JobStatus.CANCELED,
    JobState.FAILED: JobStatus.FAILED,
}


_running: dict[str, "SparkJob"] = {}


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job that is planned and known to the coordinator; whoever has prepared it closes it."""

    session: "SparkSession"
    driver: DriverServices
    job_id: str
    graph: JobGraph
    slots: int
    memory: ExchangeMemory
    """The memory of the exchange in its task managers."""
    result_addresses: tuple[ResultAddress, ...]
    state: StateSettings
    job_files: JobFiles
    endpoint: JobEndpoint
    log: JobLog
    """Its lines, and those of its workers."""
    secret: SecretDelivery
    keeper: CheckpointKeeper | None = None
    """Keeps its checkpoints and restarts; None: a job that is a part of a DataFrame has none."""
    streams: "JobStreams | None" = None
    """Its named inputs and outputs; None: it has none."""
    is_known: bool = False
    """It has an id of its user's: a later driver finds its checkpoints."""
    logs: LogSettings = field(default_factory=LogSettings)
    configuration: Mapping[str, str] = field(default_factory=dict, repr=False)
    """As people may see it."""
    profile: object | None = None
    """Spark's resource profile of its tasks; None: the session's."""

    @property
    def cluster(self) -> SparkCluster:
        """What runs its Spark jobs."""
        return cluster_of(self.session)

    @property
    def contact(self) -> DriverContact:
        """What the workers of the job's first run need."""
        return self.contact_of("")

    def contact_of(self, stage: str) -> DriverContact:
        """What the workers of a run need; each Spark job is a stage of its own."""
        made = self.driver.control.contact(self.job_id, self.memory.settings, stage, self.state)
        return replace(made, segments=self.memory.segments, logs=self.logs)

    def public_contact(self, stage: str) -> PublicContact:
        """The contact in the function that Spark sends, mostly without the secret."""
        return self.secret.public(self.contact_of(stage))

    def begin(self, stage: str = "") -> DriverRun:
        """Begin a run; raises what stands against it."""
        return self.driver.control.begin(self.job_id, stage)

    def await_restart(self, is_over: threading.Event) -> None:
        """Until a new run can begin: executors are there again, and the storage has done its work.

        Raises SlotsShort if executors do not come, SessionFailed if the session is no more, and
        StorageUnusable if the storage does not answer; ``is_over`` ends all waiting.
        """
        if self.cluster.is_stopped():
            raise SessionFailed("the job cannot go on, because its Spark session was stopped")
        if self.cluster.is_dynamic and self.found_slots().total < self.slots:
            self.cluster.allocate(self.slots, is_over.is_set)
        deadline = time.monotonic() + EXECUTORS_S
        while (found := self.found_slots()).total < self.slots and not is_over.wait(LOOK_S):
            if time.monotonic() > deadline:
                excluded, shared = [str(e) for e in found.excluded], self.graph.slots_per_worker
                raise SlotsShort(self.slots, found.total, 0, excluded, shared)
        if self.keeper is not None:
            self.keeper.await_settled(SETTLE_S, is_over)

    def found_slots(self) -> Slots:
        """The slots that Spark has for its tasks now."""
        return self.cluster.slots(self.profile)

    def retry_in_ms(self, failure: Failure) -> float | None:
        """A run could not begin: when to try again; None: no more."""
        if self.keeper is None:
            return None
        with self.keeper.lock:
            return self.keeper.recovery.failed(failure, None, now_ms())

    def savepoint(self, run: DriverRun, directory: str | None, stop: Stop) -> "Future[str]":
        """Take one in a folder of its own below the directory, or below that of the settings.

        Raises SettingsInvalid or StorageUnusable if it cannot be written there.
        """
        keeper = self.keeper
        assert keeper is not None, "a part of a DataFrame has no savepoints"
        default = keeper.recovery.settings.savepoint_folder
        where = prepare_savepoint(directory, default, self.job_id)
        future = run.savepoint(where, stop)
        location = savepoint_location(open_folder(where))

        def clear(done: "Future[str]") -> None:
            if done.exception() is not None:
                keeper.put(partial(discard, location))

        future.add_done_callback(clear)
        return future

    def close(self, state: JobState = JobState.FAILED, *, suspended: bool = False) -> None:
        """The job has ended: nobody registers or delivers for it any more.

        ``suspended``: not because of anything about the job; a later driver may go on with it.
        """
        self.driver.slots.release(self.job_id)
        self.driver.control.close_job(self.job_id)
        self.secret.close()
        self.endpoint.close()
        self.log.close()
        for result_address in self.result_addresses:
            self.driver.results.close_stream(result_address)
        if self.streams is not None:
            self.streams.close("SUSPENDED" if suspended else STATUS[state].name)
        if self.keeper is not None:
            keeps = suspended and self.is_known
            self.keeper.close(JobState.FAILED if keeps else state)


@dataclass(frozen=True, slots=True)
class JobRemains:
    """What is still known of a job that has ended: figures, but no code, session or socket."""

    figures: tuple[TaskFigures, ...] = ()
    restarts: int = 0
    checkpoints: CheckpointsRecord = field(default_factory=CheckpointsRecord)
    metrics: Mapping[str, object] = field(default_factory=dict)
    """Metrics of the job as a whole."""


class SparkJob:
    """A job, as the API and its observers see it; see ``RunningJob`` and ``ObservedJob``."""

    def __init__(self, prepared: PreparedJob, submit: Callable[[str], Any]) -> None:
        """``submit`` runs the Spark job of a stage and returns at its end."""
        self.job_id = prepared.job_id
        self.graph = prepared.graph.outline()
        self.configuration = prepared.configuration
        self.started_at_ms = wall_ms()
        self.ended_at_ms: int | None = None
        run = prepared.begin()
        self._records, self._log = run.records, prepared.log
        self._run: DriverRun | None = run
        """The present one; a job may have several, one after the other. None: it has ended."""
        self._prepared: PreparedJob | None = prepared
        self._submit: Callable[[str], Any] | None = submit
        self._remains = JobRemains()
        self._began = time.monotonic()
        self._elapsed_ms = 0
        self._lock = threading.Lock()  # of what follows
        self._outcome: Outcome | None = None
        self._cancel_reason = ""
        self._suspended = False
        self._waits_for = ""
        self._listeners: list[Callable[[], None]] = []
        self._cancelled = threading.Event()
        self._done = threading.Event()
        _running[self.job_id] = self
        self._thread = prepared.cluster.thread(self._watch, f"headgate-job-{self.job_id}")
        self._thread.daemon = True
        self._thread.start()

    @property
    def name(self) -> str:
        return self.graph.name

    def status(self) -> JobStatus:
        """The status of the job, not of its present run."""
        run = self._run
        state = JobState.CREATED if run is None else run.state
        if (outcome := self._outcome) is not None:
            return STATUS[outcome.state]
        ended = None if run is None else run.outcome
        return JobStatus.RESTARTING if ended and self._goes_on(ended) else STATUS[state]

    def waits_for(self) -> str:
        """What its present run has to wait for before it can start; nothing: it need not wait."""
        return self._waits_for

    @property
    def is_dying(self) -> bool:
        """Whether its present run has ended or is about to."""
        return (run := self._run) is None or run.is_dead

    def figures(self) -> list[TaskFigures]:
        """The latest figures of each task."""
        return list(self._remains.figures) if (run := self._run) is None else run.figures

    def metrics(self) -> Mapping[str, object]:
        """Figures by name: of tasks, of the user's functions, of the job."""
        whole = self._remains.metrics if (keeper := self._keeper) is None else _metrics(keeper)
        return {**task_metrics(self.graph, self.figures()), **whole}

    def state_times(self) -> Mapping[str, int]:
        """When each state was last reached, by the name of its ``JobStatus``."""
        times = self._records.state_times()
        return {STATUS[state].name: at_ms for state, at_ms in times.items()}

    def task_managers(self) -> list[TaskManagerFigures]:
        """The processes of the present attempt."""
        return [] if (run := self._run) is None else run.task_managers

    def restarts(self) -> int:
        """So many attempts came after the first one."""
        return self._remains.restarts if (keeper := self._keeper) is None else keeper.restarts

    def failures(self) -> list[FailureRecord]:
        """The root cause of each attempt that has failed, the newest first."""
        return self._records.failures()

    def checkpoints(self) -> CheckpointsRecord:
        """Counts, and the newest checkpoints and savepoints."""
        run, keeper = self._run, self._keeper
        if run is None or keeper is None:
            return self._remains.checkpoints
        return keeper.checkpoints(run.restored_from)

    def log_lines(self, after: int = 0, limit: int = 1000) -> list[LogLine]:
        """Lines with a number above ``after``, the oldest first."""
        return self._log.lines(after, limit)

    def savepoint(self, directory: str | None = None, stop: Stop = Stop.NO) -> "Future[str]":
        """Take a savepoint in a folder of its own; the answer is its path.

        It stands below the directory, or below that of the settings. Whoever wants the job to end
        is answered when it has.
        """
        run, prepared = self._run, self._prepared
        if run is None or prepared is None:
            failed: Future[str] = Future()
            problem = f"the job is {self.status().name.lower()}"
            failed.set_exception(SavepointFailed(directory or "", problem))
            return failed
        return prepared.savepoint(run, directory, stop)

    def inspect(self, task: str, what: Inspection, timeout_s: float = 10.0) -> "Future[Found]":
        """Look at a task of the present run: its stacks, its channels, the records before it.

        See ``DriverRun.inspect``; between two runs the future fails at once.
        """
        if (run := self._run) is None:
            return refused(task, f"the job is {self.status().name.lower()}")
        return run.inspect(task, what, timeout_s)

    def read_state(
        self, operator: str, state: str, keys: Sequence[object], timeout_s: float
    ) -> StateRead:
        """What a keyed state holds at these keys; see ``RunningJob``."""
        return StateRead(self, operator, state, keys, timeout_s)

    def shown_state(
        self, operator: str, state: str, keys: Sequence[str], key_type: str, timeout_s: float
    ) -> ShownState:
        """See ``ObservedJob``."""
        return shown_state(self, operator, state, keys, key_type, timeout_s)

    def cancel(self, reason: str = "the user asked for it", *, suspend: bool = False) -> None:
        """Ask all tasks to end; returns when they have.

        ``suspend``: the reason is not the job's, so that it keeps its checkpoints if it has an id
        by which they can be found.
        """
        self.cancel_soon(reason, suspend=suspend)
        self._done.wait()

    def cancel_soon(self, reason: str, *, suspend: bool = False) -> None:
        """Ask all tasks to end, without waiting; at any moment, also between two runs."""
        with self._lock:
            if not self._cancel_reason:
                self._cancel_reason, self._suspended = reason, suspend
            run = self._run
        self._cancelled.set()
        if run is not None:
            run.cancel(reason)

    def wait(self, timeout_s: float | None = None) -> JobExecutionResult:
        """Until the job ends; raises what made it fail. Ctrl-C cancels the job."""
        try:
            has_ended = self._done.wait(timeout_s)
        except KeyboardInterrupt:
            self.cancel("the user interrupted it")
            raise
        if not has_ended:
            raise TimeoutError(f"job {self.name!r} has not ended within {timeout_s} s")
        assert self._outcome is not None
        return self._result(self._outcome)

    def has_ended(self) -> bool:
        """Whether no run follows; Spark may need another moment."""
        return self._outcome is not None

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call back once no run follows, at once if none does; on any thread."""
        with self._lock:
            if self._outcome is None:
                self._listeners.append(call)
                return
        call()

    def _result(self, outcome: Outcome) -> JobExecutionResult:
        if outcome.state is JobState.FINISHED:
            return JobExecutionResult(self.job_id, self._elapsed_ms)
        if outcome.state is JobState.CANCELLED:
            raise JobCancelled(self.name, outcome.reason)
        error = failures.failure_error(self.name, outcome.failure, outcome.reason)
        if isinstance(error.__cause__, RestoreRefused):  # as before Spark was asked
            raise error.__cause__
        raise error

    # On the thread that watches.

    def _watch(self) -> None:
        log_always_with({"job": self.name, "job_id": self.job_id})
        try:
            number = 0
            while self._watch_run(str(number or "")):
                number += 1
                if not self._begin_again(str(number)):
                    break
        except BaseException as error:  # nobody may wait for ever
            log.exception("job %s fails because of an internal error", self.name)
            failure = describe(error)
            self._records.failed(failure, self._open[1].attempt)
            self._settle(Outcome(JobState.FAILED, failure))
        finally:
            self._free()

    def _watch_run(self, stage: str) -> bool:
        """One run with its Spark job, to the end of both; whether another one is to follow."""
        prepared, run = self._open
        name = f"headgate-spark-{self.job_id}"
        spark = prepared.cluster.thread(self._run_spark, name, (run, stage))
        spark.daemon = True
        with prepared.cluster.barriers_allowed():
            spark.start()
            outcome = self._await_slots(prepared, run)
        outcome = outcome or run.wait()
        assert outcome is not None
        goes_on = self._goes_on(outcome)
        if not goes_on:
            absence = prepared.cluster.absence
            self._settle(failures.with_absence(outcome, absence, had_workers=run.had_workers))
        self._end_spark(run, spark)
        return goes_on

    def _await_slots(self, prepared: PreparedJob, run: DriverRun) -> Outcome | None:
        """Until a task manager registers, see to it that people know what Spark waits for."""
        cluster = prepared.cluster
        running = partial(cluster.running_tasks, self._group)
        watch = SlotWatch(cluster, self.name, prepared.slots, running, prepared.profile)
        try:
            while (outcome := run.wait(slot_watch.LOOK_S)) is None:
                if any(map(run.knows, range(prepared.slots))):
                    break
                watch.look()
                self._waits_for = watch.reason
                if watch.absence:  # the call that waits for Spark would find out much later
                    run.fail(failures.gone_failure(watch.absence))
            return outcome
        finally:
            watch.ended()
            self._waits_for = ""

    def _goes_on(self, outcome: Outcome) -> bool:
        return outcome.restart_in_ms is not None and not self._cancelled.is_set()

    def _begin_again(self, stage: str) -> bool:
        """After its pause; False: the job is over, as ``_outcome`` says."""
        prepared, ended = self._open
        outcome = ended.outcome
        assert outcome is not None
        pause_ms = outcome.restart_in_ms
        while pause_ms is not None and not self._cancelled.wait(pause_ms / 1000):
            try:
                prepared.await_restart(self._cancelled)
                run = prepared.begin(stage)
            except Exception as error:
                log.warning("job %s cannot begin anew: %s", self.name, error)
                failure = describe(error)
                self._records.failed(failure, ended.attempt)
                pause_ms = prepared.retry_in_ms(failure)
                outcome = failures.cannot_restart(outcome, failure, pause_ms)
                continue
            with self._lock:
                self._run = run
                reason = self._cancel_reason
            if reason:
                run.cancel(reason)
            return True
        self._settle(outcome)
        return False

    def _run_spark(self, run: DriverRun, stage: str) -> None:
        log_always_with({"job": self.name, "job_id": self.job_id})
        prepared, submit = self._open[0], self._submit
        assert submit is not None, "the job has ended"
        try:
            prepared.cluster.begin_group(self._group, description(self.graph))
            submit(stage)
        except Exception as error:
            log.debug("Spark's job of %s has ended: %s", self.name, error)
            run.fail(failures.spark_failure(error))
        else:
            if run.wait(SPARK_END_S) is None:
                run.fail(describe(RuntimeError("Spark's job ended before the tasks did")))

    def _end_spark(self, run: DriverRun, spark: threading.Thread) -> None:
        """After the end of the run: see to it that Spark's job has ended as well."""
        outcome = run.outcome
        if outcome is not None and outcome.state is JobState.FINISHED:
            spark.join(SPARK_END_S)
        else:
            spark.join(0.1 if run.is_gone else SPARK_FAILED_S)
        if spark.is_alive():
            try:
                self._open[0].cluster.cancel_group(self._group)
            except SessionFailed as error:
                log.debug("Spark's job of %s is left alone: %s", self.name, error)
                return
            except Exception as error:  # Spark is stopping, or Java is gone: its jobs end, too
                log.debug("Spark's job of %s cannot be cancelled: %s", self.name, error)
            spark.join(SPARK_CANCEL_S)

    def _settle(self, outcome: Outcome) -> None:
        """No run follows."""
        if self._cancelled.is_set() and outcome.restart_in_ms is not None:
            outcome = Outcome(JobState.CANCELLED, reason=self._cancel_reason)
        with self._lock:
            if self._outcome is not None:
                return
            self.ended_at_ms = wall_ms()
            self._elapsed_ms = int((time.monotonic() - self._began) * 1000)
            self._outcome = outcome
            self._records.reached(outcome.state)
            listeners, self._listeners = self._listeners, []
        for call in listeners:
            try:
                call()
            except Exception:
                log.exception("a callback at the end of job %s failed", self.name)

    def _free(self) -> None:
        _running.pop(self.job_id, None)
        try:
            outcome = self._outcome
            state = JobState.FAILED if outcome is None else outcome.state
            if state is JobState.FAILED:
                self._open[0].cluster.give_up()
            self._open[0].close(state, suspended=self._suspended)
        finally:
            try:
                self._forget()
            finally:
                self._done.set()

    def _forget(self) -> None:
        """Keep what people look at; let go of the program, its code, the session and sockets."""
        metrics = {} if (keeper := self._keeper) is None else _metrics(keeper)
        figures = tuple(self.figures())
        self._remains = JobRemains(figures, self.restarts(), self.checkpoints(), metrics)
        self._run = self._prepared = self._submit = None

    @property
    def _open(self) -> tuple[PreparedJob, DriverRun]:
        """On the threads of the job, which end before it lets go of them."""
        prepared, run = self._prepared, self._run
        assert prepared is not None and run is not None, f"job {self.job_id} has ended"
        return prepared, run

    @property
    def _keeper(self) -> CheckpointKeeper | None:
        return None if (prepared := self._prepared) is None else prepared.keeper

    @property
    def _group(self) -> str:
        return f"headgate-{self.job_id}"


def end_jobs(reason: str) -> None:
    """Cancel what still runs of this process and wait for it, but not for long."""
    jobs = list(_running.values())
    for job in jobs:
        job.cancel_soon(reason, suspend=True)
    deadline = time.monotonic() + EXIT_S
    for job in jobs:
        job._done.wait(max(0.0, deadline - time.monotonic()))


def _metrics(keeper: CheckpointKeeper) -> Mapping[str, object]:
    statistics = keeper.statistics()
    return job_metrics(keeper.restarts, statistics, statistics.last)


def description(graph: JobGraph) -> str:
    """What Spark's own page says about the job: its name and its vertices."""
    vertices = "; ".join(f"{vertex.name} ({vertex.parallelism})" for vertex in graph.vertices)
    short = vertices if len(vertices) <= DESCRIBED_CHARS else f"{vertices[:DESCRIBED_CHARS]}…"
    return f"Headgate: {graph.name} [{short}]"
