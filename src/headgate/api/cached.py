"""CachedDataStream: records that are computed once and kept in the driver for later jobs.

The first job that reads it runs its upstream operators as a separate job before; later jobs, also
of other parts of the program, start from the cached records. Law: however many jobs read it, its
upstream runs once, until ``invalidate``. Cached records come with their timestamps, in the order in
which they were collected, from a single task.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias, cast

from headgate.api.collection import CollectionReader
from headgate.api.datastream import DataStream
from headgate.api.draft import (
    Draft,
    Factory,
    Origin,
    Transformation,
    TranslationContext,
    fixed,
    upstream,
)
from headgate.api.program import build_program
from headgate.api.runtime import runtime
from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Record
from headgate.base.errors import PlanInvalid
from headgate.core.operators.one_input import ProcessOperator
from headgate.core.operators.sinks import SinkOperator
from headgate.core.operators.source import SourceOperator
from headgate.functions.context import ConnectorContext
from headgate.functions.function import ProcessFunction
from headgate.functions.source import Source, SplitReader
from headgate.functions.type_variables import T
from headgate.plan.stream_graph import NodeKind

Kept: TypeAlias = list[tuple[Record, int]]
"""Records with their timestamps."""


class CachedDataStream(DataStream[T]):
    """Made by ``cache``; everything that a stream can do starts from what was kept."""

    def __init__(self, stream: DataStream[T]) -> None:
        draft, transformations = (
            stream._draft,
            upstream(origin.transformation for origin in stream._origins),
        )
        endless = [
            transformation.name
            for transformation in transformations
            if transformation.source and not transformation.source.bounded
        ]
        if endless:
            raise PlanInvalid(
                "is a source that never ends, so that cache() would never have all records; "
                "write them to a sink instead",
                endless[0],
            )
        self._source = CachedSource(partial(_compute, draft, stream._origins))
        super().__init__(draft, [Origin(self._reading(draft, transformations))], stream._type)

    def invalidate(self) -> None:
        """Drop the cached records; the next job that reads them computes them again."""
        self._source.kept = None

    def _reading(self, draft: Draft, transformations: list[Transformation]) -> Transformation:
        source = self._source

        def translate(context: TranslationContext) -> Factory:
            return partial(SourceOperator, source, context.splits)

        transformation = draft.new_transformation(
            "Cache", NodeKind.SOURCE, translate, (), (("source", source),)
        )
        transformation.source = source
        transformation.parallelism = 1
        transformation.is_non_parallel = True
        transformation.assigns_times = any(reading.assigns_times for reading in transformations)
        # Upstream operators run in a job of their own, so they must not run in this one, too.
        draft.pending[:] = [pending for pending in draft.pending if pending not in transformations]
        draft.pending.append(transformation)
        return transformation


class CachedSource(Source):
    """Its one split is what was kept; the source itself travels empty."""

    finds_more = False

    def __init__(self, compute: Callable[[], Kept] | None) -> None:
        self.kept: Kept | None = None
        self._compute = compute

    def splits(self, parallelism: int) -> Sequence[Kept]:
        if self.kept is None:
            assert self._compute is not None, "splits are made in the driver"
            self.kept = self._compute()
        return [self.kept]

    def open(self, split: object, position: object, context: ConnectorContext) -> SplitReader:
        assert isinstance(split, list)
        assert position is None or isinstance(position, int), position
        return CollectionReader(split, position or 0, _timed)

    def __reduce__(self) -> tuple[type["CachedSource"], tuple[None]]:
        return CachedSource, (None,)


def _timed(kept: Kept) -> Bundle:
    times = [None if time_ms == MIN_WATERMARK_MS else time_ms for _, time_ms in kept]
    untimed = times.count(None) == len(times)
    return Bundle([record for record, _ in kept], None if untimed else times)


class WithTime(ProcessFunction[Record, tuple[Record, int]]):
    """Puts each record beside its timestamp, so that both reach the driver."""

    def process_element(
        self, value: Record, ctx: ProcessFunction.Context
    ) -> Iterator[tuple[Record, int]]:
        yield value, ctx.timestamp()


def _compute(draft: Draft, origins: tuple[Origin, ...]) -> Kept:
    """Run what leads to the stream, and bring its records here."""
    function, sink = WithTime(), runtime().collect_sink()
    timed = draft.new_transformation(
        "Cache",
        NodeKind.OPERATOR,
        fixed(partial(ProcessOperator, function)),
        (origins,),
        (("process function", function),),
    )
    end = draft.new_transformation(
        "Collect Stream Sink",
        NodeKind.SINK,
        fixed(partial(SinkOperator, sink)),
        ((Origin(timed),),),
        (("sink", sink),),
    )
    end.parallelism = end.max_parallelism = 1
    results = runtime().collect(build_program(draft, "cache", [end]), end.id)
    try:
        return list(cast(Iterator[tuple[Record, int]], results))
    finally:
        results.close()
