"""Where a stream ends: in a sink, in the driver, in a DataFrame."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import cast, overload

from headgate.api.build import build_program, refuse_endless
from headgate.api.checks import check_function, check_object
from headgate.api.draft import Draft, Factory, Origin, Step, ready
from headgate.api.functions import SinkFunction
from headgate.api.operator_settings import OperatorSettings
from headgate.api.runtime import Results, outside
from headgate.api.source import Sink, TwoPhaseCommittingSink
from headgate.api.types.types import TypeInformation
from headgate.api.unexecuted import unexecuted
from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.core.operators.sinks import SinkFunctionOperator, SinkOperator
from headgate.core.operators.two_phase import TwoPhaseSinkOperator
from headgate.plan.stream_graph import NodeKind


class DataStreamSink(OperatorSettings):
    """The operator that ends a stream."""

    def __init__(self, step: Step) -> None:
        self._sink_step = step

    def _step(self, caller: str) -> Step:
        return self._sink_step


class CloseableIterator(Iterator[Record]):
    """Records of a running job, one after the other. Closing it early cancels the job.

    ::

        with stream.execute_and_collect() as results:
            for record in results:
                ...
    """

    def __init__(self, results: Results) -> None:
        self._results = results

    def __next__(self) -> Record:
        return next(self._results)

    def next(self) -> Record:
        return next(self)

    def close(self) -> None:
        self._results.close()

    def __enter__(self) -> "CloseableIterator":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Nobody can read on, so that the job would wait for ever and keep its slots.
        self._results.abandon()


class Endings:
    """The methods of a stream that lead out of the program."""

    _draft: Draft
    _origins: tuple[Origin, ...]
    _type: TypeInformation | None

    def add_sink(
        self, sink_func: SinkFunction[Record] | Callable[[Record], object]
    ) -> DataStreamSink:
        """Call ``invoke(value, context)`` for each record; a plain callable gets the value.

        ::

            stream.add_sink(lambda value: requests.post(url, json=value))
        """
        check_function(sink_func, "invoke", SinkFunction, "add_sink")
        name = getattr(sink_func, "__name__", type(sink_func).__name__)
        factory = partial(SinkFunctionOperator, sink_func)
        name = "function" if name == "<lambda>" else name
        return DataStreamSink(self._end(name, factory, "sink function", sink_func))

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write all records to a sink: ``stream.sink_to(TextFileSink("out"))``."""
        check_object(sink, "sink_to", ("create_writer",), Sink)
        for_type = getattr(sink, "for_type", None)
        if for_type is not None:
            sink = for_type(self._type)
        name = str(getattr(sink, "default_name", type(sink).__name__))
        return DataStreamSink(self._end(name, _operator_of(sink), "sink", sink))

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each record; with several tasks behind the number of its task: ``2> hello``."""
        sink = outside().print_sink(sink_identifier)
        return self.sink_to(sink).name("Print to Std. Out")

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[Record]: ...

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, *, limit: int
    ) -> list[Record]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Record]:
        """Run the program and bring the records of this stream here, in order of arrival.

        With ``limit`` a list of at most so many; then the job is cancelled.

        ::

            with env.from_collection([1, 2]).map(lambda x: x + 1).execute_and_collect() as found:
                print(list(found))
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise PlanInvalid(
                f"execute_and_collect(): the limit is {limit!r}; give a whole number above 0"
            )
        sink = outside().collect_sink()
        step = self._end("Collect Stream Sink", _operator_of(sink), "sink", sink)
        step.parallelism = step.max_parallelism = 1
        step.uid = "collect"
        draft = self._draft
        try:
            program = build_program(draft, job_execution_name, draft.pending)
            found = CloseableIterator(outside().collect(program, step.id))
        finally:
            draft.forget()
        unexecuted.has_executed = True
        if limit is None:
            return found
        with found:
            return list(islice(found, limit))

    def to_dataframe(self, schema: object) -> object:
        """The records as a lazy Spark DataFrame; an action on it runs what leads to this stream.

        ``schema`` is what Spark takes, for instance ``"word string, count long"``. A record is a
        Row, tuple, list or dict with a value for each column, or the value of a single column.
        Each action runs the program again: ``cache()`` the result if there will be several. An
        action on it, or on what is derived from it, raises JobFailed if the program fails.
        """
        sink = outside().dataframe_sink(schema)
        step = self._draft.new_step(
            "DataFrame",
            NodeKind.SINK,
            ready(partial(SinkOperator, sink)),
            (self._origins,),
            (("sink", sink),),
        )
        step.parallelism = self._origins[0].step.parallelism
        step.uid = "dataframe"
        refuse_endless([step], "to_dataframe")
        program = build_program(self._draft, None, [step])
        frame = outside().to_dataframe(program, step.id, schema)
        unexecuted.has_executed = True
        return frame

    def _end(self, name: str, factory: Factory, role: str, function: object) -> Step:
        return self._draft.add(
            name, NodeKind.SINK, ready(factory), (self._origins,), ((role, function),)
        )


def _operator_of(sink: Sink) -> Factory:
    """Sinks that commit in two phases have more to do than others."""
    if hasattr(sink, "create_committer"):
        return partial(TwoPhaseSinkOperator, cast(TwoPhaseCommittingSink, sink))
    return partial(SinkOperator, sink)
