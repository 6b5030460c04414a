"""Batches on the wire, and whether they fit the schema that is wanted."""

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, decode_element, encode_element
from headgate.base.errors import BatchUnfit
from headgate.core.columns.batches import (
    BatchSerializer,
    SchemaCheck,
    as_batches,
    check_names,
    column_of,
)
from tests.core.columns.kit import ROWS, batches_of


@given(rows=ROWS, size=st.integers(1, 20), timed=st.booleans())
def test_bundles_of_batches_come_back_as_they_went(
    rows: list[tuple[Any, ...]], size: int, timed: bool
) -> None:
    batches = batches_of(rows, size)
    times: list[int | None] | None = [*range(len(batches))] if timed else None
    serializer = pickle.loads(pickle.dumps(BatchSerializer()))
    prefix, body = encode_element(Bundle(batches, times), serializer)
    data = bytearray(body)
    found = decode_element(prefix[-1], memoryview(data), serializer)
    data[:] = bytes(len(data))  # the segment is used again
    assert isinstance(found, Bundle)
    assert found.records == batches
    assert found.timestamps == times


def test_slices_travel_without_the_rest() -> None:
    batch = pa.record_batch({"n": range(100_000)})
    body = BatchSerializer().dumps([batch.slice(50_000, 10)])
    assert len(body) < 2_000
    (found,) = BatchSerializer().loads(memoryview(body))
    assert found.column(0).to_pylist() == list(range(50_000, 50_010))


@pytest.mark.parametrize(
    "records",
    [
        [1, "two"],
        [pa.record_batch({"a": [1]}), pa.record_batch({"b": ["x"]})],
        [pa.record_batch({"a": [1]}), None],
    ],
)
def test_other_records_and_mixed_schemas_travel_too(records: list[Any]) -> None:
    serializer = BatchSerializer()
    assert serializer.loads(memoryview(serializer.dumps(records))) == records


@pytest.mark.parametrize("data", [b"", b"nonsense of a peer", b"batches\x00cut"])
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((ValueError, pa.ArrowException, OSError)):
        BatchSerializer().loads(memoryview(data))


def test_a_schema_that_is_not_declared_is_that_of_the_first_batch() -> None:
    check = SchemaCheck(None)
    first = pa.record_batch({"a": [1], "b": ["x"]})
    assert check.fit(first, "it") is first
    assert check.fit(pa.record_batch({"a": [2], "b": ["y"]}), "it").num_rows == 1
    with pytest.raises(BatchUnfit, match="it a batch with the columns a int64, and a int64, b str"):
        check.fit(pa.record_batch({"a": [2]}), "it")


def test_types_are_cast_where_nothing_is_lost() -> None:
    check = SchemaCheck(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    fitted = check.fit(pa.record_batch({"a": pa.array([1], pa.int8()), "b": ["x"]}), "it")
    assert fitted.schema.field("a").type == pa.int64()
    with pytest.raises(BatchUnfit, match="'a' of type double, and int64 was expected"):
        check.fit(pa.record_batch({"a": [1.5], "b": ["x"]}), "it")
    with pytest.raises(BatchUnfit, match="columns b string, a int64.*were expected; name them in"):
        check.fit(pa.record_batch({"b": ["x"], "a": [1]}), "it")


def test_nulls_do_not_fit_a_column_that_has_none() -> None:
    check = SchemaCheck(pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    with pytest.raises(BatchUnfit, match="nulls in column 'a'"):
        check.fit(pa.record_batch({"a": [1, None]}), "it returned")


def test_columns_are_found_by_name() -> None:
    batch = pa.record_batch([[1], [2], [3]], names=["a", "b", "b"])
    assert column_of(batch, "a").to_pylist() == [1]
    with pytest.raises(BatchUnfit, match="'b' is there more than once"):
        column_of(batch, "b")
    assert check_names(None, ["z"]) == ""
    assert check_names(batch.schema, ["a"]) == ""
    assert check_names(batch.schema, ["z"]).startswith("there is no column 'z'; there are a int64")
    many = pa.schema([(f"c{n}", pa.int8()) for n in range(20)])
    assert check_names(many, ["z"]).endswith("and 8 more")


def test_tables_of_all_kinds_are_batches() -> None:
    import pandas

    batch = pa.record_batch({"a": [1, 2]})
    halves = pa.concat_tables([pa.table({"a": [1]}), pa.table({"a": [2]})])
    for made in (batch, halves, pandas.DataFrame({"a": [1, 2]})):
        assert as_batches(made) == [batch]
    assert as_batches([1, 2]) is None
    assert as_batches("text") is None


@pytest.mark.parametrize(
    ("values", "before", "after"),
    [
        ([1e300], pa.float64(), pa.float32()),
        ([0.1], pa.float64(), pa.float32()),
        ([5], pa.int64(), pa.bool_()),
        (["12"], pa.string(), pa.int64()),
        ([12], pa.int64(), pa.string()),
        ([300], pa.int64(), pa.int8()),
    ],
)
def test_nothing_is_cast_that_would_be_another_value(
    values: list[Any], before: pa.DataType, after: pa.DataType
) -> None:
    check = SchemaCheck(pa.schema([("a", after)]))
    with pytest.raises(BatchUnfit, match=f"of type {before}, and {after} was expected"):
        check.fit(pa.record_batch({"a": pa.array(values, before)}), "it")


def test_what_fits_is_cast() -> None:
    check = SchemaCheck(pa.schema([("a", pa.float32()), ("b", pa.string()), ("c", pa.int64())]))
    words = pa.array(["x", "x", "y"]).dictionary_encode()
    floats = pa.array([0.5, None, float("nan")])
    fitted = check.fit(pa.record_batch({"a": floats, "b": words, "c": [None] * 3}), "it")
    assert fitted.column(1).to_pylist() == ["x", "x", "y"]
    assert fitted.column(0).to_pylist()[:2] == [0.5, None]


def test_slices_among_other_records_travel_without_the_rest() -> None:
    serializer = BatchSerializer()
    part = pa.record_batch({"n": range(100_000)}).slice(7, 2)
    for records in ([part, 1], ([part, 1], [3, None])):
        body = serializer.dumps(records)
        assert len(body) < 3_000
        assert serializer.loads(memoryview(body)) == records
