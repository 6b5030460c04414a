"""Declared types on Spark: what crosses processes is what the type says."""

import datetime
from decimal import Decimal

import pytest

from headgate.base.errors import HeadgateError
from headgate.common import Row, Types
from tests.spark.programs import collected, environment

pytestmark = pytest.mark.usefixtures("spark")

VISIT = Types.ROW_NAMED(
    ["who", "day", "paid", "pages"],
    [Types.STRING(), Types.SQL_DATE(), Types.BIG_DEC(), Types.LIST(Types.INT())],
)
DAY = datetime.date(2024, 2, 29)


def test_typed_rows_travel_between_processes() -> None:
    visits = environment(2).from_collection(
        [(f"user{n % 3}", DAY, Decimal("1.50"), [n, None]) for n in range(300)], VISIT
    )
    counts = (
        visits.key_by(lambda row: row.who, Types.STRING())
        .reduce(lambda before, row: Row(before[0], before[1], before[2] + row[2], before[3]))
        .map(lambda row: [row.who, row.paid], Types.TUPLE([Types.STRING(), Types.BIG_DEC()]))
        .key_by(lambda pair: pair[0])
        .max(1)
    )
    found = collected(counts)
    assert found[-1] == ("user2", Decimal("150.00"))
    assert {type(pair) for pair in found} == {tuple}


def test_a_record_of_another_type_fails_the_job_and_names_the_operator() -> None:
    numbers = environment(2).from_collection([1, 2]).map(str, Types.INT()).name("spell")
    with pytest.raises(HeadgateError, match="spell") as caught:
        collected(numbers)
    assert "does not fit the declared type Types.INT()" in str(caught.value)
