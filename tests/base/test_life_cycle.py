"""Life cycles as tables: what is not in the table is a bug."""

from enum import Enum

import pytest

from headgate.base.life_cycle import next_state


class Light(Enum):
    GREEN = "green"
    RED = "red"


class Press(Enum):
    BUTTON = "a pedestrian has pressed the button"
    RELEASE = "all have crossed"


TABLE = {(Light.GREEN, Press.BUTTON): Light.RED, (Light.RED, Press.RELEASE): Light.GREEN}


def test_the_table_says_what_follows() -> None:
    assert next_state(TABLE, Light.GREEN, Press.BUTTON, "light 3") is Light.RED
    assert next_state(TABLE, Light.RED, Press.RELEASE, "light 3") is Light.GREEN


def test_a_pair_that_is_not_in_the_table_is_a_bug_that_says_whose() -> None:
    with pytest.raises(AssertionError, match="light 3: RELEASE while green"):
        next_state(TABLE, Light.GREEN, Press.RELEASE, "light 3")
