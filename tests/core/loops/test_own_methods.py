"""Which methods of an object may be called where its states are inlined."""

from typing import Any

import pytest

from headgate.base.elements import Bundle
from headgate.core.loops.own_methods import found_by_code, leaves_alone
from headgate.core.operators.one_input import KeyedProcessOperator
from headgate.functions.state import ValueStateDescriptor
from tests.core.chain.kit import INLINING, open_operator


class Base:
    def of_base(self, value: Any) -> None:
        self.count = value


class Owner(Base):
    limit = 3

    def __init__(self) -> None:
        self.count: Any = 1
        self.kept: list[Any] = []
        self.calls_back = self.assigns

    # These leave ``count`` alone.

    def reads(self, value: Any) -> Any:
        return self.count + value if self.limit else self.kept

    def keeps(self, value: Any) -> int:
        self.seen = value
        self.kept.append(value)
        return len(self.kept)

    def calls_others(self, value: Any) -> Any:
        return self.calls_others(value - 1) if value else self.keeps(self.of_nobody(value))

    def yields(self, value: Any) -> Any:
        for number in range(value):
            yield number, self.count

    def takes_another(self, other: Any) -> Any:
        return self.count, other.count

    @property
    def a_limit(self) -> Any:
        return self.limit + len(self.kept)

    def by_a_reading_property(self, value: Any) -> bool:
        return bool(value > self.a_limit)

    @staticmethod
    def of_nobody(value: Any) -> Any:
        return value

    # These may change it.

    def assigns(self, value: Any) -> None:
        self.count = value

    def assigns_two(self) -> None:
        self.kept, self.count = [], 2

    def adds(self) -> None:
        self.count += 1

    def deletes(self) -> None:
        del self.count

    def calls_one(self, value: Any) -> None:
        self.calls_others(value)
        self.assigns(value)

    def has_a_second_name(self) -> None:
        other = self
        other.count = 3

    def hands_itself_over(self, value: Any) -> None:
        setattr(self, "count", value)  # noqa: B010

    def returns_itself(self) -> Any:
        return self

    def by_its_dictionary(self) -> None:
        self.__dict__["count"] = 1

    def in_a_function(self) -> Any:
        return lambda: self.count

    def by_a_property(self) -> Any:
        return self.is_property

    @property
    def is_property(self) -> Any:
        self.count = 2
        return 3

    @classmethod
    def of_the_class(cls) -> None:
        pass

    def of_the_base(self, value: Any) -> None:
        super().of_base(value)

    def by_a_callback(self, value: Any) -> None:
        self.calls_back(value)

    def by_its_frame(self) -> Any:
        return locals()

    def of_another_name(*arguments: Any) -> None:
        arguments[0].count = 3


@pytest.mark.parametrize(
    "method",
    [
        *("reads", "keeps", "calls_others", "yields", "takes_another", "of_nobody"),
        *("a_limit", "by_a_reading_property"),
    ],
)
def test_methods_that_assign_nothing_leave_attributes_alone(method: str) -> None:
    assert leaves_alone(Owner(), method, {"count"})


@pytest.mark.parametrize(
    "method",
    [
        *("assigns", "assigns_two", "adds", "deletes", "calls_one", "has_a_second_name"),
        *("hands_itself_over", "returns_itself", "by_its_dictionary", "in_a_function"),
        *("by_a_property", "is_property", "of_the_class", "of_the_base", "of_base"),
        *("by_a_callback", "calls_back", "by_its_frame", "of_another_name", "missing"),
    ],
)
def test_others_may_change_them(method: str) -> None:
    assert not leaves_alone(Owner(), method, {"count"})


def test_attributes_that_are_no_states_may_be_assigned() -> None:
    assert leaves_alone(Owner(), "assigns", {"kept"})


def test_an_object_that_finds_its_attributes_by_code_is_not_followed() -> None:
    class Finding(Owner):
        def __getattribute__(self, name: str) -> Any:
            return super().__getattribute__(name)

    assert not leaves_alone(Finding(), "reads", {"count"})


def test_attributes_that_code_gives_are_told_from_others() -> None:
    names = {"count", "limit", "is_property", "reads", "of_nobody", "missing"}
    assert found_by_code(Owner(), names) == {"is_property", "reads", "of_nobody"}


class Helped:
    """Its helper uses the same states."""

    count: Any

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield self._next(value), self.count.value()

    def _next(self, value: Any) -> Any:
        before = self.count.value()
        if value == 3:
            self.count.clear()
        elif self._is_large(value):
            self.count.update(before * 10)
        return before

    def _is_large(self, value: Any) -> bool:
        return bool(value > 5)


def test_a_helper_and_the_loop_work_on_the_same_state() -> None:
    outcomes = []
    for inlined in (False, True):

        class Opened(Helped):
            def open(self, context: Any) -> None:
                self.count = context.get_state(ValueStateDescriptor("count"))

        INLINING["on"] = inlined
        try:
            operator = KeyedProcessOperator(Opened(), lambda record: record % 2)
            output = open_operator(operator)
        finally:
            INLINING["on"] = False
        assert operator._loops._attributes == (["count"] if inlined else [])
        operator.process(Bundle([1, 2, 7, 3, 8, 1, 2, 3, 9]), 0)
        outcomes.append(output.records)
    assert outcomes[0] == outcomes[1]
