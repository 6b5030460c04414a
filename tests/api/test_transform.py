"""``headgate.transform``: a pipeline from DataFrame to DataFrame, written in one call."""

from typing import Any

import pytest

import headgate
from headgate.api.datastream import DataStream
from headgate.api.program import Program
from headgate.base.errors import PlanInvalid
from headgate.common import Configuration
from tests.api.kit import OneTaskRuntime


def doubled(stream: DataStream) -> DataStream:
    return stream.map(lambda x: x * 2)


def test_transform_makes_a_lazy_dataframe_of_a_pipeline(local_runtime: OneTaskRuntime) -> None:
    given = Configuration().set_string("pipeline.max-parallelism", "12")
    found: Any = headgate.transform(
        [1, 2], doubled, "n long", parallelism=3, configuration=given, job_name="doubling"
    )
    program, node, schema = found
    assert isinstance(program, Program)
    names = [(n.name, n.parallelism) for n in program.graph.nodes.values()]
    assert names == [("DataFrame", 3), ("Map", 3), ("DataFrame", 3)]
    assert program.graph.nodes[node].parallelism == 3 and schema == "n long"
    assert program.name == "doubling"
    assert program.configuration["pipeline.max-parallelism"] == "12"
    assert local_runtime.programs == [], "nothing runs before an action"


def summed(stream: DataStream) -> DataStream:
    return stream.key_by(lambda n: n).sum()


def is_batch(function: Any, mode: str | None = None) -> bool:
    given = Configuration()
    if mode is not None:
        given.set_string("execution.runtime-mode", mode)
    program: Any = headgate.transform([1], function, "n long", configuration=given)
    return bool(program[0].graph.batch)


def hours(stream: DataStream) -> DataStream:
    hourly = stream.window_all(headgate.TumblingEventTimeWindows.of(headgate.Time.hours(1)))
    return hourly.reduce(max)


def test_results_by_key_are_final_in_a_dataframe_unless_a_mode_was_set(
    local_runtime: OneTaskRuntime,
) -> None:
    assert is_batch(summed) and is_batch(summed, "automatic") and is_batch(summed, "batch")
    assert not is_batch(summed, "streaming") and not is_batch(summed, "STREAMING")
    assert is_batch(lambda stream: summed(stream).map(str)), "wherever the key is"
    assert is_batch(hours) and is_batch(lambda stream: stream.broadcast().map(str))
    env = headgate.StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(headgate.RuntimeExecutionMode.STREAMING)
    explicit: Any = summed(env.from_dataframe([1])).to_dataframe("n long")
    assert not explicit[0].graph.batch
    other = headgate.StreamExecutionEnvironment.get_execution_environment()
    summed(other.from_dataframe([1])).print()
    other.execute()
    assert not local_runtime.programs[-1].graph.batch, "only DataFrames have another default"


def test_a_dataframe_without_keys_streams_so_that_a_few_rows_end_it(
    local_runtime: OneTaskRuntime,
) -> None:
    assert not is_batch(doubled) and is_batch(doubled, "batch")
    assert not is_batch(lambda stream: stream.rebalance().map(str).union(stream))


def test_several_dataframes_may_come_together(local_runtime: OneTaskRuntime) -> None:
    def both(stream: DataStream) -> DataStream:
        return stream.union(stream.get_execution_environment().from_dataframe([3], "more"))

    program: Any = headgate.transform([1, 2], both, "n long")
    assert [n.name for n in program[0].graph.nodes.values()] == ["DataFrame", "more", "DataFrame"]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda stream: None, "<lambda> returned None; end it with the stream"),
        (lambda stream: stream.print(), "returned .*; end it with the stream, without a sink"),
        ("n long", "needs a function from a DataStream to a DataStream, not 'n long'"),
    ],
)
def test_what_is_no_pipeline_is_refused_in_a_sentence(
    local_runtime: OneTaskRuntime, function: Any, words: str
) -> None:
    with pytest.raises(PlanInvalid, match=words):
        headgate.transform([1], function, "n long")


def test_settings_that_cannot_be_are_refused(local_runtime: OneTaskRuntime) -> None:
    with pytest.raises(PlanInvalid, match="parallelism"):
        headgate.transform([1], doubled, "n long", parallelism=0)
    with pytest.raises(PlanInvalid, match="order_by"):
        headgate.transform([1], doubled, "n long", order_by=5)  # type: ignore[arg-type]
