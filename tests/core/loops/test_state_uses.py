"""Lists of states are read without copies only where nobody can tell."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.api.types.types import Types
from headgate.base.elements import Bundle
from headgate.core.loops.loops import body_of
from headgate.core.loops.state_uses import HarmlessNames, StateUses
from headgate.core.operators.one_input import KeyedProcessOperator
from headgate.functions.state import ListStateDescriptor
from tests.core.chain.kit import INLINING, definitions_of, open_operator

HEAD = """
KEPT = []

def keep(found):
    KEPT.append(found)
    return found

class Function:
    def process_element(self, value, ctx):
"""


@pytest.fixture(autouse=True)
def called_again() -> Iterator[None]:
    yield
    INLINING["on"] = False
    sys.modules.pop("program", None)


def module_of(path: Path, lines: list[str]) -> ModuleType:
    text = HEAD + "\n".join(f"        {line}" for line in lines) + "\n"
    path.write_text(text)
    module = sys.modules["program"] = ModuleType("program")
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def uses_of(path: Path, *lines: str) -> StateUses:
    function = module_of(path / "program.py", [*lines, "yield value"]).Function()
    body = body_of(function.process_element, 2, definitions_of(function))
    assert body is not None
    kinds = {"items": "list", "count": "value"}
    return StateUses(body, kinds, "ctx", HarmlessNames(body).names)


@pytest.mark.parametrize(
    "lines",
    [
        ("a = self.items.get()",),
        ("self.items.add(value)", "a = list(self.items.get())", "a = a[-2:]"),
        ("a = self.items.get()", "self.items.update(a[1:])", "yield a[0], len(a), sum(a)"),
        ("b = self.items.get()", "a = list(b)", "for b2 in a:", "    yield b2, ctx.timestamp()"),
        ("a = self.items.get()", "if a and 3 in a:", "    yield [*a, 4]"),
        ("a = self.items.get()[:3]", "self.items.update(a)", "self.items.clear()"),
    ],
)
def test_lists_that_are_only_read_are_views(tmp_path: Path, lines: tuple[str, ...]) -> None:
    # ``a and 3 in a`` gives ``a`` itself, but only to a test.
    found = uses_of(tmp_path, *lines).views
    assert found.get("a") == (None if "if a and 3 in a:" in lines else "items")


@pytest.mark.parametrize(
    "lines",
    [
        ("a = self.items.get()", "yield a"),
        ("a = self.items.get()", "a[0] = 1"),
        ("a = self.items.get()", "a[0] += 1"),
        ("a = self.items.get()", "a += [1]"),
        ("a = self.items.get()", "self.kept = a"),
        ("a = self.items.get()", "keep(a)"),
        ("a = self.items.get()", "keep(1)"),
        ("a = self.items.get()", "a.append(3)"),
        ("a = self.items.get()", "self.items.add(3)"),
        ("for _ in (1, 2):", "    self.items.add(3)", "a = self.items.get()"),
        ("if self.items.add(3):", "    pass", "a = self.items.get()"),
        ("self.items.add(len(self.items.get()))", "a = self.items.get()"),
        ("a = self.items.get() or [1]",),
        ("a = [1]", "if value:", "    a = self.items.get()"),
        ("a, b = self.items.get(), 1",),
        ("a = self.items.get()", "b = (a, 1)"),
        ("a = self.items.get()", "b = a", "b[0] = 3"),
        ("a = self.items.get()", "b = self.items", "yield b"),
        ("list = keep", "a = list(self.items.get())"),
        ("value = self.items.get()", "a = value"),
        ("a = self.items.get()", "yield sorted(a, key=keep)"),
    ],
)
def test_lists_that_somebody_else_may_have_or_change_are_no_views(
    tmp_path: Path, lines: tuple[str, ...]
) -> None:
    assert "a" not in uses_of(tmp_path, *lines).views


def test_a_variable_may_be_no_view_where_another_one_is(tmp_path: Path) -> None:
    lines = "a = self.items.get()", "b = list(a)", "b[0] = 3", "c = a[1:]", "yield len(c)"
    assert uses_of(tmp_path, *lines).views == {"a": "items", "c": "items"}


@pytest.mark.parametrize(
    ("line", "is_short"),
    [
        ("self.count.update(len(value) + ctx.timestamp())", True),
        ("self.count.update(keep(value))", False),
        ("self.other.update(3)", False),
        ("yield from [1, 2]", False),
        ("for each in value: yield each", False),
        ("for each in value: self.count.update(each)", True),
    ],
)
def test_a_body_is_short_if_it_calls_nothing_and_hands_on_at_its_end(
    tmp_path: Path, line: str, is_short: bool
) -> None:
    assert uses_of(tmp_path, line).is_short == is_short


def test_a_property_may_do_anything(tmp_path: Path) -> None:
    lines = ["a = self.items.get()", "yield self.extra, sum(a)"]
    function = module_of(tmp_path / "program.py", lines).Function()
    body = body_of(function.process_element, 2, definitions_of(function))
    assert body is not None
    harmless = HarmlessNames(body).names
    for given_by_code in ((), ("extra",)):
        uses = StateUses(body, {"items": "list"}, "ctx", harmless, given_by_code)
        assert uses.views == ({} if given_by_code else {"a": "items"})
        assert uses.is_short == (not given_by_code)


def test_a_property_that_adds_to_a_list_is_seen_as_when_called(tmp_path: Path) -> None:
    lines = ["a = self.items.get()", "yield self.extra, sum(a)"]
    outcomes = []
    for inlined in (False, True):
        INLINING["on"] = inlined
        module = module_of(tmp_path / "program.py", lines)

        class Function(module.Function):  # type: ignore[misc, name-defined]
            def open(self, context: Any) -> None:
                self.items = context.get_list_state(ListStateDescriptor("items"))

            @property
            def extra(self) -> int:
                self.items.add(3)
                return 1

        operator = KeyedProcessOperator(Function(), lambda record: str(record[0]))
        output = open_operator(operator)
        operator.process(Bundle([("k", 1), ("k", 2), ("k", 3)]), 0)
        assert operator._loops._attributes == (["items"] if inlined else [])
        outcomes.append(output.records)
    assert outcomes == [[(1, 0), (1, 3), (1, 6)]] * 2


def test_names_that_mean_something_else_are_not_harmless(tmp_path: Path) -> None:
    module = module_of(tmp_path / "program.py", ["yield len(value), sum(value), list(value)"])
    module.__dict__["sum"] = max
    function = module.Function()
    body = body_of(function.process_element, 2, definitions_of(function))
    assert body is not None
    names = HarmlessNames(body)
    assert names.names == {"len", "list"} and names.hold()
    module.__dict__["len"] = max
    assert not names.hold()


def test_a_function_is_called_once_a_builtin_means_something_else(tmp_path: Path) -> None:
    lines = ["self.items.add(value[1])", "yield sum(self.items.get())"]
    INLINING["on"] = True
    module = module_of(tmp_path / "program.py", lines)

    class Function(module.Function):  # type: ignore[misc, name-defined]
        def open(self, context: Any) -> None:
            self.items = context.get_list_state(ListStateDescriptor("items"))

    operator = KeyedProcessOperator(Function(), lambda record: str(record[0]))
    output = open_operator(operator)
    operator.process(Bundle([("k", 1), ("k", 2)]), 0)
    assert operator._loops.is_inlined
    module.__dict__["sum"] = lambda found: found.append(99) or found[:]
    operator.process(Bundle([("k", 3), ("k", 4)]), 0)
    assert output.records == [1, 3, [1, 2, 3, 99], [1, 2, 3, 4, 99]]


LISTS = [
    *("self.items.get()", "self.items.get()", "a", "b", "list({0})", "{0}[-2:]", "{0}[:{1}]"),
    *("[*{0}, value[1]]", "sorted({0})", "list(self.items.get())", "{0}[len({0}) - 1:]"),
]
LINES = [
    *("a = {0}", "b = {0}", "a = list(self.items.get())", "a = {0}[-3:]", "b = a"),
    *("self.items.add(value[1])", "self.items.update({0})", "self.items.update({0})"),
    *("self.items.add_all({0})", "self.items.clear()", "a[0:1] = [{1}]", "b += [{1}]"),
    *("yield 1, list({0})", "yield len({0}), {0}[-1:], sum({0})", "yield {0}", "self.kept = {0}"),
    *("if {0}:", "for each in {0}:", "if {1} in {0}:", "keep({0})", "yield max([0, *{0}])"),
    *("yield [each for each in ()], not {0}", "self.others.update({0})", "yield self.kept"),
]


def a_list(random: Random, depth: int = 2) -> str:
    text = random.choice(LISTS[:4] if depth == 0 else LISTS)
    return text.format(a_list(random, depth - 1) if "{0}" in text else "", random.randint(0, 4))


def some_lines(random: Random, depth: int = 1) -> list[str]:
    lines: list[str] = []
    for _ in range(random.randint(1, 6)):
        line = random.choice(LINES).format(a_list(random), random.randint(0, 4))
        if line.endswith(":"):
            inner = some_lines(random, depth - 1) if depth else ["yield 7"]
            lines += [line, *(f"    {each}" for each in inner)]
        else:
            lines.append(line)
    return lines


BUNDLES = [
    [("k", 1), ("k", 2), ("l", 3)],
    [("k", 4), ("l", 5), ("k", True)],
    [("l", 2**40), ("k", 2**63), ("k", 1.5), ("l", 6)],
    [("k", 7), ("l", 8)],
]


@pytest.mark.parametrize("type_info", [None, Types.LONG(), Types.DOUBLE()])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(seed=st.integers(0, 2**64), reuse=st.booleans(), keep_open=st.booleans())
def test_lists_of_states_are_the_same_in_a_loop(
    type_info: Any, tmp_path: Path, seed: int, reuse: bool, keep_open: bool
) -> None:
    lines = ["a = b = []", *some_lines(Random(seed)), "yield len(a), len(b)"]
    if Random(seed).random() < 0.7:  # else nothing could be a view
        others = ("keep(", "[each for")
        lines = [line for line in lines if not line.strip().startswith(others)] + ["pass"]
        lines = ["a = self.items.get()", "b = a", *lines[1:]]
    try:
        ast.parse("def f():\n" + "\n".join(f"    {line}" for line in lines))
    except SyntaxError:  # nothing was left in a block
        lines = ["a = self.items.get()", "self.items.update(a[1:])", "yield a[:]"]
    outcomes = []
    for inlined in (False, True):
        INLINING["on"] = inlined
        module = module_of(tmp_path / f"program_{seed}.py", lines)

        class Function(module.Function):  # type: ignore[misc, name-defined]
            def open(self, context: Any) -> None:
                self.kept: Any = None
                self.items = context.get_list_state(ListStateDescriptor("items", type_info))
                self.others = context.get_list_state(ListStateDescriptor("others", type_info))

        function = Function()
        operator = KeyedProcessOperator(function, lambda record: str(record[0]))
        output = open_operator(operator, reuse)
        errors, seen, snapshots = [], [], []
        for bundle in BUNDLES:
            try:
                operator.process(Bundle(list(bundle)), 0)
            except (TypeError, IndexError) as error:
                errors.append(str(error))
            assert operator._keyed is not None
            if keep_open:
                snapshots.append(operator._keyed.backend.snapshot(None))
            spaces = operator._keyed.backend._spaces
            seen.append(
                repr({name: sorted(held.plain.entries.items()) for name, held in spaces.items()})
            )
            seen.append(repr((output.records, function.kept, module.KEPT)))
        outcomes.append((errors, seen))
        for snapshot in snapshots:
            snapshot.close()
    assert outcomes[0] == outcomes[1], "\n".join(lines)
