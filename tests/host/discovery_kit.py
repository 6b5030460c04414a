"""Jobs whose splits are found while they run: a shelf of files, a driver, workers on threads.

A file of the shelf is a split; its lines are the records. The enumerator misbehaves as it is told
by the files ``raise``, ``exit``, ``hang`` and ``end`` beside the shelf.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from headgate.api.environment import StreamExecutionEnvironment
from headgate.api.settings.configuration import RuntimeExecutionMode
from headgate.connectors.files.sink import TextFileSink
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position, Source, SplitEnumerator, SplitReader
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.driver_run import DriverRun
from headgate.host.net.contact import DriverContact
from headgate.host.worker.task_manager import run_task_manager
from headgate.plan.job_graph import JobGraph
from tests.host.control_rig import TIMES, ended, replace_times
from tests.host.recovering_kit import Job

INTERVAL = "execution.checkpointing.interval"


class Shelf(Source):
    """``looks``: an enumerator looks every 10 ms until there is ``end``; else ``splits`` does."""

    finds_more: bool | None = True

    def __init__(self, folder: Path, *, looks: bool = True, bounded: bool = True) -> None:
        self.folder = folder
        self.looks = looks
        self.is_bounded = bounded

    @property
    def bounded(self) -> bool:
        return self.is_bounded

    @property
    def splits_end(self) -> bool:
        return True

    def splits(self, parallelism: int) -> Sequence[object]:
        return on_shelf(self.folder)

    def create_enumerator(self, parallelism: int, position: Position) -> SplitEnumerator | None:
        return ShelfEnumerator(self.folder, position) if self.looks else None

    def open(self, split: object, position: Position, context: ConnectorContext) -> SplitReader:
        assert isinstance(split, str)
        note(self.folder, f"{context.task.attempt} {context.task.subtask} {split} {position}")
        return ShelfReader(self.folder, split, position)


class ShelfEnumerator(SplitEnumerator):
    def __init__(self, folder: Path, position: Position) -> None:
        self.folder = folder
        self.found = dict.fromkeys(position) if isinstance(position, tuple) else {}
        self.interval_ms: int | None = 10

    def discover(self) -> Sequence[object]:
        beside = self.folder.parent
        while (beside / "hang").exists():
            time.sleep(0.005)
        if (beside / "exit").exists():
            raise SystemExit("of the enumerator")
        if (beside / "raise").exists():
            raise OSError("the shelf has fallen down")
        self.interval_ms = None if (beside / "end").exists() else 10
        new = [name for name in on_shelf(self.folder) if name not in self.found]
        self.found.update(dict.fromkeys(new))
        return [threading.Lock()] if (beside / "lock").exists() else new

    def position(self) -> Position:
        return tuple(self.found)

    def close(self) -> None:
        note(self.folder, "closed")


class ShelfReader(SplitReader):
    """The end of a split with ``slow`` or ``quiet`` in its name waits for a file ``go on``.

    A slow one blocks its task meanwhile. With a file ``fail`` one split fails in the middle.
    """

    def __init__(self, folder: Path, split: str, position: Position) -> None:
        self.lines = (folder / split).read_text().split()
        self.at = position if isinstance(position, int) else 0
        self.beside = folder.parent
        self.is_slow, self.is_quiet = "slow" in split, "quiet" in split

    def poll(self, limit: int) -> list[str] | None:
        if self.at >= len(self.lines):
            go_on = self.beside / "go on"
            while self.is_slow and not go_on.exists():
                time.sleep(0.005)
            return [] if self.is_quiet and not go_on.exists() else None
        if self.at > 10 and (self.beside / "fail").exists():
            (self.beside / "fail").unlink(missing_ok=True)
            raise OSError("a book has fallen down")
        found = self.lines[self.at : self.at + 10]
        self.at += len(found)
        time.sleep(0.0005)
        return found

    def position(self) -> Position:
        return self.at

    def close(self) -> None:
        """Nothing is open."""


class Singles(Source):
    """Each split is a number, and its only record; all of them are there from the start."""

    finds_more: bool | None = True

    def __init__(self, count: int) -> None:
        self.count = count

    def splits(self, parallelism: int) -> Sequence[object]:
        return range(self.count)

    def open(self, split: object, position: Position, context: ConnectorContext) -> SplitReader:
        return SingleReader(split, position)


class SingleReader(SplitReader):
    def __init__(self, number: object, position: Position) -> None:
        self.left = [] if position else [number]

    def poll(self, limit: int) -> list[object] | None:
        found, self.left = self.left, []
        return found or None

    def position(self) -> Position:
        return not self.left

    def close(self) -> None:
        """Nothing is open."""


def on_shelf(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def put(folder: Path, *names: str, lines: int = 25) -> list[str]:
    """Put files on the shelf; returns the records that they hold."""
    for name in names:
        text = "\n".join(f"{name}:{line}" for line in range(lines))
        fresh = folder.parent / f"fresh {name}"
        fresh.write_text(text)
        fresh.rename(folder / name)
    return [f"{name}:{line}" for name in names for line in range(lines)]


def note(folder: Path, line: str) -> None:
    with (folder.parent / "notes").open("a") as notes:
        notes.write(f"{line}\n")


def notes(folder: Path) -> list[str]:
    """Which task has opened which split, and that the enumerator was closed."""
    path = folder.parent / "notes"
    return path.read_text().splitlines() if path.exists() else []


def shelf_job(source: Source, out: Path, parallelism: int = 2, batch: bool = False) -> JobGraph:
    """Source, and files that hold each record once."""
    env = StreamExecutionEnvironment.get_execution_environment()
    if batch:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_buffer_timeout(5)
    stream = env.from_source(source, source_name="shelf").uid("shelf")
    stream = stream.set_parallelism(parallelism)
    stream.rebalance().sink_to(TextFileSink(out)).uid("files").set_parallelism(1)
    graph = env.get_job_graph()
    env.close()
    return graph


def lines_in(out: Path) -> list[str]:
    parts = [path for path in out.rglob("*") if path.is_file() and path.name[0] != "."]
    return sorted(line for path in parts for line in path.read_text().split())


class Threads:
    """Task managers on threads of this process."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def serve(self, contact: DriverContact, slots: int) -> None:
        for slot in range(slots):
            thread = threading.Thread(target=self._serve, args=(contact, slot), daemon=True)
            self._threads.append(thread)
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), "a task manager does not leave"

    def _serve(self, contact: DriverContact, slot: int) -> None:
        try:
            run_task_manager(contact, slot)
        except BaseException as error:
            self.errors.append(error)


class ShelfJob:
    """A job at a server of its own; runs in task managers on threads unless told otherwise."""

    def __init__(self, end: ExitStack, graph: JobGraph, folder: Path, **settings: str) -> None:
        times = replace_times(TIMES, cancel_ms=3_000, settle_ms=50, loss_ms=10)
        server = end.enter_context(ControlServer(times=times))
        self.threads = Threads()
        end.callback(self.threads.join)
        end.callback((folder / "go on").touch)  # nothing blocks a task manager that is to leave
        about = {"execution.checkpointing.dir": str(folder / "checkpoints"), INTERVAL: "20 ms"}
        self.job = Job(server, graph, **{**about, **settings})
        end.callback(self.job.close)
        self._slots = max(task.parallelism for task in graph.vertices)

    def begin(self, stage: str = "") -> DriverRun:
        run = self.job.begin(stage)
        self.threads.serve(self.job.contact(stage), self._slots)
        return run

    def finish(self) -> Any:
        return ended(self.begin())


@contextmanager
def shelf_jobs(graph: JobGraph, folder: Path, **settings: str) -> Iterator[ShelfJob]:
    with ExitStack() as end:
        yield ShelfJob(end, graph, folder, **settings)
