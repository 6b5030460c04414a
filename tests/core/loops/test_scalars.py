"""Expressions that make scalars out of scalars make nothing else."""

import ast
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.loops.bodies import inline_body
from headgate.core.loops.definitions import FunctionNode
from headgate.core.loops.scalars import SCALARS, are_scalar_tuples, makes_scalar_tuples

LEAVES = ["a[0]", "a[1]", "b[1]", "b[-1]", "n", "1", "2.5", "'x'", "b'y'", "None", "True", "1j"]
SHAPES = [
    *("({0} + {1})", "({0} - {1})", "({0} * 2)", "({0} ** 0.5)", "({0} % {1})", "({0} // {1})"),
    *("(-{0})", "(not {0})", "({0} or {1})", "({0} < {1})", "({0} in {1})", "({0} is {1})"),
    *("({0} if {1} else {2})", "{0}[0]"),
    *("{0}[1:]", "(~{0})", "({0} << 1)", "a[{0}]", "({0} & {1})"),
]
ITEMS = [3, -1, 0, 2.5, -0.5, "ab", "", b"xy", None, True, 2j, "%s"]


def expression(random: Random, depth: int) -> str:
    if depth == 0:
        return random.choice(LEAVES)
    inner = [expression(random, depth - 1) for _ in range(3)]
    return random.choice(SHAPES).format(*inner)


def makes_scalars(text: str) -> tuple[bool, Any]:
    """Whether a function that returns this is recognised, and the function."""
    module = ModuleType("program")
    source = f"function = lambda a, b, n: {text}"
    exec(source, module.__dict__)
    function = module.__dict__["function"]
    assignment = ast.parse(source).body[0]
    assert isinstance(assignment, ast.Assign)
    node = assignment.value
    assert isinstance(node, FunctionNode)
    body = inline_body(function, node)
    return body is not None and makes_scalar_tuples(body, ["a", "b"], ["n"]), function


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@given(seed=st.integers(0, 2**64))
def test_what_is_recognised_is_a_tuple_of_scalars_whatever_comes(seed: int) -> None:
    random = Random(seed)
    found, function = makes_scalars(f"(a[0], {expression(random, random.randint(0, 3))})")
    assert found
    for _ in range(20):
        a, b = (tuple(random.choices(ITEMS, k=2)) for _ in range(2))
        try:
            result = function(a, b, random.choice(ITEMS))
        except (TypeError, ValueError, ArithmeticError, IndexError, OverflowError):
            continue
        assert type(result) is tuple
        assert set(map(type, result)) <= SCALARS


@pytest.mark.parametrize(
    "text",
    [
        *("a", "a[0]", "[a[0]]", "(a,)", "(a[0], [1])", "(a[:1],)", "(*a,)", "(str(a[0]),)"),
        *("(a[0].upper(),)", "((1, 2),)", "(a[0], sorted(b[1]))", "(max(a),)", "(max(a[0], 1),)"),
        *("(..., 1)", "({1: 2},)", "(n(),)", "(a[b],)", "(max(1, 2, key=n),)", "(f'{n}',)"),
    ],
)
def test_what_might_be_something_else_is_not_recognised(text: str) -> None:
    assert not makes_scalars(text)[0]


class Number(int):
    def __add__(self, other: object) -> Any:
        return [self, other]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], True),
        ([("a", 1), (None,), ()], True),
        ([("a", 1), ["a"]], False),
        ([("a", [])], False),
        ([("a", Number(1))], False),
        ([("a", ("b",))], False),
        ([None], False),
    ],
)
def test_results_are_scalars_only_if_all_of_them_are(values: list[Any], expected: bool) -> None:
    assert are_scalar_tuples(values) is expected
