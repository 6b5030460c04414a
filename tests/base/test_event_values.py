"""Values of task events come back equal, with equal types; bytes never make but plain data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import ElementBroken, EventUnsendable
from headgate.base.events import pack_values, unpack_values

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
KEYS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.sets(ATOMS, max_size=3)
        | st.frozensets(ATOMS, max_size=3)
    ),
    max_leaves=8,
)
PLAIN = (type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset)


def types_in(value: object) -> object:
    if isinstance(value, dict):
        return [(type(key), types_in(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [types_in(item) for item in value]
    return type(value)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=3))
def test_values_come_back_equal_and_of_the_same_types(values: dict[str, object]) -> None:
    back = unpack_values(pack_values("Event", values))
    assert back == values
    assert types_in(back) == types_in(values)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), st.data())
def test_damaged_bytes_are_plain_data_or_broken(
    values: dict[str, object], data: st.DataObject
) -> None:
    whole = bytearray(pack_values("Event", values))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        back = unpack_values(bytes(whole))
    except ElementBroken:
        return
    assert all(type(name) is str for name in back)


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("value", [object(), Text("x"), print, 1j, {1: {2: object()}}, "\ud800"])
def test_other_values_are_refused_by_name(value: object) -> None:
    with pytest.raises(EventUnsendable, match="attribute 'second'"):
        pack_values("Event", {"first": 1, "second": value})


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(EventUnsendable):
        pack_values("Event", {"endless": endless})
