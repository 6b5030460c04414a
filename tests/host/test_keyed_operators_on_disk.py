"""Operators on keyed streams over state on disk: the same results as over state in memory."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.base.elements import MAX_WATERMARK_MS, Bundle, Watermark
from headgate.base.settings import StateSettings
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.operators.broadcast import KeyedBroadcastProcessOperator
from headgate.core.operators.interval_join import Interval, IntervalJoinOperator
from headgate.core.operators.one_input import KeyedProcessOperator
from headgate.core.operators.reduce import ReduceOperator
from headgate.core.operators.two_inputs import KeyedCoProcessOperator
from headgate.core.state.memory import MemoryBackends
from headgate.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from headgate.host.rocksdb.backend import RocksBackends
from tests.core.chain.kit import KeptOutput, context, open_operator

KEYS = ["a", None, ["list", 1], ("t", 2)]


@pytest.fixture(params=[0.0, 0.5], ids=["bytes only", "with objects"])
def on_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OperatorContext]:
    settings = StateSettings(rocksdb_folder=str(tmp_path), rocksdb_objects_fraction=request.param)
    backends = RocksBackends(settings)
    yield replace(context(), backends=backends)
    backends.close()


def in_memory() -> OperatorContext:
    return replace(context(), backends=MemoryBackends())


def first(record: Any) -> Any:
    return record[0]


def grow(left: list[Any], right: list[Any]) -> list[Any]:
    left[1] += right[1]
    left.append(right[1])
    return left


class Gathering:
    """All kinds of state, and timers."""

    def open(self, runtime_context: Any) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("value"))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list"))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.value.update((self.value.value() or 0) + value[1])
        self.list.add(value[1])
        self.map.put(value[1] % 3, value[1])
        ctx.timer_service().register_event_time_timer(value[1])
        yield self.describe(ctx)

    process_element1 = process_element2 = process_element

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        found: list[Any] = []
        ctx.apply_to_keyed_state(
            ValueStateDescriptor("value"), lambda key, state: found.append((key, state.value()))
        )
        yield sorted(found, key=str)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield timestamp, self.describe(ctx)

    def describe(self, ctx: Any) -> Any:
        items = sorted(self.map.items())
        return ctx.get_current_key(), self.value.value(), list(self.list.get()), items


class Pair:
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left, right, ctx.timestamp()


def lives(operator: Operator, within: OperatorContext) -> KeptOutput:
    """Records on every input, watermarks between, to the end."""
    output = open_operator(operator, within=within)
    for start in range(0, 60, 10):
        numbers = range(start, start + 10)
        records = [[KEYS[number % 4], number] for number in numbers]
        operator.process(Bundle(records, list(numbers)), start // 10 % operator.inputs)
        operator.watermark_advanced(Watermark(start + 2))
    operator.watermark_advanced(Watermark(MAX_WATERMARK_MS))
    operator.finish()
    operator.close()
    return output


@pytest.mark.parametrize(
    "make",
    [
        lambda: ReduceOperator(grow, first, False),
        lambda: KeyedProcessOperator(Gathering(), first),
        lambda: KeyedCoProcessOperator(Gathering(), first, first),
        lambda: KeyedBroadcastProcessOperator(Gathering(), first),
        lambda: IntervalJoinOperator(Pair(), first, first, Interval(-8, 8)),
    ],
    ids=["reduce", "process", "co-process", "broadcast process", "interval join"],
)
def test_results_are_those_of_state_in_memory(make: Any, on_disk: OperatorContext) -> None:
    expected, found = lives(make(), in_memory()), lives(make(), on_disk)
    assert len(expected.records) > 20
    assert sorted(map(repr, found.timed)) == sorted(map(repr, expected.timed))


def test_without_a_key_there_is_no_state_on_disk_either(on_disk: OperatorContext) -> None:
    class Early(Gathering):
        def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
            touch: Any = {
                "value": lambda: self.value.update(1),
                "list": lambda: self.list.add(1),
                "map": lambda: self.map.put(1, 1),
            }
            touch[value]()

    for kind in ("value", "list", "map"):
        operator = KeyedBroadcastProcessOperator(Early(), first)
        open_operator(operator, within=on_disk)
        operator.process(Bundle([["a", 1]], [1]), 0)
        with pytest.raises(RuntimeError, match="there is no current key here"):
            operator.process(Bundle([kind]), 1)
        operator.close()
