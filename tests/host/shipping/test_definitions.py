"""The source of functions travels with a job, as far as it can be read."""

from pathlib import Path
from typing import Any

import pytest

from headgate.core.loops.definitions import Definition
from headgate.host.shipping.code import ship, unship, with_definitions
from tests.core.chain.kit import vertex_of


class Doubling:
    def map(self, value: int) -> int:
        return value * 2


def shipped(function: Any) -> tuple[Definition, ...]:
    vertices = with_definitions({0: vertex_of(7)}, {7: [("map function", function)]})
    return unship(ship(vertices))[0].chain.operators[0].definitions


def test_definitions_of_functions_and_methods_reach_the_worker() -> None:
    (definition,) = shipped(lambda value: value + 1)
    assert definition.is_lambda and definition.text.strip() == "lambda value: value + 1"
    (definition,) = shipped(Doubling())
    assert definition.text.startswith("    def map(self")


def test_operators_without_functions_have_no_definitions() -> None:
    assert shipped(str.split) == ()
    assert with_definitions({0: vertex_of(7)}, {})[0].chain.operators[0].definitions == ()


class Hostile:
    @property
    def reduce(self) -> Any:
        raise RuntimeError("not now")

    def map(self, value: int) -> int:
        return value


def test_an_object_whose_attributes_raise_is_no_failure() -> None:
    (definition,) = shipped(Hostile())
    assert "def map" in definition.text


def test_reading_a_file_warns_of_nothing(tmp_path: Path, recwarn: Any) -> None:
    file = tmp_path / "program.py"
    file.write_text("function = lambda value: '\\d'\n")
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    recwarn.clear()
    assert len(shipped(names["function"])) == 1 and not recwarn.list


@pytest.mark.parametrize("text", ["def broken(:\n", "\x00", ""])
def test_a_file_that_is_no_python_any_more_is_left_out(tmp_path: Path, text: str) -> None:
    file = tmp_path / "program.py"
    file.write_text("function = lambda value: value\n")
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    file.write_text(text)
    assert shipped(names["function"]) == ()
    file.unlink()
    assert shipped(names["function"]) == ()
