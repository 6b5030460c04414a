"""Schemas of texts, and what all schemas share."""

import pickle

import pytest

from headgate.base.errors import PlanInvalid
from headgate.common import (
    ByteArraySchema,
    Row,
    RowFieldExtractorSchema,
    SimpleStringSchema,
    Types,
)


def test_texts_become_bytes_and_back_in_their_encoding() -> None:
    schema = SimpleStringSchema("latin-1")
    assert schema.serialize("é") == b"\xe9"
    assert schema.deserialize(b"\xe9") == "é"
    assert SimpleStringSchema().deserialize("é".encode()) == "é"
    assert pickle.loads(pickle.dumps(schema)).charset == "latin-1"
    assert schema.get_produced_type() == Types.STRING()


def test_only_texts_are_written_and_only_known_encodings_taken() -> None:
    with pytest.raises(TypeError, match="given 5 of type int; map the records to str"):
        SimpleStringSchema().serialize(5)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="'klingon'; name one"):
        SimpleStringSchema("klingon")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        SimpleStringSchema().deserialize(b"\xff")


def test_bytes_stay_as_they_are() -> None:
    schema = ByteArraySchema()
    assert schema.serialize(bytearray(b"a")) == b"a"
    assert schema.deserialize(b"a") == b"a"
    assert schema.get_produced_type() == Types.PRIMITIVE_ARRAY(Types.BYTE())
    with pytest.raises(TypeError, match="given 'a' of type str; map the records to bytes"):
        schema.serialize("a")  # type: ignore[arg-type]


def test_the_bytes_of_one_field_of_a_row_are_written() -> None:
    schema = RowFieldExtractorSchema(1)
    assert schema.serialize(Row("a", b"b")) == b"b"
    for row in (Row("a", "b"), Row("a"), Row("a", None)):
        with pytest.raises(TypeError, match="field 1 of .* holds no bytes"):
            schema.serialize(row)
    with pytest.raises(PlanInvalid, match="field_index is -1; give a whole number from 0 on"):
        RowFieldExtractorSchema(-1)
