"""Arrow tables as sources: ranges of rows that can be read on."""

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import PlanInvalid
from headgate.connectors.arrow import table_source
from headgate.connectors.arrow.table_source import arrow_source
from tests.connectors.kit import task_context


@given(rows=st.integers(0, 50), parallelism=st.integers(1, 7), stop=st.integers(0, 5))
def test_each_row_is_read_once_whatever_the_parallelism_and_where_it_was_left(
    rows: int, parallelism: int, stop: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_source, "BATCH_ROWS", 4)
        source = pickle.loads(pickle.dumps(arrow_source(pa.table({"n": range(rows)}))))
        found: list[int] = []
        for split in source.splits(parallelism):
            reader = source.open(split, None, task_context())
            for _ in range(stop):
                found += [n for batch in reader.poll(9) or [] for n in batch["n"].to_pylist()]
            reader = source.open(split, reader.position(), task_context())
            while (batches := reader.poll(9)) is not None:
                found += [n for batch in batches for n in batch["n"].to_pylist()]
                assert max(batch.num_rows for batch in batches) <= 4
            assert reader.lag().records == 0
    assert found == list(range(rows))


def test_batches_and_lists_of_them_are_tables_too() -> None:
    batch = pa.record_batch({"n": [1]})
    for given_table in (batch, [batch, batch], (batch,), pa.table({"n": [1]})):
        assert arrow_source(given_table).table.schema == batch.schema
    with pytest.raises(PlanInvalid, match="batches that do not fit together"):
        arrow_source([batch, pa.record_batch({"m": ["x"]})])


def test_a_slice_travels_without_the_rest_of_its_table() -> None:
    source = arrow_source(pa.table({"n": range(100_000)}).slice(5, 10))
    data = pickle.dumps(source)
    assert len(data) < 3_000
    assert pickle.loads(data).table["n"].to_pylist() == list(range(5, 15))
