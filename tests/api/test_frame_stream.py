"""A DataFrame is read as records or as columns, not as both."""

from typing import Any

import pytest

from headgate import StreamExecutionEnvironment
from headgate.api.columns import ColumnStream, KeyedColumnStream, col
from headgate.api.frame_stream import FrameStream
from headgate.api.keyed import KeyedStream
from headgate.base.errors import PlanInvalid
from headgate.functions.watermarks import WatermarkStrategy
from tests.core.columns.kit import SCHEMA

STRATEGY = WatermarkStrategy.for_monotonous_timestamps()


class Frame:
    """What is looked at of a DataFrame."""

    schema = SCHEMA


class FrameSource:
    dataframe = Frame()
    as_batches = False


def stream_of(env: StreamExecutionEnvironment) -> FrameStream:
    source = FrameSource()
    stream = FrameStream(env.from_collection([1]), source)
    assert stream.name("rows").uid("r").get_name() == "rows", "saying so is no reading"
    assert stream._repr_svg_() is not None
    return stream


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        (lambda s: s.columns(), ColumnStream),
        (lambda s: s.map_batches(lambda batch: batch), ColumnStream),
        (lambda s: s.select("word"), ColumnStream),
        (lambda s: s.with_column("x", col("number") + 1), ColumnStream),
        (lambda s: s.filter(col("number") > 1), ColumnStream),
        (lambda s: s.key_by("word", "number"), KeyedColumnStream),
        (lambda s: s.assign_timestamps_and_watermarks(STRATEGY, "at"), ColumnStream),
    ],
)
def test_columns_are_taken_and_then_there_are_no_records(
    env: StreamExecutionEnvironment, use: Any, kind: type
) -> None:
    stream = stream_of(env)
    assert type(use(stream)) is kind
    assert stream._source.as_batches
    assert type(stream.columns()) is ColumnStream, "columns may be taken again"
    with pytest.raises(PlanInvalid, match="read as columns already.*to_records"):
        stream.map(lambda row: row)


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.map(lambda row: row),
        lambda s: s.filter(lambda row: True),
        lambda s: s.union(s),
        lambda s: s.assign_timestamps_and_watermarks(STRATEGY),
        lambda s: s.print(),
    ],
)
def test_records_are_taken_and_then_there_are_no_columns(
    env: StreamExecutionEnvironment, use: Any
) -> None:
    stream = stream_of(env)
    use(stream)
    assert not stream._source.as_batches
    with pytest.raises(PlanInvalid, match="read as records already"):
        stream.select("word")


def test_a_function_selects_keys_of_records(env: StreamExecutionEnvironment) -> None:
    assert type(stream_of(env).key_by(lambda row: row)) is KeyedStream


def test_a_mistake_leaves_the_stream_as_it_was(env: StreamExecutionEnvironment) -> None:
    stream = stream_of(env)
    with pytest.raises(PlanInvalid, match="there is no column 'nope'"):
        stream.select("nope")
    stream.map(lambda row: row)
