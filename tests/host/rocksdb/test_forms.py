"""Bytes of keys and old values are read without marshal, whoever wrote them."""

import marshal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate
from headgate.host.rocksdb.codec import MOST_NESTED, read_form, read_form_at

FORMS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**400), 2**400)
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=10,
)
CODES = st.lists(
    st.sampled_from([bytes([code]) for code in b"NTFiIlgfxyusatzZARrc(){}[]<>?.S:"])
    | st.sampled_from([bytes([code | 0x80]) for code in b"ilgus()<[{c"])
    | st.sampled_from([size.to_bytes(4, "little") for size in (0, 1, 2, 5, 2**31 - 1, 2**32 - 1)])
    | st.binary(max_size=3),
    max_size=12,
).map(b"".join)
UNFINISHED_TUPLE = bytes.fromhex("a9 01 3c 01000000 72 00000000")
"""A tuple that holds a set that holds the tuple: marshal hashes it before it is whole."""


@given(FORMS, st.binary(max_size=4))
def test_what_marshal_writes_is_read_as_it_was(form: Any, rest: bytes) -> None:
    data = marshal.dumps(form, 2)
    assert read_form(data) == form
    assert repr(read_form(data)) == repr(form), "with its types"
    assert read_form_at(b"xy" + data + rest, 2) == (form, 2 + len(data))


@given(FORMS, st.data())
def test_what_is_cut_or_followed_by_more_is_refused(form: Any, data: st.DataObject) -> None:
    whole = marshal.dumps(form, 2)
    for wrong in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"N"):
        with pytest.raises(ValueError, match="in a database is cut|follow a key or value"):
            read_form(wrong)


@given(CODES)
def test_other_bytes_give_the_forms_that_marshal_gives_or_are_refused(data: bytes) -> None:
    try:
        form, end = read_form_at(data, 0)
    except ValueError:
        return
    assert repr(marshal.loads(data[:end])) == repr(form)


@pytest.mark.parametrize(
    "wrong",
    [
        UNFINISHED_TUPLE,
        marshal.dumps(compile("1", "", "eval")),
        marshal.dumps([1]),
        marshal.dumps(frozenset({1}), 2),
        b"(\xff\xff\xff\x7f" + b"N" * 100,
        b"(\x01\x00\x00\x00" * (MOST_NESTED + 1) + b"N",
        b"l\xff\xff\xff\x7f\x01\x00",
        b"l\x01\x00\x00\x00\xff\xff",
        b"u\xff\xff\xff\xffabc",
        b"u\x01\x00\x00\x00\xff",
        b"",
    ],
)
def test_what_no_job_has_written_is_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="in a database|codec can't decode"):
        read_form(wrong)


def test_tuples_are_read_as_deep_as_keys_are_written() -> None:
    deep: Any = None
    for _ in range(300):
        deep = (deep,)
    assert read_form(marshal.dumps(deep, 2)) == deep


def test_a_long_integer_takes_linear_time() -> None:
    number = 7 ** (1 << 18)
    assert read_form(marshal.dumps(-number, 2)) == -number


def test_nothing_gives_bytes_to_marshal() -> None:
    sources = Path(headgate.__file__).parent.rglob("*.py")
    assert not [path.name for path in sources if "marshal.load" in path.read_text()]
