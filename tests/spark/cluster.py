"""A standalone Spark cluster on this machine, started from the installed package alone."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from tests.spark.java_kit import jvm_options

START_TIMEOUT_S = 60
END_TIMEOUT_S = 15
CORES = 2
WORKERS = 2
LOOPBACK = "127.0.0.1"
FAKE_RESOURCE = json.dumps({"name": "fake", "addresses": [f"f{n}" for n in range(CORES)]})
"""What each worker has of a resource that stands for GPUs; sessions get it that ask for it."""


class Cluster:
    """`url` for a driver, in the environment `environ`. Leaving the block ends every process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slots = CORES * WORKERS
        self._processes: list[subprocess.Popen[bytes]] = []
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        self.home = Path(spec.origin).parent
        variables = ("SPARK_DAEMON_JAVA_OPTS", "SPARK_SUBMIT_OPTS")
        java_options = {variable: jvm_options(variable) for variable in variables}
        self.environ = {
            **os.environ,
            **java_options,
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        script = folder / "fake-resource.sh"
        script.write_text(f"#!/bin/sh\necho '{FAKE_RESOURCE}'\n")
        script.chmod(0o755)
        options = {"amount": str(CORES), "discoveryScript": str(script)}
        self.environ["SPARK_WORKER_OPTS"] = " ".join(
            f"-Dspark.worker.resource.fake.{key}={text}" for key, text in options.items()
        )
        for inherited in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            self.environ.pop(inherited, None)
        port, self.page_port = free_port(), free_port()
        self.url = f"spark://{LOOPBACK}:{port}"
        self._port = port

    def __enter__(self) -> "Cluster":
        try:
            self._start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def run(
        self, *words: str, timeout_s: float = 90, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a driver, with these environment variables besides its own."""
        return subprocess.run(
            [sys.executable, *words],
            env={**self.environ, **(variables or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def alive_workers(self) -> int:
        """As the master sees it."""
        page = f"http://{LOOPBACK}:{self.page_port}/json/"
        # A master that has only just begun may answer with its page for people.
        with suppress(OSError, ValueError), urllib.request.urlopen(page, timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
        return 0

    def processes(self) -> list[int]:
        """The daemons, and the executors and Python processes that they have started."""
        return [pid for process in self._processes for pid in descendants(process.pid)]

    def replace_worker(self, index: int) -> None:
        """Kill a daemon with its executors, as if its machine was lost, and start another one."""
        lost = self._processes.pop(1 + index)
        for pid in descendants(lost.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        lost.wait(END_TIMEOUT_S)
        self._launch_worker(index)
        self._processes.insert(1 + index, self._processes.pop())

    def end(self) -> None:
        """End all processes and their descendants; it is an error if one has to be killed."""
        family = {pid for process in self._processes for pid in descendants(process.pid)}
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT_S)
        stubborn: list[int] = []
        if not until(lambda: not any(map(is_running, family)), END_TIMEOUT_S):
            stubborn = sorted(filter(is_running, family))
            for pid in stubborn:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait(END_TIMEOUT_S)
        self._processes.clear()
        assert not stubborn, f"processes {stubborn} did not end by themselves"

    def _start(self) -> None:
        place = ["--host", LOOPBACK, "--port", str(self._port)]
        self._launch("master.Master", *place, "--webui-port", str(self.page_port))
        self._await(lambda: answers(self._port))
        for index in range(WORKERS):
            self._launch_worker(index)
        self._await(lambda: self.alive_workers() == WORKERS)

    def _launch_worker(self, index: int) -> None:
        size = ["--cores", str(CORES), "--memory", "1g"]
        work = ["--work-dir", str(self.folder / f"work-{index}"), "--webui-port", "0"]
        self._launch("worker.Worker", "--host", LOOPBACK, *size, *work, self.url)

    def _launch(self, name: str, *words: str) -> None:
        log = self.folder / f"{len(self._processes)}-{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [str(self.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)

    def _await(self, condition: Callable[[], bool]) -> None:
        def is_over() -> bool:
            return condition() or any(process.poll() is not None for process in self._processes)

        if not until(is_over, START_TIMEOUT_S) or not condition():
            logs = sorted(self.folder.glob("*.log"))
            logged = "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in logs)
            raise RuntimeError(f"the cluster did not start\n{logged}")


def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def answers(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection((LOOPBACK, port), 1).close()
        return True
    return False


def free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])


def descendants(pid: int) -> list[int]:
    """The process and all that it and its children have started."""
    found, queue = [], [pid]
    while queue:
        found.append(queue.pop())
        with suppress(OSError):
            for task in Path(f"/proc/{found[-1]}/task").iterdir():
                queue += map(int, (task / "children").read_text().split())
    return found


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
