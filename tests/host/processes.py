"""The parent's hold on a child process: its order, its answers, its end."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headgate.base.ids import PartitionId
from headgate.base.settings import ExchangeSettings
from headgate.core.exchange.link import Address
from headgate.core.task.environment import Input, RemoteProducer

ROOT = Path(__file__).parents[2]


@dataclass
class Child:
    """A task manager in another process."""

    process: "subprocess.Popen[str]"
    folder: Path
    address: Address = ("", 0)

    def channel(self, partition: str, lane: int = 0) -> Input:
        return Input(PartitionId(partition), lane, RemoteProducer(self.address))

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def answer(self, key: str) -> Any:
        """What the child says next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the child has ended"
        return json.loads(line)[key]

    def finish(self) -> None:
        """Let it end in order; every segment must be home, and no file left."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        free, total = self.answer("home")
        assert free == total
        assert self.process.wait(20) == 0
        assert list(self.folder.iterdir()) == []


def writing(
    partition: str, count: int | None, size: int = 100, lanes: int = 1, kind: str = "PIPELINED"
) -> dict[str, Any]:
    return {"partition": partition, "count": count, "size": size, "lanes": lanes, "kind": kind}


def reading(address: Address, partition: str, lanes: int = 1) -> dict[str, Any]:
    return {"address": address, "partition": partition, "lanes": list(range(lanes))}


@contextmanager
def child(
    settings: ExchangeSettings,
    *,
    write: list[dict[str, Any]] | None = None,
    read: list[dict[str, Any]] | None = None,
    segments: int = 200,
    complete: bool = True,
) -> Iterator[Child]:
    """Start a child and read its address; whatever happens, it is killed in the end."""
    order = {
        "settings": texts(settings),
        "segments": segments,
        "write": write or [],
        "read": read or [],
        "complete": complete,
    }
    with ExitStack() as end:
        folder = Path(end.enter_context(tempfile.TemporaryDirectory(prefix="child-")))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.host.child"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        end.enter_context(process)
        end.callback(process.kill)
        assert process.stdin is not None
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        started = Child(process, folder)
        host, port = started.answer("address")
        started.address = (host, port)
        yield started


def texts(settings: ExchangeSettings) -> dict[str, str]:
    """Settings as they stand in a file."""
    return {
        f.metadata["key"]: str(getattr(value, "value", value))
        for f in fields(settings)
        if (value := getattr(settings, f.name)) != f.default
    }
