"""Which declared types hold all values of which."""

from typing import Any

import msgspec
import pytest

from headgate.api.row import Row
from headgate.api.types.types import Types
from headgate.base.checkpoints import TypeShape
from headgate.core.state.migration import Change, change_of, converter, shape_of

PAIR = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (Types.INT(), Types.INT(), Change.NONE),
        (Types.BYTE(), Types.LONG(), Change.NONE),
        (Types.LONG(), Types.INT(), Change.REFUSED),
        (Types.LONG(), Types.DOUBLE(), Change.REFUSED),
        (Types.INT(), Types.FLOAT(), Change.REFUSED),
        (Types.SHORT(), Types.FLOAT(), Change.REWRITTEN),
        (Types.BIG_INT(), Types.BIG_DEC(), Change.REWRITTEN),
        (Types.CHAR(), Types.STRING(), Change.NONE),
        (Types.INT(), Types.STRING(), Change.REFUSED),
        (Types.INT(), Types.BOOLEAN(), Change.REFUSED),
        (Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Change.REFUSED),
        (None, Types.INT(), Change.REWRITTEN),
        (Types.PICKLED_BYTE_ARRAY(), Types.INT(), Change.REWRITTEN),
        (Types.INT(), None, Change.NONE),
        (Types.LIST(Types.INT()), Types.LIST(Types.LONG()), Change.NONE),
        (Types.BASIC_ARRAY(Types.INT()), Types.LIST(Types.DOUBLE()), Change.REWRITTEN),
        (Types.PRIMITIVE_ARRAY(Types.INT()), Types.LIST(Types.INT()), Change.NONE),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.LIST(Types.BYTE()), Change.REFUSED),
        (
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.PRIMITIVE_ARRAY(Types.INT()),
            Change.REFUSED,
        ),
        (Types.LIST(Types.INT()), Types.PRIMITIVE_ARRAY(Types.INT()), Change.REFUSED),
        (Types.TUPLE([Types.INT()]), Types.TUPLE([Types.LONG()]), Change.NONE),
        (Types.TUPLE([Types.INT()]), Types.TUPLE([Types.INT(), Types.INT()]), Change.REFUSED),
        (
            Types.MAP(Types.STRING(), Types.INT()),
            Types.MAP(Types.STRING(), Types.LONG()),
            Change.NONE,
        ),
        (PAIR, Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()]), Change.NONE),
        (PAIR, Types.ROW_NAMED(["b", "a"], [Types.STRING(), Types.INT()]), Change.REWRITTEN),
        (PAIR, Types.ROW_NAMED(["a"], [Types.INT()]), Change.REFUSED),
        (PAIR, Types.ROW_NAMED(["a", "c"], [Types.INT(), Types.STRING()]), Change.REFUSED),
        (PAIR, Types.TUPLE([Types.INT(), Types.STRING()]), Change.REFUSED),
    ],
)
def test_a_type_holds_another_or_not(old: object, new: object, change: Change) -> None:
    assert change_of(shape_of(old), shape_of(new)) is change


def test_rows_within_rows_and_lists_get_their_new_fields() -> None:
    wider = Types.ROW_NAMED(["a", "b", "c"], [Types.DOUBLE(), Types.STRING(), Types.INT()])
    old = Types.ROW_NAMED(["rows", "by"], [Types.LIST(PAIR), Types.MAP(Types.STRING(), PAIR)])
    new = Types.ROW_NAMED(["rows", "by"], [Types.LIST(wider), Types.MAP(Types.STRING(), wider)])
    assert change_of(old.shape(), new.shape()) is Change.REWRITTEN
    pair = {"a": 1, "b": "x"}
    value = old.coerced({"rows": [pair, None], "by": {"k": pair}})
    made = converter(old.shape(), new)(value)
    assert made == new.coerced({"rows": [pair, None], "by": {"k": pair}})
    assert type(made["rows"][0]["a"]) is float and made["by"]["k"]["c"] is None


@pytest.mark.parametrize(
    ("new", "value", "fits"),
    [
        (Types.DOUBLE(), 2**60 + 1, False),
        (Types.LIST(Types.DOUBLE()), [2**60 + 1], False),
        (Types.LIST(Types.DOUBLE()), [1.5, None, float("nan")], True),
        (Types.MAP(Types.STRING(), Types.DOUBLE()), {"a": 2**60 + 1}, False),
        (Types.ROW_NAMED(["a"], [Types.DOUBLE()]), {"a": 2**60 + 1}, False),
        (Types.DOUBLE(), 2**60, True),
    ],
)
def test_a_number_that_would_be_rounded_is_refused_wherever_it_stands(
    new: object, value: object, fits: bool
) -> None:
    if fits:
        converter(None, new)(value)
    else:
        with pytest.raises(TypeError, match="would become"):
            converter(None, new)(value)


@pytest.mark.parametrize(
    ("new", "value", "made"),
    [
        (Types.FLOAT(), 1.1, 1.1),
        (Types.LIST(Types.FLOAT()), [1.1, 2], [1.1, 2.0]),
        (Types.MAP(Types.STRING(), Types.FLOAT()), {"a": 1.1}, {"a": 1.1}),
        (Types.TUPLE([Types.FLOAT(), Types.INT()]), (1.1, 2), (1.1, 2)),
        (
            Types.ROW_NAMED(["a", "b"], [Types.FLOAT(), Types.INT()]),
            Row(a=1.1),
            Row(a=1.1, b=None),
        ),
    ],
)
def test_a_float_in_state_keeps_its_digits_when_its_type_changes(
    new: Any, value: Any, made: Any
) -> None:
    old = Types.ROW_NAMED(["a"], [Types.FLOAT()]).shape() if isinstance(value, Row) else None
    assert converter(old, new)(value) == made


def test_a_type_that_is_not_ours_goes_by_its_class() -> None:
    class Money:
        pass

    class Weight:
        pass

    assert shape_of(Money()) == shape_of(Money())
    assert change_of(shape_of(Money()), shape_of(Money())) is Change.NONE
    assert change_of(shape_of(Money()), shape_of(Weight())) is Change.REFUSED
    assert str(shape_of(Money())).endswith("Money")


@pytest.mark.parametrize(
    "type_info",
    [Types.INT(), PAIR, Types.TUPLE([Types.INT()]), Types.LIST(PAIR), Types.MAP(PAIR, PAIR)],
)
def test_a_shape_travels_and_reads_like_its_type(type_info: object) -> None:
    shape = shape_of(type_info)
    assert str(shape) == repr(type_info)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(shape), type=TypeShape) == shape
