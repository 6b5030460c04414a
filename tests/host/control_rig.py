"""What the tests of the control connection are made of: a server, and workers in processes."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from headgate.base.job_records import LogLine
from headgate.base.messages import (
    ControlTimes,
    TaskState,
)
from headgate.base.settings import ExchangeSettings
from headgate.control.effects import Outcome
from headgate.host.driver.checkpoint_setup import plan_run
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.driver_run import DriverRun, RunKey
from headgate.host.net.contact import DriverContact
from headgate.host.shipping.code import ship
from headgate.plan.job_graph import JobGraph
from tests.host.jobs import vertices_of
from tests.host.processes import ROOT

SECRET = b"s" * 32
PATIENCE_S = 40.0
TIMES = ControlTimes(
    prove_ms=3_000,
    connect_ms=5_000,
    heartbeat_interval_ms=200,
    heartbeat_timeout_ms=20_000,
    settle_ms=1_000,
    cancel_ms=10_000,
    lost_ms=3_000,
    metrics_ms=50,
)
SETTINGS = ExchangeSettings(memory_min_bytes=8 << 20, memory_max_bytes=8 << 20)


class Launcher:
    """Opens jobs at a server and keeps what its callbacks tell."""

    def __init__(self, server: ControlServer) -> None:
        self.server = server
        self.begun: list[str] = []
        self.ended: list[tuple[RunKey, Outcome]] = []
        self.logged: list[LogLine] = []

    def open(self, graph: JobGraph, job: str = "job", *, lazy: bool = False) -> DriverContact:
        code = ship(vertices_of(graph))
        self.server.open_job(
            job,
            SECRET,
            lambda key: plan_run(str(key), graph, code, key.generation),
            on_begun=self.run_begun,
            on_ended=lambda key, outcome: self.ended.append((key, outcome)),
            on_logged=self.logged.extend,
            lazy=lazy,
        )
        return self.server.contact(job, SETTINGS)

    def run_begun(self, run: DriverRun) -> None:
        self.begun.append(str(run.key))
        raise RuntimeError("an observer fails, and the run does not")

    def begin(self, graph: JobGraph, job: str = "job") -> tuple[DriverRun, DriverContact]:
        contact = self.open(graph, job)
        return self.server.begin(job), contact


class Worker:
    """A worker process; gets its orders one by one."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def serve(self, contact: DriverContact, slot: int, *, may_exit: bool = False) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(pickle.dumps((contact, slot, may_exit)).hex() + "\n")
        self.process.stdin.flush()

    def report(self) -> dict[str, Any]:
        """How the last order ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the worker has ended: {self.process.wait(5)}"
        found: dict[str, Any] = json.loads(line)
        return found

    def returned(self) -> None:
        """It came back in order and left nothing behind."""
        report = self.report()
        assert report == {"error": None, "message": "", "left": [], "threads": []}

    def raised(self) -> tuple[str, str]:
        """It raised, and left nothing behind."""
        report = self.report()
        assert report["left"] == report["threads"] == []
        return report["error"], report["message"]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)


@contextmanager
def workers(count: int) -> Iterator[list[Worker]]:
    """Processes that are killed in the end, whatever happens."""
    with ExitStack() as end:
        folder = end.enter_context(tempfile.TemporaryDirectory(prefix="worker-"))
        started = []
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.host.worker"],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": folder},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            end.enter_context(process)
            end.callback(process.kill)
            started.append(Worker(process))
        yield started


@contextmanager
def serving(contact: DriverContact) -> Iterator[list[Worker]]:
    """Two workers that serve the two slots of a job."""
    with workers(2) as both:
        for slot, worker in enumerate(both):
            worker.serve(contact, slot)
        yield both


def ended(run: DriverRun) -> Outcome:
    outcome = run.wait(PATIENCE_S)
    assert outcome is not None, f"run {run.key} is {run.state}: {task_states(run)}"
    return outcome


def task_states(run: DriverRun) -> dict[str, TaskState]:
    with run._lock:
        return dict(run._machine.states)


def impatient(contact: DriverContact, **times: int) -> DriverContact:
    return replace(contact, times=replace_times(contact.times, **times))


def replace_times(times: ControlTimes, **changes: int) -> ControlTimes:
    fields = {name: getattr(times, name) for name in times.__struct_fields__}
    return ControlTimes(**{**fields, **changes})


def is_hung_up(sock: socket.socket) -> bool:
    sock.settimeout(10)
    try:
        return sock.recv(1 << 16) == b""
    except ConnectionError:
        return True
