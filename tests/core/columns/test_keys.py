"""Key groups of columns are those of the same keys in records."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import BatchUnfit
from headgate.core.columns import keys
from headgate.core.columns.keys import KeyGroups, encode, is_key_type
from headgate.core.state.keys import key_group
from tests.core.columns.kit import KEY_COLUMNS


@pytest.mark.parametrize("kind", KEY_COLUMNS)
@given(data=st.data(), max_parallelism=st.sampled_from([1, 7, 128, 32768]))
def test_a_row_has_the_group_of_its_key_in_a_record(
    kind: str, data: st.DataObject, max_parallelism: int
) -> None:
    arrow, values = KEY_COLUMNS[kind]
    column = pa.array(data.draw(st.lists(values, max_size=20)), arrow)
    batch = pa.record_batch({"k": column})
    groups = KeyGroups(["k"], max_parallelism)
    expected = [key_group(key, max_parallelism) for key in column.to_pylist()]
    assert groups.of_rows(batch).tolist() == expected
    assert groups.of_rows(batch).tolist() == expected, "also those that it remembers"


@given(st.lists(st.tuples(st.text(max_size=2), st.integers(-5, 5), st.booleans()), max_size=30))
def test_several_columns_are_a_tuple(rows: list[tuple[str, int, bool]]) -> None:
    names = ["a", "b", "c"]
    columns = list(zip(*rows, strict=True)) or [[], [], []]
    types = [pa.string(), pa.int64(), pa.bool_()]
    batch = pa.record_batch(
        [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)], names=names
    )
    assert KeyGroups(names, 128).of_rows(batch).tolist() == [key_group(row, 128) for row in rows]
    codes, found = encode(batch.columns)
    assert [found[code] for code in codes] == rows
    assert len(set(found)) == len(found)


def test_what_it_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MEMO_KEYS", 10)
    groups = KeyGroups(["k"], 128)
    for start in range(0, 100, 8):
        words = [f"w{number}" for number in range(start, start + 8)]
        found = groups.of_rows(pa.record_batch({"k": words})).tolist()
        assert found == [key_group(word, 128) for word in words]
        assert len(groups._memo) <= 10


def test_nulls_are_no_keys() -> None:
    batch = pa.record_batch({"k": ["a", None]})
    with pytest.raises(BatchUnfit, match="column 'k' has 1 nulls in a batch of 2 rows.*filter"):
        KeyGroups(["k"], 128).of_rows(batch)


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.timestamp("ns"), pa.list_(pa.int64()), pa.struct([("a", pa.int8())])]
)
def test_other_types_are_no_keys(kind: pa.DataType) -> None:
    assert not is_key_type(kind)
    batch = pa.record_batch({"k": pa.array([], kind)})
    with pytest.raises(BatchUnfit, match="cannot be a key"):
        KeyGroups(["k"], 128).of_rows(batch)


def test_slices_of_a_batch_are_seen_alone() -> None:
    batch = pa.record_batch({"k": np.arange(100)}).slice(40, 5)
    expected = [key_group(key, 64) for key in range(40, 45)]
    assert KeyGroups(["k"], 64).of_rows(batch).tolist() == expected
