"""A read asks the task that has the key, asks again while the job restarts, and says why not."""

import math
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import InspectionFailed, StateUnreadable
from headgate.base.inspections import (
    MAX_STATE_KEYS,
    Found,
    Inspection,
    ReadState,
    StateValue,
    StateValues,
)
from headgate.core.egress.router import KeyGroupPartitioner
from headgate.host.driver.state_reads import StateRead, find_operator
from headgate.plan.job_graph import JobGraph
from tests.core.state.kit import keys as any_keys
from tests.host.reading_kit import counted_job

Answers = Callable[[str, ReadState], StateValues]


class AskedJob:
    """Answers as a script says; between two runs ``refusals`` times not at all."""

    def __init__(self, answers: Answers, graph: JobGraph | None = None, refusals: int = 0) -> None:
        self.graph = graph or counted_job().outline()
        self.answers = answers
        self.refusals = refusals
        self.asked: list[str] = []
        self.ended = False

    def has_ended(self) -> bool:
        return self.ended

    def inspect(self, task: str, what: Inspection, timeout_s: float) -> "Future[Found]":
        assert isinstance(what, ReadState)
        future: Future[Found] = Future()
        self.asked.append(task)
        if self.refusals:
            self.refusals -= 1
            future.set_exception(InspectionFailed(task, "the run restarts"))
        else:
            future.set_result(self.answers(task, what))
        return future


def echoed(task: str, question: ReadState) -> StateValues:
    """Each key and the task, as the value."""
    values = [StateValue(pickle.dumps((task, pickle.loads(key)))) for key in question.keys]
    return StateValues("value", tuple(values))


def always(kind: str, *values: StateValue, problem: str = "") -> Answers:
    return lambda task, question: StateValues(kind, values, problem)


def identity(key: Any) -> Any:
    return key


@given(st.lists(any_keys, max_size=8), st.integers(1, 7))
def test_a_key_is_asked_of_the_task_that_gets_its_records(keys: list[Any], tasks: int) -> None:
    graph = counted_job(parallelism=tasks)
    router = KeyGroupPartitioner(identity, graph.vertices[1].max_parallelism)
    router.set_up(tasks)
    job = AskedJob(echoed, graph)
    found: Any = StateRead(job, "counts", "count", keys, 5).result()
    assert [task for task, _ in found] == [f"1.{router.pick(key)}" for key in keys]
    assert [key for _, key in found] == keys
    assert len(job.asked) == len({*job.asked}), "a task is asked once"


def test_a_job_that_restarts_is_asked_again() -> None:
    job = AskedJob(echoed, refusals=2)
    read = StateRead(job, "counts", "count", [1], 30)
    assert read.done()
    assert len(read.result()) == 1 and len(job.asked) == 3


def test_a_job_that_has_ended_is_not() -> None:
    job = AskedJob(echoed, refusals=9)
    job.ended = True
    with pytest.raises(StateUnreadable, match=r"task 1\.\d: the run restarts") as refused:
        StateRead(job, "counts", "count", [1], 30).result()
    assert refused.value.is_passing and len(job.asked) == 1


@pytest.mark.parametrize(
    ("kind", "nothing"), [("value", None), ("reducing", None), ("list", []), ("map", {})]
)
def test_where_nothing_is_there_is_nothing_of_the_kind(kind: str, nothing: object) -> None:
    assert StateRead(AskedJob(always(kind, StateValue())), "counts", "s", [1], 5).result() == [
        nothing
    ]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (always("", problem="it has no state 's'"), "state 's' of operator 'counts' .*no state"),
        (always("value", StateValue(problem="too large")), "key 1: too large"),
        (always("value", StateValue(b"junk")), "key 1: its value cannot be unpickled: "),
    ],
)
def test_what_cannot_be_read_is_one_sentence(answers: Answers, words: str) -> None:
    with pytest.raises(StateUnreadable, match=words) as refused:
        StateRead(AskedJob(answers), "counts", "s", [1], 5).result()
    assert not refused.value.is_passing


def test_an_operator_is_found_by_its_uid_or_its_name() -> None:
    graph = counted_job().outline()
    assert find_operator(graph, "counts").vertex.id == 1
    assert find_operator(graph, "sink").operator.name == "sink"
    with pytest.raises(StateUnreadable, match=r"no operator 'sums'; it has 'numbers' \(without a"):
        find_operator(graph, "sums")


class NoKey:
    def __reduce__(self) -> Any:
        raise ValueError("not me")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([NoKey()], "cannot be a key: ValueError"),
        ([1] * (MAX_STATE_KEYS + 1), "1,001 keys were given; one request takes 1,000 at most"),
    ],
)
def test_keys_that_no_task_can_have_are_refused_at_once(keys: list[Any], words: str) -> None:
    job = AskedJob(echoed)
    with pytest.raises(StateUnreadable, match=words):
        StateRead(job, "counts", "count", keys, 5)
    assert job.asked == []


@pytest.mark.parametrize("timeout_s", [math.nan, 0, -1.0])
def test_a_time_that_is_never_over_is_refused(timeout_s: float) -> None:
    job = AskedJob(echoed, refusals=1_000_000)
    with pytest.raises(StateUnreadable, match="give more than 0"):
        StateRead(job, "counts", "count", [1], timeout_s).result()
