"""An exchange begins whole or not at all, and ends on every path."""

import logging
import os
import socket
import threading
from pathlib import Path

import pytest

from headgate.base.errors import MemoryShort, SettingsInvalid, TaskCancelled
from headgate.base.settings import ExchangeSettings, TransportKind
from headgate.core.task.task import StepResult
from headgate.host.net import exchange as exchange_module
from headgate.host.net.exchange import Exchange
from tests.host.conftest import MakeExchange
from tests.host.leaks import descriptors, left_open, own_threads
from tests.host.rig import (
    PATIENCE_S,
    SECRET,
    consume,
    count_polls,
    eventually,
    from_here,
    from_there,
    produce,
    quick,
)


class Sleeper:
    """A task in whose step the test waits."""

    def __init__(self, exchange: Exchange, release: threading.Event) -> None:
        self.name = "sleeper"
        self.task_thread = exchange.task_thread(self.name)
        self.inside = threading.Event()
        self.closed_with: list[BaseException | None] = []
        self._exchange = exchange
        self._release = release

    def step(self) -> StepResult:
        self._exchange.baton.lend(self.task_thread.turn)
        self.inside.set()
        self._release.wait(PATIENCE_S)
        self._exchange.baton.regain(self.task_thread.turn)
        return StepResult.MORE

    def close(self, error: BaseException | None) -> None:
        self.closed_with.append(error)


def test_an_exchange_serves_from_its_first_moment(transport: TransportKind) -> None:
    with Exchange(quick(transport=transport), SECRET, segments=10) as exchange:
        host, port = exchange.address
        assert host == "127.0.0.1"
        with socket.create_connection((host, port), PATIENCE_S):
            eventually(lambda: len(exchange._connections) == 1, "the connection is accepted")
        eventually(lambda: not exchange._connections, "its end is noticed")


def test_a_local_exchange_opens_no_port_and_works(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(local_only=True)
    producer = produce(exchange, "p", range(1000))
    consumer = consume(exchange, [from_here("p")])
    consumer.join()
    producer.join()
    assert consumer.records == list(range(1000))
    with pytest.raises(AssertionError, match="no address"):
        assert exchange.address


def test_an_idle_exchange_uses_no_processor_time(make_exchange: MakeExchange) -> None:
    exchange = make_exchange()
    polls = count_polls(exchange.loop)
    threading.Event().wait(0.3)  # that nothing happens meanwhile is the subject
    assert polls() < 10


@pytest.mark.parametrize(
    "broken", ["allocate_arena", "PartitionFiles", "make_codec", "Server", "Environment", "Baton"]
)
def test_a_start_that_fails_half_way_leaves_nothing(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`no_leaks` watches over threads, descriptors and folders."""

    def fail(*args: object, **kwargs: object) -> None:
        raise MemoryError(broken)

    monkeypatch.setattr(exchange_module, broken, fail)
    before = descriptors()
    with pytest.raises(MemoryError, match=broken):
        Exchange(quick(), SECRET, segments=10)
    assert left_open(before) == []
    assert own_threads() == []


def test_a_thread_that_cannot_be_started_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def fail_second(thread: threading.Thread) -> None:
        started.append(thread.name)
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_second)
    with pytest.raises(RuntimeError, match="new thread"):
        Exchange(quick(), SECRET, segments=10)
    assert len(started) == 2


def test_more_memory_than_there_is_is_refused_with_the_sum() -> None:
    settings = ExchangeSettings()
    with pytest.raises(MemoryShort) as caught:
        Exchange(settings, SECRET, segments=1 << 45)
    assert caught.value.required == (1 << 45) * 32768
    assert caught.value.missing == caught.value.required - caught.value.allocated > 0
    assert "lower taskmanager.memory.network.max" in str(caught.value)


def test_a_busy_port_is_refused_by_its_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingsInvalid, match=f"127.0.0.1:{port}.*in use") as caught:
            Exchange(quick(bind_port=port), SECRET, segments=10)
    assert caught.value.key == "taskmanager.data.port"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"bind_port": 70_000}, "taskmanager.data.port"),
        ({"bind_host": "203.0.113.1"}, "taskmanager.bind-host"),
        ({"bind_host": "no such host"}, "taskmanager.bind-host"),
        ({"bind_host": "a\0b"}, "taskmanager.bind-host"),
        ({"tls_enabled": True, "tls_certificate": "a\0b"}, "security.ssl.internal.certificate"),
    ],
)
def test_an_address_that_cannot_be_bound_is_refused_by_its_key(
    changes: dict[str, object], key: str
) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        Exchange(quick(**changes), SECRET, segments=10)
    assert caught.value.key == key


def test_close_ends_tasks_that_wait_and_tasks_that_never_stepped(
    make_exchange: MakeExchange,
) -> None:
    exchange, other = make_exchange(), make_exchange()
    waits_for_buffer = produce(exchange, "unread", [b"x" * 10_000_000])
    waits_for_input = consume(other, [from_there(exchange, "never")])
    other.close()
    with exchange.inside():  # nobody can step before we let go
        never_stepped = Sleeper(exchange, threading.Event())
        never_stepped.task_thread.cancel()
        runner = exchange.run(never_stepped, never_stepped.task_thread)
    exchange.close()
    for task in (waits_for_buffer, waits_for_input):
        with pytest.raises(TaskCancelled):
            task.join()
        assert len(task.closed_with) == 1
    assert runner.steps == 0
    assert never_stepped.closed_with == [runner.error]


def test_who_is_inside_cannot_come_in_again(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(local_only=True)
    with (
        exchange.inside(),
        pytest.raises(AssertionError, match="inside already"),
        exchange.inside(),
    ):
        pass


def test_close_is_idempotent_and_a_second_caller_waits(make_exchange: MakeExchange) -> None:
    exchange, release = make_exchange(), threading.Event()
    task = Sleeper(exchange, release)
    runner = exchange.run(task, task.task_thread)
    assert task.inside.wait(PATIENCE_S)
    closers = [threading.Thread(target=exchange.close) for _ in range(3)]
    for closer in closers:
        closer.start()
    eventually(lambda: exchange.closed, "the end begins")
    assert all(closer.is_alive() for closer in closers)
    release.set()
    for closer in closers:
        closer.join(PATIENCE_S)
        assert not closer.is_alive()
    assert isinstance(runner.error, TaskCancelled)
    exchange.close()


def test_a_task_cannot_close_the_exchange_that_runs_it(make_exchange: MakeExchange) -> None:
    exchange = make_exchange()

    class Suicidal(Sleeper):
        def step(self) -> StepResult:
            exchange.close()
            return StepResult.DONE

    task = Suicidal(exchange, threading.Event())
    with pytest.raises(AssertionError, match="cannot close"):
        exchange.run(task, task.task_thread).join(PATIENCE_S)
    assert not exchange.closed


def test_nothing_begins_after_the_end(make_exchange: MakeExchange) -> None:
    exchange = make_exchange()
    exchange.close()
    task = Sleeper(exchange, threading.Event())
    with pytest.raises(TaskCancelled, match="sleeper"):
        exchange.run(task, task.task_thread)
    with pytest.raises(TaskCancelled), exchange.inside():
        pass


def test_a_task_that_never_comes_back_is_left_and_touches_nothing_later(
    make_exchange: MakeExchange,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(exchange_module, "CANCEL_S", 0.05)
    exchange, release = make_exchange(), threading.Event()
    task = Sleeper(exchange, release)
    runner = exchange.run(task, task.task_thread)
    assert task.inside.wait(PATIENCE_S)
    with caplog.at_level(logging.ERROR):
        exchange.close()
    assert "sleeper has not returned from user code" in caplog.text
    assert runner.is_alive
    release.set()
    with pytest.raises(TaskCancelled):
        runner.join(PATIENCE_S)
    assert task.closed_with == [runner.error]


def test_close_ends_although_a_machine_fails_in_it(make_exchange: MakeExchange) -> None:
    exchange, other = make_exchange(), make_exchange()
    producer = produce(exchange, "p", [1])
    producer.join()
    consumer = consume(other, [from_there(exchange, "p")], held=True)
    eventually(lambda: len(exchange._connections) == 1, "they are connected")

    def fail() -> None:
        raise ValueError("a bug at the end")

    close = exchange.environment.close
    exchange.environment.close = fail  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="a bug at the end"):
        exchange.close()
    close()
    consumer.let_go(other)
    consumer.runner.ends_within(PATIENCE_S)


def test_finished_tasks_are_forgotten(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(local_only=True)
    for number in range(20):
        producer = produce(exchange, f"p{number}", range(10))
        consumer = consume(exchange, [from_here(f"p{number}")])
        producer.join()
        consumer.join()
    assert len(exchange._runners) <= 4


def test_the_files_are_gone_after_the_end(make_exchange: MakeExchange) -> None:
    exchange = make_exchange()
    folder = exchange.files.path
    spill = exchange.files.open()
    spill.write(memoryview(b"something"))
    assert os.listdir(folder)
    exchange.close()
    assert not Path(folder).exists()
    spill.close()


def test_a_secret_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="secret cannot be used: it has 5 bytes"):
        Exchange(quick(), b"short", segments=4)
