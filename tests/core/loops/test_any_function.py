"""Functions of random statements do in a loop what they do when they are called."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from headgate.base.elements import Bundle
from headgate.base.fields import TUPLES, FieldShape, RecordFields, Same
from headgate.base.shapes import field_shape
from headgate.core.chain.operator import Operator
from headgate.core.operators.one_input import KeyedProcessOperator, MapOperator
from headgate.core.operators.reduce import ReduceOperator
from tests.core.chain.kit import INLINING, KeptOutput
from tests.core.loops.program_kit import (
    KINDS,
    NAMES,
    RECORDS,
    YIELDING,
    expression,
    is_python,
    module_of,
    opened,
    outcome,
    program,
    statements,
)


@pytest.fixture(autouse=True)
def called_again() -> Iterator[None]:
    yield
    INLINING["on"] = False
    sys.modules.pop("program", None)


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
    outcomes, apart = [], []
    for is_apart in (False, True):
        INLINING["on"] = is_apart
        module = module_of(tmp_path / f"program_{seed}.py", text)
        function = opened(module, False)
        times: list[int | None] | None = list(range(len(RECORDS))) if timed else None
        operator = MapOperator(function)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KeptOutput, "takes_fields", lambda *asked, answer=is_apart: answer)
            patch.setattr(Bundle, "of_fields", noting(apart, Bundle.of_fields))
            seen = outcome(operator, function, [Bundle(list(RECORDS), times)], reuse)
        outcomes.append((seen, module.LOG))
    assert outcomes[0] == outcomes[1], text
    event(f"taken apart: {any(apart)}")


def noting(calls: list[bool], function: Callable[..., Bundle]) -> Callable[..., Bundle]:
    def called(*arguments: Any) -> Bundle:
        calls.append(True)
        return function(*arguments)

    return called


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
