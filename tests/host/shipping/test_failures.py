"""The record that a function could not take, found by the traceback of its error."""

import logging
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from headgate.api.types.types import Types
from headgate.base.elements import Bundle
from headgate.core.chain.operator import Operator
from headgate.core.operators.one_input import (
    FilterOperator,
    FlatMapOperator,
    KeyedProcessOperator,
    MapOperator,
    ProcessOperator,
)
from headgate.core.operators.reduce import ReduceOperator
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.host.shipping.failures import SHOWN_CHARS, describe, record_of, shown
from headgate.host.shipping.log_lines import line_of
from headgate.observe.logs import JsonLines, TextLines
from tests.core.chain.kit import INLINING, open_operator

RECORDS = [f"record {number}" for number in range(10)]
BAD = RECORDS[6]


def fails(value: Any, *context: Any) -> Any:
    if value is BAD:
        raise ValueError("boom")
    return [value]


class Function:
    def map(self, value: Any) -> Any:
        return fails(value)

    filter = flat_map = map

    def invoke(self, value: Any, context: Any) -> None:
        fails(value)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield from fails(value)

    def reduce(self, old: Any, new: Any) -> Any:
        fails(new)
        return new


MAKES: list[Callable[[], Operator]] = [
    partial(MapOperator, Function()),
    partial(MapOperator, fails),
    partial(FilterOperator, Function()),
    partial(FlatMapOperator, Function()),
    partial(ProcessOperator, Function()),
    partial(KeyedProcessOperator, Function(), len),
    partial(ReduceOperator, Function(), len, False),
    partial(SinkFunctionOperator, Function()),
]


class Rebinds:
    """Each makes another record of the bundle out of its own before it fails."""

    def map(self, value: int) -> float:
        value = value + 3
        return 1 / (value - 3)

    def filter(self, value: int) -> bool:
        return 1 / value > 0

    def process_element(self, value: int, ctx: Any) -> Iterator[float]:
        value = value + 3
        yield 1 / (value - 3)

    def reduce(self, old: int, new: int) -> int:
        old, new = new + 3, new + 2
        return old if 1 / (new - 2) else new


class Stops:
    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        if value == 0:
            next(iter(()))
        yield value


@pytest.fixture
def inlining() -> Iterator[None]:
    INLINING["on"] = True
    yield
    INLINING["on"] = False


INLINED: list[Callable[[], Operator]] = [
    partial(MapOperator, lambda value: 1 // value),
    partial(MapOperator, Rebinds()),
    partial(FilterOperator, Rebinds()),
    partial(ProcessOperator, Rebinds()),
    partial(KeyedProcessOperator, Rebinds(), abs),
    partial(KeyedProcessOperator, Stops(), abs),
    partial(ReduceOperator, Rebinds(), lambda value: 0, False),
]


@pytest.mark.usefixtures("inlining")
@pytest.mark.parametrize("make", INLINED)
def test_inlined_functions_tell_their_record_though_they_have_rebound_it(
    make: Callable[[], Operator],
) -> None:
    error = error_of(make(), [5, 3, 2, 0, 1])
    assert record_of(error) == "0"
    assert "line" in describe(error).traceback


@pytest.mark.usefixtures("inlining")
@pytest.mark.parametrize("make", MAKES)
def test_every_operator_tells_its_record_with_an_inlined_function(
    make: Callable[[], Operator],
) -> None:
    assert record_of(error_of(make(), RECORDS)) == repr(BAD)


def error_of(operator: Operator, records: list[Any]) -> BaseException:
    open_operator(operator)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever it is
        operator.process(Bundle(records), 0)
    operator.close()
    return raised.value


@pytest.mark.parametrize("make", MAKES)
def test_every_operator_tells_its_record(make: Callable[[], Operator]) -> None:
    assert record_of(error_of(make(), RECORDS)) == repr(BAD)


def test_a_function_without_a_frame_of_its_own_may_tell_it_too() -> None:
    assert record_of(error_of(MapOperator(int), ["x"])) == "'x'"


def test_a_function_that_was_at_no_record_tells_none() -> None:
    class Opens:
        def open(self, runtime_context: Any) -> None:
            raise ValueError("no")

        def map(self, value: Any) -> Any: ...

    with pytest.raises(ValueError, match="no") as raised:
        open_operator(MapOperator(Opens()))
    assert record_of(raised.value) == ""
    assert record_of(ValueError("never raised")) == ""


def test_a_failure_carries_it_to_the_driver() -> None:
    failure = describe(error_of(MapOperator(Function()), RECORDS))
    assert failure.record == repr(BAD) and "in fails" in failure.traceback


class Many(list[int]):
    """Of a class of its own."""


class Hostile:
    def __repr__(self) -> str:
        raise SystemExit("no")


class Recursive:
    def __repr__(self) -> str:
        return repr([self])


@dataclass
class Order:
    name: str
    blob: bytes


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("record", "begins"),
    [
        ({"a": 1}, "{'a': 1}"),
        (b"x" * 10**7, "b'xxx"),
        ("x" * 10**7, "'xxx"),
        (list(range(10**6)), "[0, 1, 2, 3"),
        (Many(range(10**6)), "[0, 1, 2, 3"),
        (dict.fromkeys(range(10**6)), "{0: None, 1: None"),
        (set(range(10**6)), "{0, 1, 2"),
        (10**100_000, "<an int of "),
        (Hostile(), "<Hostile whose repr() raises SystemExit>"),
        (Recursive(), "<Recursive instance"),
        ([Hostile()], "<list whose repr() raises SystemExit>"),
        (Order("tea", b"\0" * 10**7), "Order(name='tea', blob=b'"),
        (Pair("a" * 10**6, 2), "Pair(left='aaa"),
        (Types.ROW_NAMED(["a"], [Types.STRING()]).coerced({"a": "x" * 10**6}), "Row(a='xxx"),
        (object(), "<object object>"),
        ("\ud800", "'"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_whatever_the_record_is_its_text_is_short(record: object, begins: str) -> None:
    began = time.monotonic()
    text = shown(record)
    assert text.startswith(begins) and len(text) <= SHOWN_CHARS
    assert text.encode() and time.monotonic() - began < 5


def test_neither_a_failure_nor_a_line_of_the_log_shows_a_secret() -> None:
    def connect(**settings: str) -> None:
        raise ConnectionError(f"no answer from redis://:hUnter2@h with {settings}")

    try:
        try:
            connect(password="hUnter2")
        except ConnectionError as error:
            raise RuntimeError("https://h/x?sig=hUnter2&x=1 is not there") from error
    except RuntimeError as error:
        failure = describe(error)
        record = logging.LogRecord(
            "shop", logging.ERROR, "", 0, "token=%s", ("hUnter2",), (RuntimeError, error, None)
        )
    line = line_of(record, "worker-1:1")
    texts = (failure.message, failure.traceback, line.message, line.traceback)
    texts += (TextLines().format(record), JsonLines().format(record))
    assert not [text for text in texts if "hUnter2" in text]
    assert failure.message == "https://h/x?sig=******&x=1 is not there"
    assert "ConnectionError: no answer from redis://******@h" in failure.traceback
    assert line.message == "token=******"
