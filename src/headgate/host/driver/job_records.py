"""What the driver remembers of a job over all its runs, for people: its states and its failures.

Law: of each attempt that has failed the root cause is kept, not what followed from it; the newest
``FAILURES_KEPT`` are kept, and their texts are bounded. A failure counts as followed by a restart
when the next attempt begins.
"""

import threading
import time
from collections import deque
from typing import Final

from msgspec import structs

from headgate.base.job_records import FailureRecord
from headgate.base.messages import Failure, TaskOrder
from headgate.control.life_cycle import JobState

FAILURES_KEPT: Final = 32
MESSAGE_CHARS: Final = 4_000
TRACEBACK_CHARS: Final = 20_000
"""The last of them: there it was raised."""


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class JobRecords:
    """Lives as long as anybody looks at the job. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._state: JobState | None = None
        self._reached_ms: dict[JobState, int] = {}
        self._failures: deque[FailureRecord] = deque(maxlen=FAILURES_KEPT)

    def reached(self, state: JobState) -> None:
        """The job is in this state now; says nothing new if it was before."""
        with self._lock:
            if state is not self._state:
                self._state = state
                self._reached_ms[state] = wall_ms()

    def state_times(self) -> dict[JobState, int]:
        """When each state was last reached."""
        with self._lock:
            return dict(self._reached_ms)

    def attempt_begun(self) -> None:
        """Whatever has failed before, the job goes on."""
        with self._lock:
            for number, record in enumerate(self._failures):
                if not record.restarted:
                    self._failures[number] = structs.replace(record, restarted=True)

    def failed(
        self, failure: Failure, attempt: int, task: TaskOrder | None = None, host: str = ""
    ) -> None:
        """An attempt has ended with this, or another one could not begin."""
        message, trace = failure.message, failure.traceback.rstrip()
        record = FailureRecord(
            at_ms=wall_ms(),
            attempt=attempt,
            kind=failure.kind,
            message=message if len(message) <= MESSAGE_CHARS else f"{message[:MESSAGE_CHARS]}…",
            task="" if task is None else task.id,
            vertex=-1 if task is None else task.vertex,
            subtask=-1 if task is None else task.subtask,
            host=host,
            operator=failure.operator,
            record=failure.record,
            traceback=trace if len(trace) <= TRACEBACK_CHARS else f"…{trace[-TRACEBACK_CHARS:]}",
        )
        self.add(record)

    def add(self, record: FailureRecord) -> None:
        """What was recorded of a run that is a part of this job."""
        with self._lock:
            self._failures.append(record)

    def failures(self) -> list[FailureRecord]:
        """The newest first."""
        with self._lock:
            return list(reversed(self._failures))
