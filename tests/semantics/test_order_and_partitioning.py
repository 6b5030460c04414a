"""Order and partitioning, a sentence at a time, in whole programs."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.base.errors import PlanInvalid
from headgate.datastream import (
    CoMapFunction,
    KeyedProcessFunction,
    KeySelector,
    Partitioner,
    RuntimeContext,
)
from headgate.datastream.state import ListStateDescriptor
from tests.semantics.lab import Lab, Subtask, first, second


def by_task(found: list[tuple[int, Any]]) -> dict[int, list[Any]]:
    tasks = defaultdict(list)
    for task, record in found:
        tasks[task].append(record)
    return dict(tasks)


def test_a_collection_is_read_by_one_task_and_dealt_out_record_by_record(lab: Lab) -> None:
    lab.env.set_parallelism(3)
    source = lab.env.from_collection(range(30))
    nodes = json.loads(lab.env.get_execution_plan())["nodes"]
    assert [node["parallelism"] for node in nodes] == [1]
    tasks = by_task(lab.run(source.map(Subtask())))
    assert sorted(tasks.values()) == [list(range(start, 30, 3)) for start in range(3)]


class Order(KeyedProcessFunction[Any, Any, Any]):
    """All records of the key so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.seen.add(value[1])
        yield ctx.get_current_key(), tuple(self.seen.get())


@pytest.mark.parametrize("tasks_before", [1, 3])
def test_order_within_a_key_survives_key_by(lab: Lab, tasks_before: int) -> None:
    """With several tasks before, the records of a key come from one of them each."""
    lab.env.set_parallelism(3)
    records = lab.read(*((n % 3, n) for n in range(600)))
    dealt = records.map(lambda record: record).set_parallelism(tasks_before)  # task n % 3
    found = dict(sorted(lab.run(dealt.key_by(first).process(Order())), key=lambda p: len(p[1])))
    assert found == {key: tuple(range(key, 600, 3)) for key in range(3)}


class OwnKey(KeySelector[Any, Any]):
    def get_key(self, value: Any) -> Any:
        return value[0]


def test_keys_are_selected_upstream_and_nothing_is_rebalanced_in_between(lab: Lab) -> None:
    lab.read(("a", 1)).map(tuple).set_parallelism(2).key_by(OwnKey()).sum(1).set_parallelism(3)
    nodes = {node["contents"]: node for node in json.loads(lab.env.get_execution_plan())["nodes"]}
    (before,) = nodes["Sum"]["predecessors"]
    assert (before["id"], before["ship_strategy"]) == (nodes["Map"]["id"], "HASH")


def test_a_sink_keeps_the_order_in_which_each_task_has_sent(lab: Lab) -> None:
    found = lab.run(lab.env.from_collection(range(100)).map(Subtask()))
    assert by_task(found) == {n: list(range(n, 100, 2)) for n in range(2)}


class Remainder(Partitioner[int]):
    """Fails if it is asked for another number of tasks."""

    def partition(self, key: int, num_partitions: int) -> int:
        assert num_partitions == 3, num_partitions
        return key % num_partitions


def test_the_partitioner_is_told_the_parallelism_that_is_set_after_it(lab: Lab) -> None:
    numbers = lab.env.from_collection(range(12))
    custom = numbers.partition_custom(Remainder(), lambda number: number).map(Subtask())
    assert sorted(lab.run(custom.set_parallelism(3))) == sorted((n % 3, n) for n in range(12))


def test_forward_to_another_parallelism_is_an_error_that_names_both(lab: Lab) -> None:
    forwarded = lab.read(1).name("here").forward().map(str).name("there").set_parallelism(3)
    with pytest.raises(PlanInvalid, match="'there' has parallelism 3, but 'here'.* has 1; use"):
        lab.run(forwarded)


@pytest.mark.parametrize("way", ["rebalance", "rescale", "shuffle", "forward", "broadcast"])
def test_a_keyed_stream_travels_by_its_keys_only(lab: Lab, way: str) -> None:
    with pytest.raises(PlanInvalid, match="a KeyedStream travels by its keys, not by"):
        getattr(lab.read((1, 2)).key_by(first), way)()


@pytest.mark.parametrize("mapped", [False, True])
def test_the_union_of_a_stream_with_itself_doubles_records(lab: Lab, mapped: bool) -> None:
    stream = lab.read(1, 2, 3)
    stream = stream.map(lambda number: number) if mapped else stream
    assert sorted(lab.run(stream.union(stream))) == [1, 1, 2, 2, 3, 3]
    stream = lab.read(1, 2)
    assert sorted(lab.run(stream.union(stream, stream).map(str))) == ["1"] * 3 + ["2"] * 3


def test_key_by_on_a_keyed_stream_keys_the_original_stream_anew(lab: Lab) -> None:
    """By the first key alone there would be two groups of one."""
    stream = lab.read((1, "a", 10), (2, "a", 20))
    found = lab.run(stream.key_by(first).key_by(second).sum(2))
    assert found == [(1, "a", 10), (1, "a", 30)]


class Sides(CoMapFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def map1(self, value: Any) -> Any:
        self.seen.add(value)
        return list(self.seen.get())

    map2 = map1


def test_key_by_on_connected_streams_replaces_the_keys_they_had(lab: Lab) -> None:
    left, right = lab.read((1, "x")), lab.read(("x", 2))
    pair = left.key_by(first).connect(right.key_by(second)).key_by(second, first)
    assert max(map(len, lab.run(pair.map(Sides())))) == 2, "both have met at the key 'x'"
