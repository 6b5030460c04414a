"""A job of one Kafka sink whose process is killed again and again, each time at another step.

``python -m tests.connectors.kafka.writer_process ADDRESS TOPIC FOLDER TOTAL STEP …`` forks an
attempt for each named step, which goes on from the newest complete checkpoint in FOLDER, at another
parallelism than the one before, and kills itself at the step; then a last one that lives to the
end. Records are the numbers below TOTAL.
"""

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headgate.base.elements import Bundle
from headgate.connectors.kafka.producer import SinkProducer
from headgate.connectors.kafka.transactions import ProgressTopic, WriterSession
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.functions.context import SnapshotMoment
from tests.connectors.kafka.sink_kit import text_sink
from tests.core.chain.sink_lab import open_sink, sink_context

AT_ONCE = 4
STEPS = (
    "written",  # records are in the tasks
    "snapshot taken",  # and in no complete checkpoint
    "checkpoint complete",  # before anything is committed
    "id taken",  # the old writer is fenced, its progress unknown
    "progress read",
    "transaction begun",
    "records sent",  # delivered, and the progress is not
    "progress sent",
    "committed",
    "all committed",  # and the next checkpoint is not there yet
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wrap(owner: type, method: str, call: Callable[..., Any]) -> None:
    """``call(original, self, *arguments)`` instead of the method."""
    original = getattr(owner, method)
    setattr(owner, method, lambda self, *given: call(original, self, *given))


def arm(step: str) -> None:
    """Die at the step; those that are not in here are in ``attempt``."""

    def dies_after(original: Any, self: Any, *given: Any) -> Any:
        original(self, *given)
        die()

    def dies_between(original: Any, self: Any, records: Any) -> None:
        there = list(records)
        is_progress = there[0][0].endswith("progress")
        if is_progress and step == "records sent":
            self.flush()
            die()
        original(self, there)
        if is_progress and step == "progress sent":
            self.flush()
            die()

    def dies_after_commit(original: Any, self: Any, doing: str, *given: Any) -> Any:
        found = original(self, doing, *given)
        if doing.startswith("committing"):
            die()
        return found

    if step == "id taken":
        wrap(WriterSession, "__init__", dies_after)
    elif step == "progress read":
        wrap(ProgressTopic, "read", dies_after)
    elif step == "transaction begun":
        wrap(SinkProducer, "begin", dies_after)
    elif step in ("records sent", "progress sent"):
        wrap(SinkProducer, "send", dies_between)
    elif step == "committed":
        wrap(SinkProducer, "ask", dies_after_commit)


def attempt(address: str, topic: str, folder: Path, total: int, number: int, step: str) -> None:
    """One run of the job."""
    arm(step)
    parallelism = 1 + number % 3
    position, states, checkpoint = newest(folder)
    tasks = []
    for subtask in range(parallelism):
        mine = tuple(state for state in states[subtask::parallelism] if state is not None)
        context = sink_context(
            subtask, parallelism, number, restored=OperatorRestored(checkpoint, sinks=mine)
        )
        tasks.append(open_sink(text_sink(address, topic, progress_topic="progress"), context))
    while position < total:
        checkpoint += 1
        position = write(tasks, position)
        if step == "written":
            die()
        states = [task.snapshot(SnapshotMoment(checkpoint, 0)).sink for task in tasks]
        if step == "snapshot taken":
            die()
        store(folder, checkpoint, (position, states))
        if step == "checkpoint complete":
            die()
        for task in tasks:
            task.checkpoint_completed(checkpoint)
        if step == "all committed":
            die()
    for task in tasks:
        task.close()


def write(tasks: list[TwoPhaseSinkOperator], position: int) -> int:
    for task in tasks:
        task.process(Bundle([str(n) for n in range(position, position + AT_ONCE)]), 0)
        position += AT_ONCE
    return position


def newest(folder: Path) -> tuple[int, list[bytes | None], int]:
    """Position, states and number of the newest complete checkpoint."""
    found = sorted(folder.glob("checkpoint-*"))
    if not found:
        return 0, [], 0
    position, states = pickle.loads(found[-1].read_bytes())
    return position, states, int(found[-1].name.partition("-")[2])


def store(folder: Path, checkpoint: int, state: Any) -> None:
    (folder / "new").write_bytes(pickle.dumps(state))
    (folder / "new").rename(folder / f"checkpoint-{checkpoint:06}")


def main(address: str, topic: str, folder: str, total: str, *steps: str) -> None:
    for number, step in enumerate((*steps, "")):
        child = os.fork()
        if not child:
            try:
                attempt(address, topic, Path(folder), int(total), number, step)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed if step else status == 0, f"attempt {number} ({step!r}) ended with {status}"


if __name__ == "__main__":
    main(*sys.argv[1:])
