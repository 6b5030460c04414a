"""A job from a stream to a stream whose workers die at named points, each once it is asked to."""

import os
import secrets
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from headgate.connectors.streaming.sink import OutputCommitter, StreamingOutput
from headgate.connectors.streaming.source import StreamingInput
from headgate.connectors.streaming.stream_end import StreamEnd
from headgate.connectors.streaming.stream_log import StreamLog
from headgate.functions.context import ConnectorContext
from tests.connectors.job_kit import CopyJob
from tests.connectors.streaming.kit import SCHEMA, owner, rows, shown, write_batch

POINTS: Final = (
    "a commit is done",
    "a part that was read is to be removed",
)


def die_if_asked(folder: str, point: str) -> None:
    """Whoever removes the file that asks for it is killed."""
    try:
        os.unlink(os.path.join(folder, point))
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class MortalInput(StreamingInput):
    def __init__(self, folder: Path) -> None:
        super().__init__("orders", SCHEMA)
        self.folder = str(folder)

    def splits_finished(self, splits: Sequence[object]) -> None:
        die_if_asked(self.folder, "a part that was read is to be removed")
        super().splits_finished(splits)


class MortalOutput(StreamingOutput):
    def __init__(self, folder: Path) -> None:
        super().__init__("totals", SCHEMA)
        self.folder = str(folder)

    def create_committer(self, context: ConnectorContext) -> OutputCommitter:
        return MortalCommitter(self, context)


class MortalCommitter(OutputCommitter):
    def __init__(self, sink: MortalOutput, context: ConnectorContext) -> None:
        super().__init__(sink.stream, context)
        self._folder = sink.folder

    def commit(self, committables: Sequence[Any]) -> None:
        super().commit(committables)
        die_if_asked(self._folder, "a commit is done")


class StreamCopy(CopyJob):
    """Rows of a query, which another query would read."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.source()
        self._batch = 0

    def append(self, numbers: range) -> None:
        half = len(numbers) // 2
        write_batch(
            self.folder / "in", "q", self._batch, rows(*numbers[:half]), rows(*numbers[half:])
        )
        self._batch += 1

    def source(self) -> MortalInput:
        source = MortalInput(self.folder)
        self._attach(source.stream, "in")
        return source

    def sink(self) -> MortalOutput:
        sink = MortalOutput(self.folder)
        self._attach(sink.stream, "out")
        return sink

    def _attach(self, stream: StreamEnd, name: str) -> None:
        """As a job does that is started when the one before has ended."""
        log = StreamLog(str(self.folder / name))
        before = log.owner()
        if before is not None:
            log.set_owner(structs.replace(before, state="FINISHED"))
        stream.attach(log.uri, owner(secrets.token_hex(4)))

    def copied(self) -> list[int]:
        return shown(self.folder / "out")
