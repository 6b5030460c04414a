"""Definitions: the source of a function is found, and anything else is not taken for it."""

import ast
import linecache
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from headgate.core.inlining.definitions import (
    Definition,
    definitions_in,
    find_node,
    is_same_code,
    plain_function,
)


def definitions_for(function: Any) -> list[Definition]:
    plain = plain_function(function)
    assert plain is not None
    code = plain.__code__
    return definitions_in(linecache.getlines(code.co_filename)).get(code.co_firstlineno, [])


def found(function: Any) -> bool:
    plain = plain_function(function)
    assert plain is not None
    return find_node(plain, definitions_for(plain)) is not None


def top_level(value: int) -> int:
    """A docstring, a default nowhere."""
    return value + 1


class Multiplier:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def map(self, value: int) -> int:
        return value * self.factor

    def mangled(self, value: int) -> int:
        return value * self.__secret  # type: ignore[attr-defined, no-any-return]


def adder(amount: int) -> Callable[[int], int]:
    return lambda value: value + amount


FIRST, SECOND = (lambda value: value + 1), (lambda value: value + 1.0)


@pytest.mark.parametrize(
    "function",
    [
        top_level,
        Multiplier(2).map,
        adder(3),
        FIRST,
        SECOND,
        lambda value: (
            value,
            1,
        ),
    ],
)
def test_the_source_of_a_function_is_found(function: Callable[[int], int]) -> None:
    assert found(function)


def test_of_two_lambdas_in_a_line_each_finds_its_own() -> None:
    first, second = FIRST, SECOND
    assert isinstance(first, FunctionType) and isinstance(second, FunctionType)
    assert not is_same_code(first.__code__, second.__code__), "1 and 1.0 are different constants"
    both = definitions_for(first)
    assert len(both) == 2
    for function, constant in ((first, 1), (second, 1.0)):
        node = find_node(function, both)
        assert node is not None
        constants = [getattr(part, "value", None) for part in ast.walk(node)]
        assert [type(value) for value in constants if value == 1] == [type(constant)]


def test_lines_and_columns_are_those_of_the_file() -> None:
    function = adder(1)
    assert isinstance(function, FunctionType)
    node = find_node(function, definitions_for(function))
    assert node is not None
    line = linecache.getline(function.__code__.co_filename, node.lineno)
    assert line[node.col_offset :].startswith("lambda value: value + amount")
    method = plain_function(Multiplier(1).map)
    assert method is not None
    node = find_node(method, definitions_for(method))
    assert node is not None
    line = linecache.getline(method.__code__.co_filename, node.lineno)
    assert line[node.col_offset :].startswith("def map")


def test_source_that_has_changed_is_not_taken() -> None:
    stale = Definition("def top_level(value: int) -> int:\n    return value + 2\n", 1, False)
    line = top_level.__code__.co_firstlineno
    assert find_node(top_level, [Definition(stale.text, line, False)]) is None
    text = 'def top_level(value: int) -> int:\n    """A docstring, a default nowhere."""\n'
    same = Definition(text + "    return value + 1\n", line, False)
    assert find_node(top_level, [same]) is not None
    assert find_node(top_level, [Definition(same.text, line + 1, False)]) is None


@pytest.mark.parametrize("text", ["def broken(:", "    def top_level(value):\n  return", "", "1"])
def test_text_that_is_no_function_is_passed_over(text: str) -> None:
    line = top_level.__code__.co_firstlineno
    assert find_node(top_level, [Definition(text, line, False)]) is None
    assert find_node(top_level, [Definition(text, line, True)]) is None


def test_text_that_no_parser_takes_is_passed_over() -> None:
    line = top_level.__code__.co_firstlineno
    deep = f"def top_level(value): return {'-' * 50_000}value"
    assert find_node(top_level, [Definition(deep, line, False)]) is None


def test_names_that_a_class_mangles_are_not_recognised() -> None:
    assert not found(Multiplier(1).mangled)


def test_what_is_no_python_function_has_no_source() -> None:
    assert plain_function(str.split) is None
    assert plain_function(len) is None
    assert plain_function("map") is None
