"""A user's function within an operator: plain callables and objects, open and close."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.chain.snapshots import OperatorRestored, pack_parts
from headgate.core.chain.user_function import StatefulOperator, UserFunction
from headgate.core.state.memory import MemoryBackend, MemorySnapshot
from headgate.core.state.operator_state import OperatorStates
from headgate.functions.function import MapFunction
from headgate.functions.state import ListStateDescriptor
from tests.core.chain.kit import context, open_operator
from tests.core.chain.restore_kit import MOMENT, restored, stored_state


class Loud:
    """A function object that keeps a log of its life."""

    def __init__(self, fails_in: str = "") -> None:
        self.log: list[str] = []
        self._fails_in = fails_in

    def open(self, runtime_context: object) -> None:
        self._note("open")

    def map(self, value: int) -> int:
        return value + 1

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self.log.append(what)
        if what == self._fails_in:
            raise ValueError(what)


def test_a_plain_callable_is_called_itself() -> None:
    wrapped = UserFunction(abs, "map")
    wrapped.open(context())
    assert wrapped.call(-3) == 3
    wrapped.close()


def test_an_object_is_called_by_its_method() -> None:
    assert UserFunction(Loud(), "map").call(1) == 2


def test_what_is_neither_says_what_it_lacks() -> None:
    with pytest.raises(AssertionError, match="has no map"):
        _ = UserFunction(object(), "map").call


def test_open_and_close_are_called_once() -> None:
    function = Loud()
    wrapped = UserFunction(function, "map")
    wrapped.open(context())
    wrapped.close()
    wrapped.close()
    assert function.log == ["open", "close"]


def test_who_was_not_opened_is_not_closed() -> None:
    function = Loud()
    UserFunction(function, "map").close()
    assert function.log == []


def test_who_failed_in_open_is_closed_nevertheless() -> None:
    function = Loud(fails_in="open")
    wrapped = UserFunction(function, "map")
    with pytest.raises(ValueError, match="open"):
        wrapped.open(context())
    wrapped.close()
    assert function.log == ["open", "close"]


def test_a_close_that_fails_is_not_called_again() -> None:
    function = Loud(fails_in="close")
    wrapped = UserFunction(function, "map")
    wrapped.open(context())
    with pytest.raises(ValueError, match="close"):
        wrapped.close()
    wrapped.close()
    assert function.log == ["open", "close"]


class Plain(MapFunction[int, int]):
    """Inherits an ``open`` that does nothing."""

    def map(self, value: int) -> int:
        return value


class Opened(Plain):
    def open(self, runtime_context: object) -> None:
        """It is there, that is enough."""


@pytest.mark.parametrize(
    ("function", "opens"),
    [(abs, False), (Plain(), False), (Opened(), True), (Loud(), True), (object(), False)],
)
def test_who_has_an_open_of_its_own_may_have_state(function: object, opens: bool) -> None:
    assert UserFunction(function, "map").opens is opens


class Keeps:
    def __init__(self, union: bool = False) -> None:
        self._union = union

    def initialize_state(self, context: Any) -> None:
        states = context.get_operator_state_store()
        ask = states.get_union_list_state if self._union else states.get_list_state
        self.kept = ask(ListStateDescriptor("kept"))
        self.found = list(self.kept.get())


class Two(StatefulOperator):
    """Holds two functions, whose states have the same name."""

    def __init__(self, first: Keeps, second: Keeps) -> None:
        self._functions = UserFunction(first, "map", "one"), UserFunction(second, "map", "two")

    def open(self, context: Any) -> None:
        super().open(context)
        for function in self._functions:
            function.open(context)

    def user_functions(self) -> Iterable[UserFunction]:
        return self._functions


@pytest.mark.parametrize("union", [False, True])
def test_each_function_finds_its_own_state_again(union: bool) -> None:
    first, second = Keeps(), Keeps(union)
    operator = Two(first, second)
    open_operator(operator)
    first.kept.add(1)
    second.kept.add(2)
    state = stored_state(operator)
    assert state.plain_is_own is not union
    again = Two(Keeps(), Keeps(union))
    given = restored([state, state], 1, 2)
    assert [part is None for part in given.plain] == [not union, False]
    open_operator(again, within=replace(context(subtask=1, parallelism=2), restored=given))
    found = [function.function.found for function in again.user_functions()]  # type: ignore[attr-defined]
    assert found == [[1], [2, 2] if union else [2]]


def test_an_operator_without_anything_leaves_nothing() -> None:
    operator = StatefulOperator()
    operator.open(context())
    assert operator.snapshot(MOMENT).plain is None
    assert operator.snapshot(MOMENT).keyed is None
    operator.checkpoint_completed(1)
    operator.checkpoint_aborted(2)


def test_a_function_that_is_gone_leaves_nobody_in_trouble() -> None:
    operator = Two(Keeps(), Keeps())
    open_operator(operator)
    given = restored([stored_state(operator)._replace(plain=pack_parts({"three": b"?"}))], 0, 1)
    assert given.plain == (pack_parts({"three": b"?"}),)
    store = OperatorStates()
    store.restore((None,), 0, 1)
    assert store.is_empty
    assert not store.has_unions


class NotifiedBackend(MemoryBackend):
    """A backend that notes what it is told of checkpoints; makes itself."""

    def __init__(self) -> None:
        super().__init__(range(128), 128)
        self.log: list[Any] = []

    def keyed(self, operator: str, groups: range, max_parallelism: int) -> "NotifiedBackend":
        return self

    def snapshot(self, increment: int | None = None) -> MemorySnapshot:
        self.log.append(("snapshot", increment))
        return super().snapshot(increment)

    def checkpoint_completed(self, checkpoint: int) -> None:
        self.log.append(("complete", checkpoint))

    def checkpoint_aborted(self, checkpoint: int) -> None:
        self.log.append(("aborted", checkpoint))

    def restore_files(self, databases: Sequence[Any]) -> None:
        self.log.append(("files", databases))

    def restore(self, parts: Iterable[tuple[int, bytes]]) -> None:
        self.log.append(("groups", list(parts)))


class Keyed(StatefulOperator):
    def open(self, context: Any) -> None:
        super().open(context)
        self._keyed = KeyedContext(context)


def test_keyed_state_knows_which_of_its_files_are_there_for_good() -> None:
    backend, operator = NotifiedBackend(), Keyed()
    files: Any = ("some files",)
    given = OperatorRestored(databases=files)
    open_operator(operator, within=replace(context(), backends=backend, restored=given))
    operator.snapshot(replace(MOMENT, checkpoint=4, incremental=True)).close()
    operator.checkpoint_completed(4)
    operator.snapshot(replace(MOMENT, checkpoint=5)).close()
    operator.checkpoint_aborted(5)
    assert backend.log == [
        ("files", files),
        ("groups", []),
        ("snapshot", 4),
        ("complete", 4),
        ("snapshot", None),
        ("aborted", 5),
    ]
