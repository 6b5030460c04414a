"""A declared type is applied wherever one is: FLOAT has 32 bits, integers have bounds.

For those of states see ``test_state``.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate.base.errors import PlanInvalid, UserFunctionFailed
from headgate.common import Row, Time, TypeInformation, Types, WatermarkStrategy
from headgate.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
)
from headgate.datastream.connectors import NumberSequenceSource
from headgate.datastream.functions import AggregateFunction, ProcessJoinFunction
from headgate.datastream.state import MapStateDescriptor
from headgate.datastream.window import TumblingEventTimeWindows
from tests.semantics.lab import Lab

FLOAT, INT = Types.FLOAT(), Types.INT()
SINGLE = 1.100000023841858
SECOND = TumblingEventTimeWindows.of(Time.seconds(1))


def always(value: Any) -> Callable[..., Any]:
    return lambda *rest: value


def yields(value: Any) -> Callable[..., Iterator[Any]]:
    def generate(*rest: Any) -> Iterator[Any]:
        yield value

    return generate


def made(base: type, **methods: Any) -> Any:
    return type("Made", (base,), methods)()


async def async_invoke(self: Any, value: Any) -> list[Any]:
    return [self.result]


def aggregate(value: Any) -> Any:
    return made(
        AggregateFunction,
        create_accumulator=always(0),
        add=always(0),
        get_result=always(value),
        merge=always(0),
    )


class Aside(ProcessFunction):
    """To a side output."""

    def __init__(self, value: Any, type_info: TypeInformation) -> None:
        self.value, self.tag = value, OutputTag("side", type_info)

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield self.tag, self.value


Write = Callable[[DataStream, Any, TypeInformation], DataStream]
"""A program with one record in, whose operator gives a value that is declared to be of a type."""

PLACES: dict[str, Write] = {
    "map": lambda s, v, t: s.map(always(v), t),
    "flat map": lambda s, v, t: s.flat_map(yields(v), t),
    "process": lambda s, v, t: s.process(made(ProcessFunction, process_element=yields(v)), t),
    "keyed map": lambda s, v, t: s.key_by(always(0)).map(always(v), t),
    "keyed flat map": lambda s, v, t: s.key_by(always(0)).flat_map(yields(v), t),
    "keyed process": lambda s, v, t: s.key_by(always(0)).process(
        made(KeyedProcessFunction, process_element=yields(v)), t
    ),
    "co-map": lambda s, v, t: s.connect(s.filter(always(False))).map(
        made(CoMapFunction, map1=always(v), map2=always(None)), t
    ),
    "co-flat-map": lambda s, v, t: s.connect(s.filter(always(False))).flat_map(
        made(CoFlatMapFunction, flat_map1=yields(v), flat_map2=yields(v)), t
    ),
    "co-process": lambda s, v, t: s.connect(s.filter(always(False))).process(
        made(CoProcessFunction, process_element1=yields(v), process_element2=yields(v)), t
    ),
    "broadcast": lambda s, v, t: s.connect(
        s.filter(always(False)).broadcast(MapStateDescriptor("rules"))
    ).process(
        made(
            BroadcastProcessFunction,
            process_element=yields(v),
            process_broadcast_element=yields(v),
        ),
        t,
    ),
    "async": lambda s, v, t: AsyncDataStream.unordered_wait(
        s, made(AsyncFunction, result=v, async_invoke=async_invoke), Time.seconds(9), 2, t
    ),
    "side output": lambda s, v, t: s.process(Aside(v, t)).get_side_output(OutputTag("side", t)),
    "window": lambda s, v, t: (
        s.key_by(always(0))
        .window(SECOND)
        .process(made(ProcessWindowFunction, process=yields(v)), t)
    ),
    "window reduce": lambda s, v, t: (
        s.key_by(always(0))
        .window(SECOND)
        .reduce(lambda first, second: first, made(ProcessWindowFunction, process=yields(v)), t)
    ),
    "window aggregate": lambda s, v, t: (
        s.key_by(always(0)).window(SECOND).aggregate(aggregate(v), output_type=t)
    ),
    "join": lambda s, v, t: (
        s.join(s).where(always(0)).equal_to(always(0)).window(SECOND).apply(always(v), t)
    ),
    "co-group": lambda s, v, t: (
        s.co_group(s).where(always(0)).equal_to(always(0)).window(SECOND).apply(yields(v), t)
    ),
    "interval join": lambda s, v, t: (
        s.key_by(always(0))
        .interval_join(s.key_by(always(0)))
        .between(Time.seconds(0), Time.seconds(0))
        .process(made(ProcessJoinFunction, process_element=yields(v)), t)
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_float_is_single_precision_wherever_an_operator_declares_it(lab: Lab, place: str) -> None:
    stream = lab.timed([("a", 1)])
    number = PLACES[place](stream, 1.1, FLOAT)
    row = PLACES[place](
        stream,
        Row([1.1], {"k": 1.1}),
        Types.ROW([Types.LIST(FLOAT), Types.MAP(Types.STRING(), FLOAT)]),
    )
    assert lab.run(number, row) == [[SINGLE], [Row(f0=[SINGLE], f1={"k": SINGLE})]]


@pytest.mark.parametrize("place", PLACES)
def test_an_integer_that_does_not_fit_fails_wherever_an_operator_declares_it(
    lab: Lab, place: str
) -> None:
    with pytest.raises(UserFunctionFailed, match=r"does not fit .*Types\.INT\(\).*out of range"):
        lab.run(PLACES[place](lab.timed([("a", 1)]), 2**31, INT))


def test_rolling_results_keep_the_type_of_the_records(lab: Lab) -> None:
    numbers = lab.env.from_collection([0.1, 0.2], FLOAT).key_by(always(0))
    pairs = lab.env.from_collection([(0.1, 0)] * 2, Types.TUPLE([FLOAT, INT])).key_by(always(0))
    first, second = lab.run(numbers.reduce(lambda total, number: total + number), pairs.sum(0))
    assert first == [0.10000000149011612, 0.30000001192092896]
    assert second == [(0.10000000149011612, 0), (0.20000000298023224, 0)]


def test_types_are_applied_to_collections_and_sources(lab: Lab) -> None:
    array = lab.env.from_collection([[1.1, 2]], Types.PRIMITIVE_ARRAY(FLOAT))
    numbers = lab.env.from_source(
        NumberSequenceSource(7, 7), WatermarkStrategy.no_watermarks(), "numbers", type_info=FLOAT
    )
    assert lab.run(array.map(repr), numbers.map(repr)) == [[f"[{SINGLE}, 2.0]"], ["7.0"]]


@pytest.mark.parametrize(("name", "bits"), [("BYTE", 8), ("SHORT", 16), ("INT", 32), ("LONG", 64)])
def test_integers_of_a_collection_fail_above_and_below_their_bounds(
    lab: Lab, name: str, bits: int
) -> None:
    kind, bound = getattr(Types, name)(), 1 << bits - 1
    fits = lab.env.from_collection([bound - 1, -bound, True], kind)
    assert lab.run(fits) == [bound - 1, -bound, 1]
    for wrong in (bound, -bound - 1):
        for value, shape in (
            (wrong, kind),
            ([wrong], Types.LIST(kind)),
            ((wrong,), Types.TUPLE([kind])),
            (Row(wrong), Types.ROW([kind])),
            ({"k": wrong}, Types.MAP(Types.STRING(), kind)),
        ):
            with pytest.raises(PlanInvalid, match="element 0: .* out of range"):
                lab.env.from_collection([value], shape)
