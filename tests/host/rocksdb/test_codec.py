"""Keys and values of state as RocksDB's bytes: equal is equal, and everything can be read back."""

import datetime
import marshal
import pickle
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.state.cursor import seen
from headgate.core.state.keys import key_group
from headgate.functions.window import CountWindow, GlobalWindow, TimeWindow
from headgate.host.rocksdb.codec import (
    AFTER_ALL,
    AddressCodec,
    entry_key,
    entry_of,
    pack,
    state_prefix,
    unpack,
)
from headgate.host.saved_state.loading import SafeLoader


@dataclass(frozen=True)
class Customer:
    name: str
    number: int


class Pair(NamedTuple):
    first: Any
    second: Any


ATOMIC = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.fractions()
)
KEYS = st.recursive(
    ATOMIC,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=2)
        | st.frozensets(ATOMIC, max_size=3)
        | st.builds(Customer, st.text(max_size=3), st.integers())
    ),
    max_leaves=6,
)
NAMESPACES = (
    st.none()
    | st.builds(TimeWindow, st.integers(), st.integers())
    | st.builds(CountWindow, st.integers())
    | st.just(GlobalWindow())
    | st.text(max_size=3)
    | st.tuples(st.integers(), st.integers())
)
SPACES = [None, TimeWindow(0, 10), TimeWindow(10, 20), CountWindow(3), GlobalWindow(), "a", (1, 2)]


@given(KEYS, NAMESPACES, st.integers(0, 60_000), st.binary(max_size=5))
def test_an_address_is_read_back(key: Any, namespace: Any, state: int, rest: bytes) -> None:
    codec = AddressCodec(128)
    address = codec.address(state, seen(key), namespace)
    found = codec.decode(address.prefix + rest, address.head + b"what it holds")
    assert (found.state, found.rest, found.body) == (state, rest, b"what it holds")
    assert found.prefix == address.prefix
    assert found.key == key
    assert found.namespace == namespace
    assert type(found.namespace) is type(namespace)
    assert address.body(address.head + b"x") == b"x"


@given(KEYS, KEYS, st.sampled_from(SPACES), st.sampled_from(SPACES))
def test_addresses_are_equal_when_keys_and_namespaces_are(
    key: Any, second_key: Any, space: Any, second_space: Any
) -> None:
    codec = AddressCodec(16)
    first = codec.address(1, seen(key), space)
    second = codec.address(1, seen(second_key), second_space)
    same = seen(key) == seen(second_key) and space == second_space
    assert (first.prefix == second.prefix) == same


@given(st.lists(st.tuples(KEYS, st.sampled_from(SPACES)), min_size=2, max_size=8))
def test_no_address_is_the_beginning_of_another(places: list[tuple[Any, Any]]) -> None:
    codec = AddressCodec(4)
    prefixes = sorted({codec.address(0, seen(key), space).prefix for key, space in places})
    for before, after in pairwise(prefixes):
        assert not after.startswith(before)


@pytest.mark.parametrize(
    "equals",
    [
        [1, 1.0, True, Decimal(1), Fraction(1)],
        [0.5, Decimal("0.5"), Fraction(1, 2)],
        [0, 0.0, -0.0, False],
        [(1, "a"), (1.0, "a"), Pair(1, "a")],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}],
        [frozenset({1, "a"}), frozenset({"a", True})],
        [Customer("a", 1), Customer("a", True)],
    ],
)
def test_equal_keys_of_different_looks_share_an_address(equals: list[Any]) -> None:
    codec = AddressCodec(128)
    assert len({codec.address(0, seen(key), None).prefix for key in equals}) == 1


def test_keys_that_only_look_alike_do_not() -> None:
    alike = ["1", 1, b"1", 1.5, (1,), [1], None, "None", (), "", ("tuple", 1), ("number", 1, 2)]
    codec = AddressCodec(128)
    assert len({codec.address(0, seen(key), None).prefix for key in alike}) == len(alike)


@given(KEYS)
def test_the_key_group_comes_first_and_then_the_state(key: Any) -> None:
    codec = AddressCodec(300)
    group = key_group(key, 300)
    address = codec.address(513, seen(key), TimeWindow(0, 5))
    assert address.prefix.startswith(state_prefix(group, 513))
    assert address.prefix.startswith(codec.key_prefix(513, seen(key)))
    assert state_prefix(group, 0) < address.prefix < state_prefix(group + 1, 0)
    assert codec.decode(address.prefix, address.head).group == group


@given(KEYS, KEYS.filter(lambda key: seen(key) is key), st.integers())
def test_an_entry_of_a_map_is_read_back(key: Any, inner: Any, value: int) -> None:
    address = AddressCodec(128).address(0, seen(key), None)
    place, head = entry_key(address, inner)
    assert address.prefix < place < address.prefix + AFTER_ALL
    rest = place[len(address.prefix) :]
    found, body = entry_of(rest, address.body(head + pack(value)))
    assert (found, unpack(body)) == (inner, value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        -(2**70),
        True,
        1.5,
        float("inf"),
        "",
        "text \ud800",
        2**63,
        2**64,
        -1,
        b"",
        b"\x80\x05",
        (1, [2]),
        [1, {"a": {2}}],
        {"a": None},
        bytearray(b"ab"),
        datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc),
        Customer("a", 1),
        Pair(1, 2),
        Decimal("1.10"),
    ],
)
def test_values_come_back_as_they_were(value: Any) -> None:
    found = unpack(pack(value))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", [0, -(2**70), 84, True, False, 1.5, "", "text \ud800", b"\x80"])
def test_values_of_the_first_release_are_read(value: Any) -> None:
    found = unpack(marshal.dumps(value, 2))
    assert found == value
    assert type(found) is type(value)


def test_a_value_that_would_end_the_process_is_refused() -> None:
    with pytest.raises(ValueError, match="begins with 0xa9"):
        unpack(bytes.fromhex("a9 01 3c 01000000 72 00000000"), SafeLoader())


@pytest.mark.parametrize("wrong", ["91dd7fffffff", "9181a16101", "91c403000000", "91"])
def test_messagepack_of_anything_but_a_number_or_text_is_refused(wrong: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        unpack(bytes.fromhex(wrong))


def test_what_the_loader_refuses_is_given_to_no_other(tmp_path: Path) -> None:
    """A pickle that fails with AttributeError, and holds the name of a class that has moved."""
    refused = b"0cbuiltins\nset\n)R}X\x01\0\0\0aK\x01sb0cheadgate.api.time\nTime\n0"
    call = b"cposix\nmkdir\n" + pickle.dumps((str(tmp_path / "made"),), 4)[2:-1] + b"R"
    with pytest.raises(AttributeError):
        unpack(b"\x80\x04" + call + refused + b"N.", SafeLoader())
    assert not (tmp_path / "made").exists()


def test_a_namespace_keeps_its_class_though_another_equals_it() -> None:
    codec = AddressCodec(128)
    for key, space in product(["a", [1]], [TimeWindow(1, 2), (1, 2), Pair(1, 2)]):
        address = codec.address(0, seen(key), space)
        assert type(codec.decode(address.prefix, address.head).namespace) is type(space)


def test_the_memory_of_namespaces_is_bounded() -> None:
    codec = AddressCodec(128)
    for start in range(5000):
        codec.address(0, "a", TimeWindow(start, start + 1))
    assert len(codec._spaces) <= 1024
