"""Groups of many keys at once are those of each of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.state.keys import key_group
from headgate.core.state.many_keys import int_groups

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, min_size=1, max_size=20), st.integers(1, 32_768))
def test_whole_numbers_have_their_groups(keys: list[int], most: int) -> None:
    expected = [key_group(key, most) for key in keys]
    assert int_groups(np.array(keys, dtype=np.int64), most).tolist() == expected
