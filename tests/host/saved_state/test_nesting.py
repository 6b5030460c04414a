"""The depth of pickles is known before they are loaded, whatever their protocol."""

import pickle
from collections import OrderedDict
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.api.row import Row
from headgate.base.errors import StateBroken
from headgate.host.saved_state.loading import MOST_NESTED, SafeLoader, check_nesting, nesting

BOMB = b"\x80\x05)" + b"\x85" * (MOST_NESTED + 1)
"""Tuples in each other; what follows would hash them."""

VALUES = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=300),
    lambda held: st.lists(held, max_size=4) | st.tuples(held) | st.tuples(held, held, held, held),
    max_leaves=20,
)


def depth(value: Any) -> int:
    return 1 + max(map(depth, value), default=-1) if isinstance(value, list | tuple) else 0


@settings(max_examples=60, deadline=None)
@given(VALUES, st.sampled_from([4, 5]))
def test_the_depth_is_that_of_tuples_and_lists(value: Any, protocol: int) -> None:
    assert nesting(pickle.dumps(value, protocol)) == depth(value)


@pytest.mark.parametrize("protocol", range(6))
def test_every_form_of_a_pickle_is_understood(protocol: int) -> None:
    many = [*range(3000)], dict.fromkeys(range(3000), (1,)), {1, 2}, frozenset({(3,)})
    others = Row(a=1, b=Row(2)), Decimal(1), OrderedDict(a=1), 2**3000, "ä" * 300, True, bytearray()
    assert nesting(pickle.dumps([many, others, ValueError], protocol)) < 10


@pytest.mark.parametrize("use", [b"\x85}\x94h\x00N0", b"}h\x00", b"0"])
def test_tuples_without_end_are_refused_before_they_are_made(use: bytes) -> None:
    bomb = BOMB.replace(b"\x80\x05)", b"\x80\x05)\x94") + use + b"."
    with pytest.raises(StateBroken, match="20,001 deep|20,002 deep"):
        SafeLoader()(bomb)


def test_many_tuples_beside_each_other_are_read() -> None:
    pairs = [(number, (str(number),)) for number in range(MOST_NESTED)]
    assert SafeLoader()(pickle.dumps(pairs, 5)) == pairs


def test_bytes_that_are_no_pickle_are_left_to_the_unpickler() -> None:
    check_nesting(b"(" * (MOST_NESTED + 1))
    with pytest.raises((pickle.UnpicklingError, EOFError, IndexError)):
        SafeLoader()(b"(" * (MOST_NESTED + 1))
