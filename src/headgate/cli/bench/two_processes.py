"""Two real processes for a benchmark: this one, and a child that talks back through a pipe."""

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")

ANSWER_S = 120.0
"""No phase of a benchmark lasts longer; a child that is silent for this long is broken."""


class ChildFailed(RuntimeError):
    """The child process of a benchmark ended with an error; its traceback is the message."""


class Child:
    """The other process: send it words, read its answers."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def tell(self, word: object) -> None:
        self._pipe.send(word)

    def has_answer(self, wait_s: float) -> bool:
        """Whether the child has said something, after waiting for it this long."""
        return self._pipe.poll(wait_s)

    def hear(self, kind: type[T]) -> T:
        """The child's next answer, which must be of ``kind``."""
        if not self._pipe.poll(ANSWER_S):
            raise ChildFailed(f"the child process said nothing for {ANSWER_S:.0f} s")
        try:
            answer = self._pipe.recv()
        except EOFError:
            raise ChildFailed("the child process ended without an answer") from None
        if isinstance(answer, ChildFailed):
            raise answer
        assert isinstance(answer, kind), answer
        return answer


@contextmanager
def child_process(target: Callable[..., None], *args: Any) -> Iterator[Child]:
    """Run ``target(pipe, *args)`` in a fresh process; it is gone at the end of the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(target, theirs, args), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Child(ours)
        process.join(10)
    finally:
        if process.is_alive():
            process.terminate()
        process.join()
        ours.close()


def _run(target: Callable[..., None], pipe: Connection, args: tuple[Any, ...]) -> None:
    try:
        target(pipe, *args)
    except BaseException:
        pipe.send(ChildFailed(traceback.format_exc()))


class CpuWatch:
    """CPU seconds of this process (all threads, user and system) since the start."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def cpu_s(self) -> float:
        return time.process_time() - self._cpu

    def wall_s(self) -> float:
        return time.perf_counter() - self._wall
