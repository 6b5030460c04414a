"""Rows as JSON: names, nested rows, dates, what is missing and what is broken."""

import datetime
import json
import pickle
from decimal import Decimal
from typing import Any

import pytest

from headgate.api.types.types import TypeInformation
from headgate.base.errors import PlanInvalid
from headgate.common import Row, Types
from headgate.common.serialization import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

POINT = Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()])
KIND = Types.ROW_NAMED(
    ["word", "at", "price", "points", "by name", "raw", "pair", "rate"],
    [
        Types.STRING(),
        Types.SQL_TIMESTAMP(),
        Types.BIG_DEC(),
        Types.LIST(POINT),
        Types.MAP(Types.STRING(), POINT),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.TUPLE([Types.STRING(), Types.LONG()]),
        Types.FLOAT(),
    ],
)
POINT_1 = Row("x", "y")(1, 2)
ROW = Row(*KIND.get_field_names())(
    "héllo",
    datetime.datetime(2024, 2, 29, 12),
    Decimal("1.10"),
    [POINT_1, None],
    {"a": POINT_1},
    b"\0\xff",
    ("t", 2**40),
    0.5,
)


def reads(kind: TypeInformation, **settings: bool) -> JsonRowDeserializationSchema:
    builder = JsonRowDeserializationSchema.builder().type_info(kind)
    for name in settings:
        getattr(builder, name)()
    return builder.build()


def writes(kind: TypeInformation) -> JsonRowSerializationSchema:
    return JsonRowSerializationSchema.builder().with_type_info(kind).build()


def test_a_row_is_written_as_an_object_and_comes_back() -> None:
    data = writes(KIND).serialize(ROW)
    found = json.loads(data)
    assert found["points"] == [{"x": 1, "y": 2}, None] and found["price"] == 1.1
    schema = pickle.loads(pickle.dumps(reads(KIND)))
    assert schema.deserialize(data) == ROW
    assert schema.get_produced_type() == KIND


def test_tuples_and_dicts_are_written_like_rows() -> None:
    assert writes(POINT).serialize((1, 2)) == writes(POINT).serialize({"x": 1, "y": 2})
    with pytest.raises(TypeError, match="field 'y' is 'z'"):
        writes(POINT).serialize((1, "z"))


def test_what_is_missing_is_none_and_what_is_unknown_is_skipped() -> None:
    assert reads(POINT).deserialize(b'{"y": 5, "z": [1]}') == Row("x", "y")(None, 5)
    assert reads(POINT).deserialize(b'{"x": null}') == Row("x", "y")(None, None)
    with pytest.raises(ValueError, match="missing required field `x`"):
        reads(POINT, fail_on_missing_field=True).deserialize(b'{"y": 5}')


def test_numbers_in_texts_and_utc_are_understood() -> None:
    assert reads(POINT).deserialize(b'{"x": "7"}') == Row("x", "y")(7, None)
    kind = Types.ROW_NAMED(["at"], [Types.SQL_TIMESTAMP()])
    found = reads(kind).deserialize(b'{"at": "2024-02-29T12:00:00Z"}')
    assert found == Row(at=datetime.datetime(2024, 2, 29, 12))


@pytest.mark.parametrize(
    "message", [b"", b"{", b"[1]", b'{"x": "seven"}', b'{"x": 2147483648}', b"\xff", b'{"x": 1.5}']
)
def test_what_cannot_be_read_is_told_or_left_out(message: bytes) -> None:
    with pytest.raises(ValueError, match="cannot read b.*; mend the input"):
        reads(POINT).deserialize(message)
    lenient = reads(POINT, ignore_parse_errors=True)
    assert lenient.deserialize(message) is None
    assert lenient.flat_map(message) == []
    assert lenient.flat_map(b'{"x": 1, "y": 2}') == [POINT_1]


def test_only_rows_have_a_form_in_json() -> None:
    builders: list[Any] = [
        JsonRowDeserializationSchema.builder(),
        JsonRowDeserializationSchema.builder().type_info(Types.INT()),
        JsonRowSerializationSchema.builder(),
    ]
    for builder in builders:
        with pytest.raises(PlanInvalid, match=r"Types\.ROW_NAMED"):
            builder.build()
    with pytest.raises(PlanInvalid, match="no form in JSON"):
        reads(Types.ROW([Types.PICKLED_BYTE_ARRAY()]))


def test_a_json_schema_says_the_type() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": ["string", "null"]},
            "born": {"type": "string", "format": "date"},
            "photo": {"type": "string", "contentEncoding": "base64"},
            "tags": {"type": "array", "items": {"type": "integer"}},
            "home": {"type": "object", "properties": {"rent": {"type": "number"}}},
        },
    }
    built = JsonRowDeserializationSchema.builder().json_schema(json.dumps(schema)).build()
    assert built.get_produced_type() == Types.ROW_NAMED(
        ["name", "born", "photo", "tags", "home"],
        [
            Types.STRING(),
            Types.SQL_DATE(),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.OBJECT_ARRAY(Types.BIG_INT()),
            Types.ROW_NAMED(["rent"], [Types.BIG_DEC()]),
        ],
    )
    row = built.deserialize(b'{"home": {"rent": 1.5}, "born": "1815-12-10", "tags": [1]}')
    assert row is not None
    assert (row.home.rent, row.born, row.tags) == (Decimal("1.5"), datetime.date(1815, 12, 10), [1])


@pytest.mark.parametrize(
    "schema",
    ["{", '{"type": "string"}', '{"type": "object"}', "[]",
     '{"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}'],
)  # fmt: skip
def test_a_json_schema_that_says_no_type_is_refused(schema: str) -> None:
    with pytest.raises(PlanInvalid, match="the JSON schema"):
        JsonRowDeserializationSchema.builder().json_schema(schema)
