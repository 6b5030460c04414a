"""The rules that find what limits a job, in their order.

First the candidate: the most downstream vertex that is busy while the one before it waits for
buffers; then why it is slow: skew, waiting, a rate limit or a full queue of asynchronous calls, no
free core, state, or plain work. Without a candidate: the cores, commits, alternating load or the
link, if somebody is back-pressured; otherwise a source is the limit, or nothing is. Law: a verdict
is a function of the window and the probes; ``explain`` turns it into a ``Diagnosis``. Probes are
samples of stacks and counts of keys; one that found nothing changes no verdict.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headgate.base.inspections import (
    KeyCounts,
    SampledActivity,
    SampledStack,
    StackSamples,
)
from headgate.observe.analysis.rates import lag_growth
from headgate.observe.analysis.windows import JobWindow, TaskWindow, VertexWindow

STATE_CODE: Final = ("(headgate/core/state/", "(headgate/host/rocksdb/", "(rocksdict/")
"""Where the code of keyed state lives, as it stands in the text of a frame."""
TURNS_CODE: Final = "(headgate/host/net/baton.py"
"""Where a thread waits for its turn."""
MOSTLY: Final = 0.5
"""A deeper frame is named as well if so many of the samples are in it."""
SHOWN_KEYS: Final = 5


@dataclass(frozen=True, slots=True)
class Probes:
    """What was asked of the task that limits the job; None: nothing, or nobody answered."""

    stacks: StackSamples | None = None
    keys: KeyCounts | None = None

    @property
    def line(self) -> str:
        """The line of the user's code where the task's busy time goes."""
        return costliest_line(self.busy_stacks)

    @property
    def innermost(self) -> str:
        """Where that line leads, if most of its samples are in one deeper frame; else nothing."""
        return innermost_frame(self.busy_stacks, self.line)

    @property
    def line_share(self) -> float:
        """The part of the busy samples in that line."""
        stacks = self.busy_stacks
        total = sum(stack.count for stack in stacks)
        inside = sum(stack.count for stack in stacks if _user_frame(stack) == self.line)
        return inside / total if total and self.line else 0.0

    @property
    def state_share(self) -> float:
        """The part of the busy samples within the code of keyed state."""
        stacks = self.busy_stacks
        total = sum(stack.count for stack in stacks)
        inside = sum(
            stack.count
            for stack in stacks
            if any(place in frame for frame in stack.frames for place in STATE_CODE)
        )
        return inside / total if total else 0.0

    @property
    def busy_stacks(self) -> list[SampledStack]:
        """Without those that wait for other tasks of the process."""
        stacks = () if self.stacks is None else self.stacks.stacks
        return [
            stack
            for stack in stacks
            if stack.activity is SampledActivity.BUSY and TURNS_CODE not in stack.frames[-1]
        ]


def costliest_line(stacks: Sequence[SampledStack]) -> str:
    """The frame of the user's function that most samples have; nothing: none has one."""
    counts: Counter[str] = Counter()
    for stack in stacks:
        counts[_user_frame(stack)] += stack.count
    counts.pop("", None)
    return counts.most_common(1)[0][0] if counts else ""


def innermost_frame(stacks: Sequence[SampledStack], line: str) -> str:
    """The frame below a user's line that most of its samples end in."""
    counts: Counter[str] = Counter()
    for stack in stacks:
        if line and _user_frame(stack) == line:
            counts[stack.frames[-1]] += stack.count
    if not counts:
        return ""
    frame, count = counts.most_common(1)[0]
    return frame if frame != line and count >= MOSTLY * counts.total() else ""


def hot_keys(counts: KeyCounts | None, subtask_share: float) -> tuple[tuple[str, float], ...]:
    """Keys and their shares of all records of the vertex; the largest first.

    ``subtask_share``: the part of the vertex's records that the looked-at subtask has taken.
    """
    if counts is None or not counts.sampled:
        return ()
    return tuple(
        (key.key, key.count / counts.sampled * subtask_share) for key in counts.keys[:SHOWN_KEYS]
    )


def _user_frame(stack: SampledStack) -> str:
    return stack.frames[stack.user_at] if 0 <= stack.user_at < len(stack.frames) else ""


BUSY: Final = 0.9
HELD_UP: Final = 0.5
HARDLY_HELD_UP: Final = 0.1
"""Below this nobody is back-pressured. In between, a busy consumer is at its limit, though it only
begins to hold up others."""
LIFE_BUSY, LIFE_HELD_UP = 0.5, 0.2
"""The bounds of busy and back-pressured over the whole life of a job."""
SKEW: Final = 2.0
"""A subtask with this many times the typical records has too many."""
THREAD_CPU: Final = 0.3
"""A thread that is busy by the wall clock and uses less CPU than this waits."""
EXPLAINED: Final = 0.5
"""The wait counts if this part of the busy time has no other explanation."""
FULL: Final = 0.5
"""A queue of asynchronous calls that is full for this part of the time is too small."""
THROTTLED: Final = 0.5
"""If calls wait for their rate limit for this part of that time, the limit makes the queue full."""
CORES: Final = 0.9
"""A host whose cores are wanted this much has none left."""
STATE: Final = 0.5
COMMITS: Final = 0.2
"""Tasks that commit for this part of the time hold up others."""
TURNS: Final = 0.8
"""In this part of the short intervals some task is busy, if tasks take turns."""
MOSTLY_BUSY: Final = 0.75
"""A consumer that is busy this much while others wait for it is the cause, if nothing else is."""
PEAK: Final = 1.25
"""A load alternates if it is so many times its mean while it lasts."""
FALLS_BEHIND: Final = 0.05
"""The lag of a source grows by more than this part of its rate."""


class Cause(Enum):
    """What limits a job; the values are those of ``Diagnosis.cause``."""

    UNKNOWN = "unknown"
    SKEW = "skew"
    WAITS = "waits"
    ASYNC_CAPACITY = "async-capacity"
    RATE_LIMIT = "rate-limit"
    CPU = "cpu"
    STATE = "state"
    LINK = "link"
    COMMIT = "commit"
    ALTERNATING = "alternating"
    BUSY = "busy"
    SOURCE = "source"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What limits the job, and whom it holds up."""

    cause: Cause
    vertex: VertexWindow | None = None
    task: TaskWindow | None = None
    """The task of it that is to be looked at; the busiest, mostly."""
    held_up: VertexWindow | None = None
    """The vertex before it that is back-pressured most."""
    keys: tuple[tuple[str, float], ...] = ()


NO_PROBES: Final = Probes()


def find_in_life(window: JobWindow) -> Verdict:
    """Apply the rules to the whole life of a job that has ended.

    It was partly spent with starting and ending, so less makes a candidate, and only a candidate
    counts.
    """
    candidate = candidate_of(window, LIFE_BUSY, LIFE_HELD_UP)
    if candidate is None:
        return Verdict(Cause.NONE)
    held_up = None if window.graph.batch else _held_up_before(window, candidate)
    return _explained(window, candidate, held_up, NO_PROBES)


def find(window: JobWindow, probes: Probes = NO_PROBES) -> Verdict:
    """Apply the rules to a window of a job that runs."""
    candidate = candidate_of(window)
    if candidate is not None:
        held_up = None if window.graph.batch else _held_up_before(window, candidate)
        return _explained(window, candidate, held_up, probes)
    held_up = _most_downstream(
        window, [each for each in window.vertices if each.max_backpressured >= HELD_UP]
    )
    if held_up is not None:
        return _nobody_busy(window, held_up, probes)
    candidate = candidate_of(window, BUSY, HARDLY_HELD_UP)
    if candidate is not None:
        return _explained(window, candidate, _held_up_before(window, candidate), probes)
    return _nobody_held_up(window)


def candidate_of(
    window: JobWindow, busy_from: float = BUSY, held_up_from: float = HELD_UP
) -> VertexWindow | None:
    """The most downstream vertex that is busy while its input is back-pressured.

    In a batch job nobody waits for buffers: the busiest of the vertices that run.
    """
    busy = [each for each in window.vertices if each.max_busy >= busy_from and not commits(each)]
    if window.graph.batch:
        busy = [each for each in busy if each.running] or busy
        return max(busy, key=lambda each: each.max_busy, default=None)
    blamed = []
    for vertex in busy:
        before = _held_up_before(window, vertex)
        if before is not None and before.max_backpressured >= held_up_from:
            blamed.append(vertex)
    return _most_downstream(window, blamed)


def waits(window: JobWindow, task: TaskWindow) -> bool:
    """Whether it is busy by the wall clock, yet neither runs nor wants to.

    What else explains the time: waiting for a core, for the interpreter that other threads of the
    process use, for a place in a queue of asynchronous calls, and commits.
    """
    gain = task.gain
    if gain.busy_ms <= 0 or task.figures.cpu_ms <= 0:
        return False
    cpu = gain.cpu_ms / gain.busy_ms
    if cpu >= THREAD_CPU:
        return False
    process = window.process_cpu.get(task.figures.slot, 0.0)
    others_ms = max(0.0, process * gain.elapsed_ms - gain.cpu_ms)
    known_ms = gain.cpu_ms + gain.runnable_ms + gain.full_ms + gain.commit_ms + others_ms
    return gain.busy_ms - known_ms >= EXPLAINED * gain.busy_ms


def is_skewed(vertex: VertexWindow, task: TaskWindow) -> bool:
    """Whether a busy subtask has far more records than the others, which are less busy."""
    if len(vertex.tasks) < 2:
        return False
    typical = vertex.typical_records(task)
    return task.gain.records_in > SKEW * typical and vertex.typical_busy(task) < BUSY


def lacks_cores(window: JobWindow) -> bool:
    """Whether more tasks would only share the same cores: a host has no more of them to give.

    What the threads would use counts, not only what they get: others may use the cores, too.
    """
    return any(host.cpu + host.waiting >= CORES * host.cores > 0 for host in window.hosts)


def commits(vertex: VertexWindow) -> bool:
    """Whether its tasks spend their time with commits rather than with records."""
    return any(
        task.gain.share(task.gain.commit_ms) >= COMMITS
        and task.gain.commit_ms >= 0.5 * task.gain.busy_ms
        for task in vertex.tasks
    )


def costliest(window: JobWindow) -> VertexWindow:
    """The vertex that uses most CPU."""
    return max(window.vertices, key=lambda each: each.gain.cpu_ms or each.gain.busy_ms)


def _explained(
    window: JobWindow, vertex: VertexWindow, held_up: VertexWindow | None, probes: Probes
) -> Verdict:
    """Why the candidate is slow."""
    task = vertex.busiest
    assert task is not None, "a busy vertex has tasks"
    if is_skewed(vertex, task):
        total = vertex.gain.records_in
        keys = hot_keys(probes.keys, task.gain.records_in / total if total else 0.0)
        return Verdict(Cause.SKEW, vertex, task, held_up, keys)
    if waits(window, task):
        return Verdict(Cause.WAITS, vertex, task, held_up)
    if task.gain.full_ms >= FULL * task.gain.busy_ms:
        if task.gain.throttled_ms >= THROTTLED * task.gain.full_ms:
            return Verdict(Cause.RATE_LIMIT, vertex, task, held_up)
        return Verdict(Cause.ASYNC_CAPACITY, vertex, task, held_up)
    if lacks_cores(window):
        blamed = costliest(window)
        return Verdict(Cause.CPU, blamed, blamed.busiest, held_up)
    cause = Cause.STATE if probes.state_share > STATE else Cause.BUSY
    return Verdict(cause, vertex, task, held_up)


def _nobody_busy(window: JobWindow, held_up: VertexWindow, probes: Probes) -> Verdict:
    """A vertex waits for buffers, although no consumer is busy all the time."""
    if lacks_cores(window):
        blamed = costliest(window)
        return Verdict(Cause.CPU, blamed, blamed.busiest, held_up)
    downstream = [each for each in window.vertices if each.id in _downstream(window, held_up.id)]
    committing = [each for each in downstream if commits(each)]
    if committing:
        blamed = committing[-1]
        worst = max(blamed.tasks, key=lambda task: task.gain.commit_ms)
        return Verdict(Cause.COMMIT, blamed, worst, held_up)
    consumers = [
        window.vertices[edge.target] for edge in window.graph.outputs_of(held_up.id)
    ] or downstream
    if not any(each.gain.elapsed_ms for each in consumers):
        return Verdict(Cause.NONE)
    blamed = max(consumers, key=lambda each: (window.peak([each]), each.max_busy))
    if _takes_turns(window, downstream):
        return Verdict(Cause.ALTERNATING, blamed, blamed.busiest, held_up)
    if blamed.max_busy >= MOSTLY_BUSY:  # what it takes is far more than what it waits for
        return _explained(window, blamed, held_up, probes)
    together = sum(task.gain.busy for task in blamed.tasks)  # turns may be shorter than intervals
    takes_turns = len(blamed.tasks) > 1 and together >= BUSY
    cause = Cause.ALTERNATING if takes_turns else Cause.LINK
    return Verdict(cause, blamed, blamed.busiest, held_up)


def _takes_turns(window: JobWindow, downstream: Sequence[VertexWindow]) -> bool:
    """Whether some task is always busy, though none is busy all the time."""
    steady, peak = max(each.max_busy for each in downstream), window.peak(downstream)
    return peak >= TURNS and peak >= PEAK * steady


def _nobody_held_up(window: JobWindow) -> Verdict:
    """The sources set the pace: one of them is the limit, or it has no more to give."""
    sources = [source for source in window.sources if source.running]
    busiest = max(sources, key=lambda source: source.max_busy, default=None)
    if busiest is not None and busiest.max_busy >= BUSY:
        task = busiest.busiest
        if lacks_cores(window):
            blamed = costliest(window)
            return Verdict(Cause.CPU, blamed, blamed.busiest)
        return Verdict(Cause.SOURCE, busiest, task)
    late = [each for each in sources if lag_growth(window, each) > FALLS_BEHIND * each.rate]
    if late:
        blamed = max(late, key=lambda source: lag_growth(window, source))
        return Verdict(Cause.SOURCE, blamed, blamed.busiest)
    return Verdict(Cause.NONE)


def _held_up_before(window: JobWindow, vertex: VertexWindow) -> VertexWindow | None:
    before = window.before(vertex.id)
    return max(before, key=lambda each: each.max_backpressured, default=None)


def _most_downstream(window: JobWindow, vertices: Sequence[VertexWindow]) -> VertexWindow | None:
    """The busiest of those that none of the others is downstream of, or the one held up most."""
    ids = {each.id for each in vertices}
    last = [each for each in vertices if not ids & _downstream(window, each.id)]
    return max(last, key=lambda each: (each.max_busy, each.max_backpressured), default=None)


def _downstream(window: JobWindow, vertex: int) -> set[int]:
    """All vertices that get its records, directly or not."""
    found: set[int] = set()
    for edge in sorted(window.graph.edges, key=lambda edge: edge.source):  # topological order
        if edge.source == vertex or edge.source in found:
            found.add(edge.target)
    return found
