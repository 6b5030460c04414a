"""Facts of log lines: of the process, of the context, of the operator on the stack."""

import sys
from collections.abc import Iterator

import pytest

from headgate.core.chain.context import OperatorContext
from headgate.core.chain.log_facts import (
    FACTS,
    facts_here,
    facts_of_task,
    logged_with,
    message_of,
    process_works_for,
)
from headgate.functions.context import TaskInfo

TASK = TaskInfo("orders", "Map -> Sink", 1, 4, attempt=2)
OF_TASK = {"job": "orders", "task": "Map -> Sink", "subtask": 1, "attempt": 2}


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    yield
    process_works_for(None)


class AtWork:
    """Like an operator, which knows its context."""

    def __init__(self) -> None:
        self.context = OperatorContext("look up", TASK, lambda: 0)

    def facts(self) -> dict[str, object]:
        return facts_here(sys._getframe())


class Hostile:
    """A user's object; whoever looks at its attributes gets an error."""

    def __getattr__(self, name: str) -> object:
        raise ValueError(name)

    def facts(self) -> dict[str, object]:
        return facts_here(sys._getframe())


def test_nothing_is_known_where_nobody_says_anything() -> None:
    assert facts_here(sys._getframe()) == {}


def test_the_context_tells_the_task_and_the_stack_its_operator() -> None:
    with logged_with(facts_of_task(TASK)):
        assert facts_here(sys._getframe()) == OF_TASK
    assert AtWork().facts() == {**OF_TASK, "operator": "look up"}
    assert facts_here(sys._getframe()) == {}


def test_a_slot_is_told_where_there_is_no_task() -> None:
    with logged_with({"job": "orders", "slot": 3}):
        assert facts_here(sys._getframe()) == {"job": "orders", "slot": 3}
        assert "slot" not in AtWork().facts()


def test_a_process_of_one_job_knows_it_on_every_thread() -> None:
    process_works_for({"job": "7f", "slot": 0})
    process_works_for({"job": "orders", "attempt": 1})
    assert facts_here(sys._getframe()) == {"job": "orders", "slot": 0, "attempt": 1}
    process_works_for(None)
    assert facts_here(sys._getframe()) == {}


def test_lines_of_the_network_belong_to_no_task() -> None:
    process_works_for({"job": "orders"})
    with logged_with(facts_of_task(TASK)):
        assert facts_here(sys._getframe(), "headgate.host.net.loop") == {"job": "orders"}
        assert facts_here(sys._getframe(), "headgate.host.net.runner") == OF_TASK


def test_objects_that_refuse_to_be_looked_at_are_passed_over() -> None:
    assert Hostile().facts() == {}


class Lazy:
    """A user's object that finds its context when it is asked for it."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def context(self) -> object:
        self.asked += 1
        return self.facts()  # as if it logged

    def facts(self) -> dict[str, object]:
        return facts_here(sys._getframe())


def test_no_code_of_the_user_runs_to_find_out_who_logs() -> None:
    lazy = Lazy()
    assert lazy.facts() == {}
    assert lazy.asked == 0


def test_every_fact_can_be_shown() -> None:
    assert {*OF_TASK, "operator", "slot", "job_id", "host"} == set(FACTS)


class Record:
    """As logging makes them."""

    def __init__(self, msg: object, error: Exception | None = None) -> None:
        self.msg, self.error = msg, error

    def getMessage(self) -> str:  # noqa: N802 - as it is called there
        if self.error is not None:
            raise self.error
        return str(self.msg)


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_a_message_that_cannot_be_formatted_is_shown_as_it_was_given() -> None:
    assert message_of(Record("%d tasks")) == "%d tasks"
    shown = message_of(Record("%d tasks", TypeError("a number is required")))
    assert shown == "'%d tasks' (its arguments do not fit: TypeError: a number is required)"
    assert message_of(Record(Unspeakable(), TypeError("x"))) == (
        "a message that cannot be shown (TypeError)"
    )
