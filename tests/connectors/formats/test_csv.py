"""Rows as CSV: dialects, arrays, None, and what is broken."""

import datetime
import pickle
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import PlanInvalid
from headgate.common import Row, Types
from headgate.common.serialization import CsvRowDeserializationSchema, CsvRowSerializationSchema

KIND = Types.ROW_NAMED(
    ["word", "count", "price", "ok", "day", "at", "tags", "raw"],
    [
        Types.STRING(),
        Types.INT(),
        Types.BIG_DEC(),
        Types.BOOLEAN(),
        Types.SQL_DATE(),
        Types.SQL_TIMESTAMP(),
        Types.LIST(Types.LONG()),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
    ],
)
ROW = Row(*KIND.get_field_names())(
    'say "hi", you',
    -5,
    Decimal("1.50"),
    True,
    datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 12, 30),
    [1, 2],
    b"\0\xff",
)
PAIR = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.INT()])


def reader(**settings: Any) -> CsvRowDeserializationSchema:
    builder = CsvRowDeserializationSchema.Builder(PAIR)
    for name, value in settings.items():
        getattr(builder, f"set_{name}")(value)
    return builder.build()


def writer(**settings: Any) -> CsvRowSerializationSchema:
    builder = CsvRowSerializationSchema.Builder(PAIR)
    for name, value in settings.items():
        getattr(builder, f"set_{name}")(value)
    return builder.build()


def test_a_row_is_written_as_a_line_and_comes_back() -> None:
    data = CsvRowSerializationSchema.Builder(KIND).build().serialize(ROW)
    assert data == b'"say ""hi"", you",-5,1.50,true,2024-02-29,2024-02-29 12:30:00,1;2,AP8=\n'
    schema = pickle.loads(pickle.dumps(CsvRowDeserializationSchema.Builder(KIND).build()))
    assert schema.deserialize(data) == ROW
    assert schema.get_produced_type() == KIND


@given(
    st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.integers(-9, 9))
)
def test_any_text_comes_back(pair: tuple[str, int]) -> None:
    row = Row("word", "count")(*pair)
    assert reader().deserialize(writer().serialize(row)) == row


def test_dialects_are_those_of_the_builder() -> None:
    semicolons = writer(field_delimiter=";", quote_character="'", line_delimiter="")
    data = semicolons.serialize(("a;b", 1))
    assert data == b"'a;b';1"
    twin = reader(field_delimiter=";", quote_character="'").deserialize(data)
    assert twin == Row("word", "count")("a;b", 1)
    escaped = (
        CsvRowSerializationSchema.Builder(PAIR)
        .disable_quote_character()
        .set_escape_character("\\")
        .build()
    )
    assert escaped.serialize(("a,b", 1)) == b"a\\,b,1\n"
    assert reader(escape_character="\\").deserialize(b"a\\,b,1\n") == Row("word", "count")("a,b", 1)


def test_none_has_a_literal_and_else_is_empty() -> None:
    assert writer(null_literal="\\N").serialize((None, None)) == b"\\N,\\N\n"
    assert list(reader(null_literal="\\N").deserialize(b"\\N,\\N") or ()) == [None, None]
    assert writer().serialize((None, None)) == b",\n"
    assert list(reader().deserialize(b",") or ()) == ["", None]


def test_arrays_have_a_delimiter_of_their_own() -> None:
    kind = Types.ROW_NAMED(["tags"], [Types.BASIC_ARRAY(Types.INT())])
    builder = CsvRowSerializationSchema.Builder(kind).set_array_element_delimiter("|")
    assert builder.build().serialize(([1, None, 2],)) == b"1||2\n"
    schema = CsvRowDeserializationSchema.Builder(kind).set_array_element_delimiter("|").build()
    assert schema.deserialize(b"1||2") == Row(tags=[1, None, 2])


def test_comments_are_left_out_if_allowed() -> None:
    assert reader(allow_comments=True).flat_map(b"# a,1") == []
    assert reader().deserialize(b"# a,1") == Row("word", "count")("# a", 1)


@pytest.mark.parametrize(
    "message", [b"a", b"a,1,2", b"a,x", b"a,2147483648", b'"a,1', b"", b"a,1\nb,2", b"\xff,1"]
)
def test_what_cannot_be_read_is_told_or_left_out(message: bytes) -> None:
    with pytest.raises(ValueError, match="cannot read b.*; mend the input"):
        reader().deserialize(message)
    assert reader(ignore_parse_errors=True).flat_map(message) == []


def test_what_has_no_form_in_csv_is_refused() -> None:
    with pytest.raises(PlanInvalid, match="'inner' is a Types.ROW_NAMED"):
        CsvRowDeserializationSchema.Builder(Types.ROW_NAMED(["inner"], [PAIR]))
    with pytest.raises(PlanInvalid, match="give the rows' type"):
        CsvRowSerializationSchema.Builder(Types.STRING())
    with pytest.raises(PlanInvalid, match="give one character"):
        CsvRowSerializationSchema.Builder(PAIR).set_field_delimiter("||")
    bare = CsvRowSerializationSchema.Builder(PAIR).disable_quote_character().build()
    with pytest.raises(ValueError, match="set a quote or an escape character"):
        bare.serialize(("a,b", 1))
