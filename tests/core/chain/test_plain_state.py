"""Parts of an operator's state without keys, each under its name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import StateBroken
from headgate.core.chain.plain_state import left_by, packed
from headgate.core.chain.snapshots import OperatorRestored

NAMES = st.sampled_from(["function", "fold", "event time"])


@given(st.lists(st.none() | st.dictionaries(NAMES, st.binary(max_size=9))), NAMES)
def test_each_part_gets_back_what_was_left_under_its_name(
    tasks: list[dict[str, bytes] | None], name: str
) -> None:
    restored = OperatorRestored(plain=tuple(packed(one or {}) for one in tasks))
    assert left_by(restored, name) == tuple((one or {}).get(name) for one in tasks)


def test_nothing_is_left_where_there_is_nothing() -> None:
    assert packed({}) is None
    assert left_by(None, "function") == ()
    assert left_by(OperatorRestored(), "function") == ()


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x93\x01\x02\x03", b"\x81\xa1\xffx"])
def test_bytes_that_are_no_parts_are_refused(data: bytes) -> None:
    with pytest.raises(StateBroken, match="without keys cannot be read"):
        left_by(OperatorRestored(plain=(data,)), "function")
