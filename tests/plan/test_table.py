"""Tables in plain text."""

from headgate.plan.table import aligned, width_of


def test_columns_stand_below_each_other() -> None:
    assert aligned(("a", "b"), [("long cell", "x"), ("", "y")]) == (
        "a          b\nlong cell  x\n           y\n"
    )


def test_wide_letters_take_two_columns_and_accents_none() -> None:
    assert width_of("流x") == 3
    assert width_of("e\u0301") == 1
    assert aligned(("n", "b"), [("流", "x"), ("ab", "y")]) == "n   b\n流  x\nab  y\n"
