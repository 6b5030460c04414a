"""Tasks as greenlets: pausing, resting, waking, ending."""

from random import Random

import pytest

from headgate.base.errors import TaskCancelled
from headgate.base.settings import ExchangeSettings
from headgate.sim.clock import Clock
from headgate.sim.network import Network, Weather
from headgate.sim.worker import CheckFailed, SimWorker
from tests.sim.tasks import Fate, SimTask


@pytest.fixture
def worker() -> SimWorker:
    clock = Clock()
    network = Network(clock, Random(0), lambda: Weather(1, 0, 100, 1000, 0))
    settings = ExchangeSettings(segment_bytes=16)
    return SimWorker(0, settings, 4, clock, network, Random(0), 10)


class Notes:
    """A task whose program is a test's function."""

    def __init__(self, worker: SimWorker, program) -> None:
        self.lines: list[str] = []
        self.ended: list[BaseException | None] = []
        self.task = SimTask("t", worker, lambda task: program(task, self.lines), self.ended.append)
        self.task.start()


def test_a_paused_task_goes_on_by_itself(worker: SimWorker) -> None:
    def program(task: SimTask, lines: list[str]) -> Fate:
        lines.append("one")
        task.pause()
        lines.append("two")
        return Fate.FINISHED

    notes = Notes(worker, program)
    notes.task.step()
    assert (notes.lines, notes.task.is_runnable) == (["one"], True)
    notes.task.step()
    assert (notes.lines, notes.task.fate, notes.ended) == (["one", "two"], Fate.FINISHED, [None])


def test_a_resting_task_waits_for_a_wake(worker: SimWorker) -> None:
    def program(task: SimTask, lines: list[str]) -> Fate:
        task.begin_step()
        task.rest("input")
        return Fate.FINISHED

    notes = Notes(worker, program)
    notes.task.step()
    assert (notes.task.is_runnable, notes.task.waits_for) == (False, "input")
    notes.task.wake()
    assert notes.task.is_runnable


def test_a_wake_during_the_step_is_not_lost(worker: SimWorker) -> None:
    def program(task: SimTask, lines: list[str]) -> Fate:
        task.begin_step()
        task.wake()
        task.rest("input")
        return Fate.FINISHED

    notes = Notes(worker, program)
    notes.task.step()
    assert notes.task.is_runnable


def test_a_wait_looks_again_only_when_woken(worker: SimWorker) -> None:
    ready: list[bool] = []

    def program(task: SimTask, lines: list[str]) -> Fate:
        task.wait(lambda: bool(ready))
        return Fate.FINISHED

    notes = Notes(worker, program)
    notes.task.step()
    ready.append(True)
    assert not notes.task.is_runnable
    notes.task.wake()
    notes.task.step()
    assert notes.task.fate is Fate.FINISHED


def test_a_cancelled_task_ends_at_its_rest_and_cleans_up(worker: SimWorker) -> None:
    def program(task: SimTask, lines: list[str]) -> Fate:
        task.wait(lambda: False)
        return Fate.FINISHED

    notes = Notes(worker, program)
    notes.task.step()
    notes.task.cancel()
    notes.task.step()
    assert notes.task.fate is Fate.CANCELLED
    assert isinstance(notes.ended[0], TaskCancelled)


def test_a_sleep_lasts_as_long_as_it_should(worker: SimWorker) -> None:
    def program(task: SimTask, lines: list[str]) -> Fate:
        task.sleep(25)
        return Fate.FINISHED

    notes = Notes(worker, program)
    notes.task.step()
    while not notes.task.is_runnable:
        worker.clock.jump()
        worker.clock.pop_due()[1]()
    assert worker.clock.now_ms == 25


def test_trouble_is_a_fate_and_a_broken_law_is_raised(worker: SimWorker) -> None:
    def fails(task: SimTask, lines: list[str]) -> Fate:
        raise ValueError("trouble")

    def breaks(task: SimTask, lines: list[str]) -> Fate:
        raise CheckFailed("law")

    notes = Notes(worker, fails)
    notes.task.step()
    assert notes.task.fate is Fate.FAILED
    assert isinstance(notes.ended[0], ValueError)
    with pytest.raises(CheckFailed):
        Notes(worker, breaks).task.step()


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
