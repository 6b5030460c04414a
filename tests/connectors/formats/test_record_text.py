"""Values of types as Java writes them: the texts are those that PyFlink 2.3 has printed."""

import datetime
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.types.types import TypeInformation
from headgate.common import Instant, Row, RowKind, Types
from headgate.connectors.formats.record_text import double_text, float_text, java_text

DOUBLES = {
    1.0: "1.0",
    1e10: "1.0E10",
    1e7: "1.0E7",
    9999999.0: "9999999.0",
    12345678.9: "1.23456789E7",
    1e-3: "0.001",
    9.99e-4: "9.99E-4",
    0.1: "0.1",
    1.1: "1.1",
    float("inf"): "Infinity",
    float("-inf"): "-Infinity",
    1e21: "1.0E21",
    1.7976931348623157e308: "1.7976931348623157E308",
    5e-324: "4.9E-324",
    123456789012345680.0: "1.2345678901234568E17",
    2e-3: "0.002",
    1 / 3: "0.3333333333333333",
    100.0: "100.0",
    1e16: "1.0E16",
    4.35: "4.35",
    2e-10: "2.0E-10",
    2.2250738585072014e-308: "2.2250738585072014E-308",
}
FLOATS = {
    1.0: "1.0",
    1.1: "1.1",
    0.1: "0.1",
    1e10: "1.0E10",
    1e7: "1.0E7",
    16777216.0: "1.6777216E7",
    1e-3: "0.001",
    9e-4: "9.0E-4",
    3.4028234663852886e38: "3.4028235E38",
    1e-45: "1.4E-45",
    float("inf"): "Infinity",
    1 / 3: "0.33333334",
    33554432.0: "3.3554432E7",
    2e-3: "0.002",
    123456.0: "123456.0",
}
DEEP = Types.ROW(
    [
        Types.STRING(),
        Types.BOOLEAN(),
        Types.DOUBLE(),
        Types.LIST(Types.STRING()),
        Types.MAP(Types.STRING(), Types.FLOAT()),
        Types.ROW([Types.INT()]),
        Types.STRING(),
        Types.TUPLE([Types.INT(), Types.STRING()]),
        Types.PRIMITIVE_ARRAY(Types.INT()),
        Types.SQL_TIMESTAMP(),
    ]
)
MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5)
OTHERS: list[tuple[TypeInformation, Any, str]] = [
    (Types.BOOLEAN(), True, "true"),
    (Types.BOOLEAN(), False, "false"),
    (Types.STRING(), "x'y", "x'y"),
    (Types.BYTE(), -128, "-128"),
    (Types.LONG(), 2**62, "4611686018427387904"),
    (Types.BIG_DEC(), Decimal("1.10"), "1.10"),
    (Types.BIG_DEC(), Decimal("1E+5"), "1E+5"),
    (Types.BIG_DEC(), Decimal("0.0000001"), "1E-7"),
    (Types.INSTANT(), Instant(0, 0), "1970-01-01T00:00:00Z"),
    (Types.INSTANT(), Instant(1, 500_000_000), "1970-01-01T00:00:01.500Z"),
    (Types.INSTANT(), Instant(1, 1000), "1970-01-01T00:00:01.000001Z"),
    (Types.SQL_DATE(), datetime.date(2024, 1, 2), "2024-01-02"),
    (Types.SQL_TIME(), datetime.time(1, 2, 3), "01:02:03"),
    (Types.SQL_TIME(), datetime.time(1, 2, 3, 4000), "01:02:03"),
    (Types.SQL_TIMESTAMP(), MOMENT, "2024-01-02 03:04:05.0"),
    (Types.SQL_TIMESTAMP(), MOMENT.replace(microsecond=678000), "2024-01-02 03:04:05.678"),
    (Types.SQL_TIMESTAMP(), datetime.datetime(2024, 1, 2), "2024-01-02 00:00:00.0"),
    (
        Types.TUPLE([Types.BOOLEAN(), Types.DOUBLE(), Types.LIST(Types.STRING())]),
        (True, 1e10, ["a", "b"]),
        "(true,1.0E10,[a, b])",
    ),
    (Types.LIST(Types.STRING()), [], "[]"),
    (Types.LIST(Types.ROW([Types.INT(), Types.BOOLEAN()])), [Row(1, True)], "[+I[1, true]]"),
    (Types.MAP(Types.STRING(), Types.INT()), {"k": 1}, "{k=1}"),
    (Types.MAP(Types.STRING(), Types.INT()), {}, "{}"),
    (Types.MAP(Types.STRING(), Types.INT()), {"a": None}, "{a=null}"),
    (Types.ROW([Types.STRING()]), Row.of_kind(RowKind.DELETE, "a"), "-D[a]"),
    (
        DEEP,
        Row("a", True, 1e10, ["p", "q"], {"k": 1.1}, Row(7), None, (1, "t"), [1, 2], MOMENT),
        "+I[a, true, 1.0E10, [p, q], {k=1.1}, +I[7], null, (1,t), [1, 2], 2024-01-02 03:04:05.0]",
    ),
]


@pytest.mark.parametrize(("value", "text"), DOUBLES.items())
def test_numbers_of_64_bits(value: float, text: str) -> None:
    assert java_text(Types.DOUBLE())(value) == text
    negative = text[1:] if text.startswith("-") else f"-{text}"
    assert java_text(Types.DOUBLE())(-value) == negative


@pytest.mark.parametrize(("value", "text"), FLOATS.items())
def test_numbers_of_32_bits(value: float, text: str) -> None:
    assert java_text(Types.FLOAT())(Types.FLOAT().coerced(value)) == text


def test_zero_has_a_sign_and_no_number_has_a_name() -> None:
    for text in (double_text, float_text):
        assert [text(0.0), text(-0.0), text(float("nan"))] == ["0.0", "-0.0", "NaN"]


@pytest.mark.parametrize(("kind", "value", "text"), OTHERS)
def test_values_of_each_type(kind: TypeInformation, value: Any, text: str) -> None:
    assert java_text(kind)(kind.coerced(value)) == text


def test_arrays_are_written_like_lists_where_java_writes_their_place() -> None:
    for kind in (Types.PRIMITIVE_ARRAY, Types.BASIC_ARRAY, Types.OBJECT_ARRAY):
        assert java_text(kind(Types.INT()))([1, 2]) == "[1, 2]"
    assert java_text(Types.PRIMITIVE_ARRAY(Types.BYTE()))(b"a\xff") == "[97, -1]"


def test_what_java_cannot_know_is_written_as_python_does() -> None:
    kind = Types.TUPLE([Types.PICKLED_BYTE_ARRAY(), Types.PICKLED_BYTE_ARRAY()])
    assert java_text(kind)(({"k": 1}, None)) == "({'k': 1},null)"
    far = Instant(10**12)
    assert java_text(Types.INSTANT())(far) == str(far)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_text_of_64_bits_reads_as_the_same_number(value: float) -> None:
    assert float(double_text(value)) == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_text_of_32_bits_reads_as_the_same_number(value: float) -> None:
    assert struct.pack("<f", float(float_text(value))) == struct.pack("<f", value)
    assert len(float_text(value).partition("E")[0].replace(".", "").strip("-0")) <= 9
