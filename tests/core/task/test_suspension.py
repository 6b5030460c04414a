"""Suspend and resume: tasks that are stepped only after a wake come to their end, in any order.

Three tasks behind each other in one process, with as few buffers as they may have. A task that is
idle is not stepped before somebody wakes it; chance picks who goes on, and when time passes.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.chain.operator import Operator
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.gate import Gate
from headgate.core.operators.one_input import FlatMapOperator
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.task.task import StepResult, Task
from tests.core.task.kit import Lab, source


class Seat:
    """A task's thread, as far as wakes go."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.woken = True
        self.task: Task | None = None
        self.done = False
        self.within = False
        """In the middle of a step, waiting for a buffer."""

    def wake(self) -> None:
        self.woken = True

    @property
    def can_go_on(self) -> bool:
        return self.woken and not self.done and not self.within

    def step(self) -> None:
        assert self.task is not None
        self.woken = False
        match self.task.step():
            case StepResult.MORE:
                self.woken = True
            case StepResult.DONE:
                self.done = True
                self.task.close(None)


class Street:
    """source → flat map → sink."""

    def __init__(self, answers: list[Any], timeout_ms: int, pick: Callable[[int], int]) -> None:
        self.lab = Lab(4)
        self.got: list[int] = []
        self.seats = [Seat("source"), Seat("map"), Seat("sink")]
        self._pick = pick
        writers = [
            self._writer(name, seat, timeout_ms)
            for name, seat in zip("ab", self.seats[:2], strict=True)
        ]
        makers: list[Callable[[], Operator]] = [
            source(*answers),
            lambda: FlatMapOperator(lambda n: [n] * 3),
            lambda: SinkFunctionOperator(self.got.append),
        ]
        for number, (seat, make) in enumerate(zip(self.seats, makers, strict=True)):
            gates = (((self.lab.gate("ab"[number - 1])),),) if number else ()
            self._seat(seat, make, gates, tuple(writers[number : number + 1]))

    def run(self) -> None:
        """To the end; who is not woken is not stepped."""
        for _ in range(5000):
            ready = [seat for seat in self.seats if seat.can_go_on]
            if ready and self._pick(5):
                ready[self._pick(len(ready) - 1)].step()
            elif all(seat.done for seat in self.seats):
                break
            else:
                assert ready or self.lab.timers._due, "nobody was woken, and no timer will"
                self.lab.timers.pass_ms(1)
        else:
            raise AssertionError("no end")
        with self.lab:
            pass

    def _writer(self, name: str, seat: Seat, timeout_ms: int) -> RecordWriter:
        writer = self.lab.writer(name, wait=lambda ready: self._wait(seat, ready))
        writer.timeout_ms = timeout_ms
        return writer

    def _seat(
        self,
        seat: Seat,
        make: Callable[[], Operator],
        gates: tuple[tuple[Gate, ...], ...],
        writers: tuple[RecordWriter, ...],
    ) -> None:
        lab = self.lab
        lab.wake = seat.wake  # type: ignore[method-assign]
        seat.task = lab.task(make, gates=gates, writers=writers)

    def _wait(self, seat: Seat, ready: Callable[[], bool]) -> None:
        """In the middle of a step: others go on until there is a buffer."""
        seat.within = True
        while not ready():
            others = [other for other in self.seats if other.can_go_on]
            assert others, f"{seat.name} has no buffer, and nobody was woken"
            others[self._pick(len(others) - 1)].step()
        seat.within = False


@given(
    answers=st.lists(
        st.one_of(st.just([]), st.lists(st.integers(0, 9), min_size=1, max_size=30)), max_size=8
    ),
    timeout_ms=st.sampled_from((-1, 0)),
    seed=st.integers(0, 2**32),
)
def test_nobody_waits_for_a_wake_that_never_comes(
    answers: list[list[int]], timeout_ms: int, seed: int
) -> None:
    random = Random(seed)
    street = Street(answers, timeout_ms, lambda most: random.randint(0, most))
    street.run()
    assert street.got == [n for some in answers for n in some for _ in range(3)]
