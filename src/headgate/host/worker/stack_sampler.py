"""A sampling profiler for tasks: one thread that looks at their stacks, only while somebody asks.

It needs neither root nor another process: ``sys._current_frames()`` shows where each thread is. A
sample costs the task the moment in which the sampler holds the interpreter's lock, about 30 µs; the
text of frames is made when all samples are there. Law: samples take at most 1 % of a core, or there
are fewer of them; the number of distinct stacks that are kept is bounded; when the last question is
answered, the thread ends and all is as it was before.
"""

import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, TypeAlias

from headgate.base.inspections import (
    MAX_HERTZ,
    MAX_SECONDS,
    MAX_STACKS,
    SampledActivity,
    SampledStack,
    SampleStacks,
    StackSamples,
)

SAMPLER_THREAD: Final = "headgate-stack-sampler"
MAX_FRAMES: Final = 200
"""How many frames of a stack are shown, the innermost ones."""

SWITCH_S: Final = 0.0005
"""How long a thread may keep the interpreter's lock while the sampler waits for it.

A thread that wants the lock waits this long before the other one is made to give it up; one that
gives it up by itself before, in a system call, is seen there. With Python's 5 ms, which is as long
as a whole step of a task, nearly all samples would show the system call after the step. All threads
of the process are hurried, so it is only as short as this for the last moment before a sample.
"""
APPROACH_S: Final = 0.002
"""That moment lasts so long at most, by chance: the sampler comes to it when a thread has given
up the lock, and samples must not always be taken the same time after that."""

SHARE: Final = 0.01
"""What the sampler takes of a core at most. The tasks lose as much once more by waiting for
the interpreter's lock. If a sample costs more, because the stacks are deep, the tasks many or the
machine is busy, there are fewer of them than were asked for."""
FREE_S: Final = 0.01
"""CPU time that counts for nothing: the first samples are the dearest."""

_PACKAGE: Final = str(Path(__file__).parents[2])
_MACHINERY: Final = ("threading.py", "selectors.py", "contextlib.py")
"""Files of Python that Headgate's own code calls; a user's function begins elsewhere."""
_WAITS: Final = ("selectors.py", "threading.py", "queue.py")

_Stack: TypeAlias = tuple[int, ...]
"""Innermost frame first: the id of its code, and where in it the thread is."""


@dataclass(frozen=True, slots=True)
class SampledTask:
    """What the sampler needs of a task."""

    thread: threading.Thread
    helpers: Sequence[threading.Thread]
    """Threads that run the user's code for the task: a source function, asynchronous calls."""
    activity: Callable[[], SampledActivity]
    """Asked from another thread."""


class StackSampler:
    """Samples the stacks of one process; any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all of the following
        self._samplings: list[_Sampling] = []
        self._thread: threading.Thread | None = None
        self._closed = False
        self._bell = threading.Lock()  # released: somebody has something for the thread
        self._bell.acquire()

    def sample(
        self,
        task: SampledTask,
        how: SampleStacks,
        answer: Callable[[StackSamples], None],
        fail: Callable[[str], None],
    ) -> None:
        """Take samples of a task; one of the two is called later, on the sampler's thread."""
        sampling = _Sampling(task, how, answer, fail)
        with self._lock:
            if not self._closed:
                self._samplings.append(sampling)
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name=SAMPLER_THREAD, daemon=True
                    )
                    self._thread.start()
                else:
                    self._ring()
                return
        fail("its task manager is about to end")

    def close(self) -> None:
        """Answer what is under way with what was seen so far, and end the thread. Idempotent."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._ring()
        if thread is not None:
            thread.join()

    def _ring(self) -> None:
        with suppress(RuntimeError):  # it rings already
            self._bell.release()

    def _run(self) -> None:
        began, began_cpu_s = time.perf_counter(), time.thread_time()
        while (samplings := self._pending()) is not None:
            self._sample_stacks(samplings)
            soonest = min(sampling.next_at for sampling in samplings)
            spent_s = time.thread_time() - began_cpu_s
            affordable = began + (spent_s - FREE_S) / SHARE
            pause_s = max(soonest, affordable) - time.perf_counter() - APPROACH_S / 2
            self._bell.acquire(timeout=max(0.0, pause_s))

    def _pending(self) -> "list[_Sampling] | None":
        """The questions under way; None: the thread ends, and the next question starts another."""
        with self._lock:
            for sampling in self._samplings:
                sampling.is_over = sampling.is_over or self._closed
            done = [sampling for sampling in self._samplings if sampling.is_over]
            self._samplings = [sampling for sampling in self._samplings if not sampling.is_over]
            pending = list(self._samplings) or None
            if pending is None:
                self._thread = None
        for sampling in done:
            sampling.finish()
        return pending

    def _sample_stacks(self, samplings: "Iterable[_Sampling]") -> None:
        with _short_turns:
            time.sleep(random.uniform(0.0, APPROACH_S))
            now = time.perf_counter()
            frames = sys._current_frames()
        for sampling in samplings:
            if sampling.next_at <= now + APPROACH_S / 2:
                sampling.look(frames, now)


class _ShortTurns:
    """The switch interval while any sampler of this process is about to look; the last restores it.

    A sampler may still answer its last question when the next one begins.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._samplers = 0
        self._before_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            self._samplers += 1
            if self._samplers == 1:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before_s, SWITCH_S))

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._samplers -= 1
            if not self._samplers:
                sys.setswitchinterval(self._before_s)


_short_turns: Final = _ShortTurns()


class _Sampling:
    """One question and what was seen for it."""

    def __init__(
        self,
        task: SampledTask,
        how: SampleStacks,
        answer: Callable[[StackSamples], None],
        fail: Callable[[str], None],
    ) -> None:
        self.next_at = time.perf_counter()
        self.is_over = False
        self._task = task
        self._answer = answer
        self._fail = fail
        self._interval_s = 1 / min(max(how.hertz, 1.0), MAX_HERTZ)
        self._began_at = self._last_at = self.next_at
        self._until = self.next_at + min(max(how.seconds, 0.0), MAX_SECONDS)
        self._seen = _Seen()
        self._threads: list[_ThreadClock] | None = None
        self._ended = False

    def look(self, frames: dict[int, FrameType], now: float) -> None:
        """Take a sample of each thread, unless the time is over or the task has ended."""
        threads = self._threads
        if threads is None:
            every = (self._task.thread, *self._task.helpers)
            threads = self._threads = [_ThreadClock(thread) for thread in every]
        frame = frames.get(threads[0].ident)
        if frame is None or not threads[0].thread.is_alive():
            self._ended = self.is_over = True
            return
        self._last_at = now
        self._seen.add(frame, self._task.activity(), threads[0].spent_ns())
        for helper in threads[1:]:
            frame = frames.get(helper.ident)
            if frame is not None and not frame.f_code.co_filename.endswith(_WAITS):
                self._seen.add(frame, SampledActivity.BUSY, helper.spent_ns())
        self.is_over = now >= self._until
        # A sampler that was late does not catch up: that would show one moment several times.
        self.next_at = max(self.next_at + self._interval_s, now + self._interval_s / 2)

    def finish(self) -> None:
        """Answer; whatever happens here is told, and harms nobody."""
        try:
            if not self._seen.samples:
                self._fail("it has ended" if self._ended else "its task manager is about to end")
                return
            wall_ms = (self._last_at - self._began_at) * 1000
            self._answer(self._seen.summary(wall_ms, self._ended))
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")


class _ThreadClock:
    """CPU time of a thread, from outside."""

    __slots__ = ("_clock", "_last_ns", "ident", "thread")

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread
        self.ident = thread.ident or 0
        self._clock: int | None = None
        if thread.is_alive() and hasattr(time, "pthread_getcpuclockid"):
            with suppress(OSError):
                self._clock = time.pthread_getcpuclockid(self.ident)
        self._last_ns = self._read()

    def spent_ns(self) -> int:
        """Since the last call."""
        now_ns, before_ns = self._read(), self._last_ns
        self._last_ns = now_ns
        return max(0, now_ns - before_ns)

    def _read(self) -> int:
        if self._clock is None:
            return 0
        try:
            return time.clock_gettime_ns(self._clock)
        except OSError:  # the thread has ended
            return self._last_ns


@dataclass(slots=True)
class _Seen:
    """Samples, counted by stack."""

    samples: int = 0
    dropped: int = 0
    cpu_ns: int = 0
    counts: dict[tuple[SampledActivity, _Stack], list[int]] = field(default_factory=dict)
    codes: dict[int, CodeType] = field(default_factory=dict)  # kept, so that ids stay theirs

    def add(self, frame: FrameType | None, activity: SampledActivity, cpu_ns: int) -> None:
        self.samples += 1
        self.cpu_ns += cpu_ns
        stack: list[int] = []
        codes, left = self.codes, MAX_FRAMES
        while frame is not None and left:
            code = frame.f_code
            codes[id(code)] = code
            stack += (id(code), frame.f_lasti)
            frame, left = frame.f_back, left - 1
        key = activity, tuple(stack)
        count = self.counts.get(key)
        if count is not None:
            count[0] += 1
            count[1] += cpu_ns
        elif len(self.counts) < 4 * MAX_STACKS:  # places, of which several make one line
            self.counts[key] = [1, cpu_ns]
        else:
            self.dropped += 1

    def summary(self, wall_ms: float, ended: bool) -> StackSamples:
        """Stacks in text, the most frequent first."""
        texts = _FrameTexts(self.codes)
        merged: dict[tuple[SampledActivity, tuple[str, ...], int], list[int]] = {}
        for (activity, stack), (count, cpu_ns) in self.counts.items():
            frames, user_at = texts.of(stack)
            known = merged.setdefault((activity, frames, user_at), [0, 0])
            known[0] += count
            known[1] += cpu_ns
        ordered = sorted(merged.items(), key=lambda item: -item[1][0])
        stacks = tuple(
            SampledStack(frames, count, cpu_ns / 1e6, user_at, activity)
            for (activity, frames, user_at), (count, cpu_ns) in ordered[:MAX_STACKS]
        )
        dropped = self.dropped + sum(count for _, (count, _) in ordered[MAX_STACKS:])
        return StackSamples(self.samples, wall_ms, self.cpu_ns / 1e6, stacks, dropped, ended)


class _FrameTexts:
    """``function (file.py:line)`` for places in code."""

    def __init__(self, codes: dict[int, CodeType]) -> None:
        self._codes = codes
        self._texts: dict[tuple[int, int], str] = {}
        self._roots = sorted({root.rstrip("/") for root in sys.path if root}, key=len, reverse=True)

    def of(self, stack: _Stack) -> tuple[tuple[str, ...], int]:
        """Outermost first, and where the user's code begins; -1: nowhere."""
        places = [(stack[at], stack[at + 1]) for at in range(len(stack) - 2, -1, -2)]
        frames = tuple(self._text(code, at) for code, at in places)
        return frames, user_begin([self._codes[code].co_filename for code, _ in places])

    def _text(self, code_id: int, at: int) -> str:
        text = self._texts.get((code_id, at))
        if text is None:
            code = self._codes[code_id]
            name = getattr(code, "co_qualname", code.co_name)
            where = f"{self._short(code.co_filename)}:{line_of(code, at)}"
            text = self._texts[code_id, at] = f"{name.replace('<locals>.', '')} ({where})"
        return text

    def _short(self, path: str) -> str:
        """As it is imported; of what lies elsewhere, only the name of the file."""
        for root in self._roots:
            if path.startswith(root + "/"):
                return path[len(root) + 1 :]
        return path.rsplit("/", 1)[-1]


def line_of(code: CodeType, at: int) -> int:
    """The line of an instruction."""
    for begin, end, line in code.co_lines():
        if begin <= at < end and line is not None:
            return line
    return code.co_firstlineno


def user_begin(files: Sequence[str]) -> int:
    """The first frame that is neither Headgate's nor machinery of its; -1: there is none.

    ``files``: of the frames, outermost first.
    """
    inside = False
    for at, path in enumerate(files):
        if path.startswith(_PACKAGE + "/"):
            inside = True
        elif inside and not path.endswith(_MACHINERY) and not path.startswith("<frozen"):
            return at
    return -1
