"""The stack sampler sees where threads are, tells running from waiting, and leaves nothing."""

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from headgate.base.inspections import MAX_STACKS, SampledActivity, SampleStacks, StackSamples
from headgate.host.worker import stack_sampler
from headgate.host.worker.stack_sampler import (
    SAMPLER_THREAD,
    SampledTask,
    StackSampler,
    line_of,
    user_begin,
)
from tests.host.rig import eventually


@pytest.fixture
def sampler(no_leaks: None) -> Iterator[StackSampler]:
    made = StackSampler()
    yield made
    made.close()


@contextmanager
def running(work: Callable[[threading.Event], None]) -> Iterator[SampledTask]:
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,), name="sampled", daemon=True)
    thread.start()
    try:
        yield SampledTask(thread, (), lambda: SampledActivity.BUSY)
    finally:
        stop.set()
        thread.join()


def compute(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(number * number for number in range(200))


def doze(stop: threading.Event) -> None:
    while not stop.is_set():
        time.sleep(0.05)


def take(sampler: StackSampler, task: SampledTask, how: SampleStacks) -> "queue.Queue[object]":
    answers: queue.Queue[object] = queue.Queue()
    sampler.sample(task, how, answers.put, answers.put)
    return answers


def taken(answers: "queue.Queue[object]") -> StackSamples:
    found = answers.get(timeout=30)
    assert isinstance(found, StackSamples), found
    return found


def test_samples_show_function_file_and_line_outermost_first(sampler: StackSampler) -> None:
    with running(doze) as task:
        found = taken(take(sampler, task, SampleStacks(0.2, 100)))
    line = doze.__code__.co_firstlineno + 2
    assert found.samples >= 2
    frames = found.stacks[0].frames
    assert frames[-1] == f"doze (tests/host/worker/test_stack_sampler.py:{line})"
    assert frames[0].startswith("Thread._bootstrap (threading.py:") or frames[0].startswith(
        "_bootstrap (threading.py:"
    )
    assert sum(stack.count for stack in found.stacks) == found.samples


def test_a_thread_that_waits_has_no_cpu_time_and_one_that_computes_has(
    sampler: StackSampler,
) -> None:
    with running(doze) as task:
        waiting = taken(take(sampler, task, SampleStacks(0.5)))
    with running(compute) as task:
        busy = taken(take(sampler, task, SampleStacks(0.5)))
    assert waiting.cpu_ms < 0.2 * waiting.wall_ms
    assert busy.cpu_ms > 5 * waiting.cpu_ms
    assert sum(stack.cpu_ms for stack in busy.stacks) == pytest.approx(busy.cpu_ms)


def test_several_tasks_share_one_sampler_which_ends_with_the_last(sampler: StackSampler) -> None:
    before = sys.getswitchinterval()
    with running(doze) as first, running(compute) as second:
        dozing = take(sampler, first, SampleStacks(0.2))
        computing = take(sampler, second, SampleStacks(0.4, 200))
        names = [thread.name for thread in threading.enumerate()]
        assert names.count(SAMPLER_THREAD) == 1
        assert "doze" in taken(dozing).stacks[0].frames[-1]
        assert any("compute" in frame for frame in taken(computing).stacks[0].frames)
    eventually(
        lambda: SAMPLER_THREAD not in [thread.name for thread in threading.enumerate()],
        "the sampler's thread ends",
    )
    eventually(lambda: sys.getswitchinterval() == before, "the switch interval is as it was")


def test_who_asks_again_at_once_leaves_the_switch_interval_as_it_was(
    sampler: StackSampler,
) -> None:
    before = sys.getswitchinterval()
    done = threading.Event()

    with running(doze) as task:

        def ask_again(found: StackSamples) -> None:
            """On the thread of the first sampling, which is about to end."""
            how = SampleStacks(0.2, 100)
            sampler.sample(task, how, lambda found: done.set(), lambda problem: None)
            time.sleep(0.05)  # the next thread has begun

        sampler.sample(task, SampleStacks(0.1, 100), ask_again, lambda problem: None)
        assert done.wait(30)
    eventually(
        lambda: SAMPLER_THREAD not in [thread.name for thread in threading.enumerate()],
        "the sampler's thread ends",
    )
    assert sys.getswitchinterval() == before


def test_a_task_that_ends_is_answered_with_what_was_seen(sampler: StackSampler) -> None:
    with running(doze) as task:
        answers = take(sampler, task, SampleStacks(50, 100))
        time.sleep(0.1)
    found = answers.get(timeout=30)
    assert isinstance(found, StackSamples) and found.ended and found.wall_ms < 40_000


def test_a_task_that_has_ended_is_refused(sampler: StackSampler) -> None:
    with running(doze) as task:
        pass
    assert take(sampler, task, SampleStacks(5)).get(timeout=30) == "it has ended"


def test_the_end_of_the_process_answers_what_is_under_way(sampler: StackSampler) -> None:
    with running(doze) as task:
        answers = take(sampler, task, SampleStacks(50))
        eventually(lambda: sampler._samplings[0]._seen.samples > 0, "a sample is there")
        sampler.close()
        assert isinstance(answers.get(timeout=30), StackSamples)
        assert take(sampler, task, SampleStacks(5)).get(timeout=30) == (
            "its task manager is about to end"
        )


def test_an_activity_that_is_not_busy_is_kept_apart(sampler: StackSampler) -> None:
    turns = iter([SampledActivity.IDLE, SampledActivity.BACKPRESSURED])
    with running(doze) as task:
        task = SampledTask(task.thread, (), lambda: next(turns, SampledActivity.BUSY))
        found = taken(take(sampler, task, SampleStacks(1.0)))
    assert found.count(SampledActivity.IDLE) == found.count(SampledActivity.BACKPRESSURED) == 1
    assert found.count(SampledActivity.BUSY) == found.samples - 2 > 0


def test_helpers_are_seen_while_they_do_not_wait(sampler: StackSampler) -> None:
    with running(doze) as task, running(compute) as helper, running(_queue_wait) as idle:
        task = SampledTask(task.thread, (helper.thread, idle.thread), task.activity)
        found = taken(take(sampler, task, SampleStacks(0.3)))
    innermost = {frame.split(" ")[0] for stack in found.stacks for frame in stack.frames}
    assert {"doze", "compute"} <= innermost and "_queue_wait" not in innermost


def _queue_wait(stop: threading.Event) -> None:
    stop.wait()


def test_the_number_of_distinct_stacks_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_sampler, "MAX_STACKS", 3)
    seen = stack_sampler._Seen()
    for depth in range(50):
        _deep(depth, seen)
    assert len(seen.counts) == 12 and seen.dropped == 38
    found = seen.summary(100.0, ended=False)
    assert len(found.stacks) == 3 and found.samples == 50
    assert found.dropped == 50 - sum(stack.count for stack in found.stacks)
    assert MAX_STACKS >= 3


def _deep(depth: int, seen: "stack_sampler._Seen") -> None:
    if depth:
        _deep(depth - 1, seen)
    else:
        seen.add(sys._getframe(), SampledActivity.BUSY, 0)


def test_a_stack_without_end_is_cut_to_its_innermost_frames() -> None:
    seen = stack_sampler._Seen()
    _deep(400, seen)
    (stack,) = seen.summary(1.0, ended=False).stacks
    assert len(stack.frames) == stack_sampler.MAX_FRAMES
    assert stack.frames[-1].startswith("_deep (")


def _frame() -> FrameType:
    return sys._getframe()


def test_lines_are_those_of_the_frames() -> None:
    frame = _frame()
    assert line_of(frame.f_code, frame.f_lasti) == frame.f_code.co_firstlineno + 1
    assert line_of(frame.f_code, 10**9) == frame.f_code.co_firstlineno


def test_user_code_begins_at_the_first_frame_that_is_not_headgates() -> None:
    package = stack_sampler._PACKAGE
    own = [f"{package}/host/net/runner.py", f"{package}/core/operators/one_input.py"]
    python = ["/usr/lib/python3.11/threading.py"]
    assert user_begin([*python, *own, "/jobs/job.py", f"{package}/core/state/x.py"]) == 3
    assert user_begin([*python, *own, "/usr/lib/python3.11/json/__init__.py"]) == 3
    assert user_begin([*python, *own]) == -1
    assert user_begin([*python, *own, "/usr/lib/python3.11/selectors.py"]) == -1
    assert user_begin(["/jobs/job.py"]) == -1, "a thread that is not Headgate's"


def test_samples_that_cost_much_are_taken_less_often(sampler: StackSampler) -> None:
    seen: list[tuple[float, float]] = []

    def activity() -> SampledActivity:
        """Runs on the sampler's thread, and takes 2 ms of its time."""
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        seen.append((time.perf_counter(), time.thread_time()))
        return SampledActivity.BUSY

    with running(doze) as task:
        costly = SampledTask(task.thread, (), activity)
        taken(take(sampler, costly, SampleStacks(seconds=2, hertz=500)))
    (began, began_cpu_s), (ended, ended_cpu_s) = seen[0], seen[-1]
    spent_s = ended_cpu_s - began_cpu_s
    free_s, sample_s = stack_sampler.FREE_S, 2 * 0.002
    assert spent_s <= stack_sampler.SHARE * (ended - began) + free_s + sample_s
