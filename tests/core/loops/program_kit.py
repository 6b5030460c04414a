"""Programs of random statements, and everything that can be seen of what they do."""

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

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
from headgate.core.operators.two_inputs import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoProcessOperator,
)
from headgate.functions.state import ValueStateDescriptor
from tests.core.chain.kit import open_operator
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
