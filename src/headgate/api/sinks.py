"""Where a stream ends: in a sink, in the driver, in a DataFrame."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from headgate.api.draft import Factory, Transformation
from headgate.api.operator_settings import OperatorSettings
from headgate.api.runtime import Results
from headgate.core.operators.sinks import SinkOperator, TwoPhaseSinkOperator
from headgate.functions.function import OutputTag
from headgate.functions.sink import Sink, TwoPhaseCommittingSink
from headgate.functions.type_variables import T, V

if TYPE_CHECKING:
    from headgate.api.datastream import DataStream


class DataStreamSink(OperatorSettings):
    """The operator that ends a stream."""

    def __init__(
        self, transformation: Transformation, side_output: "Callable[[OutputTag], DataStream]"
    ) -> None:
        self._sink = transformation
        self._side_output = side_output

    def get_side_output(self, output_tag: OutputTag[V]) -> "DataStream[V]":
        """The dead letters of the sink, if its error policy has this tag."""
        return self._side_output(output_tag)

    def _transformation(self, caller: str) -> Transformation:
        return self._sink


class CloseableIterator(Iterator[T]):
    """Records of a running job, one after the other. Closing it early cancels the job.

    ::

        with stream.execute_and_collect() as results:
            for record in results:
                ...
    """

    def __init__(self, results: Results) -> None:
        self._results = results

    def __next__(self) -> T:
        return next(self._results)  # type: ignore[return-value] # those of this stream

    def next(self) -> T:
        return next(self)

    def close(self) -> None:
        self._results.close()

    def __enter__(self) -> "CloseableIterator[T]":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Nobody can read on, so that the job would wait for ever and keep its slots.
        self._results.abandon()


def sink_operator(sink: Sink) -> Factory:
    """Sinks that commit in two phases have more to do than others."""
    if hasattr(sink, "create_committer"):
        return partial(TwoPhaseSinkOperator, cast(TwoPhaseCommittingSink, sink))
    return partial(SinkOperator, sink)
