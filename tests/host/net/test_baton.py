"""The baton has one holder at any time, goes round in order, and leaves nobody behind."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headgate.base.errors import TaskCancelled
from headgate.host.net import baton as baton_module
from headgate.host.net.baton import Baton, Turn
from headgate.host.net.exchange import Exchange
from headgate.host.net.loop import Loop
from headgate.host.net.runner import TaskThread
from tests.host.conftest import MakeExchange
from tests.host.rig import PATIENCE_S, eventually

ROUNDS = 600


class Witness:
    """Knows who is inside, and that nobody else is."""

    def __init__(self) -> None:
        self.owner: int | None = None
        self.visits = 0
        self.breaches: list[str] = []

    def enter(self) -> None:
        me = threading.get_ident()
        if self.owner is not None:
            self.breaches.append(f"{me} came in while {self.owner} was inside")
        self.owner = me
        self.visits += 1

    def leave(self) -> None:
        if self.owner != threading.get_ident():
            self.breaches.append(f"{threading.get_ident()} left, but {self.owner} was inside")
        self.owner = None

    @contextmanager
    def outside(self) -> Iterator[None]:
        self.leave()
        try:
            yield
        finally:
            self.enter()

    def watch(self, poll: Callable[[float | None], None]) -> Callable[[float | None], None]:
        def watched(wait_ms: float | None = 0) -> None:
            if self.owner == threading.get_ident():
                poll(wait_ms)
                return
            self.enter()
            try:
                poll(wait_ms)
            finally:
                self.leave()

        return watched


def hammer(
    exchange: Exchange, witness: Witness, task_threads: list[TaskThread], number: int
) -> None:
    chance, task_thread = random.Random(number), task_threads[number]
    baton, turn = exchange.baton, task_thread.turn
    baton.take(turn)
    witness.enter()
    for _ in range(ROUNDS):
        match chance.randrange(7):
            case 0:
                witness.leave()
                baton.give(turn)
                baton.take(turn)
                witness.enter()
            case 1:
                with witness.outside():
                    baton.yield_to_others(turn)
            case 2:
                with witness.outside():
                    baton.park(turn)
            case 3 | 4:
                with witness.outside():
                    baton.lend(turn)
                    if chance.random() < 0.3:
                        time.sleep(chance.random() * 0.002)  # the user's function blocks
                    baton.regain(turn)
            case 5:
                chance.choice(task_threads).wake()
            case _:
                witness.leave()
                baton.lend(turn)
                baton.recover(turn)
                witness.enter()
    witness.leave()
    baton.give(turn)


def test_there_is_exactly_one_holder_at_any_time(make_exchange: MakeExchange) -> None:
    exchange, witness = make_exchange(local_only=True), Witness()
    exchange.loop.poll = witness.watch(exchange.loop.poll)  # type: ignore[method-assign]
    task_threads = [exchange.task_thread(f"thread {number}") for number in range(6)]
    threads = [
        threading.Thread(target=hammer, args=(exchange, witness, task_threads, number))
        for number in range(6)
    ]
    done = threading.Event()

    def call_in() -> None:
        while not done.wait(0.0003):
            exchange.baton.call_in()

    impatient = threading.Thread(target=call_in)
    for thread in (impatient, *threads):
        thread.start()
    deadline = time.monotonic() + 2 * PATIENCE_S
    while any(thread.is_alive() for thread in threads):
        assert time.monotonic() < deadline, "the threads have come to a stand-still"
        with exchange.inside():
            for task_thread in task_threads:
                task_thread.wake()
    done.set()
    for thread in (impatient, *threads):
        thread.join()
    assert witness.breaches == []
    assert witness.visits > 3 * ROUNDS
    assert exchange.baton.called_in > 0


def test_the_baton_is_handed_on_in_the_order_of_asking() -> None:
    baton, first, order = Baton(lambda: None), Turn("first"), list[int]()
    baton.take(first)

    def ask(number: int) -> None:
        turn = Turn(str(number))
        baton.take(turn)
        order.append(number)
        baton.give(turn)

    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=ask, args=(number,)))
        threads[-1].start()
        eventually(lambda: len(baton._queue) == len(threads), "the thread stands in the queue")
    baton.give(first)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == [0, 1, 2, 3, 4]


def test_who_yields_goes_to_the_end_and_goes_on_at_once_if_nobody_waits() -> None:
    baton, first, order = Baton(lambda: None), Turn("first"), list[str]()
    baton.take(first)
    baton.yield_to_others(first)
    assert baton.holder is first

    def ask() -> None:
        turn = Turn("second")
        baton.take(turn)
        order.append("second")
        baton.give(turn)

    thread = threading.Thread(target=ask)
    thread.start()
    eventually(lambda: baton.wanted, "the second asks")
    baton.yield_to_others(first)
    order.append("first")
    thread.join(PATIENCE_S)
    assert order == ["second", "first"]


def test_a_baton_that_is_lent_is_called_in_and_asked_for_again() -> None:
    baton, first, second = Baton(lambda: None), Turn("first"), Turn("second")
    order: list[str] = []
    baton.take(first)
    baton.lend(first)
    assert baton.call_in()
    assert not baton.call_in()
    baton.take(second)

    def come_back() -> None:
        baton.regain(first)
        order.append("first is back")

    thread = threading.Thread(target=come_back)
    thread.start()
    eventually(lambda: baton.wanted, "the first waits for its turn")
    order.append("second is through")
    baton.give(second)
    thread.join(PATIENCE_S)
    assert order == ["second is through", "first is back"]
    assert baton.holder is first


def test_who_comes_back_does_not_take_the_loan_of_another() -> None:
    baton, first, second = Baton(lambda: None), Turn("first"), Turn("second")
    baton.take(first)
    baton.lend(first)
    baton.call_in()
    baton.take(second)
    baton.lend(second)
    thread = threading.Thread(target=baton.regain, args=(first,))
    thread.start()
    eventually(lambda: baton.wanted, "the first waits for its turn")
    baton.regain(second)
    assert baton.holder is second
    baton.give(second)
    thread.join(PATIENCE_S)
    assert baton.holder is first


def test_only_the_holder_may_lend_or_give() -> None:
    baton, first, second = Baton(lambda: None), Turn("first"), Turn("second")
    baton.take(first)
    with pytest.raises(AssertionError, match="second lends"):
        baton.lend(second)
    with pytest.raises(AssertionError, match="second gives"):
        baton.give(second)


def test_a_thread_that_failed_between_lending_and_regaining_holds_the_baton_again() -> None:
    baton, first = Baton(lambda: None), Turn("first")
    baton.take(first)
    baton.recover(first)  # it had not lent
    assert baton.holder is first
    baton.lend(first)
    baton.recover(first)  # the loan is open
    assert baton.holder is first and not baton.call_in()
    baton.lend(first)
    baton.call_in()
    assert baton.holder is None
    baton.recover(first)  # it was called in
    assert baton.holder is first


def test_a_closed_baton_refuses_who_comes_later() -> None:
    baton, first = Baton(lambda: None), Turn("first")
    baton.take(first)
    assert baton.close(first)
    with pytest.raises(TaskCancelled, match="late"):
        baton.take(Turn("late"))


def test_a_baton_is_not_closed_while_somebody_waits() -> None:
    baton, first, second = Baton(lambda: None), Turn("first"), Turn("second")
    baton.take(first)
    thread = threading.Thread(target=baton.take, args=(second,))
    thread.start()
    eventually(lambda: baton.wanted, "the second asks")
    assert not baton.close(first)
    baton.give(first)
    thread.join(PATIENCE_S)
    assert baton.holder is second


class Interrupted(Turn):
    """A turn whose wait is interrupted, as a signal does to the main thread's."""

    def __init__(self, before: Callable[[], None]) -> None:
        super().__init__("interrupted")
        self._before: list[Callable[[], None]] = [before]

    def wait(self) -> None:
        if self._before:
            self._before.pop()()
            raise KeyboardInterrupt
        super().wait()


@pytest.mark.parametrize("handed_over", [False, True])
def test_nobody_waits_for_a_thread_that_was_interrupted(handed_over: bool) -> None:
    baton, first, third = Baton(lambda: None), Turn("first"), Turn("third")
    baton.take(first)
    turn = Interrupted(lambda: baton.give(first) if handed_over else None)
    with pytest.raises(KeyboardInterrupt):
        baton.take(turn)
    if not handed_over:
        assert not baton.wanted
        baton.give(first)
    baton.take(third)
    assert baton.holder is third


def test_the_standby_serves_the_network_when_every_task_is_parked(
    make_exchange: MakeExchange,
) -> None:
    exchange = make_exchange(local_only=True)
    served = threading.Event()
    turn, ended = Turn("task"), threading.Event()

    def park() -> None:
        exchange.baton.take(turn)
        exchange.loop.later(1, served.set)
        exchange.baton.park(turn)
        exchange.baton.give(turn)
        ended.set()

    thread = threading.Thread(target=park)
    thread.start()
    assert served.wait(PATIENCE_S)
    with exchange.inside():
        exchange.baton.wake(turn)
    assert ended.wait(PATIENCE_S)
    thread.join()


def test_the_watchdog_dozes_when_nothing_is_lent_and_is_roused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(baton_module, "LONG_STEP_S", 0.001)
    baton, first = Baton(lambda: None), Turn("first")
    watchdog = baton.watch()
    try:
        baton.take(first)
        for _ in range(3):
            eventually(lambda: watchdog.dozing, "the watchdog dozes")
            baton.lend(first)
            eventually(lambda: baton.holder is None, "the loan is called in")
            baton.regain(first)
            assert baton.holder is first
    finally:
        watchdog.stop()
    assert not watchdog.is_alive()


def test_the_watchdog_does_not_fall_asleep_over_a_loan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loan that is made just as the watchdog decides to doze is seen all the same."""
    monkeypatch.setattr(baton_module, "LONG_STEP_S", 0.001)
    monkeypatch.setattr(baton_module, "_QUIET_TICKS", 0)
    baton, first = Baton(lambda: None), Turn("first")
    watchdog = baton.watch()
    try:
        baton.take(first)
        for _ in range(200):
            baton.lend(first)
            eventually(lambda: baton.holder is None, "the loan is called in")
            baton.regain(first)
    finally:
        watchdog.stop()


def test_a_loan_made_while_the_watchdog_lies_down_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog has looked, and not yet said that it dozes; nobody rouses it then."""
    monkeypatch.setattr(baton_module, "LONG_STEP_S", 0.001)
    monkeypatch.setattr(baton_module, "_QUIET_TICKS", 0)
    looks: list[tuple[int, bool]] = []

    class Hooked(Baton):
        @property
        def loan_state(self) -> tuple[int, bool]:
            state = (self._loans, bool(self._loan))
            looks.append(state)
            if len(looks) == 2:
                self.lend(first)
            return state

    baton, first = Hooked(lambda: None), Turn("first")
    baton.take(first)
    watchdog = baton.watch()
    try:
        eventually(lambda: baton.holder is None, "the loan is called in", 5)
    finally:
        watchdog.stop()


@pytest.mark.parametrize("work", ["sleeps", "computes"])
def test_a_user_function_that_takes_long_stops_nobody_else(
    make_exchange: MakeExchange, work: str
) -> None:
    exchange = make_exchange(local_only=True)
    turn, lent, back = Turn("slow"), threading.Event(), threading.Event()

    def user_function() -> None:
        end = time.monotonic() + 0.3
        if work == "sleeps":
            time.sleep(0.3)
        while time.monotonic() < end:
            sum(range(100))

    def run() -> None:
        exchange.baton.take(turn)
        exchange.baton.lend(turn)
        lent.set()
        user_function()
        back.set()
        exchange.baton.regain(turn)
        exchange.baton.give(turn)

    thread = threading.Thread(target=run)
    thread.start()
    assert lent.wait(PATIENCE_S)
    fired = threading.Event()
    with exchange.inside():
        exchange.loop.later(1, fired.set)
    assert fired.wait(PATIENCE_S)
    assert not back.is_set(), "the network was served only after the function"
    thread.join(PATIENCE_S)
    assert exchange.baton.called_in == 1


def test_a_wake_before_the_wait_of_a_poll_is_not_slept_over() -> None:
    """A timer that wakes a task ends the very poll that fired it."""
    loop = Loop()
    try:
        baton = Baton(loop.nudge)
        task_thread = TaskThread("task", baton, loop)
        baton.take(task_thread.turn)
        ready: list[bool] = []

        def wake() -> None:
            ready.append(True)
            task_thread.wake()

        loop.later(5, wake)
        started = time.monotonic()
        loop.later(60_000, lambda: None)
        task_thread.wait(lambda: bool(ready))
        assert time.monotonic() - started < 30
    finally:
        loop.close()
