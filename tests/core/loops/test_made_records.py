"""Records that are made in an expression: which are recognised, and what they are made of."""

import ast
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import pytest

from headgate.api.row import Row
from headgate.base.elements import Bundle
from headgate.core.loops.bodies import InlineBody
from headgate.core.loops.made_records import (
    RecordMakers,
    WrittenDown,
    assigning_class,
    written_down,
)
from headgate.core.operators.one_input import MapOperator
from tests.core.chain.kit import INLINING, KeptOutput, open_operator


@dataclass
class Visit:
    user: str
    ms: int = 5


@dataclass(slots=True)
class Slotted:
    user: str
    ms: int


@dataclass(kw_only=True)
class Named:
    user: str
    ms: int = 5


class Swapped:
    def __init__(self, ms: int, user: str) -> None:
        self.name = user
        self.ms = ms


@dataclass
class Listing:
    user: str
    pages: list[str] = field(default_factory=list)


@dataclass
class Checked:
    user: str

    def __post_init__(self) -> None:
        assert self.user


@dataclass(frozen=True)
class Frozen:
    user: str


@dataclass
class Noted(ABC):
    user: str


@dataclass
class Guarded:
    user: str

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


@dataclass
class Finalized:
    user: str

    def __del__(self) -> None:
        pass


class Derived:
    def __init__(self, user: str) -> None:
        self.user = user
        self.length = len(user)


class Lowered:
    def __init__(self, user: str) -> None:
        self.user = user.lower()


class Doubled:
    def __init__(self, user: str) -> None:
        self.user = user
        self.again = user


class Forgetful:
    def __init__(self, user: str, ms: int) -> None:
        self.user = user


class Overwritten:
    def __init__(self, user: str, ms: int) -> None:
        self.user = user
        self.user = ms


class Computed:
    def __init__(self, user: str) -> None:
        self.user = user  # type: ignore[misc]

    @property
    def user(self) -> str:
        return "somebody"

    @user.setter
    def user(self, user: str) -> None:
        pass


class Leveled:
    def __init__(self, user: str) -> None:
        self.user = user
        self.level = "none"
        self.ratio = 0.5


class Shared:
    def __init__(self, user: str) -> None:
        self.user = user
        self.places = (1, 2)


class Open:
    def __init__(self, *users: str) -> None:
        self.users = users


class Inherits(Visit):
    pass


class Empty:
    pass


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Visit, ("user", "ms")),
        (Slotted, ("user", "ms")),
        (Named, ("user", "ms")),
        (Swapped, ("name", "ms")),
        (Leveled, ("user", "level", "ratio")),
    ],
)
def test_classes_that_only_assign_are_recognised(kind: type, names: tuple[str, ...]) -> None:
    found = assigning_class(kind)
    assert found is not None
    assert found.shape.names == names


@pytest.mark.parametrize(
    "kind",
    [
        *(Listing, Checked, Frozen, Noted, Guarded, Finalized, Derived, Lowered, Doubled),
        *(Forgetful, Overwritten, Computed, Open, Inherits, Empty),
        *(Shared, int, dict, len, None, Visit("a")),
    ],
)
def test_classes_that_do_more_are_not(kind: Any) -> None:
    assert assigning_class(kind) is None


def expression(source: str) -> ast.expr:
    return ast.parse(source, mode="eval").body


LEVELED = {0: "x", 1: "'none'", 2: "0.5"}
ROW_OF_FIELDS = "Row.__headgate_of_fields__({'user': a, 'n': b})"


def function() -> FunctionType:
    kinds = (Visit, Slotted, Named, Swapped, Leveled, Row)
    return FunctionType((lambda: None).__code__, {kind.__name__: kind for kind in kinds})


@pytest.mark.parametrize(
    ("source", "names", "items", "made"),
    [
        ("(x, 1)", (), {0: "x", 1: "1"}, "(a, b)"),
        ("{'u': x, 'n': y}", ("u", "n"), {0: "x", 1: "y"}, "{'u': a, 'n': b}"),
        ("Visit(x, y)", ("user", "ms"), {0: "x", 1: "y"}, "Visit(a, b)"),
        ("Visit(x)", ("user", "ms"), {0: "x", 1: "5"}, "Visit(a, b)"),
        ("Visit(ms=x, user=y)", ("user", "ms"), {1: "x", 0: "y"}, "Visit(a, b)"),
        ("Named(ms=x, user=y)", ("user", "ms"), {1: "x", 0: "y"}, "Named(user=a, ms=b)"),
        ("Swapped(x, user=y)", ("name", "ms"), {1: "x", 0: "y"}, "Swapped(b, a)"),
        ("Leveled(x)", ("user", "level", "ratio"), LEVELED, "Leveled(a)"),
        ("Row(user=x, n=y)", ("user", "n"), {0: "x", 1: "y"}, ROW_OF_FIELDS),
    ],
)
def test_items_come_in_the_order_in_which_they_are_evaluated(
    source: str, names: tuple[str, ...], items: dict[int, str], made: str
) -> None:
    found = RecordMakers(function()).made(expression(source))
    assert found is not None
    assert found.shape.names == names
    assert [*found.items] == [*items]
    assert {place: ast.unparse(item) for place, item in found.items.items()} == items
    assert ast.unparse(found.made_of({0: "a", 1: "b", 2: "c"})) == made


@pytest.mark.parametrize(
    "source",
    [
        *("x", "[x]", "()", "(1, *x)", str(tuple(range(9))), "{}", "{'a': 1, **x}", "{x: 1}"),
        *("{'a': 1, 'a': 2}", "{1: 2}", "{None: 1}", "Visit()", "Visit(*x)", "Visit(**x)"),
        *("Visit(1, 2, 3)", "Visit(1, user=2)", "Visit(1, other=2)", "Other(1)", "a.Visit(1)"),
        *(
            "Named(1)",
            "len(x)",
            "Row()",
            "Row(x)",
            "Row(x, n=1)",
            "Row(n=1, **x)",
            "Row(as_dict=1)",
        ),
    ],
)
def test_other_expressions_make_nothing_that_is_known(source: str) -> None:
    assert RecordMakers(function()).made(expression(source)) is None


def test_makers_hold_while_names_and_classes_stay_the_same() -> None:
    made = function()
    makers = RecordMakers(made)
    assert makers.made(expression("Visit(1)")) is not None
    assert makers.hold()
    made.__globals__["Visit"] = Slotted
    assert not makers.hold()
    made.__globals__["Visit"] = Visit
    assert makers.hold()
    before = Visit.__init__
    try:
        Visit.__init__ = lambda self, user: None  # type: ignore[method-assign, assignment]
        assert not makers.hold()
    finally:
        Visit.__init__ = before  # type: ignore[method-assign]


KEPT: list[Any] = []


def as_visit(row: tuple[str, int]) -> Visit:
    return Visit(row[0], row[1])


def as_row(row: tuple[str, int]) -> Row:
    KEPT.append(row[1])
    return Row(user=row[0], seen=KEPT)


def as_listing(row: tuple[str, int]) -> dict[str, Any]:
    KEPT.append(row[1])
    return {"user": row[0], "seen": KEPT}


ROWS = [("ann", 1), ("bob", 2), ("ann", 3)]


class FieldsOutput(KeptOutput):
    takes_fields = staticmethod(lambda shape, count: shape.names[0] == "user")


def run(operator: MapOperator, output: KeptOutput) -> None:
    INLINING["on"] = True
    try:
        open_operator(operator, output=output)
    finally:
        INLINING["on"] = False


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (as_visit, [Visit("ann", 1), Visit("bob", 2), Visit("ann", 3)]),
        (
            as_row,
            [
                Row(user="ann", seen=[1]),
                Row(user="bob", seen=[1, 2]),
                Row(user="ann", seen=[1, 2, 3]),
            ],
        ),
        (
            as_listing,
            [
                {"user": "ann", "seen": [1]},
                {"user": "bob", "seen": [1, 2]},
                {"user": "ann", "seen": [1, 2, 3]},
            ],
        ),
    ],
)
@pytest.mark.parametrize("make_output", [FieldsOutput, KeptOutput])
def test_a_map_sends_what_it_makes_by_value(
    call: Callable[[Any], Any], expected: list[Any], make_output: type[KeptOutput]
) -> None:
    KEPT.clear()
    output, operator = make_output(), MapOperator(call)
    run(operator, output)
    operator.process(Bundle(list(ROWS), [1, 2, 3]), 0)
    (bundle,) = output.bundles
    assert (bundle.fields is not None) == (make_output is FieldsOutput)
    assert bundle.records == expected
    assert [type(record) for record in bundle.records] == [type(record) for record in expected]


def test_a_map_makes_what_its_class_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    output, operator = FieldsOutput(), MapOperator(as_visit)
    run(operator, output)
    operator.process(Bundle(ROWS[:1]), 0)
    monkeypatch.setitem(globals(), "Visit", Slotted)
    operator.process(Bundle(ROWS[1:]), 0)
    names = [type(record).__name__ for record in output.records]
    assert names == ["Visit", "Slotted", "Slotted"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("r = Leveled(x)\nr.level = y\nreturn r", ["x", "y", "0.5"]),
        ("r = Visit(x, y)\nr.ms += r.ms\nreturn r", ["x", "y + y"]),
        ("r = {'a': x}\nr['b'] = r['a']\nyield r", ["x", "x"]),
    ],
)
def test_a_record_that_is_filled_and_sent_is_its_fields(lines: str, expected: list[str]) -> None:
    body = InlineBody(function(), ("x", "y"), tuple(ast.parse(lines).body), "yield" in lines)
    found = written_down(body, RecordMakers(body.function))
    names: dict[str, Any] = {"x": 2, "y": 3}
    for statement in found.statements[:-1]:
        module = ast.Module([statement], [])
        exec(compile(ast.fix_missing_locations(module), "", "exec"), names)
    (sent,) = [part for part in ast.walk(found.statements[-1]) if isinstance(part, WrittenDown)]
    items = [names[item.id] for item in sent.items if isinstance(item, ast.Name)]
    assert items == [eval(text, {"x": 2, "y": 3}) for text in expected]


@pytest.mark.parametrize(
    "lines",
    [
        "r = Leveled(x)\nkeep(r)\nreturn r",
        "r = Leveled(x)\nr.more = 1\nreturn r",
        "r = Leveled(x)\nr.__dict__['level'] = 1\nreturn r",
        "r = Leveled(x)\nreturn (r, 1)",
        "r = Leveled(x)\nr = r\nreturn r",
        "r = Leveled(x)\nyield r\nr.level = 1",
        "r = {'a': x}\nif x:\n    r['b'] = 1\nreturn r",
        "r = {'a': x}\ny = r['b']\nr['b'] = 1\nreturn r",
        "r = {'a': x}\ndel r['a']\nreturn r",
        "note(r)\nr = {'a': x}\nreturn r",
        "r = [x]\nreturn r",
        "x = {'a': x}\nx['b'] = 1\nreturn x",
    ],
)
def test_a_record_with_which_more_is_done_is_made(lines: str) -> None:
    body = InlineBody(function(), ("x", "y"), tuple(ast.parse(lines).body), "yield" in lines)
    assert written_down(body, RecordMakers(body.function)) is body
