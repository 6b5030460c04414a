"""Sinks in a process that is killed at a chosen step, and in another that goes on from there."""

import gc
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headgate.base.elements import Bundle
from headgate.core.chain.snapshots import OperatorRestored
from headgate.functions.context import SnapshotMoment
from headgate.functions.sink import TwoPhaseCommittingSink
from tests.core.chain.sink_lab import open_sink, sink_context

CHECKPOINTS = 2
RECORDS = 2 * CHECKPOINTS
"""What a run writes: numbers from 0 on, as texts unless the test makes something else of them."""
STEPS = 200
"""More than a run takes."""


class StepKiller:
    """Counts the steps of a process, and kills it before a chosen one."""

    def __init__(self, last: int) -> None:
        self._left = last

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def patch(self, owner: Any, *names: str) -> None:
        """Calls of these functions are steps."""
        for name in names:
            setattr(owner, name, self._before(getattr(owner, name)))

    def _before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **more: Any) -> Any:
            self.step()
            return function(*args, **more)

        return stepping


def run_to_end(
    sink: TwoPhaseCommittingSink, store: Path, killer: StepKiller, record: Callable[[int], Any]
) -> None:
    """From its newest checkpoint to the end; ``store`` is what a driver would keep."""
    restored, position, done = None, 0, 0
    if store.exists():
        done, position, state = pickle.loads(store.read_bytes())
        restored = OperatorRestored(done, sinks=() if state is None else (state,))
    task = open_sink(sink, sink_context(restored=restored, attempt=done))
    for number in range(done + 1, CHECKPOINTS + 1):
        task.process(Bundle([record(position), record(position + 1)]), 0)
        position += 2
        task.before_barrier(SnapshotMoment(number, 0))
        taken = task.snapshot(SnapshotMoment(number, 0)).sink
        killer.step()
        store.with_suffix(".new").write_bytes(pickle.dumps((number, position, taken)))
        os.replace(store.with_suffix(".new"), store)
        killer.step()
        task.checkpoint_completed(number)
    task.close()


def dies_at(
    last: int, patches: Sequence[tuple[Any, str]], run: Callable[[StepKiller], None]
) -> bool:
    """Whether a process of its own was killed at its ``last`` step; else it came to the end."""
    child = os.fork()
    if child == 0:
        code = 1
        gc.disable()  # what is collected here could speak on lines of the parent to its JVM
        try:
            killer = StepKiller(last)
            for owner, name in patches:
                killer.patch(owner, name)
            run(killer)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def in_process(
    sink: TwoPhaseCommittingSink,
    store: Path,
    patches: Sequence[tuple[Any, str]],
    last: int,
    record: Callable[[int], Any] = str,
) -> bool:
    """Whether a process of its own came to the end; it dies at its ``last`` step."""
    return not dies_at(last, patches, lambda killer: run_to_end(sink, store, killer, record))


def killed_at_each_step(
    sink: TwoPhaseCommittingSink,
    folder: Path,
    patches: Sequence[tuple[Any, str]],
    check: Callable[[int], None],
    record: Callable[[int], Any] = str,
) -> int:
    """``check`` is called with each step at which a run was killed, after another has gone on.

    Returns how many steps a run has.
    """
    for last in range(1, STEPS):
        store = folder / f"checkpoint-{last}"
        is_through = in_process(sink, store, patches, last, record)
        if not is_through:
            assert in_process(sink, store, patches, -1, record)
        check(last)
        if is_through:
            return last
    raise AssertionError("it has too many steps")
