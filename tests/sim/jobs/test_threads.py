"""Threads of simulated tasks: pausing, resting, waking, ending."""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from headgate.base.errors import TaskCancelled
from headgate.base.settings import ExchangeSettings
from headgate.core.task.task import StepResult
from headgate.sim.clock import Clock
from headgate.sim.jobs.scenario import AT_ONCE
from headgate.sim.jobs.threads import SimThread
from headgate.sim.network import Network, NetworkConditions
from headgate.sim.worker import CheckFailed, SimWorker


@pytest.fixture
def worker() -> SimWorker:
    clock = Clock()
    network = Network(clock, Random(0), lambda: NetworkConditions(1, 0, 100, 1000, 0))
    settings = ExchangeSettings(segment_bytes=16)
    return SimWorker(0, settings, 4, clock, network, Random(0), 10)


class Scripted:
    """A task whose steps are those of a test's generator."""

    def __init__(
        self, worker: SimWorker, script: Callable[[SimThread], Iterator[StepResult]]
    ) -> None:
        self.ended: list[BaseException | None] = []
        self.thread = SimThread("t", worker, Random(1), called_in=0.0, delays=AT_ONCE)
        self._steps = script(self.thread)
        self.thread.start(self)

    def step(self) -> StepResult:
        return next(self._steps, StepResult.DONE)

    def close(self, error: BaseException | None) -> None:
        self.ended.append(error)


def test_a_task_with_more_to_do_goes_on_by_itself(worker: SimWorker) -> None:
    task = Scripted(worker, lambda thread: iter([StepResult.MORE, StepResult.DONE]))
    task.thread.step()
    assert (task.thread.is_runnable, task.ended) == (True, [])
    task.thread.step()
    assert (task.thread.is_over, task.ended) == (True, [None])


def test_a_resting_task_waits_for_a_wake(worker: SimWorker) -> None:
    task = Scripted(worker, lambda thread: iter([StepResult.IDLE, StepResult.DONE]))
    task.thread.step()
    assert not task.thread.is_runnable
    assert task.thread.waits_for == "input, output or mail"
    task.thread.wake()
    assert task.thread.is_runnable


def test_a_wake_during_the_step_is_not_lost(worker: SimWorker) -> None:
    def script(thread: SimThread) -> Iterator[StepResult]:
        thread.wake()
        yield StepResult.IDLE

    task = Scripted(worker, script)
    task.thread.step()
    assert task.thread.is_runnable


def test_a_wait_looks_again_only_when_woken(worker: SimWorker) -> None:
    ready: list[bool] = []

    def script(thread: SimThread) -> Iterator[StepResult]:
        thread.wait(lambda: bool(ready))
        yield StepResult.DONE

    task = Scripted(worker, script)
    while task.thread.is_runnable:
        task.thread.step()
    ready.append(True)
    assert not task.thread.is_runnable
    task.thread.wake()
    task.thread.step()
    assert task.thread.is_over


def test_a_cancelled_task_ends_at_its_wait_and_is_closed(worker: SimWorker) -> None:
    def script(thread: SimThread) -> Iterator[StepResult]:
        thread.wait(lambda: False)
        yield StepResult.DONE

    task = Scripted(worker, script)
    task.thread.step()
    task.thread.cancel()
    task.thread.step()
    assert task.thread.is_over
    assert isinstance(task.ended[0], TaskCancelled)


def test_trouble_ends_a_task_and_a_broken_law_is_raised(worker: SimWorker) -> None:
    def fails(thread: SimThread) -> Iterator[StepResult]:
        raise ValueError("trouble")
        yield StepResult.DONE

    def breaks(thread: SimThread) -> Iterator[StepResult]:
        raise CheckFailed("law")
        yield StepResult.DONE

    task = Scripted(worker, fails)
    task.thread.step()
    assert isinstance(task.ended[0], ValueError)
    with pytest.raises(CheckFailed):
        Scripted(worker, breaks).thread.step()


def test_a_frozen_worker_defers_its_timers(worker: SimWorker) -> None:
    fired: list[float] = []
    worker.later(5, "timer", lambda: fired.append(worker.clock.now_ms))
    worker.frozen = True
    for _ in range(2):  # the timer, and a tick
        worker.clock.jump()
        worker.clock.pop_due()[1]()
    assert not fired
    worker.thaw()
    worker.clock.pop_due()[1]()
    assert fired == [10]
