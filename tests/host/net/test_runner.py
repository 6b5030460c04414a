"""A task runs on its own thread, rests when idle, shares fairly, and ends in every way it can."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.base.errors import TaskCancelled
from headgate.core.task.task import StepResult
from headgate.host.net.exchange import Exchange
from headgate.host.net.runner import BatonLoan, Runner, TaskThread
from tests.host.conftest import MakeExchange
from tests.host.rig import (
    PATIENCE_S,
    consume,
    eventually,
    from_here,
    from_there,
    pool_of,
    produce,
)


class Task:
    """Steps as the test says."""

    def __init__(self, name: str, step: Callable[["Task"], StepResult]) -> None:
        self.name = name
        self.steps = 0
        self.threads: set[int] = set()
        self.closed_with: list[BaseException | None] = []
        self._step = step

    def step(self) -> StepResult:
        self.steps += 1
        self.threads.add(threading.get_ident())
        return self._step(self)

    def close(self, error: BaseException | None) -> None:
        self.threads.add(threading.get_ident())
        self.closed_with.append(error)


def run(exchange: Exchange, task: Task) -> tuple[Runner, TaskThread]:
    task_thread = exchange.task_thread(task.name)
    return exchange.run(task, task_thread), task_thread


@pytest.fixture
def exchange(make_exchange: MakeExchange) -> Exchange:
    return make_exchange(local_only=True)


def until(count: int) -> Callable[[Task], StepResult]:
    return lambda task: StepResult.DONE if task.steps >= count else StepResult.MORE


def test_a_task_steps_on_its_own_thread_until_it_is_done(exchange: Exchange) -> None:
    tasks = [Task(f"task {number}", until(500)) for number in range(3)]
    for runner, _ in [run(exchange, task) for task in tasks]:
        runner.join(PATIENCE_S)
        assert not runner.is_alive
        assert runner.steps == 500
    for task in tasks:
        assert task.closed_with == [None]
        assert len(task.threads) == 1
    own = set[int]().union(*(task.threads for task in tasks))
    assert threading.get_ident() not in own


def test_the_cpu_time_is_that_of_the_task_s_thread(exchange: Exchange) -> None:
    burn = threading.Event()

    def step(task: Task) -> StepResult:
        sum(range(20_000))
        return StepResult.DONE if burn.is_set() else StepResult.MORE

    runner, _ = run(exchange, Task("burns", step))
    eventually(lambda: runner.cpu_ms > 20, "CPU time")
    burn.set()
    runner.join(PATIENCE_S)
    last = runner.cpu_ms
    assert last > 20
    assert runner.cpu_ms == last, "it has ended"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")
def test_a_thread_that_shares_a_core_has_waited_for_it(exchange: Exchange) -> None:
    cores, burn = os.sched_getaffinity(0), threading.Event()

    def step(task: Task) -> StepResult:
        os.sched_setaffinity(0, {min(cores)})
        sum(range(20_000))
        return StepResult.DONE if burn.is_set() else StepResult.MORE

    endless = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
    rival = subprocess.Popen([sys.executable, "-c", endless])
    try:
        runner, _ = run(exchange, Task("shares", step))
        eventually(lambda: runner.runnable_ms > 20, "it waits for the core")
        burn.set()
        runner.join(PATIENCE_S)
        assert runner.runnable_ms > 20, "after its end as well"
    finally:
        rival.kill()
        rival.wait()


def test_an_idle_task_rests_until_it_is_woken(exchange: Exchange) -> None:
    awake: list[bool] = []
    task = Task("idler", lambda task: StepResult.DONE if awake else StepResult.IDLE)
    runner, task_thread = run(exchange, task)
    eventually(lambda: task.steps > 0, "the first step")
    eventually(lambda: exchange.baton.asleep, "the task sleeps in the network")
    steps, used = task.steps, time.process_time()
    time.sleep(0.3)  # that it uses no time meanwhile is the subject
    assert time.process_time() - used < 0.1
    assert task.steps - steps < 20
    with exchange.inside():
        awake.append(True)
        task_thread.wake()
    runner.join(PATIENCE_S)


def test_two_idle_tasks_rest_and_both_are_woken(exchange: Exchange) -> None:
    awake: list[bool] = []
    tasks = [
        Task(f"idler {n}", lambda task: StepResult.DONE if awake else StepResult.IDLE)
        for n in (1, 2)
    ]
    running = [run(exchange, task) for task in tasks]
    eventually(lambda: all(task.steps for task in tasks), "the first steps")
    used = time.process_time()
    time.sleep(0.3)  # that they use no time meanwhile is the subject
    assert time.process_time() - used < 0.1
    with exchange.inside():
        awake.append(True)
        for _, task_thread in running:
            task_thread.wake()
    for runner, _ in running:
        runner.join(PATIENCE_S)


def test_a_failing_step_ends_the_task_and_join_raises_the_error(exchange: Exchange) -> None:
    def fail(task: Task) -> StepResult:
        raise ValueError("the user's mistake")

    task = Task("failing", fail)
    runner, _ = run(exchange, task)
    with pytest.raises(ValueError, match="the user's mistake"):
        runner.join(PATIENCE_S)
    assert task.closed_with == [runner.error]
    assert pool_of(exchange)[0] > 0  # the baton is free


def test_a_failing_close_is_the_task_s_error_and_gives_the_baton_back(exchange: Exchange) -> None:
    class Unclosable(Task):
        def close(self, error: BaseException | None) -> None:
            raise SystemExit("not like this")

    runner, _ = run(exchange, Unclosable("unclosable", until(1)))
    with pytest.raises(SystemExit):
        runner.join(PATIENCE_S)
    pool_of(exchange)


@pytest.mark.parametrize("called_in", [False, True])
def test_an_error_inside_a_loan_ends_the_task_in_order(exchange: Exchange, called_in: bool) -> None:
    def fail(task: Task) -> StepResult:
        exchange.baton.lend(task_thread.turn)
        if called_in:
            eventually(
                lambda: exchange.baton.holder is not task_thread.turn, "the loan is called in"
            )
        raise ValueError("the user's mistake")

    task = Task("failing", fail)
    task_thread = exchange.task_thread(task.name)
    with pytest.raises(ValueError, match="mistake"):
        exchange.run(task, task_thread).join(PATIENCE_S)
    assert task.closed_with != []
    pool_of(exchange)


def test_join_says_when_a_task_takes_too_long(exchange: Exchange) -> None:
    runner, _ = run(exchange, Task("endless", lambda task: StepResult.IDLE))
    with pytest.raises(TimeoutError, match="endless did not end within 0.05 s"):
        runner.join(0.05)


def test_a_cancelled_task_ends_between_two_steps(exchange: Exchange) -> None:
    task = Task("endless", lambda task: StepResult.MORE)
    runner, task_thread = run(exchange, task)
    eventually(lambda: task.steps > 100, "it runs")
    with exchange.inside():
        task_thread.cancel()
    with pytest.raises(TaskCancelled, match="endless"):
        runner.join(PATIENCE_S)
    assert isinstance(task.closed_with[0], TaskCancelled)


def test_waits_of_clients_are_interrupted_by_the_cancellation(
    exchange: Exchange, caplog: pytest.LogCaptureFixture
) -> None:
    waits, answered = threading.Event(), threading.Event()

    def step(task: Task) -> StepResult:
        task_thread.when_cancelled(lambda: print(1 // 0))
        task_thread.when_cancelled(answered.set)
        with loan:
            waits.set()
            assert answered.wait(PATIENCE_S)
        return StepResult.MORE

    task = Task("task", step)
    task_thread = exchange.task_thread(task.name)
    loan = BatonLoan(exchange.baton, task_thread.turn)
    runner = exchange.run(task, task_thread)
    assert waits.wait(PATIENCE_S)
    with exchange.inside():
        task_thread.cancel()
    with pytest.raises(TaskCancelled):
        runner.join(PATIENCE_S)
    assert "an interrupt of a wait of task task failed" in caplog.text
    late = threading.Event()
    task_thread.when_cancelled(late.set)
    assert late.is_set()


def test_a_cancelled_task_ends_its_wait_for_input(exchange: Exchange) -> None:
    consumer = consume(exchange, [from_here("never")])
    with exchange.inside():
        consumer.task_thread.cancel()
    with pytest.raises(TaskCancelled):
        consumer.join()


def test_a_cancelled_task_ends_its_wait_for_a_buffer(exchange: Exchange) -> None:
    producer = produce(exchange, "unread", [b"x" * 10_000_000])  # one step, more than all buffers
    eventually(lambda: pool_of(exchange)[0] < 100, "buffers are in use")
    eventually(lambda: exchange.baton.asleep, "the writer waits")
    with exchange.inside():
        producer.task_thread.cancel()
    with pytest.raises(TaskCancelled):
        producer.join()


def test_a_writer_whose_partition_is_released_ends_its_wait_for_a_buffer(
    exchange: Exchange,
) -> None:
    producer = produce(exchange, "unread", [b"x" * 10_000_000])
    eventually(lambda: pool_of(exchange)[0] < 100, "buffers are in use")
    with exchange.inside():
        producer.partition.release()
    with pytest.raises(TaskCancelled):
        producer.join()


def test_two_tasks_that_are_always_runnable_share_fairly(exchange: Exchange) -> None:
    tasks = [Task(f"busy {n}", lambda task: StepResult.MORE) for n in (1, 2)]
    running = [run(exchange, task) for task in tasks]
    eventually(lambda: min(task.steps for task in tasks) > 0, "both run")
    with exchange.inside():
        before = [task.steps for task in tasks]  # one may have been alone for a while
    eventually(lambda: min(task.steps for task in tasks) > max(before) + 20_000, "both go on")
    with exchange.inside():
        counts = [task.steps - start for task, start in zip(tasks, before, strict=True)]
        for _, task_thread in running:
            task_thread.cancel()
    assert max(counts) < 10 * min(counts)
    for runner, _ in running:
        assert runner.ends_within(PATIENCE_S)


def test_a_busy_task_lets_visitors_and_timers_in(exchange: Exchange) -> None:
    run(exchange, Task("busy", lambda task: StepResult.MORE))
    fired = threading.Event()
    for _ in range(50):
        with exchange.inside():
            exchange.loop.later(0, fired.set)
        assert fired.wait(PATIENCE_S)
        fired.clear()


@pytest.mark.parametrize("work", ["sleeps", "computes"])
def test_a_task_that_blocks_in_user_code_stops_neither_tasks_nor_network(
    make_exchange: MakeExchange, work: str
) -> None:
    """While one task's function takes long, another exchange reads from its neighbour."""
    here, there = make_exchange(), make_exchange()
    blocked, through = threading.Event(), threading.Event()
    release = threading.Event()

    def block(task: Task) -> StepResult:
        here.baton.lend(task_thread.turn)
        blocked.set()
        while not release.wait(0 if work == "computes" else 0.2):
            sum(range(1000))
        through.set()
        here.baton.regain(task_thread.turn)
        assert here.baton.holder is task_thread.turn
        return StepResult.DONE

    task_thread = here.task_thread("slow")
    runner = here.run(Task("slow", block), task_thread)
    assert blocked.wait(PATIENCE_S)
    producer = produce(here, "p", range(20_000), subpartitions=2)
    neighbour = consume(here, [from_here("p", 0)])
    consumer = consume(there, [from_there(here, "p", 1)])
    for task in (producer, neighbour, consumer):
        task.join()
    assert not through.is_set()
    assert neighbour.records + consumer.records == [*range(0, 20_000, 2), *range(1, 20_000, 2)]
    release.set()
    runner.join(PATIENCE_S)
    assert here.baton.called_in >= 1


def test_user_code_that_is_quick_is_never_called_in(exchange: Exchange) -> None:
    def step(task: Task) -> StepResult:
        exchange.baton.lend(task_thread.turn)
        exchange.baton.regain(task_thread.turn)
        return StepResult.DONE if task.steps == 5000 else StepResult.MORE

    task_thread = exchange.task_thread("quick")
    exchange.run(Task("quick", step), task_thread).join(PATIENCE_S)
    assert exchange.baton.called_in < 5  # a slow machine may call in one or two
