"""What the programs of the tests are made of; workers import this module."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headgate.datastream import (
    CoMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)

ODD = OutputTag("odd")


def environment(parallelism: int = 2) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)


def collected(stream: Any, name: str | None = None) -> list[Any]:
    """All records of a stream, sorted, because tasks deliver in any order."""
    with stream.execute_and_collect(name) as results:
        return sorted(results)


class WithSubtask(MapFunction[Any, Any]):
    """Each record with the number of the task that it has come to."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        return self.subtask, value


class WithProcess(MapFunction[Any, Any]):
    """Each record with the process that it has come to."""

    def map(self, value: Any) -> Any:
        return os.getpid(), value


class Sorted(ProcessFunction[int, int]):
    """Odd numbers to the side."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield (ODD, value) if value % 2 else value


class Numbered(KeyedProcessFunction[Any, Any, Any]):
    """Counts the records of each key; they must come in order."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen: dict[Any, list[int]] = {}

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        seen = self.seen.setdefault(ctx.get_current_key(), [])
        seen.append(value)
        yield ctx.get_current_key(), len(seen), seen == sorted(seen)


class Both(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return "one", value

    def map2(self, value: Any) -> Any:
        return "two", value


class CountTo(SourceFunction[int]):
    """Numbers below an end, with a pause behind each; without an end until it is cancelled."""

    def __init__(self, end: int | None, pause_s: float = 0.0) -> None:
        self.end = end
        self.pause_s = pause_s
        self.running = True

    def run(self, ctx: SourceFunction.SourceContext) -> None:
        number = 0
        while self.running and number != self.end:
            ctx.collect(number)
            number += 1
            if self.pause_s:
                time.sleep(self.pause_s)

    def cancel(self) -> None:
        self.running = False


class Lines(SinkFunction[Any]):
    """Appends to a file for each task."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        subtask = runtime_context.get_index_of_this_subtask()
        self.file = Path(self.folder, str(subtask)).open("w")  # noqa: SIM115 - closed in close

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        self.file.write(f"{value}\n")

    def close(self) -> None:
        self.file.close()


def fail_at(number: int) -> Any:
    """A map function that fails at a number."""

    def check(value: int) -> int:
        if value == number:
            raise ValueError(f"{value} is bad")
        return value

    return check


def sleep_long(value: Any) -> Any:
    time.sleep(600)
    return value
