"""Drivers that are killed before any step of a checkpoint, each followed by a new one.

Run as a program with the name of a test kit it forks a driver for each line of its input, which
names the folders of the job and the step to die at; workers are processes of the test, as those of
``job_kit`` are. The kit has ``make_sinks``, which gets where they write to: all sinks get the same
records, pairs of a number and a text. Law of such a job: whoever is killed, each sink writes
every number below ``TOTAL`` once.
"""

import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headgate.api.environment import StreamExecutionEnvironment
from headgate.base.messages import CheckpointCompleted
from headgate.control.frames import FrameWriter
from headgate.control.life_cycle import JobState
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader
from headgate.host.checkpoints import job_checkpoints
from headgate.host.checkpoints.job_checkpoints import JobCheckpoints
from headgate.host.driver.control_peer import ControlPeer
from headgate.host.driver.control_server import ControlServer
from headgate.plan.job_graph import JobGraph
from tests.connectors.kill_kit import StepKiller
from tests.host.control_rig import TIMES, Worker, ended, replace_times, workers
from tests.host.processes import ROOT
from tests.host.recovering_kit import Job

TASKS = 2
TOTAL = 200
CHUNK = 5
STEPS = ("store", "complete", "the first task hears of it", "the other does", "drop")
"""What a driver does for a checkpoint that all tasks have taken, when there is an older one."""


class Chunks(Source):
    """Numbers in chunks; the next one comes when a checkpoint holds the last, or ``hurry``."""

    bounded = True
    finds_more = False

    def __init__(self, hurry: Path) -> None:
        self.hurry = hurry

    def splits(self, parallelism: int) -> Sequence[int]:
        return range(TASKS)

    def open(self, split: Any, position: Any, context: ConnectorContext) -> "ChunkReader":
        return ChunkReader(split if position is None else position, self.hurry)


class ChunkReader(SplitReader):
    def __init__(self, number: int, hurry: Path) -> None:
        self.number, self.hurry = number, hurry
        self.is_held = True

    def poll(self, limit: int) -> Sequence[Any] | None:
        if not self.is_held and not self.hurry.exists():
            return ()
        if self.number >= TOTAL:
            return None
        found = range(self.number, min(self.number + TASKS * CHUNK, TOTAL), TASKS)
        self.number += TASKS * CHUNK
        self.is_held = False
        return [(number, f"word {number}") for number in found]

    def wait_ms(self) -> float:
        return 2.0

    def position(self) -> int:
        self.is_held = True
        return self.number


@dataclass(frozen=True)
class Order:
    """What a driver is started with."""

    places: dict[str, str]
    checkpoints: str
    folder: str
    last: int
    """The step to die at; 0: none."""
    at_end: bool = False
    """Whether the only step is the removal of the checkpoints, when all tasks have finished."""


class DriverRunner:
    """Starts drivers for workers that it keeps."""

    def __init__(self, process: "subprocess.Popen[str]", served: list[Worker]) -> None:
        self._process = process
        self._workers = served

    def is_finished(self, order: Order) -> bool:
        """Run a driver; False: it was killed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        contact = pickle.loads(bytes.fromhex(self._process.stdout.readline()))
        for slot, worker in enumerate(self._workers):
            worker.serve(contact, slot)
        status = int(self._process.stdout.readline())
        for worker in self._workers:
            worker.report()  # it has noticed, and is free for the next driver
        assert status in (0, -signal.SIGKILL), status
        return status == 0


@contextmanager
def driver_runner(kit: str) -> Iterator[DriverRunner]:
    command, pipe = [sys.executable, "-m", __name__, kit], subprocess.PIPE
    with (
        workers(TASKS) as served,
        subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process,
    ):
        try:
            yield DriverRunner(process, served)
        finally:
            process.kill()


def kill_drivers(
    kit: str,
    places: dict[str, str],
    folder: Path,
    committed: Callable[[], Mapping[str, Sequence[int]]],
    checkpoints: str,
) -> None:
    """A job whose first driver dies at its first step, the next at its second, and so on.

    The last driver but one dies when all tasks have finished. ``committed``: what independent
    readers find, by sink.
    """
    order = Order(places, checkpoints, str(folder), 1)
    with driver_runner(kit) as runner:
        for last in range(1, len(STEPS) + 2):
            assert not runner.is_finished(replace(order, last=last))
            for sink, found in committed().items():
                assert len(set(found)) == len(found), f"{sink}, after a kill at step {last}"
        (folder / "hurry").touch()
        assert not runner.is_finished(replace(order, at_end=True))
        assert runner.is_finished(replace(order, last=0))
    for sink, found in committed().items():
        assert sorted(found) == list(range(TOTAL)), sink


# In the process of the drivers.


def graph_of(kit: Any, order: Order) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(TASKS)
    source = Chunks(Path(order.folder, "hurry"))
    stream = env.from_source(source, source_name="chunks").uid("chunks")
    for name, sink in kit.make_sinks(order.places).items():
        stream.sink_to(sink).uid(name)
    graph = env.get_job_graph()
    env.close()
    return graph


def patch_steps(killer: StepKiller) -> None:
    """Messages are sent by a thread for each worker: one after the other, so that they count."""
    killer.patch(JobCheckpoints, "store", "drop")
    killer.patch(job_checkpoints, "complete")
    encode, send = FrameWriter.encode, ControlPeer._send
    of_thread, sending = threading.local(), threading.Lock()

    def noting(writer: FrameWriter, message: Any) -> Any:
        of_thread.is_step = isinstance(message, CheckpointCompleted)
        return encode(writer, message)

    def stepping(peer: ControlPeer, frame: memoryview) -> None:
        with sending:
            if of_thread.is_step:
                killer.step()
            send(peer, frame)

    FrameWriter.encode = noting  # type: ignore[method-assign, assignment]
    ControlPeer._send = stepping  # type: ignore[method-assign]


def drive(kit: Any, order: Order) -> None:
    killer = StepKiller(order.last)
    if order.at_end:
        killer.patch(JobCheckpoints, "close")
    else:
        patch_steps(killer)
    times = replace_times(TIMES, cancel_ms=2_000, settle_ms=50, loss_ms=10)
    with ControlServer(times=times) as server:
        job = Job(
            server, graph_of(kit, order), **{"execution.checkpointing.dir": order.checkpoints}
        )
        run = job.begin()
        print(pickle.dumps(job.contact()).hex(), flush=True)
        outcome = ended(run)
        assert outcome.state is JobState.FINISHED, outcome
        job.close(JobState.FINISHED)


def main(kit: Any) -> None:
    """A new process for each driver, which has the modules already and has started nothing."""
    StreamExecutionEnvironment.get_execution_environment().close()  # loads the rest of Headgate
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = 1
            try:
                drive(kit, Order(**json.loads(line)))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(importlib.import_module(sys.argv[1]))
