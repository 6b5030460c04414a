"""Dead letters and checkpoints: a letter is a record like any other, in state and in flight."""

import functools
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.base.messages import CheckpointOrder
from headgate.core.operators.one_input import MapOperator
from headgate.core.operators.reduce import ReduceOperator
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.operators.source import SourceOperator
from headgate.functions.error_policy import DeadLetter, ErrorPolicy
from headgate.functions.function import OutputTag
from headgate.plan import ship_strategies as ships
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamEdge, StreamGraph, StreamNode
from tests.host.counting import (
    EXPECTED,
    Halting,
    add,
    counts_of,
    flood,
    key_of,
    may_write,
    pair,
    shown,
    slow,
)
from tests.host.jobs import LineFile, written
from tests.host.rig import eventually
from tests.host.scripted import scripted
from tests.host.scripted_checkpoints import acks_of, begin, go_on, place_of, take

DEAD = OutputTag("dead")


@pytest.fixture(autouse=True)
def fresh_events() -> None:
    flood.clear()
    slow.clear()
    may_write.set()


def pair_some(number: int) -> Any:
    found = pair(number)
    if number % 3 == 0:
        raise ValueError("a multiple of three")
    return found


def pair_letter(letter: DeadLetter) -> Any:
    return pair(letter.record)


def counting_letters_too(folder: Path) -> JobGraph:
    """Numbers that fail become letters; both ways lead to the same counts."""
    graph = StreamGraph("counts", buffer_timeout_ms=5)
    makers: list[tuple[str, NodeKind, Any]] = [
        ("read", NodeKind.SOURCE, functools.partial(SourceOperator, Halting(), (0, 1))),
        ("pair", NodeKind.OPERATOR, functools.partial(MapOperator, pair_some)),
        ("letters", NodeKind.OPERATOR, functools.partial(MapOperator, pair_letter)),
        ("count", NodeKind.OPERATOR, functools.partial(ReduceOperator, add, key_of, False)),
        ("show", NodeKind.OPERATOR, functools.partial(MapOperator, shown)),
        ("lines", NodeKind.SINK, functools.partial(SinkFunctionOperator, LineFile(folder))),
    ]
    for number, (name, kind, make) in enumerate(makers, 1):
        graph.nodes[number] = StreamNode(number, name, kind, make, 2, uid=name)
    graph.nodes[2].on_error = ErrorPolicy.dead_letters(DEAD)
    graph.edges += [
        StreamEdge(1, 2, 0, ships.rebalance()),
        StreamEdge(2, 3, 0, ships.rebalance(), tag=DEAD.tag_id),
        StreamEdge(2, 4, 0, ships.hash_by(key_of)),
        StreamEdge(3, 4, 0, ships.hash_by(key_of)),
        StreamEdge(4, 5, 0, ships.default_strategy()),
        StreamEdge(5, 6, 0, ships.default_strategy()),
    ]
    return build_job_graph(graph)


@pytest.mark.parametrize("overtake_after_ms", [None, 0])
def test_letters_are_neither_lost_nor_repeated(
    tmp_path: Path, overtake_after_ms: int | None
) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    order = CheckpointOrder(str(tmp_path / "chk"), "job")
    order = replace(order, overtake_after_ms=overtake_after_ms)
    graph = counting_letters_too(folder)
    if overtake_after_ms == 0:
        slow.set()
    with scripted() as driver:
        tasks = begin(driver, graph, order, folder)
        eventually(lambda: len(written(folder)) > 20, "some")
        location = place_of(order, 1)
        metadata = take(driver, "a", graph, 1, location)
        if overtake_after_ms == 0:
            in_flight = sum(ack.figures.in_flight_bytes for ack in acks_of(driver, "a", 1))
            assert metadata.unaligned and in_flight > 1000
        driver.cancel("a", tasks)
        for part in folder.iterdir():
            part.unlink()
        slow.clear()
        go_on(driver, "b", graph, order, metadata, location.own.uri)
    assert counts_of(folder) == EXPECTED
