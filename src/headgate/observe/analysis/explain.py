"""Turns a verdict into a diagnosis: one paragraph that a tired operator understands.

It says in this order what limits the job, the evidence, the cure, what the job could do without
it and what would limit it then, and the suggested parallelism. ``diagnose`` is the entry for a
window of a running job; ``cannot_say`` and ``has_ended`` answer where there is none.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from headgate.observe.analysis.diagnosis import Diagnosis, VertexAdvice
from headgate.observe.analysis.rates import (
    Possible,
    advise,
    core_share,
    job_rate,
    lag_growth,
    possible,
)
from headgate.observe.analysis.rules import (
    NO_PROBES,
    Cause,
    Probes,
    Verdict,
    find,
    find_in_life,
    waits,
)
from headgate.observe.analysis.windows import JobWindow, TaskWindow, VertexWindow
from headgate.plan.table import cut

READY: Final = 0.2
"""A thread that waits for a core for this part of its busy time says so."""
NAME: Final = 60
"""Longer names of vertices are cut."""


def diagnose(window: JobWindow, probes: Probes = NO_PROBES, *, complete: bool = True) -> Diagnosis:
    """What limits a job that runs; without probes the answer comes from counters alone."""
    return explain(window, find(window, probes), probes, complete=complete)


def cannot_say(reason: str, headline: str = "") -> Diagnosis:
    """There is no window to judge by."""
    text = f"Cannot say yet: {reason}."
    return Diagnosis(Cause.UNKNOWN.value, text, headline=headline or text, complete=False)


def has_ended(window: JobWindow, status: str) -> Diagnosis:
    """The diagnosis of a job that has ended, from a window over its whole life."""
    seconds = window.seconds
    records = round(sum(source.gain.records_in for source in window.sources))
    diagnosis = explain(window, find_in_life(window), complete=False)
    rate = f", {_rate(records / seconds)}" if seconds > 0 else ""
    ending = f"The job has ended ({status}) after {seconds:,.1f} s and {records:,} records{rate}."
    if diagnosis.cause == Cause.NONE.value:
        return replace(diagnosis, summary=ending, headline=ending.rstrip("."), advice=())
    return replace(diagnosis, summary=f"{ending} Over its whole life: {diagnosis.summary}")


def explain(
    window: JobWindow, verdict: Verdict, probes: Probes = NO_PROBES, *, complete: bool = True
) -> Diagnosis:
    """All that the diagnosis says, from what was found."""
    rate = job_rate(window, verdict.vertex)
    advice = advise(window, _held(window, verdict), rate)
    without = _without(window, verdict, rate)
    sentences = Explanation(window, verdict, probes, advice, rate)
    evidence = sentences.evidence()
    vertex, task = verdict.vertex, verdict.task
    headline = sentences.headline()
    summary = [
        headline + ".",
        *(text + "." for text in evidence),
        sentences.cure(),
        sentences.outlook(without),
        sentences.suggestions(),
    ]
    return Diagnosis(
        cause=verdict.cause.value,
        summary=" ".join(text for text in summary if text),
        vertex=-1 if vertex is None else vertex.id,
        subtask=task.subtask if task is not None and sentences.is_single else -1,
        keys=verdict.keys,
        line=probes.line if WORDS[verdict.cause].names_line else "",
        evidence=tuple(evidence),
        rate=rate,
        possible_rate=-1.0 if without is None else without.rate,
        next_vertex=-1 if without is None else without.limit,
        advice=tuple(advice),
        window_s=window.seconds,
        complete=complete,
        advised_rate=_advised(window, advice, rate),
        headline=headline,
    )


def _held(window: JobWindow, verdict: Verdict) -> dict[int, tuple[int, str]]:
    """Vertices for which more tasks do not help, or only so many."""
    found = {
        vertex.id: (max(vertex.vertex.parallelism, window.cores), "cores")
        for vertex in window.vertices
        if window.cores and vertex.gain.cpu_ms > 0 and not _mostly_waits(window, vertex)
    }
    vertex, cap = verdict.vertex, WORDS[verdict.cause].cap
    if vertex is None or not cap:
        return found
    most, reason = vertex.vertex.parallelism, cap
    if verdict.cause is Cause.SKEW and verdict.keys:
        most, reason = max(most, math.floor(1 / verdict.keys[0][1])), "hot key"
    return {**found, vertex.id: (most, reason)}


def _mostly_waits(window: JobWindow, vertex: VertexWindow) -> bool:
    """Whether more of its tasks could work at a time than there are cores."""
    return vertex.busiest is not None and waits(window, vertex.busiest)


def _without(window: JobWindow, verdict: Verdict, rate: float) -> Possible | None:
    """What the job could do without its bottleneck; None: there is none, or nobody knows."""
    vertex, task = verdict.vertex, verdict.task
    if vertex is None or not WORDS[verdict.cause].blames or not window.source_rate:
        return None
    factor, cores = math.inf, core_share(window)
    if verdict.cause is Cause.SKEW and task is not None and vertex.rate:
        # Without the skew all subtasks take as many records as the hot one does.
        even = vertex.vertex.parallelism * task.gain.rate / task.gain.busy
        factor = max(1.0, even / vertex.rate * vertex.max_busy)
    if verdict.cause is Cause.CPU and window.cpu > 0:
        own = vertex.gain.cpu_ms / max(1.0, window.seconds * 1000)
        left = max(0.0, window.cpu - own)
        cores = window.cores / left if left > 0.01 and window.cores else math.inf
    return possible(window, {vertex.id: factor}, cores, rate)


def _advised(window: JobWindow, advice: Sequence[VertexAdvice], rate: float) -> float:
    """What all sources would give with every suggestion applied."""
    if not window.source_rate:
        return -1.0
    factors = {each.vertex: each.suggested / each.parallelism for each in advice}
    return possible(window, factors, core_share(window), rate).rate


@dataclass(frozen=True, slots=True)
class Explanation:
    """The sentences about one verdict; ``WORDS`` has those that depend on the cause alone."""

    window: JobWindow
    verdict: Verdict
    probes: Probes
    advice: Sequence[VertexAdvice]
    rate: float
    """What the job does now, in records of its sources."""

    @property
    def is_single(self) -> bool:
        """Whether it is one subtask, rather than all of them."""
        vertex, task = self.verdict.vertex, self.verdict.task
        if vertex is None or task is None or len(vertex.tasks) < 2:
            return False
        return self.verdict.cause is Cause.SKEW or vertex.typical_busy(task) < 0.5 * task.gain.busy

    def headline(self) -> str:
        vertex, window = self.verdict.vertex, self.window
        rate = _rate(self.rate)
        if vertex is None:
            return self._no_limit(rate)
        name, limits = _named(vertex), f"limits the job to {rate}"
        if not window.source_rate:
            limits = "limits the job"
        subtask = -1 if self.verdict.task is None else self.verdict.task.subtask
        words = WORDS[self.verdict.cause].headline
        return words.format(name=name, limits=limits, rate=rate, subtask=subtask)

    def _no_limit(self, rate: str) -> str:
        window = self.window
        if not any(vertex.running for vertex in window.vertices):
            return "No task runs"
        if window.graph.batch:
            return f"Nothing holds up the job; its sources give {rate}"
        if not any(source.running for source in window.sources):
            return "The job keeps up; its sources have ended"
        if window.source_rate:
            return f"The job keeps up: it takes the {rate} that its sources give"
        return "The job keeps up: its sources give nothing at present"

    def evidence(self) -> list[str]:
        verdict, words, found = self.verdict, WORDS[self.verdict.cause], []
        vertex, task, held_up = verdict.vertex, verdict.task, verdict.held_up
        if vertex is None or task is None:
            return self._idle()
        gain = task.gain
        busy = f"it is busy {gain.busy:.0%} of the time"
        if f"{vertex.busy:.0%}" != f"{gain.busy:.0%}":
            busy = f"its busiest subtask, {task.subtask}, is busy {gain.busy:.0%} of the time"
            busy += f", all of them {vertex.busy:.0%} on average"
        if self.is_single:
            busy = f"subtask {task.subtask} is busy {gain.busy:.0%} of the time"
        if not words.is_busy:
            busy = f"its busiest subtask, {task.subtask}, is busy only {gain.busy:.0%} of the time"
        if held_up is not None:
            busy += f", while {_named(held_up)} is back-pressured {held_up.max_backpressured:.0%}"
        found.append(_sentence(busy))
        found += [_sentence(text) for text in words.details(self, vertex, task)]
        if self.probes.line and words.names_line:
            found.append(_sentence(self._line()))
        return found

    def waits(self, vertex: VertexWindow, task: TaskWindow) -> list[str]:
        gain = task.gain
        return [f"its thread used a core for only {_part(gain.cpu_ms, gain.busy_ms)} of it"]

    def full(self, vertex: VertexWindow, task: TaskWindow) -> list[str]:
        queues = ", ".join(
            f"{queue.operator!r} with capacity {queue.capacity}"
            for queue in task.figures.async_calls
        )
        return [
            f"for {task.gain.share(task.gain.full_ms):.0%} of the time records wait for a place in "
            f"the queue of {queues}"
        ]

    def state(self, vertex: VertexWindow, task: TaskWindow) -> list[str]:
        return [f"{self.probes.state_share:.0%} of that goes to reading and writing state"]

    def commits(self, vertex: VertexWindow, task: TaskWindow) -> list[str]:
        return [f"it commits for {task.gain.share(task.gain.commit_ms):.0%} of the time"]

    def alternates(self, vertex: VertexWindow, task: TaskWindow) -> list[str]:
        window = self.window
        peak = max(window.peak([vertex]), window.peak(window.vertices))
        together = sum(each.gain.busy for each in vertex.tasks)
        return [
            f"yet in single seconds some task is busy {peak:.0%}, and the tasks of "
            f"{_named(vertex)} together are busy {together:.0%}"
        ]

    def skew(self, vertex: VertexWindow, task: TaskWindow) -> list[str]:
        typical = vertex.typical_records(task)
        share = task.gain.records_in / vertex.gain.records_in if vertex.gain.records_in else 0.0
        others = "the others hardly any"
        if typical:
            others = f"{task.gain.records_in / typical:,.1f} times the median of the others"
        found = [f"it took {share:.0%} of the records of {len(vertex.tasks)} subtasks, {others}"]
        if self.verdict.keys:
            keys = ", ".join(f"{key} ({part:.0%})" for key, part in self.verdict.keys[:3])
            found.append(f"hot keys, with their shares of all records: {keys}")
        return found

    def cores(self, vertex: VertexWindow, task: TaskWindow) -> list[str]:
        window = self.window
        whole = sum(each.gain.cpu_ms for each in window.vertices)
        share = _part(vertex.gain.cpu_ms, whole)
        more = sum(host.waiting for host in window.hosts)
        wants = f" and wants {more:.1f} more" if more >= 0.1 else ""
        used = f"the job uses {window.cpu:.1f} of {window.cores} cores{wants}"
        return [f"{used}; {_named(vertex)} takes {share} of that", *self._ready(task)]

    def link(self, vertex: VertexWindow, task: TaskWindow) -> list[str]:
        megabytes = vertex.gain.bytes_in / 1e6 / max(self.window.seconds, 0.001)
        return [
            f"it is idle {vertex.gain.idle:.0%} of the time and gets {megabytes:,.2g} MB/s, "
            f"although more waits at its producers"
        ]

    def source(self, vertex: VertexWindow, task: TaskWindow) -> list[str]:
        growth = lag_growth(self.window, vertex)
        found = ["no vertex downstream of it is back-pressured"]
        if growth > 0 and math.isfinite(growth):
            found.append(f"its lag grows by {_rate(growth)}")
        return found + self.work(vertex, task)

    def work(self, vertex: VertexWindow, task: TaskWindow) -> list[str]:
        gain = task.gain
        if not gain.cpu_ms or gain.busy < 0.1:
            return []
        used = f"its thread used a core for {_part(gain.cpu_ms, gain.busy_ms)} of it"
        return [used, *self._ready(task)]

    def _ready(self, task: TaskWindow) -> list[str]:
        gain = task.gain
        if gain.runnable_ms < READY * gain.busy_ms or not gain.busy_ms:
            return []
        waited = _part(gain.runnable_ms, gain.busy_ms)
        return [f"it was ready to run and had no core for {waited} of its busy time"]

    def _idle(self) -> list[str]:
        """What is said of a job that nothing limits."""
        running = [each for each in self.window.vertices if each.running]
        if not running:
            return []
        busiest = max(running, key=lambda each: each.max_busy)
        held_up = max(running, key=lambda each: each.max_backpressured)
        return [
            f"No vertex is back-pressured more than {held_up.max_backpressured:.0%} of the time",
            f"The busiest, {_named(busiest)}, is busy {busiest.max_busy:.0%}",
        ]

    def throttled(self, vertex: VertexWindow, task: TaskWindow) -> list[str]:
        gain = task.gain
        throttled = [batch for batch in task.figures.batch_calls if batch.throttled_ms > 0]
        names = ", ".join(repr(batch.operator) for batch in throttled)
        found = [
            f"for {gain.share(gain.throttled_ms):.0%} of the time a batch of {names} is ready and "
            f"waits for the rate limit"
        ]
        refused = sum(batch.refused for batch in throttled)
        calls = sum(batch.calls for batch in throttled)
        if refused:
            found.append(f"the server has refused {refused:,} of {calls:,} calls so far")
        return found

    def _line(self) -> str:
        line, inner = self.probes.line, self.probes.innermost
        does = "waits" if self.verdict.cause is Cause.WAITS else "spends its time"
        deeper = f", mostly within {inner}" if inner else ""
        return f"it {does} in {line}, {self.probes.line_share:.0%} of its busy samples{deeper}"

    def cure(self) -> str:
        """What to do about it."""
        verdict, vertex = self.verdict, self.verdict.vertex
        if vertex is not None and verdict.cause is Cause.SKEW and verdict.keys:
            key, share = verdict.keys[0]
            if share > 1 / vertex.vertex.parallelism:
                return (
                    f"More parallelism will not help, because all records of key {key} go to one "
                    f"subtask: aggregate before the shuffle, or add a salt to that key."
                )
            return "Spread its keys: aggregate before the shuffle, or add a salt to them."
        if vertex is not None and verdict.cause is Cause.SOURCE and vertex.rate:
            each = _rate(vertex.rate / max(1, len(vertex.tasks)))
            return (
                f"Read with more tasks, each of which gives about {each} now, or do less for each "
                f"record before the first shuffle."
            )
        return WORDS[verdict.cause].cure

    def outlook(self, without: Possible | None) -> str:
        """What the job could do without its limit, and what would limit it then."""
        if without is None:
            return ""
        if without.rate <= self.rate * 1.02:
            return f"Without it the job would hardly be faster{self._next(without)}."
        return f"Without it the job could do about {_rate(without.rate)}{self._next(without)}."

    def _next(self, without: Possible) -> str:
        if without.by_cores:
            return "; then the cores would be the limit"
        if without.limit < 0:
            return ""
        vertex = self.window.vertices[without.limit]
        if self.verdict.vertex is not None and vertex.id == self.verdict.vertex.id:
            return "; then all its subtasks would be busy"
        role = "source " if vertex.vertex.is_source else ""
        return f"; then the {role}{_named(vertex)} would be the limit".replace("the '", "'")

    def suggestions(self) -> str:
        """Other parallelism, if any vertex should have it."""
        changes = [each for each in self.advice if each.suggested != each.parallelism]
        if not changes:
            return ""
        texts = []
        for each in changes:
            notes = [f"limited by {each.limited_by}"] if each.limited_by else []
            notes += self._many(each)
            why = f" ({'; '.join(notes)})" if notes else ""
            texts.append(f"{cut(each.name, NAME)!r} {each.parallelism} → {each.suggested}{why}")
        return f"Suggested parallelism: {', '.join(texts)}."

    def _many(self, advice: VertexAdvice) -> list[str]:
        """Why there may be more tasks than cores."""
        cores, vertex = self.window.cores, self.window.vertices[advice.vertex]
        if not 0 < cores < advice.suggested or not _mostly_waits(self.window, vertex):
            return []
        return [f"more than the {cores} cores, since its tasks mostly wait"]


@dataclass(frozen=True, slots=True)
class CauseWords:
    """How a cause is explained, and what it means for the advice."""

    headline: str
    """A format string for the vertex, what it limits, the rate and the subtask."""
    cure: str = ""
    details: Callable[[Explanation, VertexWindow, TaskWindow], list[str]] = Explanation.work
    cap: str = ""
    """Why more tasks do not help; empty: they may."""
    blames: bool = True
    """The job would be faster without the vertex."""
    names_line: bool = False
    """The line of the user's code where the time goes belongs to the evidence."""
    is_busy: bool = True
    """False: the evidence is that it is not busy all the time."""


WORDS: Final = {
    Cause.SKEW: CauseWords(
        "{name} {limits}: its subtask {subtask} gets too many of its records",
        "Spread its records: another key, a salt, or rebalance() if it has no key.",
        Explanation.skew,
        cap="skew",
        names_line=True,
    ),
    Cause.WAITS: CauseWords(
        "{name} {limits}: it waits for something outside of the job",
        "Make the calls asynchronous (AsyncDataStream), or many records with one call; more tasks "
        "help as well, since each of them only waits.",
        Explanation.waits,
        names_line=True,
    ),
    Cause.ASYNC_CAPACITY: CauseWords(
        "{name} {limits}: its queue of asynchronous calls is full",
        "Raise the capacity of the queue before the parallelism.",
        Explanation.full,
        cap="capacity",
    ),
    Cause.RATE_LIMIT: CauseWords(
        "{name} {limits}: its asynchronous calls have reached their rate limit",
        "More tasks will not help: make fewer calls, with larger batches (Batching) or a cache "
        "(CallCache), or raise the RateLimit if the server allows it.",
        Explanation.throttled,
        cap="rate limit",
    ),
    Cause.CPU: CauseWords(
        "The cores limit the job to {rate}; {name} uses most of their time",
        "More tasks will not help: make it cheaper, or give the job more cores.",
        Explanation.cores,
        cap="cores",
        names_line=True,
    ),
    Cause.STATE: CauseWords(
        "{name} {limits}: it is busy with its state",
        "Touch the state less often for each record, give RocksDB more memory "
        "(state.backend.rocksdb.memory), or keep the state in memory (hashmap).",
        Explanation.state,
        names_line=True,
    ),
    Cause.LINK: CauseWords(
        "The link to {name} {limits}",
        "Send less: smaller records, a filter or an aggregation before the shuffle; or allow more "
        "in flight with more or larger network buffers.",
        Explanation.link,
        cap=Cause.LINK.value,
        is_busy=False,
    ),
    Cause.COMMIT: CauseWords(
        "{name} {limits}: it commits, and takes no records meanwhile",
        "Take checkpoints less often, or make the commit of the sink cheaper.",
        Explanation.commits,
        cap=Cause.COMMIT.value,
        is_busy=False,
    ),
    Cause.ALTERNATING: CauseWords(
        "{name} {limits}: its load alternates, and its tasks wait for each other",
        "Larger network buffers smooth short bursts; keys that are spread better, or a finer time "
        "span of windows, spread the work.",
        Explanation.alternates,
        cap=Cause.ALTERNATING.value,
        is_busy=False,
    ),
    Cause.BUSY: CauseWords("{name} {limits}: it cannot work faster", names_line=True),
    Cause.SOURCE: CauseWords(
        "The source {name} {limits}", details=Explanation.source, blames=False, names_line=True
    ),
    Cause.NONE: CauseWords("", blames=False),
    Cause.UNKNOWN: CauseWords("", blames=False),
}


def _named(vertex: VertexWindow) -> str:
    return repr(cut(vertex.name, NAME))


def _rate(rate: float) -> str:
    return f"{rate:,.0f} records/s" if rate >= 10 else f"{rate:.2g} records/s"


def _part(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole > 0 else "nothing"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
