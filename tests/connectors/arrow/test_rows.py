"""Arrow batches become rows: names, nested values, nulls."""

import datetime
import decimal
from typing import Any

import pyarrow as pa

from headgate.api.row import Row, named_row
from headgate.connectors.arrow.columns import RowMaker

POINT = pa.struct([("x", pa.int64()), ("y", pa.int64())])


def row_of(kind: pa.DataType, value: Any) -> Any:
    (row,) = RowMaker(["v"]).rows(pa.record_batch([pa.array([value], kind)], ["c0"]))
    return row.v


def test_rows_have_the_names_that_were_given() -> None:
    batch = pa.record_batch([[1, 2], ["a", None]], ["c0", "c1"])
    rows = RowMaker(["odd.name", "b"]).rows(batch)
    assert rows == [named_row(["odd.name", "b"], [1, "a"]), named_row(["odd.name", "b"], [2, None])]
    assert rows[0]["odd.name"] == 1


def test_doubled_names_are_reached_by_position() -> None:
    (row,) = RowMaker(["id", "id"]).rows(pa.record_batch([[1], [2]], ["c0", "c1"]))
    assert list(row) == [1, 2]


def test_structs_become_rows_at_every_depth() -> None:
    point = Row(x=1, y=2)
    assert row_of(POINT, {"x": 1, "y": 2}) == point
    assert row_of(pa.list_(POINT), [{"x": 1, "y": 2}, None]) == [point, None]
    assert row_of(pa.map_(pa.string(), POINT), {"p": {"x": 1, "y": 2}}) == {"p": point}
    assert row_of(pa.map_(POINT, pa.int64()), [({"x": 1, "y": 2}, 3)]) == {point: 3}
    inner = pa.struct([("points", pa.list_(POINT))])
    assert row_of(inner, {"points": [{"x": 1, "y": 2}]}) == Row(points=[point])


def test_maps_become_dicts_and_null_stays_none() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    assert row_of(kind, {"a": 1, "b": None}) == {"a": 1, "b": None}
    assert row_of(pa.list_(kind), [{"a": 1}, None]) == [{"a": 1}, None]
    for column in (kind, POINT, pa.list_(POINT), pa.list_(kind), pa.map_(pa.string(), POINT)):
        assert row_of(column, None) is None


def test_timestamps_with_a_zone_know_it() -> None:
    instant = datetime.datetime(2024, 3, 31, 1, 30, tzinfo=datetime.timezone.utc)
    found = row_of(pa.timestamp("us", tz="Europe/Berlin"), instant)
    assert found == instant
    assert found.hour == 3
    local = datetime.datetime(2024, 3, 31, 2, 30)
    assert row_of(pa.timestamp("us"), local) == local


def test_numbers_texts_and_bytes_are_pythons_own() -> None:
    assert row_of(pa.decimal128(10, 2), decimal.Decimal("1.50")) == decimal.Decimal("1.50")
    assert row_of(pa.binary(), b"\x00\xff") == b"\x00\xff"
    assert row_of(pa.date32(), datetime.date(2024, 2, 29)) == datetime.date(2024, 2, 29)
    assert row_of(pa.duration("us"), datetime.timedelta(3)) == datetime.timedelta(3)


def test_moments_at_which_a_clock_shows_the_same_are_different_keys() -> None:
    """In Python two datetimes of a zone are equal if its clock shows the same."""
    change = 1_698_541_200  # the clocks of Berlin go back, from 3 to 2
    seconds = [change + minutes * 60 for minutes in range(-90, 90, 10)]
    kind = pa.timestamp("s", tz="Europe/Berlin")
    moments = pa.array([*seconds, None], kind)
    lists = pa.array([[moment] for moment in seconds] + [None], pa.list_(kind))
    rows = RowMaker(["at", "all"]).rows(pa.record_batch([moments, lists], ["at", "all"]))
    keys = [row["at"] for row in rows[:-1]]
    assert len(set(keys)) == len(seconds)
    assert [key.timestamp() for key in keys] == seconds
    assert [key.hour for key in keys[6:9]] == [2, 2, 2] == [key.hour for key in keys[9:12]]
    assert [row["all"] for row in rows[:-1]] == [[key] for key in keys]
    assert (rows[-1]["at"], rows[-1]["all"]) == (None, None)
