"""The jobs that the server shows: those that run, and the last ones that have ended.

A thread looks at every running job once a second, for the rates and for those who follow it. Law:
there are at most ``ENDED`` jobs that have ended, the newest; an answer is made and encoded once,
however many ask for it; nothing that goes wrong here disturbs a job.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from headgate.observe.observed import ObservedJob
from headgate.observe.observer import JobObserver
from headgate.observe.web.answers import JobSummary
from headgate.observe.web.job_answers import JobMoment, job_details, job_summary
from headgate.observe.web.json_objects import encode
from headgate.plan.drawing import columns_and_rows

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
ENDED: Final = 20
FRESH_S: Final = 0.25
"""An answer that is not older is given again."""
KEPT: Final = 8
"""Answers of one job that may be given again; a wide vertex is some hundred kilobytes."""
CLOSE_S: Final = 5.0


class ShownJob:
    """One job, and what was seen of it. Methods are thread-safe."""

    def __init__(self, job: ObservedJob) -> None:
        self.job = job
        self.observer = JobObserver(job)
        self._places = columns_and_rows(job.graph)
        self._lock = threading.Lock()  # of what follows
        self._looks = 0
        self._saw_end = False
        self._failure_logged = False
        self._made: dict[str, _Made] = {}

    def look(self) -> bool:
        """Take its figures; whether it has ended."""
        has_ended = self.job.has_ended()
        self.observer.look()
        with self._lock:
            self._looks += 1
            self._saw_end = self._saw_end or has_ended
        return has_ended

    def look_failed(self, error: Exception) -> bool:
        """Say so once: it is looked at again; whether it has ended."""
        if not self._failure_logged:
            self._failure_logged = True
            log.error("job %s cannot be looked at; it runs on", self.job.job_id, exc_info=error)
        try:
            return self.job.has_ended()
        except Exception:  # nothing more can be known of it
            return True

    def moment(self) -> JobMoment:
        """The job at the last look; the window of a job that has ended is its whole life."""
        if not self._looks or (self.job.has_ended() and not self._saw_end):
            self.look()
        observer = self.observer
        why = observer.quick_diagnosis()
        return JobMoment(self.job, now_ms(), observer.window(), self._places, why)

    def summary(self) -> JobSummary:
        """A line of the list of jobs."""
        return job_summary(self.job, now_ms(), self.moment().why)

    def details(self) -> bytes:
        """The answer of ``GET /jobs/{id}``."""
        return self.answer("job", job_details)

    def answer(self, name: str, make: Callable[[JobMoment], msgspec.Struct]) -> bytes:
        """An answer of this name, encoded; it is made not more often than needed."""
        with self._lock:
            found = self._made.get(name)
            is_fresh = found is not None and time.monotonic() - found.at < FRESH_S
            if found is not None and (found.is_final or (is_fresh and not self.job.has_ended())):
                return found.text
            is_final = self._saw_end  # before the answer is made, which then has all of the end
        made = _Made(encode(make(self.moment())), time.monotonic(), is_final)
        with self._lock:
            self._made.pop(name, None)
            self._made[name] = made
            if len(self._made) > KEPT:
                del self._made[next(iter(self._made))]
        return made.text


@dataclass(frozen=True, slots=True)
class _Made:
    """An answer that was given, and may be given again."""

    text: bytes
    at: float
    is_final: bool


class ShownJobs:
    """Every method may be called from any thread."""

    def __init__(self, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        self._lock = threading.Lock()
        self._jobs: dict[str, ShownJob] = {}
        self._running: dict[str, ShownJob] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self.on_look: Callable[[ShownJob], None] = lambda shown: None
        """Called after each look at a job, on the thread that looks."""
        self.on_gone: Callable[[ShownJob], None] = lambda shown: None
        """Called when a job is forgotten, on any thread."""

    def watch(self, job: ObservedJob) -> ShownJob:
        """Show it from now on; a job of the same id that ran before is forgotten."""
        shown = ShownJob(job)
        with self._lock:
            former = self._jobs.pop(job.job_id, None)
            self._jobs[job.job_id] = self._running[job.job_id] = shown
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="headgate-web-look")
                self._thread.daemon = True
                self._thread.start()
        if former is not None:
            self.on_gone(former)
        return shown

    def find(self, job_id: str) -> ShownJob | None:
        return self._jobs.get(job_id)

    def all(self) -> list[ShownJob]:
        """The newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def close(self) -> None:
        """Look no more. Idempotent."""
        self._closed.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._closed.is_set():
            for shown in list(self._running.values()):
                self._look(shown)
            with self._lock:
                if not self._running:  # the next job starts another thread
                    self._thread = None
                    return
            self._closed.wait(self._look_s)

    def _look(self, shown: ShownJob) -> None:
        try:
            has_ended = shown.look()
            self.on_look(shown)
        except Exception as error:
            has_ended = shown.look_failed(error)
        if has_ended:
            self._ended(shown)

    def _ended(self, shown: ShownJob) -> None:
        with self._lock:
            if self._running.get(shown.job.job_id) is shown:
                del self._running[shown.job.job_id]
            ended = [job_id for job_id in self._jobs if job_id not in self._running]
            gone = [self._jobs.pop(job_id) for job_id in ended[:-ENDED]]
        for forgotten in gone:
            self.on_gone(forgotten)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
