"""Window joins and co-groups as a program writes them: what is refused, and what the plan says."""

from typing import Any

import pytest

from headgate.api.draft import TranslationContext
from headgate.base.errors import PlanInvalid
from headgate.common import Time, Types
from headgate.datastream import (
    CoGroupFunction,
    DataStream,
    FlatJoinFunction,
    JoinFunction,
    StreamExecutionEnvironment,
)
from headgate.datastream.window import (
    CountEvictor,
    CountTrigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from headgate.plan.stream_graph import NodeKind

MINUTE = TumblingProcessingTimeWindows.of(Time.minutes(1))


class Pair(JoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Any:
        return first, second


class Pairs(FlatJoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Any:
        return [(first, second)]


class Group(CoGroupFunction[Any, Any, Any]):
    def co_group(self, first: Any, second: Any) -> Any:
        yield list(first), list(second)


@pytest.fixture
def streams(env: StreamExecutionEnvironment) -> tuple[DataStream, DataStream]:
    return env.from_collection([("a", 1)]), env.from_collection([("a", 2)])


def first(record: Any) -> Any:
    return record[0]


def windows_of(streams: tuple[DataStream, DataStream], how: str = "join") -> Any:
    left, right = streams
    return getattr(left, how)(right).where(first).equal_to(first).window(MINUTE)


def call_of(stream: DataStream) -> Any:
    make: Any = stream._origins[0].transformation.translate(TranslationContext(1, False))
    return make.args[0].function.function


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (Pair(), "JoinCall"),
        (Pairs(), "FlatJoinCall"),
        (lambda left, right: left, "JoinCall"),
        (lambda left, right: (yield left), "FlatJoinCall"),
    ],
)
def test_a_join_is_flat_if_its_function_says_so(
    streams: tuple[DataStream, DataStream], function: Any, kind: str
) -> None:
    joined = windows_of(streams).apply(function)
    assert type(call_of(joined)).__name__ == kind
    assert joined.get_name() == "Window Join"


@pytest.mark.parametrize("function", [None, 3, "pair", Pair])
def test_a_join_needs_a_function(streams: tuple[DataStream, DataStream], function: Any) -> None:
    with pytest.raises(PlanInvalid, match=r"apply\(\) was given"):
        windows_of(streams).apply(function)


async def later(left: Any, right: Any) -> Any:
    return left, right


def test_a_join_function_is_not_async(streams: tuple[DataStream, DataStream]) -> None:
    with pytest.raises(PlanInvalid, match=r"apply\(\) was given"):
        windows_of(streams).apply(later)


@pytest.mark.parametrize("function", [None, 3, Group, Pair()])
def test_a_co_group_needs_a_function(streams: tuple[DataStream, DataStream], function: Any) -> None:
    with pytest.raises(PlanInvalid, match=r"apply\(\) was given .*; give a"):
        windows_of(streams, "co_group").apply(function)


def test_a_co_group_takes_a_function_or_a_callable(
    streams: tuple[DataStream, DataStream],
) -> None:
    windows = windows_of(streams, "co_group")
    assert windows.apply(Group()).get_name() == "Window Co-Group"
    assert windows.apply(lambda left, right: [], Types.INT()).get_type() == Types.INT()


def test_both_streams_travel_by_their_keys_to_one_operator(
    streams: tuple[DataStream, DataStream],
) -> None:
    transformation = windows_of(streams).apply(Pair())._origins[0].transformation
    assert transformation.kind is NodeKind.OPERATOR
    assert [[origin.ship.name for origin in origins] for origins in transformation.inputs] == [
        ["HASH"],
        ["HASH"],
    ]


def test_keys_that_streams_had_are_replaced(streams: tuple[DataStream, DataStream]) -> None:
    left, right = streams
    joined = left.key_by(len).join(right.key_by(len)).where(first).equal_to(first)
    transformation = joined.window(MINUTE).apply(Pair())._origins[0].transformation
    assert [len(origins) for origins in transformation.inputs] == [1, 1]


def test_a_join_says_what_is_missing(streams: tuple[DataStream, DataStream]) -> None:
    left, right = streams
    with pytest.raises(PlanInvalid, match=r"where\(\) was given the key selector 3"):
        left.join(right).where(3)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"equal_to\(\) was given the key selector 3"):
        left.join(right).where(first).equal_to(3)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"join\(\) was given 3; give another DataStream"):
        left.join(3)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"co_group\(\) was given 3; give another DataStream"):
        left.co_group(3)  # type: ignore[arg-type]
    other = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(PlanInvalid, match="streams of two environments"):
        left.join(other)


def test_a_join_in_event_time_needs_timestamps_on_both_sides(
    streams: tuple[DataStream, DataStream],
) -> None:
    left, right = streams
    left._origins[0].transformation.assigns_times = True
    keyed = left.join(right).where(first).equal_to(first)
    with pytest.raises(PlanInvalid, match="no timestamps; call assign_timestamps"):
        keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))


def test_windows_of_joins_take_triggers_evictors_and_lateness(
    streams: tuple[DataStream, DataStream],
) -> None:
    windows = windows_of(streams)
    trigger, evictor = CountTrigger.of(2), CountEvictor.of(1)
    joined = windows.trigger(trigger).evictor(evictor).allowed_lateness(5).apply(Pair())
    make: Any = joined._origins[0].transformation.translate(TranslationContext(1, True))
    plan = make.args[0].args[0]  # within what sorts a batch by key
    assert (plan.trigger, plan.evictor, plan.lateness_ms, plan.batch) == (trigger, evictor, 5, True)
