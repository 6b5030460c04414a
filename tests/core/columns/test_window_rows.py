"""Rows of a join: in memory, in state, by key group, and how much is read at a time."""

from typing import Any

import pyarrow as pa
import pytest

from headgate.base.errors import BatchUnfit
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.columns import window_rows
from headgate.core.columns.keys import KeyGroups
from headgate.core.columns.window_rows import WindowRows, joined
from headgate.core.state.keys import key_group
from headgate.functions.context import TaskInfo


def opened(max_parallelism: int = 128) -> tuple[WindowRows, KeyedContext]:
    task = TaskInfo("job", "join", 0, 1, max_parallelism)
    context = OperatorContext("join", task, lambda: 0)
    keyed = KeyedContext(context)
    rows = WindowRows((("k",), ("k",)), [None, None])
    rows.open(keyed, task, "rows in slices of 10 ms")
    return rows, keyed


def batch(*keys: int) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(keys, pa.int64())})


def keys_of(found: Any) -> list[list[int]]:
    return [sorted(key for each in side for key in each["k"].to_pylist()) for side in found]


def test_rows_are_read_from_memory_and_from_state_alike() -> None:
    rows, _ = opened()
    rows.add(0, 10, batch(1, 2, 3))
    rows.add(1, 20, batch(4))
    rows.write()
    assert rows.waiting_bytes == 0
    rows.add(0, 10, batch(5))
    assert rows.slices() == [10, 20]
    assert keys_of(rows.read(10, None)) == [[1, 2, 3, 5], []]
    assert keys_of(rows.take(20, None)) == [[], [4]]
    assert keys_of(rows.read(20, None)) == [[], []]
    rows.drop(10)
    assert rows.slices() == [] and rows.waiting_bytes == 0


def test_state_is_at_keys_of_the_groups_that_rows_belong_to() -> None:
    rows, keyed = opened(7)
    rows.add(0, 10, batch(*range(50)))
    rows.before_snapshot(99)
    groups = KeyGroups(["k"], 7)
    found = 0
    for namespace, key in keyed.backend.places(window_rows.ROWS):
        keyed.cursor.key, keyed.cursor.namespace = key, namespace
        for side, data in rows._rows.get():
            held = window_rows.read(data)
            assert set(groups.of_rows(held).tolist()) == {key_group(key, 7)}
            assert side == 0
            found += held.num_rows
    assert found == 50


def test_rows_leave_memory_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_rows, "MEMORY_BYTES", 100)
    rows, _ = opened()
    for number in range(40):
        rows.add(0, 10, batch(number))
        assert rows.waiting_bytes <= 100
    portions = rows.portions([10], 5)
    assert len(portions) > 1
    found = [key for groups, at in portions for key in keys_of(rows.read(10, groups))[0] if at == 5]
    assert sorted(found) == list(range(40)), "every row is in one part"


def test_a_group_without_rows_is_in_a_part_if_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_rows, "MEMORY_BYTES", 0)
    rows, _ = opened()
    rows.add(0, 10, batch(1))
    portions = rows.portions([10], 5, [0, 1, 2])
    assert {group for groups, _ in portions for group in groups or ()} >= {0, 1, 2}


def test_state_with_other_columns_is_refused_when_it_is_read() -> None:
    rows, _ = opened()
    rows.add(0, 10, batch(1))
    rows.write()
    rows.checks[0].fit(pa.record_batch({"k": [1], "z": [2]}), "it gave")
    with pytest.raises(BatchUnfit, match="its state holds a batch with the columns k int64, and k"):
        rows.read(10, None)


def test_batches_with_different_dictionaries_become_one() -> None:
    kind = pa.dictionary(pa.int32(), pa.string())
    parts = [pa.record_batch({"k": pa.array(values, kind)}) for values in (["a", "b"], ["b", "c"])]
    assert joined(parts)["k"].to_pylist() == ["a", "b", "b", "c"]
    assert joined(parts[:1]) is parts[0]
