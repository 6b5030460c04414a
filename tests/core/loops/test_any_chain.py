"""Chains of random functions do in one loop what each operator does alone, one after the other."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from headgate.base.elements import Bundle
from headgate.base.errors import UserFunctionFailed
from headgate.core.chain.operator import Operator, PollResult
from headgate.core.chain.outputs import ChainedOutput, CountingOutput, trail_from
from headgate.core.operators.one_input import (
    FilterOperator,
    FlatMapOperator,
    KeyedProcessOperator,
    MapOperator,
    ProcessOperator,
)
from headgate.core.operators.source import SourceOperator
from headgate.functions.function import OutputTag
from tests.core.chain.kit import INLINING, KeptOutput, open_operator
from tests.core.loops.program_kit import (
    KINDS,
    NAMES,
    RECORDS,
    expression,
    is_python,
    module_of,
    opened,
    program,
    statements,
)
from tests.core.operators.kit import ScriptedSource

HEADS = ("map", "filter", "flat map", "process", "keyed process")

STEPS = [
    *("value", "value == {0}", "(value, {0})", "(value, value)", "not value", "str(value)"),
    *("value != 2", "isinstance(value, tuple)", "{{'a': value, 'b': {0}}}", "Pair(value, {0})"),
    *("Slotted(b={0}, a=value)", "value['a']", "value.a", "value[0]", "value.b", "[value]"),
    *("value if {0} else 7", "note(value)", "len(value)", "value.a == {0}", "1 // value"),
    *("isinstance(value, (int, str))", "f'{{value}}'", "{0}", "OFFSET", "(value,)"),
]


MARKED = """
@dataclass(init=False)
class Marked:
    a: object
    level: str

    def __init__(self, a):
        self.a = a
        self.level = "none"
"""

FILLED = [
    ["made = Plain(value)", "made.b = note(made.a, 1)", "return made"],
    ["made = Plain(value, b=[2])", "if value:", "    made.b = a", "return made"],
    ["made = Slotted(b=value, a=1)", "made.a += 1", "made.b = made.a", "return made"],
    ["made = {'a': value}", "made['b'] = note(value)", "made['a'] = 3", "return made"],
    ["made = {'a': value}", "made['b'] = made", "return made"],
    ["made = {'a': 1}", "note(made['c'] if value == 300 else 1)", "made['c'] = b", "return made"],
    ["made = Pair(value)", "note(made)", "made.b = 4", "return made"],
    ["made = Pair(value, a)", "for made.b in (1, 2):", "    note(made.b)", "return made"],
    ["made = Marked(value)", "made.a = note(made.level)", "return made"],
    ["made = Marked(value)", "made.more = 2", "return made"],
]
"""Records that are filled before they are sent."""


def without_returns(lines: list[str]) -> list[str]:
    return [line for line in lines if "return" not in line and line[-1:] != ":"]


@pytest.fixture(autouse=True)
def called_again() -> Iterator[None]:
    yield
    INLINING["on"] = False
    sys.modules.pop("program", None)


class Chained:
    """Operators one behind the other, as a chain has them, and everything that is to be seen."""

    def __init__(self, operators: Sequence[Operator], reuse: bool, takes_fields: bool) -> None:
        self.end = KeptOutput()
        self.end.takes_fields = lambda *asked: takes_fields
        self.counting: list[CountingOutput] = []
        self.chained: list[ChainedOutput] = []
        output: Any = self.end
        for number, operator in reversed(list(enumerate(operators))):
            counting = CountingOutput(output)
            open_operator(operator, reuse, None, counting)  # type: ignore[arg-type]
            output = ChainedOutput(operator, f"op {number}")
            self.counting.insert(0, counting)
            self.chained.insert(0, output)

    def process(self, bundles: Sequence[Bundle]) -> str:
        try:
            for bundle in bundles:
                self.chained[0].collect(bundle)
        except UserFunctionFailed as error:
            return f"{error.operator}: {error.__cause__!r}"
        return ""

    @property
    def counts(self) -> list[tuple[int, int]]:
        return [
            (chained.records_in, counting.records_out)
            for chained, counting in zip(self.chained, self.counting, strict=True)
        ]

    @property
    def steps(self) -> int:
        return len(trail_from(self.counting[0]).steps)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("takes_fields", [False, True])
@pytest.mark.parametrize("kind", HEADS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(seed=st.integers(0, 2**64), reuse=st.booleans(), timed=st.booleans())
def test_a_chain_does_the_same_in_one_loop(
    kind: str, takes_fields: bool, tmp_path: Path, seed: int, reuse: bool, timed: bool
) -> None:
    method, parameters, make = KINDS[kind]
    random, yields = Random(seed), kind in ("flat map", "process", "keyed process")
    lines = statements(random, yields)
    if kind == "map" and random.random() < 0.5:
        lines = [*without_returns(lines), *random.choice(FILLED)]
    elif not yields:
        lines.append(f"return {expression(random)}")
    elif random.random() < 0.2:
        lines = [*without_returns(lines), *random.choice(FILLED)]
        lines[-1] = lines[-1].replace("return", "yield")
    elif random.random() < 0.5:
        lines.append(random.choice(["yield Pair(value, 1)", "yield value, 1", "yield {'a': 1}"]))
    assigned = [name for name in NAMES if name not in parameters.split(", ")]
    text = program(method, parameters, assigned, lines)
    if "ctx" not in parameters:
        text = text.replace("ctx.timestamp()", "3")
    kinds = [random.choice(["map", "filter"]) for _ in range(random.randint(1, 4))]
    text += "\nOFFSET = 3\n" + MARKED
    for number in range(len(kinds)):
        found = random.choice(STEPS).format(random.choice(["1", "'x'", "OFFSET", "LOG[:0]"]))
        text += f"\ndef step{number}(value):\n    return {found}\n"
    assume(is_python(text))
    # With object reuse the user promises to change nothing that was sent.
    assume(not (reuse and re.search(r"self\.kept(\.append|\[)", text)))
    outcomes: list[Any] = []
    for is_one_loop in (False, True):
        INLINING["on"] = is_one_loop
        module = module_of(tmp_path / f"program_{seed}_{kind.replace(' ', '_')}.py", text)
        function = opened(module, kind == "keyed process")
        operators = [make(function)]
        for number, step in enumerate(kinds):
            maker = MapOperator if step == "map" else FilterOperator
            operators.append(maker(getattr(module, f"step{number}")))
        chain = Chained(operators, reuse, takes_fields)
        times: list[int | None] | None = list(range(len(RECORDS))) if timed else None
        error = chain.process([Bundle(list(RECORDS), times), Bundle(list(RECORDS), times)])
        if is_one_loop:
            event(f"steps: {chain.steps}")
        if error:
            outcomes.append(("an error",))
        else:
            kept = repr(function.kept), repr(function.seen)
            outcomes.append((repr(chain.end.timed), chain.counts, module.LOG, kept))
    assert outcomes[0] == outcomes[1], text


def parsed(line: str) -> Any:
    return {"kind": line[0], "size": len(line)} if line else None


def is_there(event: Any) -> bool:
    return event is not None and event["kind"] != "b"


def half(event: Any) -> float:
    return 10 / (event["size"] - 3)


def run(operators: Sequence[Operator], records: Sequence[Any], **options: bool) -> Chained:
    INLINING["on"] = True
    options = {"reuse": False, "takes_fields": False} | options
    chain = Chained(operators, **options)
    error = chain.process([Bundle(list(records))])
    assert not error, error
    return chain


def test_records_are_counted_at_each_operator() -> None:
    chain = run([MapOperator(parsed), FilterOperator(is_there), MapOperator(half)], ["a", "bb", ""])
    assert chain.steps == 2
    assert chain.counts == [(3, 3), (3, 1), (1, 1)]
    assert chain.end.records == [-5.0]


def test_a_step_that_fails_is_told_by_its_own_function() -> None:
    INLINING["on"] = True
    chain = Chained([MapOperator(parsed), FilterOperator(is_there), MapOperator(half)], False, True)
    with pytest.raises(UserFunctionFailed) as failed:
        chain.chained[0].collect(Bundle(["a", "bb", "abc", "d"]))
    assert failed.value.operator == "op 2"
    cause = failed.value.__cause__
    assert isinstance(cause, ZeroDivisionError) and cause.__context__ is None
    trace = cause.__traceback__
    names = []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert names[-1] == "half"


KEPT: list[Any] = []


def keeping(number: int) -> dict[str, Any]:
    record = {"number": number, "items": [number]}
    KEPT.append(record)
    for old in KEPT:
        old["items"].append(-1)
    return record


@pytest.mark.parametrize("step", [lambda r: r["number"] >= 0, lambda r: (r, 1), lambda r: r])
def test_what_the_function_keeps_and_changes_later_has_left_as_it_was(step: Any) -> None:
    KEPT.clear()
    maker = FilterOperator if step({"number": 1}) is True else MapOperator
    found = run([MapOperator(keeping), maker(step)], range(5)).end.records
    records = [record[0] if isinstance(record, tuple) else record for record in found]
    assert [record["items"] for record in records] == [[number, -1] for number in range(5)]


class Tagging:
    """Sends pairs with a tag and without."""

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        yield value, -value
        yield TAG, value
        tag = TAG if value % 2 else value
        yield tag, [value]

    def flat_map(self, value: int) -> Iterator[Any]:
        yield from self.process_element(value, None)


TAG = OutputTag("late")


@pytest.mark.parametrize("takes_fields", [True, False])
@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("step", [None, lambda pair: pair[1] != -2, lambda pair: (pair[1], 0)])
@pytest.mark.parametrize(
    "make", [FlatMapOperator, ProcessOperator, lambda f: KeyedProcessOperator(f, lambda v: v)]
)
def test_values_with_a_tag_go_past_the_steps(
    make: Any, step: Any, reuse: bool, takes_fields: bool
) -> None:
    seen = []
    for is_one_loop in (False, True):
        INLINING["on"] = is_one_loop
        operators = [make(Tagging())]
        if step is not None:
            maker = FilterOperator if step((1, 2)) is True else MapOperator
            operators.append(maker(step))
        chain = Chained(operators, reuse, takes_fields)
        assert not chain.process([Bundle([1, 2, 3, 4], [5, 6, 7, 8])])
        seen.append((chain.end.timed, chain.end.side, [out for _, out in chain.counts][-1]))
    assert seen[0] == seen[1]


def test_names_mean_what_they_mean_where_the_step_stands() -> None:
    found = 100  # a name of the function's own below

    def numbered(value: int) -> int:
        len = value + found
        return len

    of_three = FilterOperator(lambda text: len(str(text)) == 3)
    chain = run([MapOperator(numbered), of_three], [1, 2000])
    assert chain.end.records == [101] and chain.steps == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda event: event["items"],
        lambda event: (event["items"], 1),
        lambda event: (event, 1),
        lambda event: event,
        lambda event: {"items": event["items"], "more": event},
        lambda event: (len(event["items"]), event["name"]),
    ],
)
@pytest.mark.parametrize("takes_fields", [True, False])
def test_what_a_source_keeps_is_not_what_a_map_sends(function: Any, takes_fields: bool) -> None:
    """A map that only reads is given the source's own records."""
    INLINING["on"] = True
    kept: list[dict[str, Any]] = [{"name": "a", "items": [number]} for number in range(20)]
    expected = [repr(function(record)) for record in kept]
    source = SourceOperator(ScriptedSource(), ([kept],))
    chain = Chained([source, MapOperator(function)], False, takes_fields)
    assert source.poll() is PollResult.RECORDS
    for record in kept:
        record["items"].append(-1)
        record["name"] = "b"
    assert [repr(sent) for sent in chain.end.records] == expected
