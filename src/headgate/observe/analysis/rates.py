"""What every vertex could take, what it would have to take, and how many tasks that needs.

The formulas are those of DS2 and of Flink's autoscaler. True rate = rate / busy share, with the
largest busy share of the tasks. Target of a source = its rate + the growth of its lag, at most what
it gives when nothing throttles it, and what it declares. Target of a vertex = sum over its inputs
of the target there x records sent to it for each record taken. Parallelism = p x target / (true
rate x utilisation), rounded up. Law: a suggestion is never below the present parallelism, because
the window may be a quiet one, and never above the cap of its vertex.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from headgate.base.figures import UNKNOWN
from headgate.observe.analysis.diagnosis import VertexAdvice
from headgate.observe.analysis.windows import JobWindow, VertexWindow

UTILISATION: Final = 0.8
"""How busy a vertex of the right parallelism is: the rest is for peaks and for catching up."""
SEEN_BUSY: Final = 0.01
"""Below this share of time the true rate would be a guess."""
LEAST_OPEN: Final = 0.01
"""A source is taken to be open for at least this share of its time."""
HELD_UP: Final = 0.1
"""A source that is back-pressured more than this could give more."""


def true_rate(vertex: VertexWindow) -> float:
    """Records a second that it could take with its present tasks; -1: unknown."""
    if vertex.max_busy < SEEN_BUSY or vertex.rate <= 0:
        return -1.0
    return vertex.rate / vertex.max_busy


def unthrottled_rate(window: JobWindow, source: VertexWindow) -> float:
    """Records a second that a source would give if it never waited for buffers.

    At most what it says itself; what it was seen to give while it was open is a mean over more than
    the window, in which it may have been open for a moment only.
    """
    seen = window.open_rates.get(source.id)
    if seen is None:
        seen = source.rate / max(LEAST_OPEN, 1 - source.backpressured)
    declared = max((task.figures.declared_rate for task in source.tasks), default=UNKNOWN)
    return max(source.rate, seen if declared == UNKNOWN else min(seen, declared))


def lag_growth(window: JobWindow, source: VertexWindow) -> float:
    """Records a second by which a source falls behind, below zero if it catches up; 0: unknown."""
    growth = window.lag_growth.get(source.id)
    if growth is None:
        return 0.0
    if window.lags[source.id].records != UNKNOWN:
        return growth.records
    older = growth.ms / 1000  # of a second that passes; its records are so much older
    return source.rate * older / (1 - older) if older < 1 else math.inf


def source_target(window: JobWindow, source: VertexWindow) -> float:
    """Records a second that it would have to give."""
    growth = max(0.0, lag_growth(window, source))
    wanted = source.rate + (growth if math.isfinite(growth) else 0.0)
    if source.backpressured <= HELD_UP:
        return wanted
    # It is held up: it could give more, and if nobody knows its lag, all of that is wanted.
    most = unthrottled_rate(window, source)
    return min(wanted, most) if growth > 0 else most


def source_need(window: JobWindow, source: VertexWindow) -> float:
    """What comes in, for its own parallelism; 0: nobody knows, or it keeps up."""
    growth = lag_growth(window, source)
    return source.rate + growth if 0 < growth < math.inf else 0.0


def targets(window: JobWindow) -> list[float]:
    """For every vertex, by id."""
    return _flows(window, lambda source: source_target(window, source))


def _flows(window: JobWindow, given: Callable[[VertexWindow], float]) -> list[float]:
    """What every vertex gets, by id, if the sources give so much."""
    found = [0.0] * len(window.vertices)
    for vertex in window.vertices:  # in topological order
        if vertex.vertex.is_source:
            found[vertex.id] = given(vertex)
            continue
        for edge in window.graph.inputs_of(vertex.id):
            found[vertex.id] += found[edge.source] * window.vertices[edge.source].sent(edge.output)
    return found


def job_rate(window: JobWindow, limit: VertexWindow | None) -> float:
    """Records a second of all sources that the vertex which limits the job takes.

    Between the two lie buffers, which fill and empty in steps: soon after the start the sources
    give far more, or far less, than what is worked off.
    """
    if limit is None or limit.vertex.is_source:
        return window.source_rate
    before = {limit.id}
    for edge in sorted(window.graph.edges, key=lambda each: each.target, reverse=True):
        if edge.target in before:
            if not window.vertices[edge.source].is_steady(edge.output):
                return window.source_rate  # windows that fire, for instance
            before.add(edge.source)
    gets = _flows(window, lambda source: source.rate)[limit.id]
    return window.source_rate * limit.rate / gets if gets > 0 else window.source_rate


def needed(parallelism: int, target: float, true: float, utilisation: float = UTILISATION) -> int:
    """Tasks for this target."""
    wanted = parallelism * target / (true * utilisation)
    return max(1, math.ceil(wanted - 1e-9)) if math.isfinite(wanted) else parallelism


def cap_of(window: JobWindow, vertex: VertexWindow) -> tuple[int, str]:
    """The largest parallelism it can have, and what limits it."""
    most = vertex.vertex.max_parallelism
    keyed = any(edge.ship == "HASH" for edge in window.graph.inputs_of(vertex.id))
    reason = "key groups" if keyed else "max parallelism"
    splits = sum(task.figures.splits + task.figures.unassigned_splits for task in vertex.tasks)
    if vertex.vertex.is_source and 0 < splits < most:
        return splits, "source splits"
    return most, reason


def core_share(window: JobWindow) -> float:
    """How many times the present rate the cores allow; infinite if that is unknown."""
    return window.cores / window.cpu if window.cpu > 0.01 and window.cores else math.inf


def advise(
    window: JobWindow,
    held: Mapping[int, tuple[int, str]] | None = None,
    rate: float | None = None,
) -> list[VertexAdvice]:
    """For every vertex; ``held``: the most that helps for some of them, and why.

    ``rate``: what the job does now, see ``job_rate``; None: what its sources give.
    """
    wanted = targets(window)
    full = sum(wanted[source.id] for source in window.sources)
    allowed = (window.source_rate if rate is None else rate) * core_share(window)
    scale = min(1.0, allowed / full) if full > 0 else 1.0
    found = []
    for vertex in window.vertices:
        present, true = vertex.vertex.parallelism, true_rate(vertex)
        target = wanted[vertex.id]
        if vertex.vertex.is_source:
            # Without a lag nobody knows whether there is more to read, however busy it is.
            target = source_need(window, vertex)
        suggested, limited_by = present, ""
        if true > 0 and target > 0:
            suggested = needed(present, target, true)
            by_cores = max(present, needed(present, target * scale, true))
            if suggested > by_cores:
                suggested, limited_by = by_cores, "cores"
        cap, reason = cap_of(window, vertex)
        cap, reason = min((cap, reason), (held or {}).get(vertex.id, (cap, reason)))
        if suggested > cap:
            suggested, limited_by = max(cap, present), reason
        found.append(
            VertexAdvice(
                vertex.id,
                vertex.name,
                present,
                max(present, suggested),
                vertex.rate,
                true,
                wanted[vertex.id],
                vertex.max_busy,
                vertex.max_backpressured,
                limited_by,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Possible:
    """What the sources could give together, and what stops them from giving more."""

    rate: float
    limit: int = -1
    """The vertex; -1: the cores, or nothing that is known."""
    by_cores: bool = False


def possible(
    window: JobWindow, factors: Mapping[int, float], cores: float, rate: float | None = None
) -> Possible:
    """If the capacity of some vertices grew by these factors; infinite: they never limit.

    Each source is limited by the vertices that its records reach, in the proportions of the window,
    and by what it gives unthrottled; all of them by ``cores`` times the present ``rate``.
    """
    reached = _reached(window)
    total, limits = 0.0, []
    present = window.source_rate if rate is None else rate
    part = present / window.source_rate if window.source_rate > 0 else 1.0
    for source in window.sources:
        given = source.rate * part
        room, limit = _room(window, source, factors.get(source.id, 1.0), given), source.id
        for vertex in window.vertices:
            if vertex.vertex.is_source or source.id not in reached[vertex.id]:
                continue
            if vertex.max_busy < SEEN_BUSY:
                continue
            capacity = factors.get(vertex.id, 1.0) / vertex.max_busy
            if capacity < room:
                room, limit = capacity, vertex.id
        total += given * max(1.0, room)
        limits.append((given * (room - 1), room, limit))
    if not limits:
        return Possible(0.0)
    if total > present * cores:
        return Possible(present * max(1.0, cores), -1, by_cores=True)
    # What has limited the source that would gain most is what comes next.
    return Possible(total, max(limits)[2])


def _room(window: JobWindow, source: VertexWindow, factor: float, given: float) -> float:
    """How many times its present rate a source would give: what it can, if that is wanted."""
    if given <= 0:
        return 1.0
    can = factor * unthrottled_rate(window, source)
    return max(1.0, min(can, source_target(window, source)) / given)


def _reached(window: JobWindow) -> list[set[int]]:
    """For every vertex the sources whose records it gets."""
    found: list[set[int]] = []
    for vertex in window.vertices:
        reached = {vertex.id} if vertex.vertex.is_source else set()
        for edge in window.graph.inputs_of(vertex.id):
            reached |= found[edge.source]
        found.append(reached)
    return found
