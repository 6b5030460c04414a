"""What the programs of the DataFrame tests are made of; workers import this module."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from headgate.connectors.dataframe.bridge import _inlets, _outlets
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


class Uneven(MapFunction[Any, Any]):
    """One of two tasks stops after 299 rows and goes on some time after the other has sent 390.

    From the time on at which the folder has a file called "swapped", the other task begins late.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self.is_swapped = (self.folder / "swapped").exists()
        self.is_first = runtime_context.get_index_of_this_subtask() == 0
        self.count = 0

    def map(self, value: Any) -> Any:
        self.count += 1
        if self.is_swapped:
            if self.count == 1 and not self.is_first:
                time.sleep(1)
        elif self.is_first and self.count == 300:
            (self.folder / "first has 300").touch()
            self._wait_for("second has 390")
            time.sleep(3)  # the other sends the rest of 700, and the job ends
        elif not self.is_first and self.count == 300:
            self._wait_for("first has 300")
        elif not self.is_first and self.count == 390:
            (self.folder / "second has 390").touch()
        time.sleep(0.0005)
        return value[0]

    def _wait_for(self, name: str) -> None:
        deadline = time.monotonic() + 60
        while not (self.folder / name).exists() and time.monotonic() < deadline:
            time.sleep(0.01)


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
    """Threads of Headgate, open bridges and connections of a worker that is between two jobs."""
    threads = [t.name for t in threading.enumerate() if t.name.startswith("headgate")]
    return [*threads, *_inlets, *_outlets]


class Subtask(MapFunction[Any, Any]):
    """The first field of each record, and the number of the task that has it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        return value[0], self.subtask
