"""Batch programs on real exchanges, a stage at a time, with sorted runs in real files."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headgate
from headgate.api.runtime import set_runtime
from headgate.common import WatermarkStrategy
from headgate.datastream import (
    BroadcastProcessFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from headgate.datastream.state import ListStateDescriptor, MapStateDescriptor
from headgate.host.net.exchange import Exchange
from tests.api.kit import OneTaskRuntime
from tests.host.conftest import MakeExchange
from tests.host.local_job import Run

KEYS, COUNT = 7, 3000


@pytest.fixture(autouse=True)
def _local_runtime() -> Iterator[None]:
    ours = OneTaskRuntime()
    set_runtime(lambda: ours)
    yield
    set_runtime(headgate._open_runtime)


@pytest.fixture
def exchange(make_exchange: MakeExchange) -> Exchange:
    return make_exchange(local_only=True)


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    made = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    return made.set_runtime_mode(RuntimeExecutionMode.BATCH)


def run(stream: DataStream, exchange: Exchange) -> list[Any]:
    """What a sink behind the stream gets."""
    kept: list[Any] = []
    stream.add_sink(kept.append).set_parallelism(1)
    graph = stream.get_execution_environment().get_stream_graph()
    job: Any = SimpleNamespace(graph=graph)
    running = Run(job, exchange)
    try:
        running.run_in_stages()
    finally:
        running.close()
    return kept


def timed(env: StreamExecutionEnvironment, records: list[Any]) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, before: record[1]
    )
    return env.from_collection(records).assign_timestamps_and_watermarks(strategy)


def first(record: Any) -> Any:
    return record[0]


class InLine(KeyedProcessFunction[Any, Any, Any]):
    """Sees that the records of a key come by time, and tells how many there were."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.kept = runtime_context.get_list_state(ListStateDescriptor("kept"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        before = list(self.kept.get())
        assert not before or before[-1] <= value[1]
        self.kept.add(value[1])
        ctx.timer_service().register_event_time_timer(2**40)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), len(list(self.kept.get()))


@pytest.mark.parametrize("memory", ["64 mb", "50 kb"])
def test_keys_are_processed_one_after_the_other_also_from_disk(
    env: StreamExecutionEnvironment,
    exchange: Exchange,
    memory: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[object] = []
    make = exchange.files.open
    monkeypatch.setattr(exchange.files, "open", lambda: opened.append(1) or make())  # type: ignore[func-returns-value]
    env.get_configuration().set_string("execution.sorted-inputs.memory", memory)
    records = [(at % KEYS, at * 31 % 997) for at in range(COUNT)]
    found = run(timed(env, records).key_by(first).process(InLine()).set_parallelism(1), exchange)
    expected = {key: len(range(key, COUNT, KEYS)) for key in range(KEYS)}
    assert dict(found) == expected and len(found) == KEYS
    assert bool(opened) is (memory == "50 kb")
    assert list(Path(exchange.files.path).glob("spill-*")) == []


class Match(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Rates by time; an order gets the last one before it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.rates = runtime_context.get_list_state(ListStateDescriptor("rates"))

    def process_element1(self, value: Any, ctx: Any) -> Iterable[Any]:
        rates = list(self.rates.get())
        yield value[2], rates[-1] if rates else None

    def process_element2(self, value: Any, ctx: Any) -> None:
        self.rates.add(value[2])


def test_two_inputs_meet_by_time(env: StreamExecutionEnvironment, exchange: Exchange) -> None:
    orders = timed(env, [("eur", 5, "early"), ("usd", 50, "other"), ("eur", 25, "late")])
    rates = timed(env, [("eur", 20, 1.2), ("usd", 10, 1.0), ("eur", 10, 1.1)])
    matched = orders.connect(rates).key_by(first, first).process(Match()).set_parallelism(1)
    found = run(matched, exchange)
    assert sorted(found) == [("early", None), ("late", 1.2), ("other", 1.0)]


RULES = MapStateDescriptor("rules")


class Checked(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value, len(list(ctx.get_broadcast_state(RULES)))

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(value, True)


class CheckedByKey(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    process_element = Checked.process_element
    process_broadcast_element = Checked.process_broadcast_element


@pytest.mark.parametrize("with_keys", [True, False])
def test_all_of_the_broadcast_side_is_read_first(
    env: StreamExecutionEnvironment, exchange: Exchange, with_keys: bool
) -> None:
    numbers = env.from_collection(range(500))  # both sides come from the same source
    rules = numbers.map(lambda number: number).broadcast(RULES)
    if with_keys:
        stream = numbers.key_by(lambda number: number % 5).connect(rules).process(CheckedByKey())
    else:
        stream = numbers.connect(rules).process(Checked())
    assert sorted(run(stream, exchange)) == [(number, 500) for number in range(500)]
