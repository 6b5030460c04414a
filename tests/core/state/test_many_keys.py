"""Groups of many keys at once are those of each of them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.state.keys import key_group
from headgate.core.state.many_keys import groups_of_keys, int_groups

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, min_size=1, max_size=20), st.integers(1, 32_768))
def test_whole_numbers_have_their_groups(keys: list[int], most: int) -> None:
    expected = [key_group(key, most) for key in keys]
    assert int_groups(np.array(keys, dtype=np.int64), most).tolist() == expected


@given(st.lists(INT64, min_size=1) | st.lists(st.text(), min_size=1), st.integers(1, 32_768))
def test_keys_of_records_have_their_groups(keys: list[Any], most: int) -> None:
    groups = groups_of_keys(keys, most)
    assert groups is not None
    assert groups.tolist() == [key_group(key, most) for key in keys]


@pytest.mark.parametrize(
    "keys", [[1, True], [1, 1.0], [2**63], ["\ud800"], ["a", None], [b"a"], [("a", 1)], []]
)
def test_other_keys_have_to_be_asked_for_one_by_one(keys: list[Any]) -> None:
    assert groups_of_keys(keys, 128) is None
