"""Threads that write: work in order, each once; idle ones wait, all end."""

import threading

from headgate.host.checkpoints.snapshot_writer import WRITERS, WriterPool
from tests.host.conftest import own_threads
from tests.host.rig import eventually

SOON_S = 20.0


def test_there_is_no_thread_without_work() -> None:
    threads = WriterPool()
    assert not own_threads()
    assert threads.close(SOON_S)


def test_one_thread_does_what_comes_one_after_the_other() -> None:
    threads, done, came = WriterPool(), [], threading.Event()
    for number in range(20):
        came.clear()
        assert threads.submit(lambda number=number: (done.append(number), came.set()))  # type: ignore[misc]
        assert came.wait(SOON_S)
        eventually(lambda: threads._idle == 1, "it waits again")
    assert len(own_threads()) == 1
    assert threads.close(SOON_S)
    assert done == list(range(20))


def test_work_that_hangs_holds_up_only_its_thread_until_all_are_held_up() -> None:
    threads, hold, done = WriterPool(), threading.Event(), threading.Event()
    for _ in range(WRITERS - 1):
        threads.submit(lambda: assert_true(hold.wait(SOON_S)))
    threads.submit(done.set)
    assert done.wait(SOON_S)
    late = []
    for _ in range(3):
        threads.submit(lambda: assert_true(hold.wait(SOON_S)))
    threads.submit(lambda: late.append(1))
    assert len(own_threads()) == WRITERS
    assert not threads.close(0.05), "it says that it has not ended"
    hold.set()
    assert threads.close(SOON_S)
    assert late == [1], "what had come is done"
    assert not threads.submit(done.set), "nothing more is taken"


def test_what_was_not_begun_can_be_withdrawn() -> None:
    threads, hold, begun, done = WriterPool(), threading.Event(), threading.Event(), []

    def hang() -> None:
        begun.set()
        assert hold.wait(SOON_S)

    def never() -> None:
        done.append(1)

    for _ in range(WRITERS):
        begun.clear()
        threads.submit(hang)
        assert begun.wait(SOON_S)
    threads.submit(never)
    assert threads.withdraw(never)
    assert not threads.withdraw(never)
    assert not threads.withdraw(hang)
    hold.set()
    assert threads.close(SOON_S)
    assert not done


def test_work_that_fails_ends_no_thread() -> None:
    threads, done = WriterPool(), threading.Event()

    def fail() -> None:
        raise SystemExit(3)

    for _ in range(3 * WRITERS):
        threads.submit(fail)
    threads.submit(done.set)
    assert done.wait(SOON_S)
    assert threads.close(SOON_S)


def assert_true(value: bool) -> None:
    assert value
