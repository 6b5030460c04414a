"""Savepoints for tests of state outside jobs, and a program that goes on from one."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import headgate
from headgate import KeyedProcessFunction, StreamExecutionEnvironment, Types, state
from headgate.api.program import build_graph
from headgate.api.runtime import set_runtime
from headgate.datastream.connectors import TextFileSink
from headgate.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from headgate.functions.time import Time
from headgate.plan.job_graph import JobGraph, build_job_graph
from tests.api.kit import OneTaskRuntime

TOTAL = ValueStateDescriptor("total", Types.LONG())
SEEN = ListStateDescriptor("seen", Types.STRING())
VISITS = MapStateDescriptor("visits", Types.STRING(), Types.LONG())
UNTYPED = ValueStateDescriptor("untyped")


class Colour(Enum):
    """A class of the user's."""

    RED = 1


@dataclass(frozen=True)
class Order:
    """Another one."""

    number: int
    item: str


def with_ttl() -> ValueStateDescriptor:
    descriptor = ValueStateDescriptor("fresh", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    return descriptor


def write_people(path: Path, **given: Any) -> str:
    """Three keys with state of every kind, timers, and state without keys."""
    return state.write(
        str(path),
        state.operator("people", key_type=Types.STRING(), name="Keyed Process")
        .put(TOTAL, {"ada": 3, "bob": 5, "eve": 7})
        .put(SEEN, [("ada", ["x", "y"])])
        .put(VISITS, [("ada", "paris", 1), ("ada", "rome", 2), ("bob", "rome", 4)])
        .put(UNTYPED, {"ada": (1, None)})
        .put(with_ttl(), {"ada": 9})
        .put_timers([("event", 1000, "ada"), ("processing", 2000, "ada"), ("event", 3000, "bob")])
        .put_list(ListStateDescriptor("waiting", Types.LONG()), [1, 2, 3])
        .put_broadcast(MapStateDescriptor("rules"), {"most": 10}),
        **given,
    )


class Adds(KeyedProcessFunction):
    """Adds to what the savepoint had; says what else there was; a timer says that it fired."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(TOTAL)
        self.seen = runtime_context.get_list_state(SEEN)
        self.visits = runtime_context.get_map_state(VISITS)
        self.fresh = runtime_context.get_state(with_ttl())

    def process_element(self, value: Any, ctx: Any) -> Iterator[str]:
        self.total.update((self.total.value() or 0) + value[1])
        held = [*self.seen.get()], sorted(self.visits.items()), self.fresh.value()
        yield f"{value[0]} {self.total.value()} {held}"

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        yield f"{ctx.get_current_key()} fired {timestamp}"


def first(record: Any) -> str:
    return str(record[0])


def people_graph(folder: Path, parallelism: int) -> JobGraph:
    """Counts on; its lines stand in the folder."""
    set_runtime(OneTaskRuntime)
    try:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
        records = env.from_collection([("ada", 10), ("eve", 10), ("new", 10)])
        counted = (
            records.key_by(first, Types.STRING()).process(Adds(), Types.STRING()).uid("people")
        )
        counted.sink_to(TextFileSink(folder))
        return build_job_graph(build_graph(env._draft, "people", env._draft.pending))
    finally:
        set_runtime(headgate._open_runtime)


def lines_in(folder: Path) -> list[str]:
    return sorted(line for part in folder.rglob("part-*") for line in part.read_text().splitlines())
