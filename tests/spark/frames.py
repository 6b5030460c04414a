"""What the programs of the DataFrame tests are made of; workers import this module."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from headgate.connectors.dataframe.border import _inlets, _outlets
from headgate.datastream import CoMapFunction, MapFunction, RuntimeContext


class DieOnce(MapFunction[Any, Any]):
    """Kills its process at a certain record, the first time that one comes."""

    def __init__(self, marker: Path, at: object) -> None:
        self.marker = marker
        self.at = at

    def map(self, value: Any) -> Any:
        if value[0] == self.at and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value


class FailAt(MapFunction[Any, Any]):
    """Raises at a certain record, and counts how often in a file."""

    def __init__(self, count: Path, at: object) -> None:
        self.count = count
        self.at = at

    def map(self, value: Any) -> Any:
        if value[0] == self.at:
            with self.count.open("a", encoding="utf-8") as file:
                file.write("x")
            raise ValueError(f"{self.at} is a bad number")
        return value


class Slow(MapFunction[Any, Any]):
    """Takes its time, and tells how much memory its process has."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s

    def map(self, value: Any) -> int:
        time.sleep(self.delay_s)
        return resident_bytes()


class Sides(CoMapFunction[Any, Any, Any]):
    """Says from which side a row came."""

    def map1(self, value: Any) -> Any:
        return "left", value.id, None

    def map2(self, value: Any) -> Any:
        return "right", None, value.word


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def left_behind(rows: object) -> list[str]:
    """Threads of Headgate, open borders and connections of a worker that is between two jobs."""
    threads = [t.name for t in threading.enumerate() if t.name.startswith("headgate")]
    return [*threads, *_inlets, *_outlets]


class Subtask(MapFunction[Any, Any]):
    """The first field of each record, and the number of the task that has it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        return value[0], self.subtask
