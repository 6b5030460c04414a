"""How many hands a control message passes, and how many files take part in a checkpoint.

As in ``test_ratchets``: a commit may lower these numbers, and says why if it raises them. The jobs
run in the simulator, whose control line is not counted: a network is one hop however it is built.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import headgate
from headgate import KeyedProcessFunction, StreamExecutionEnvironment, ValueStateDescriptor
from headgate.connectors.generator import DataGeneratorSource
from headgate.control.effects import Send
from headgate.core.chain.user_function import StatefulOperator
from headgate.core.task.mailbox import Mailbox
from headgate.testing import run_local

SRC = f"{Path(headgate.__file__).parent}/"

HOPS = 5
"""From the coordinator to an operator: the run, the runs of a worker, a task, its checkpoints."""

FILES_OF_A_CHECKPOINT = 32
"""Those that are called more often where there are more checkpoints, from trigger to commit."""


class Counting(KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[0], count


def job(interval_ms: int) -> Callable[[StreamExecutionEnvironment], None]:
    """For two seconds, by its own clock."""

    def build(env: StreamExecutionEnvironment) -> None:
        env.set_parallelism(2)
        env.enable_checkpointing(interval_ms)
        words = env.from_source(
            DataGeneratorSource(lambda number: str(number % 7), 2_000, 1_000.0), source_name="words"
        )
        pairs = words.map(lambda word: (word, 1))
        pairs.key_by(lambda pair: pair[0]).process(Counting()).print()

    return build


def machines(frame: FrameType | None) -> list[str]:
    """Files with machines on the stack, the outermost first."""
    found: list[str] = []
    while frame is not None:
        path = frame.f_code.co_filename.removeprefix(SRC)
        if path.startswith(("control/", "core/", "host/")) and path not in found:
            found.append(path)
        frame = frame.f_back
    return found[::-1]


def hops(message: str, at: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files that a message of this name passes, from the coordinator to ``at`` of an operator.

    A mailbox keeps it, and ``outputs`` names the operator in errors: neither passes it on.
    """
    parts: dict[str, list[str]] = {}
    real_send, real_put, real_at = Send.__init__, Mailbox.put, getattr(StatefulOperator, at)

    def send(effect: Send, slot: int, sent: Any) -> None:
        if type(sent).__name__ == message:
            parts.setdefault("sent", machines(sys._getframe(1)))
        real_send(effect, slot, sent)

    def put(mailbox: Mailbox, what: str, *arguments: Any, **named: Any) -> bool:
        if what == message:
            parts.setdefault("delivered", machines(sys._getframe(1)))
        return real_put(mailbox, what, *arguments, **named)

    def arrived(operator: StatefulOperator, *arguments: Any) -> Any:
        if "delivered" in parts:
            parts.setdefault("obeyed", machines(sys._getframe(1)))
        return real_at(operator, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Send, "__init__", send)
        patched.setattr(Mailbox, "put", put)
        patched.setattr(StatefulOperator, at, arrived)
        run_local(job(100))
    way = dict.fromkeys(path for part in ("sent", "delivered", "obeyed") for path in parts[part])
    keepers = ("control/checkpoint_coordinator.py", "core/task/mailbox.py", "core/chain/outputs.py")
    return [*(path for path in way if path not in keepers), "the operator"]


def test_that_a_checkpoint_is_complete_is_passed_on_by_few(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = hops("CheckpointCompleted", "checkpoint_completed", monkeypatch)
    assert len(passed) <= HOPS, passed


def calls(interval_ms: int) -> Counter[str]:
    """How often functions of each file are called."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(SRC):
            found[path[len(SRC) :]] += 1

    sys.setprofile(note)
    try:
        run_local(job(interval_ms))
    finally:
        sys.setprofile(None)
    return found


def test_a_checkpoint_touches_no_more_files_than_it_did() -> None:
    few, many = calls(400), calls(50)
    touched = {path for path in many if many[path] > 2 * few[path]}
    touched = {path for path in touched if not path.startswith(("sim/", "testing/"))}
    assert len(touched) <= FILES_OF_A_CHECKPOINT, "\n".join(sorted(touched))
