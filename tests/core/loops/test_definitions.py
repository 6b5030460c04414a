"""Definitions: the source of a function is found, and anything else is not taken for it."""

import ast
import gc
import json
import linecache
import math
import time
from collections.abc import Callable
from datetime import date
from threading import Thread
from types import FunctionType
from typing import Any

import pytest

from headgate.core.loops.definitions import (
    Definition,
    definitions_in,
    find_node,
    is_same_code,
    parse,
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


def test_lambdas_are_cut_out_of_their_lines_wherever_they_stand() -> None:
    lines = [
        "é = ['ü', lambda ñ: ñ + 'ß', lambda ñ: 'ß']  # ö\n",
        "\tf = (lambda x:\f x + \\\n",
        "   1)\n",
    ]
    lines[1] = lines[1].lstrip()
    found = definitions_in(lines)
    assert sorted(definition.text.strip() for definition in found[1]) == [
        "lambda ñ: 'ß'",
        "lambda ñ: ñ + 'ß'",
    ]
    assert found[2][0].text.strip() == "lambda x:\f x + \\\n   1"
    names: dict[str, Any] = {}
    exec(compile("".join(lines), "<test>", "exec"), names)
    for line, function in ((1, names["é"][1]), (1, names["é"][2]), (2, names["f"])):
        node = find_node(function, found[line])
        assert node is not None and node.lineno == line
        assert lines[line - 1].encode()[node.col_offset :].startswith(b"lambda")


def test_a_file_of_many_lambdas_is_read_once() -> None:
    lines = [f"f{number} = lambda value: value + {number}\n" for number in range(3000)]
    touched = 0

    class Counting(list[str]):
        def __iter__(self) -> Any:
            nonlocal touched
            touched += 1
            return super().__iter__()

    assert len(definitions_in(Counting(lines))) == 3000
    assert touched <= 1, "the whole text is put together once, not for each lambda"
    assert definitions_in([f"def f(x): return '{'x' * 30_000}'\n"]) == {}


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


class SlowToDie:
    """The garbage collector lets other threads run."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)


def test_threads_may_parse_at_the_same_time() -> None:
    text = "\n".join(f"if a{number}:\n    b = c[{number}](d)" for number in range(30))
    failed: list[BaseException] = []

    def parse_below(levels: int) -> None:
        if levels:
            parse_below(levels - 1)
            return
        for _ in range(200):
            SlowToDie()
            try:
                parse(text)
            except SystemError as error:
                failed.append(error)

    threads = [Thread(target=parse_below, args=(levels,)) for levels in (5, 20, 40)]
    before = gc.get_threshold()
    gc.set_threshold(50)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*before)
    assert not failed


def parsed(text: str) -> Any:
    found = json.loads(text)
    return found["at"], math.floor(found["size"])


def dated(text: str) -> Any:
    return date.fromisoformat(text).isoformat(), OTHER.upper()


def local_import(text: str) -> Any:
    import json as decoder

    return decoder.loads(text)


OTHER = "a name that is not imported"


@pytest.mark.parametrize("function", [parsed, dated, local_import, lambda x: math.sqrt(x)])
def test_functions_that_call_what_their_file_imports_are_found(
    function: Callable[[Any], Any],
) -> None:
    """CPython compiles a call of an imported module's function in another way than of a method."""
    assert found(function)


def test_imports_within_functions_are_not_those_of_the_file() -> None:
    lines = [
        "if True:\n",
        "    import a.b, c as d\n",
        "def f(x):\n",
        "    import e\n",
        "    return a.g(x) + c.g(x) + d.g(x) + e.g(x)\n",
    ]
    (definition,) = definitions_in(lines)[3]
    assert definition.imports == ("a", "d")
