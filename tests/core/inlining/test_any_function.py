"""Functions of random statements do in a loop what they do when they are called."""

import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from headgate.base.elements import Bundle
from headgate.base.fields import TUPLES, FieldShape, RecordFields, Same
from headgate.base.shapes import field_shape
from headgate.core.chain.operator import Operator
from headgate.core.operators.basic import FilterOperator, FlatMapOperator, MapOperator
from headgate.core.operators.process import KeyedProcessOperator, ProcessOperator
from headgate.core.operators.reduce import ReduceOperator
from headgate.core.operators.two_inputs import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoProcessOperator,
)
from headgate.functions.state import ValueStateDescriptor
from tests.core.chain.kit import INLINING, KeptOutput, open_operator
from tests.core.operators.failing_kit import TolerantRun

NAMES = ("value", "a", "b", "len")

PRELUDE = """
from dataclasses import dataclass

LOG = []

@dataclass
class Pair:
    a: object
    b: object = None

@dataclass(slots=True)
class Slotted:
    b: object
    a: object

class Plain:
    def __init__(self, a, *, b=7):
        self.b = b
        self.a = a

    def __repr__(self):
        return f"Plain{self.__dict__}"

def note(*parts):
    LOG.append(repr(parts))
    if len(LOG) % 37 == 36:
        raise ValueError(f"note {len(LOG)}")
    return parts[-1] if parts else None
"""


LEAVES = [
    *(*NAMES, "value", "value", "0", "2", "1.5", "'x'", "None", "ctx.timestamp()"),
    *("self.kept", "self.last.value()", "self.count.value()"),
]

SHAPES = [
    *("note({0})", "note({0}, {1})", "({0}, {1})", "({0}, {1}, {2})", "(*[{0}], {1})"),
    *("{{'b': {0}, 'a': {1}}}", "Pair({0})", "Pair({0}, {1})", "Slotted(a={0}, b={1})"),
    *("Plain({0})", "Plain(b={0}, a={1})", "Pair(a={0}, b=[{1}])", "{{'a': {0}, **{{}}}}"),
    *("[{0}, {1}]", "({0} if {1} else {2})", "({0} or {1})", "(not {0})", "({0} == {1} != {2})"),
    *(
        "f'{{{0}}}'",
        'f"{{{0}!r}}-{{1}}"',
        "str({0})[1:2]",
        "[{0}, {1}][bool({2})]",
        "[{0}, {1}][{2}]",
    ),
]

STATEMENTS = [
    *("{n} = {0}", "{n} += 2", "{n}, {m} = {0}, {1}", "{n}, *{m} = [{0}, {1}]"),
    *("note({0})", "self.kept.append(repr({0})[:9])", "self.seen = {0}", "pass", "{n}: int = {0}"),
    *("self.last.update({0})", "self.count.update({0})", "self.count.clear()"),
    *("assert {0} != 7, 'seven'", "self.kept[-1:] = [repr({0})[:9]]"),
]

YIELDS = ["yield {0}", "yield {0}, {1}", "yield", "yield from [{0}, {1}]"]


def expression(random: Random, depth: int = 2) -> str:
    if depth == 0 or random.random() < 0.4:
        return random.choice(LEAVES)
    inner = [expression(random, depth - 1) for _ in range(3)]
    shape = random.choice(SHAPES)
    if shape.startswith("f") and set("\"'") & set("".join(inner)):
        shape = "({0}, {1})"  # no quotes within quotes before Python 3.12
    return shape.format(*inner)


def statements(
    random: Random,
    yields: bool,
    depth: int = 2,
    looped: bool = False,
    targets: Sequence[str] = NAMES,
) -> list[str]:
    """Lines of a body, each a statement or a part of one; ``targets`` are assigned."""
    lines: list[str] = []
    simple = [*STATEMENTS, *(YIELDS * 2 if yields else [])]
    simple += ["break", "continue"] if looped else ["return", "return" if yields else "return {0}"]
    for _ in range(random.randint(1, 4)):
        kind, text = random.randint(0, 5), expression(random)
        if depth and kind < 3:
            is_loop = kind == 2
            head = f"for {random.choice(targets)} in ({text}, 2):" if is_loop else f"if {text}:"
            inner = statements(random, yields, depth - 1, looped or is_loop, targets)
            lines += [head, *_indented(inner)]
            if random.random() < 0.5:
                inner = statements(random, yields, depth - 1, looped, targets)
                lines += ["else:", *_indented(inner)]
        else:
            first, second = random.sample(targets, 2)
            more = expression(random, 1)
            lines.append(random.choice(simple).format(text, more, n=first, m=second))
    return lines


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def program(method: str, parameters: str, assigned: list[str], body: list[str]) -> str:
    """``assigned``: variables that have a value from the first line on."""
    text = "\n".join(_indented(_indented([" = ".join([*assigned, "0"]), *body])))
    return f"{PRELUDE}\nclass Function:\n    def {method}(self, {parameters}):\n{text}\n"


def module_of(path: Path, text: str) -> ModuleType:
    path.write_text(text)
    module = sys.modules["program"] = ModuleType("program")  # so that its classes can be pickled
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def is_python(text: str) -> bool:
    try:
        compile(text, "", "exec")
    except SyntaxError:
        return False
    return True


class Context:
    """In the place of the context and of states, where there are none."""

    def timestamp(self) -> int:
        return 3

    def value(self, *new: Any) -> None:
        return None

    update = clear = value


def opened(module: ModuleType, keyed: bool) -> Any:
    class Function(module.Function):  # type: ignore[misc, name-defined]
        def open(self, runtime_context: Any) -> None:
            self.kept: list[Any] = []
            self.seen = None
            if keyed:
                self.last = runtime_context.get_state(ValueStateDescriptor("last", None))
                self.count = runtime_context.get_state(ValueStateDescriptor("count", None))
            else:
                self.last = self.count = Context()

        def nothing(self, value: Any, *context: Any) -> None:
            """For the other input."""

        map2 = flat_map2 = process_element2 = nothing

    return Function()


def outcome(
    operator: Operator, function: Any, bundles: list[Bundle], reuse: bool, skips: bool = False
) -> Any:
    """Everything that can be seen from outside; ``skips``: records that fail are left out."""
    if skips:
        output = TolerantRun(operator, reuse=reuse).output
    else:
        output = open_operator(operator, reuse)
    errors = []
    for bundle in bundles:
        try:
            operator.process(bundle, 0)
        except Exception as raised:
            frames = traceback.extract_tb(raised.__traceback__)
            theirs = [(frame.name, frame.lineno) for frame in frames if "program" in frame.filename]
            errors.append((repr(raised), theirs[-2:]))
    states = [repr(getattr(state, "entries", None)) for state in (function.last, function.count)]
    kept = repr(function.kept), repr(function.seen)
    return repr(output.timed), repr(output.side), errors, states, kept


RECORDS = [1, "x", 0, [4], None, 2, (2, 3), 300, 1.5, True]


@pytest.fixture(autouse=True)
def called_again() -> Iterator[None]:
    yield
    INLINING["on"] = False
    sys.modules.pop("program", None)


KINDS: dict[str, tuple[str, str, Callable[[Any], Operator]]] = {
    "map": ("map", "value", MapOperator),
    "filter": ("filter", "value", FilterOperator),
    "reduce": ("reduce", "a, value", lambda f: ReduceOperator(f, lambda record: 0, False)),
    "flat map": ("flat_map", "value", FlatMapOperator),
    "process": ("process_element", "value, ctx", ProcessOperator),
    "co-map": ("map1", "value", CoMapOperator),
    "co-flat map": ("flat_map1", "value", CoFlatMapOperator),
    "co-process": ("process_element1", "value, ctx", CoProcessOperator),
    "keyed process": (
        "process_element",
        "value, ctx",
        lambda f: KeyedProcessOperator(f, lambda record: len(str(record)) % 2),
    ),
    "keyed co-process": (
        "process_element1",
        "value, ctx",
        lambda f: KeyedCoProcessOperator(f, *[lambda record: len(str(record)) % 2] * 2),
    ),
}
YIELDING = ("process", "flat map")


ROWS = [("a", 1, "x"), ("b", [4], "x"), ("a", None, "x"), ("a", 2.5, "x"), ("b", (1, 2), "x")]


@dataclass
class Thing:
    """A record with attributes."""

    first: object
    second: object
    third: object


FORMS: dict[str, tuple[FieldShape | None, tuple[Any, ...], Callable[[Any], Any]]] = {
    "tuples": (TUPLES, (0, 1, 2, -1, 3), lambda record: record[-3]),
    "dicts": (
        field_shape(dict, ("first", "second", "third")),
        ("['first']", "['second']", "['third']", ".get('second')", "['four']"),
        lambda record: record["first"],
    ),
    "instances": (
        field_shape(Thing, ("first", "second", "third")),
        (".first", ".second", ".third", ".__dict__['second']", ".four"),
        lambda record: record.first,
    ),
}
"""Shape, how the fields of a record are read (the last one fails), and its key."""

KEYED_BY_FIELD: dict[str, Callable[[Any, Any], Operator]] = {
    "reduce": lambda f, key_of: ReduceOperator(f, key_of, False),
    "keyed process": lambda f, key_of: KeyedProcessOperator(f, key_of),
}


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KEYED_BY_FIELD)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(seed=st.integers(0, 2**64), reuse=st.booleans(), timed=st.booleans())
def test_a_function_does_the_same_with_records_that_are_taken_apart(
    kind: str, form: str, tmp_path: Path, seed: int, reuse: bool, timed: bool
) -> None:
    method, parameters, _ = KINDS[kind]
    shape, reads, key_of = FORMS[form]
    assert shape is not None
    random, yields = Random(seed), "process" in kind
    lines = statements(random, yields, targets=[name for name in NAMES if name != "value"])
    if not yields:
        lines.append(f"return {expression(random)}")
    lines = [re.sub(r"\bvalue\b(?!\()", lambda _: _field(random, reads), line) for line in lines]
    assigned = [name for name in NAMES if name not in parameters.split(", ")]
    text = program(method, parameters, assigned, lines)
    if not yields:
        text = text.replace("ctx.timestamp()", "3")
    assume(is_python(text))  # no quotes within quotes before Python 3.12
    outcomes = []
    for is_apart in (False, True):
        INLINING["on"] = is_apart
        module = module_of(tmp_path / f"program_{seed}_{kind}.py", text)
        function = opened(module, kind == "keyed process")
        bundles = []
        for part in (ROWS[:2], ROWS[2:], ROWS[:4]):
            firsts, seconds, _ = map(list, zip(*deepcopy(part), strict=True))
            times: list[int | None] | None = list(range(len(part))) if timed else None
            bundle = Bundle.of_fields(
                RecordFields([firsts, seconds, Same("x")], len(part), None, shape), times
            )
            bundles.append(bundle if is_apart else Bundle(bundle.records, times))
        operator = KEYED_BY_FIELD[kind](function, key_of)
        outcomes.append((outcome(operator, function, bundles, reuse), module.LOG))
    assert outcomes[0] == outcomes[1], text


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize(
    "made",
    [
        r"((\1 or value), 1, self.kept)",
        r"{'a': (\1 or value), 'n': 1, 'kept': self.kept}",
        r"Slotted(self.kept, a=(\1 or value))",
        r"Pair((\1 or value))",
        r"Plain((\1 or value), b=note(self.kept))",
    ],
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(seed=st.integers(0, 2**64), reuse=st.booleans(), timed=st.booleans())
def test_a_map_does_the_same_if_its_records_are_taken_apart(
    made: str, tmp_path: Path, seed: int, reuse: bool, timed: bool
) -> None:
    random = Random(seed)
    lines = [*statements(random, False), f"return {expression(random)}"]
    lines = [re.sub(r"return\b *(.*)$", rf"return {made}", at) for at in lines]
    lines = [line.replace("( or value", "(value") for line in lines]
    text = program("map", "value", ["a", "b", "len"], lines).replace("ctx.timestamp()", "3")
    outcomes, shapes = [], []
    for is_apart in (False, True):
        INLINING["on"] = is_apart
        module = module_of(tmp_path / f"program_{seed}.py", text)
        function = opened(module, False)
        times: list[int | None] | None = list(range(len(RECORDS))) if timed else None
        operator = MapOperator(function)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KeptOutput, "takes_fields", lambda *asked, answer=is_apart: answer)
            seen = outcome(operator, function, [Bundle(list(RECORDS), times)], reuse)
        outcomes.append((seen, module.LOG))
        assert operator._fields is not None
        shapes.append(operator._fields.shape)
    assert outcomes[0] == outcomes[1], text
    assert shapes[0] is None
    event(f"taken apart: {shapes[1] is not None}")


def _field(random: Random, reads: Sequence[Any]) -> str:
    """Mostly fields are asked for, some that the record has not got."""
    chosen = random.choice([*reads[:3] * 4, *reads])
    read = chosen if isinstance(chosen, str) else f"[{chosen}]"
    return "value" if random.random() < 0.1 else f"value{read}"


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("kind", KINDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(seed=st.integers(0, 2**64), reuse=st.booleans(), timed=st.booleans(), skips=st.booleans())
def test_a_function_does_the_same_in_a_loop(
    kind: str, tmp_path: Path, seed: int, reuse: bool, timed: bool, skips: bool
) -> None:
    method, parameters, make = KINDS[kind]
    random, yields = Random(seed), kind.endswith(YIELDING)
    lines = statements(random, yields)
    if not yields:
        lines.append(f"return {expression(random)}")
    others = [name for name in NAMES if name not in parameters.split(", ")]
    assigned = [name for name in others if random.random() < 0.9]
    text = program(method, parameters, assigned, lines)
    if "ctx" not in parameters:
        text = text.replace("ctx.timestamp()", "3")
    outcomes = []
    for inlined in (False, True):
        INLINING["on"] = inlined
        module = module_of(tmp_path / f"program_{seed}_{kind}.py", text)
        function = opened(module, kind.startswith("keyed"))
        records = [[4] if record == [4] else record for record in RECORDS]
        bundles = [
            Bundle(part, list(range(len(part))) if timed else None)
            for part in (records[:4], records[4:6], records[6:7], records[7:])
        ]
        seen = outcome(make(function), function, bundles, reuse, skips)
        outcomes.append((seen, module.LOG))
    assert outcomes[0] == outcomes[1], text
