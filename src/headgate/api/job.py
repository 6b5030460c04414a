"""A job that was started, as its program sees it: client, status, savepoints, result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from headgate.api.runtime import runtime
from headgate.base.checkpoints import Stop
from headgate.base.errors import FutureCancelled, PlanInvalid

_Value = TypeVar("_Value")
_Answer = TypeVar("_Answer", covariant=True)


class JobStatus(Enum):
    """Where a job stands."""

    INITIALIZING = 0
    CREATED = 1
    RUNNING = 2
    FAILING = 3
    FAILED = 4
    CANCELLING = 5
    CANCELED = 6
    FINISHED = 7
    RESTARTING = 8
    SUSPENDED = 9
    RECONCILING = 10

    def is_globally_terminal_state(self) -> bool:
        """Whether the job has ended for good."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Whether it does not run on here."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED


ENDED: Final = {status.name for status in JobStatus if status.is_globally_terminal_state()}
"""Names of the states of jobs that have ended for good."""


class JobID(str):
    """The id of a job: a string."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class JobExecutionResult:
    """The result of a job that has finished."""

    job_id: str
    net_runtime_ms: int = 0
    accumulators: Mapping[str, object] = field(default_factory=dict)

    def get_job_id(self) -> JobID:
        return JobID(self.job_id)

    def is_job_execution_result(self) -> bool:
        return True

    def get_net_runtime(self) -> int:
        """Milliseconds from the start of the tasks to the end of the last."""
        return self.net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> object:
        return self.accumulators[accumulator_name]

    def get_all_accumulator_results(self) -> dict[str, object]:
        return dict(self.accumulators)


class Promise(Protocol[_Answer]):
    """A result that comes later; the interface is that of ``concurrent.futures.Future``."""

    def done(self) -> bool: ...

    def result(self) -> _Answer:
        """Waits; raises what went wrong."""


class RunningJob(Protocol):
    """A job that a runtime has started."""

    @property
    def job_id(self) -> str: ...

    def status(self) -> JobStatus: ...

    def cancel(self) -> None:
        """Ask all tasks to end; returns when they have."""

    def wait(self) -> JobExecutionResult:
        """Until the job ends; raises what made it fail, also if it was cancelled."""

    def savepoint(self, directory: str | None, stop: Stop) -> Promise[str]:
        """Take one in a folder of its own below the directory, and perhaps end the job with it.

        Without a directory, below that of the settings; raises if there is none. The answer is the
        path of the savepoint.
        """

    def metrics(self) -> Mapping[str, object]:
        """Figures by name, as they are now."""

    def read_state(
        self, operator: str, state: str, keys: Sequence[object], timeout_s: float
    ) -> Promise[list[object]]:
        """What a keyed state holds at these keys; raises StateUnreadable, also later."""


class CompletableFuture(Generic[_Value]):
    """An answer that may take a while; ``result`` waits for it."""

    def __init__(self, ask: Callable[[], _Value], is_done: Callable[[], bool]) -> None:
        self._ask = ask
        self._is_done = is_done
        self._is_cancelled = False

    def cancel(self) -> bool:
        """Wait no more for the answer; the job goes on. False: it was there already."""
        if not self._is_cancelled:
            self._is_cancelled = not self._is_done()
        return self._is_cancelled

    def cancelled(self) -> bool:
        return self._is_cancelled

    def done(self) -> bool:
        return self._is_cancelled or self._is_done()

    def result(self) -> _Value:
        """Waits; raises what went wrong."""
        if self._is_cancelled:
            raise FutureCancelled
        return self._ask()

    def exception(self) -> Exception | None:
        """Waits; what went wrong, or None."""
        try:
            self.result()
        except Exception as error:
            return error
        return None


class JobClient:
    """Talks to a running job. The answers are futures, as in PyFlink: call ``result()``."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job

    def get_job_id(self) -> JobID:
        return JobID(self._job.job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture(self._job.status, lambda: True)

    def cancel(self) -> CompletableFuture[None]:
        """Begins at once; the future waits for the end."""
        self._job.cancel()
        return CompletableFuture(lambda: None, self._has_ended)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Begins at once; the future waits for the savepoint and gives its path.

        It gets a folder of its own below the directory, or below that of
        ``execution.checkpointing.savepoint-dir`` if none is given.
        """
        return self._savepoint(savepoint_directory, Stop.NO)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint and end the job with it: nothing after it is processed.

        At the end of event time all windows and timers fire first; take that for a job that is
        not to go on.
        """
        if not isinstance(advance_to_end_of_event_time, bool):
            raise PlanInvalid(
                f"stop_with_savepoint() was given {advance_to_end_of_event_time!r}; give True, so "
                f"that windows and timers fire, or False"
            )
        stop = Stop.DRAIN if advance_to_end_of_event_time else Stop.SUSPEND
        return self._savepoint(savepoint_directory, stop)

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """``result()`` waits for the end of the job and raises what made it fail."""
        return CompletableFuture(self._job.wait, self._has_ended)

    def get_metrics(self) -> dict[str, object]:
        """Figures of the job by name, as they are now."""
        return dict(self._job.metrics())

    def get_state(
        self, uid: str, state: str, key: object, timeout_s: float = 5.0
    ) -> CompletableFuture[object]:
        """What a keyed state of the running job holds at a key, at one moment of its task.

        ``uid`` is that of the operator, or its name if no other operator has it; ``key`` is what
        the key selector returns. Nothing there gives None, an empty list or an empty dict. Asked
        at once; ``result()`` waits, and raises StateUnreadable if there is no answer in time.
        """
        promise = self._job.read_state(uid, state, [key], timeout_s)
        return CompletableFuture(lambda: promise.result()[0], promise.done)

    def get_states(
        self, uid: str, state: str, keys: Iterable[object], timeout_s: float = 5.0
    ) -> CompletableFuture[list[object]]:
        """Like ``get_state`` for up to 1,000 keys, in their order; one moment for each task."""
        promise = self._job.read_state(uid, state, list(keys), timeout_s)
        return CompletableFuture(promise.result, promise.done)

    def _repr_html_(self) -> str:
        """The state and the vertices, as they are now, for notebooks."""
        return runtime().job_html(self._job)

    def _savepoint(self, directory: str | None, stop: Stop) -> CompletableFuture[str]:
        promise = self._job.savepoint(directory, stop)
        return CompletableFuture(promise.result, promise.done)

    def _has_ended(self) -> bool:
        return self._job.status().is_globally_terminal_state()
