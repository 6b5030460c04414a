"""Sources and sinks of lake tables, run by hand: tasks that are killed at any step they take.

A job writes the numbers 0 to 19 and takes a checkpoint after every ten. ``killed_jobs`` runs it in
processes of their own, one for each step after the first checkpoint, and kills each with SIGKILL
at its step; ``go_on`` is the run after that, from the newest checkpoint that was stored.
"""

import importlib
import inspect
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.api.row import Row
from headgate.base.elements import Bundle
from headgate.base.errors import ConnectorError, TableUnfit
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.functions.context import SnapshotMoment
from headgate.functions.sink import TwoPhaseCommittingSink
from headgate.functions.source import Source, SplitEnumerator
from tests.connectors.kit import read_to_end, task_context
from tests.core.chain.sink_lab import open_sink, sink_context

NOBODY = 65534
TOTAL = 20
EACH = 10

MakeSink = Callable[[Path], TwoPhaseCommittingSink]
MakeRecord = Callable[[int], Any]
Stored = tuple[int, int, bytes | None]
"""Checkpoint, numbers before it, and what the sink keeps in it."""


def feed(task: TwoPhaseSinkOperator, *records: Any) -> None:
    task.process(Bundle(list(records)), 0)


def checkpoint(task: TwoPhaseSinkOperator, number: int, savepoint: bool = False) -> bytes | None:
    """A snapshot; ``complete`` is not called."""
    moment = SnapshotMoment(number, 0, savepoint)
    task.before_barrier(moment)
    return task.snapshot(moment).sink


def restored(state: bytes | None, number: int = 1) -> OperatorRestored:
    return OperatorRestored(number, sinks=() if state is None else (state,))


def read(source: Source, splits: Any) -> list[Row]:
    return [
        row for split in splits for row in read_to_end(source.open(split, None, task_context()))
    ]


def numbers(source: Source, splits: Any) -> list[int]:
    return sorted(row["n"] for row in read(source, splits))


def found_once(source: Source) -> list[Any]:
    enumerator = source.create_enumerator(1, None)
    try:
        return list(enumerator.discover())
    finally:
        enumerator.close()


def again(source: Source, enumerator: SplitEnumerator) -> SplitEnumerator:
    """The enumerator of the next run."""
    enumerator.close()
    return source.create_enumerator(1, pickle.loads(pickle.dumps(enumerator.position())))


def refused(source: Source, enumerator: SplitEnumerator, problem: str) -> None:
    """The task that gets the split says why the job ends, and nothing is read after it."""
    (split,) = enumerator.discover()
    with pytest.raises(TableUnfit, match=problem):
        read(source, [split])
    assert enumerator.discover() == []
    enumerator.close()


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file grows beyond the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder where waiting for the disk takes no time: only processes die here."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nobody may write below it; who is root is somebody else meanwhile."""
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    if os.getuid() == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        for path in folders:
            path.chmod(0o755)


def commit_to_read_only(make_sink: MakeSink, make_record: MakeRecord, folder: Path) -> list[str]:
    """What a task says that can neither commit nor write; the next run then finds no harm done.

    The first lot of records is committed before, so that all that the libraries load is loaded.
    """
    problems = []
    task = open_sink(make_sink(folder), sink_context())
    feed(task, make_record(0))
    checkpoint(task, 1)
    task.checkpoint_completed(1)
    feed(task, make_record(1))
    state = checkpoint(task, 2)
    feed(task, make_record(2))
    with read_only(folder):
        for attempt in (task.checkpoint_completed, partial(checkpoint, task)):
            try:
                attempt(2)
            except ConnectorError as error:
                problems.append(str(error))
    task.close()
    go_on = open_sink(make_sink(folder), sink_context(restored=restored(state, 2), attempt=1))
    feed(go_on, make_record(2))
    checkpoint(go_on, 3)
    go_on.checkpoint_completed(3)
    go_on.close()
    return problems


def write_all(
    task: TwoPhaseSinkOperator,
    make_record: MakeRecord,
    begin: Stored,
    place: Path | None,
    first_done: Callable[[], None] = lambda: None,
) -> None:
    number, position, _ = begin
    while position < TOTAL:
        if number == 1:
            first_done()
        feed(task, *map(make_record, range(position, position + EACH)))
        position += EACH
        number += 1
        state = checkpoint(task, number)
        if place is not None:
            half = place / "checkpoint.half"
            half.write_bytes(pickle.dumps((number, position, state)))
            half.rename(place / "checkpoint")
        task.checkpoint_completed(number)
    task.close()


def go_on(place: Path, make_sink: MakeSink, make_record: MakeRecord) -> None:
    """The next run, to the end."""
    begin: Stored = (0, 0, None)
    found = None
    if (place / "checkpoint").exists():
        begin = pickle.loads((place / "checkpoint").read_bytes())
        found = restored(begin[2], begin[0])
    task = open_sink(make_sink(place), sink_context(restored=found, attempt=1))
    write_all(task, make_record, begin, None)


def killed_jobs(module: str, folder: Path) -> dict[str, list[Path]]:
    """Run each job of a test kit once for each step that it takes; by job, the folders of its runs.

    The kit has ``prepare``, which makes a folder ready, and ``JOBS``, which gives by name the sink,
    its records, and the methods whose calls are steps.
    """
    root = Path(__file__).parent.parent.parent
    paths = os.pathsep.join(map(str, (root, root / "src")))
    subprocess.run(
        [sys.executable, "-m", __name__, module, str(folder)],
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": paths},
    )
    return {job.name: sorted(job.iterdir()) for job in sorted(folder.iterdir())}


class Steps:
    """Counts the steps of a process, and kills it at one of them."""

    def __init__(self, last: int) -> None:
        self._left = last

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, owner: Any, method: str) -> None:
        """After each call of the method; what comes before it is after the one before."""
        call = getattr(owner, method)

        def watched(*args: Any, **options: Any) -> Any:
            found = call(*args, **options)
            self.step()
            return found

        is_static = isinstance(inspect.getattr_static(owner, method), staticmethod)
        setattr(owner, method, staticmethod(watched) if is_static else watched)


def _run_until_killed(
    step: int, place: Path, kit: Any, job: tuple[MakeSink, MakeRecord, Sequence[tuple[Any, str]]]
) -> None:
    make_sink, make_record, methods = job
    kit.prepare(place)
    steps = Steps(step)

    def begin() -> None:
        steps.step()
        steps.watch(Path, "rename")  # after it, the checkpoint is complete
        for owner, method in methods:
            steps.watch(owner, method)

    task = open_sink(make_sink(place), sink_context())
    write_all(task, make_record, (0, 0, None), place, begin)


def main(module: str, folder: Path) -> None:
    """Each run is a fork of this process, which has loaded the libraries and started nothing."""
    kit = importlib.import_module(module)
    pa.array([1])  # loads pandas, which takes a second
    for name, job in kit.JOBS.items():
        step = 1
        while _is_killed(step, folder / name / f"killed-at-{step:03}", kit, job):
            step += 1


def _is_killed(step: int, place: Path, kit: Any, job: Any) -> bool:
    """False: the job has ended before the step."""
    place.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _run_until_killed(step, place, kit, job)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0, f"step {step} failed by itself"
    return False


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
