"""Makes savepoints of `saved_programs` that are kept as files, and goes on from them.

`python -m tests.host.saved_kit 0.1` makes those of a release, in `tests/host/saved`. Each is an
archive of the folder in which the program has run: the savepoint, parts that wait for their names,
a database, and the lines that the program has written at its end. The driver's port, storage and
worker processes are real ones.
"""

import fcntl
import shutil
import sqlite3
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as parquet

import headgate
from headgate.api.program import build_graph
from headgate.api.runtime import set_runtime
from headgate.base.settings import ExchangeSettings, StateBackendKind, StateSettings
from headgate.connectors.function import FunctionSource
from headgate.control.life_cycle import JobState
from headgate.datastream import StreamExecutionEnvironment
from headgate.functions.function import SourceFunction
from headgate.functions.source import Source
from headgate.host.driver.checkpoint_keeper import CheckpointKeeper
from headgate.host.driver.checkpoint_setup import CheckpointSetup
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.driver_run import DriverRun
from headgate.host.shipping.code import ship
from headgate.plan.job_graph import JobGraph, build_job_graph
from tests.api.kit import OneTaskRuntime
from tests.host.control_rig import SECRET, TIMES, ended, replace_times, workers
from tests.host.jobs import vertices_of
from tests.host.rig import eventually
from tests.host.saved_programs import OPEN, PROGRAMS, ROOT, Gated

FOLDER = Path(__file__).with_name("saved")
EXPECTED = "expected.txt"
MEMORY, ROCKSDB = StateBackendKind.HASHMAP, StateBackendKind.ROCKSDB
BUFFERS = ExchangeSettings(memory_min_bytes=64 << 20, memory_max_bytes=64 << 20)
SETTINGS = {
    "execution.checkpointing.interval": "1 h",
    "execution.checkpointing.dir": str(ROOT / "checkpoints"),
    "restart-strategy.type": "none",
    "pipeline.job-id": "saved",
}
OFTEN = {"execution.checkpointing.interval": "100 ms"}


@dataclass(frozen=True)
class Kind:
    """How a state of a program is kept."""

    program: str
    name: str
    backend: StateBackendKind = MEMORY
    settings: tuple[tuple[str, str], ...] = ()
    is_savepoint: bool = True


INCREMENTAL = (*OFTEN.items(), ("execution.checkpointing.incremental", "true"))
OVERTAKING = (*OFTEN.items(), ("execution.checkpointing.unaligned.enabled", "true"))
KINDS = [
    *(Kind(program, "savepoint") for program in ("windows", "joins", "states", "ends")),
    *(Kind(program, "rocksdb", ROCKSDB) for program in ("windows", "states")),
    *(
        Kind(program, "incremental", ROCKSDB, INCREMENTAL, is_savepoint=False)
        for program in ("windows", "joins", "states")
    ),
    Kind("flight", "unaligned", settings=OVERTAKING, is_savepoint=False),
]


class GatedRuntime(OneTaskRuntime):
    """The source functions of a program halt with it."""

    def function_source(self, function: SourceFunction[object]) -> Source:
        return Gated(FunctionSource(function, bounded=True), 7)


def graph_of(program: str) -> JobGraph:
    set_runtime(GatedRuntime)
    try:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        PROGRAMS[program](env)
        return build_job_graph(build_graph(env._draft, program, env._draft.pending))
    finally:
        set_runtime(headgate._open_runtime)


@dataclass(frozen=True)
class Running:
    run: DriverRun
    keeper: CheckpointKeeper


@contextmanager
def running(
    graph: JobGraph, backend: StateBackendKind, settings: dict[str, str]
) -> Iterator[Running]:
    """A program in two worker processes, which are killed in the end."""
    times = replace_times(TIMES, cancel_ms=2_000, settle_ms=50, loss_ms=10)
    with ExitStack() as end:
        server = end.enter_context(ControlServer(times=times))
        setup = CheckpointSetup({**SETTINGS, **settings}, graph)
        keeper = setup.open(is_local=True)
        end.callback(keeper.close, JobState.FAILED)
        code = ship(vertices_of(graph))
        server.open_job(
            "saved",
            SECRET,
            lambda key: setup.plan(keeper, str(key), code, {}),
            times=None,
            keeper=keeper,
        )
        end.callback(server.close_job, "saved")
        run = server.begin("saved", "")
        contact = server.contact("saved", BUFFERS, "", StateSettings(backend=backend))
        for slot, process in enumerate(end.enter_context(workers(2))):
            process.serve(contact, slot)
        yield Running(run, keeper)


def finish(program: str, backend: StateBackendKind, restored: Path | None = None) -> list[str]:
    """Run it to its end; the lines that are there then."""
    OPEN.touch()
    settings = {"execution.checkpointing.dir": str(ROOT / "later")}
    if restored is not None:
        settings["execution.state-recovery.path"] = str(restored)
    run_to_end(graph_of(program), backend, settings)
    return lines()


def run_to_end(graph: JobGraph, backend: StateBackendKind, settings: dict[str, str]) -> None:
    """It must finish."""
    with running(graph, backend, settings) as job:
        outcome = ended(job.run)
        assert outcome.state is JobState.FINISHED, outcome


def lines() -> list[str]:
    """Of all parts and of the database, with where they stand, in order."""
    found = []
    for path in ROOT.rglob("part-*"):
        where = path.parent.relative_to(ROOT)
        if path.suffix == ".parquet":
            found += [f"{where} {row}" for row in parquet.read_table(path).to_pylist()]
        else:
            found += [f"{where} {line}" for line in path.read_text().splitlines()]
    if (ROOT / "rows.db").exists():
        database = sqlite3.connect(ROOT / "rows.db")
        found += [f"rows.db {row}" for row in database.execute("SELECT * FROM rows")]
        database.close()
    return sorted(found)


@contextmanager
def room() -> Iterator[None]:
    """The folder, empty, for one process at a time."""
    with Path(f"{ROOT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(ROOT, ignore_errors=True)
        ROOT.mkdir(mode=0o700)
        try:
            yield
        finally:
            shutil.rmtree(ROOT)


def go_on(
    archive: Path, backend: StateBackendKind, change: Callable[[Path], Path] = lambda saved: saved
) -> tuple[list[str], list[str]]:
    """What a program has written that goes on from there, and what it should have.

    ``change`` makes another savepoint of the one in the archive.
    """
    with room():
        with tarfile.open(archive) as file:
            file.extractall(ROOT, filter="data")
        expected = (ROOT / EXPECTED).read_text().splitlines()
        (saved,) = [path.parent for path in ROOT.rglob("_metadata")]
        return finish(archive.name.split("-")[1], backend, change(saved)), expected


def make(kind: Kind, release: str) -> Path:
    """Let a program run to the middle, and keep what is there then."""
    with room():
        expected = finish(kind.program, MEMORY)
    with room():
        with running(graph_of(kind.program), kind.backend, dict(kind.settings)) as job:
            time.sleep(4)
            if kind.is_savepoint:
                job.run.savepoint(str(ROOT / "savepoint")).result(30)
            else:
                done = job.keeper.statistics().completed
                eventually(lambda: job.keeper.statistics().completed >= done + 2, "checkpoints")
        (ROOT / EXPECTED).write_text("".join(f"{line}\n" for line in expected))
        target = FOLDER / f"{release}-{kind.program}-{kind.name}.tar.xz"
        with tarfile.open(target, "w:xz") as file:
            for path in sorted(ROOT.rglob("*")):
                file.add(path, str(path.relative_to(ROOT)), recursive=False, filter=_nobodys)
        return target


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of the machine on which it was made."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    tempfile.tempdir = tempfile.mkdtemp(prefix="saved-")
    for kind in KINDS:
        if len(sys.argv) < 3 or f"{kind.program}-{kind.name}" in sys.argv[2:]:
            made = make(kind, sys.argv[1])
            print(made.name, made.stat().st_size, flush=True)
