"""Statements in the place of return and yield: what they look like, and what is left out."""

import ast

import pytest

from headgate.core.loops.emissions import Folding, Placing, Sending, Yielding, statements_of
from headgate.core.loops.made_records import RecordMakers

MAKERS = RecordMakers(lambda: None)  # type: ignore[arg-type]


def text(statements: list[ast.stmt]) -> str:
    module = ast.Module(body=statements, type_ignores=[])
    return ast.unparse(ast.fix_missing_locations(module))


def value(source: str) -> ast.expr:
    return ast.parse(source, mode="eval").body


def test_what_cannot_be_mutable_is_not_looked_at() -> None:
    assert "_hg_look" not in text(Sending(MAKERS).returned(value("(1, 'two', f'-{x}')")))
    assert "_hg_look" not in text(Sending(MAKERS, by_value=False).returned(value("x")))
    looked = text(Sending(MAKERS).returned(value("(1, x)")))
    assert "_hg_type(_hg_item1)" in looked and "_hg_type(_hg_item0)" not in looked


def test_a_text_of_one_part_is_looked_at() -> None:
    assert "_hg_type(_hg_item0)" in text(Sending(MAKERS).returned(value("(f'{x}',)")))


@pytest.mark.parametrize("source", ["x", "(1, *x)", "()", str(tuple(range(9)))])
def test_other_values_are_looked_at_as_a_whole(source: str) -> None:
    look = "_hg_look(_hg_send, _hg_references(_hg_value), _hg_value)"
    assert look in text(Sending(MAKERS).returned(value(source)))


def test_each_place_knows_its_own_kinds() -> None:
    sending = Sending(MAKERS)
    sending.returned(value("(x, y)"))
    sending.returned(value("x"))
    assert sending.kinds == [f"_hg_kind{number}" for number in range(2 + 5)]


def test_a_folded_result_is_kept_before_it_is_sent() -> None:
    for source in ("(x, y)", "x"):
        made = text(Folding(MAKERS).returned(value(source)))
        assert 0 <= made.index("_hg_values[_hg_key]") < made.index("_hg_send(")


def test_yields_in_loops_are_bounded_and_have_their_time() -> None:
    timed, untimed = Yielding(MAKERS, True, True), Yielding(MAKERS, True, False)
    assert "_hg_send_on" in text(timed.yielded(value("x"), looped=True))
    assert "_hg_send_on" not in text(timed.yielded(value("x"), looped=False))
    assert "_hg_stamp(_hg_time)" in text(timed.yielded(value("x"), looped=False))
    assert "_hg_stamp" not in text(untimed.yielded(value("x"), looped=False))
    assert text(untimed.returned(None)) == "continue"


def test_a_template_gets_names_and_statements_without_lines() -> None:
    body = statements_of("_hg_send(_hg_VALUE)", VALUE=value("word"))
    assert not hasattr(body[0], "lineno")
    placed = Placing({"RECORD": "word"}, body).place("for _hg_RECORD in _hg_records:\n    _hg_BODY")
    assert text(placed) == "for word in _hg_records:\n    _hg_send(word)"
