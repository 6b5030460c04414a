"""The key sorter, in memory and beyond."""

from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MIN_WATERMARK_MS, Bundle
from headgate.core.state.keys import freeze
from headgate.core.state.sorting import KeySorter
from headgate.host.files.partition_files import PartitionFiles


@pytest.fixture
def room() -> Iterator[PartitionFiles]:
    made = PartitionFiles()
    yield made
    made.close()


def sort(
    sorter: KeySorter, bundles: list[tuple[int, list[tuple[Any, Any, int | None]]]]
) -> list[tuple[Any, list[tuple[int, Any]]]]:
    """Bundles of (input, [(key, record, time)]) in, keys with (input, record) out."""
    for number, rows in bundles:
        times = None if any(time is None for *_, time in rows) else [time for *_, time in rows]
        bundle = Bundle([record for _, record, _ in rows], times)
        sorter.add([freeze(key) for key, *_ in rows], bundle, number)
    found = [(key, [(row.number, row.record) for row in rows]) for key, rows in sorter.groups()]
    sorter.close()
    return found


def test_records_come_key_by_key_in_the_order_of_their_times() -> None:
    found = sort(KeySorter(), [(0, [("b", 1, 5), ("a", 2, 9), ("b", 3, 4)]), (1, [("a", 4, 7)])])
    assert dict(found) == {"a": [(1, 4), (0, 2)], "b": [(0, 3), (0, 1)]}


def test_records_of_the_same_time_or_without_one_keep_their_order() -> None:
    found = sort(KeySorter(), [(0, [("a", 3, None), ("a", 1, None)]), (0, [("a", 2, None)])])
    assert found == [("a", [(0, 3), (0, 1), (0, 2)])]


def test_a_record_without_a_time_has_the_smallest_of_all() -> None:
    sorter = KeySorter()
    sorter.add(["a"], Bundle(["x"]), 0)
    ((_, rows),) = sorter.groups()
    assert next(rows).time_ms == MIN_WATERMARK_MS


def test_beyond_the_limit_sorted_runs_go_to_disk_and_nothing_is_lost(room: PartitionFiles) -> None:
    sorter = KeySorter(room, limit_bytes=20_000)
    bundles: list[tuple[int, list[tuple[Any, Any, int | None]]]] = [
        (number % 2, [(at * 7 % 13, (number, at), at % 5) for at in range(50)])
        for number in range(40)
    ]
    for number, rows in bundles:
        sorter.add(
            [key for key, *_ in rows],
            Bundle([r for _, r, _ in rows], [t for *_, t in rows]),
            number,
        )
    assert sorter.runs > 5
    assert len(list(room.path.iterdir())) == sorter.runs
    seen = 0
    keys = []
    for key, group in sorter.groups():
        rows = list(group)
        assert rows == sorted(rows)
        assert {row.record[1] * 7 % 13 for row in rows} == {key}
        keys.append(key)
        seen += len(rows)
    assert sorted(keys) == list(range(13))
    assert seen == 2000
    sorter.close()
    assert list(room.path.iterdir()) == []


def test_a_reader_may_stop_in_the_middle(room: PartitionFiles) -> None:
    sorter = KeySorter(room, limit_bytes=1000)
    for number in range(10):
        sorter.add([number] * 9, Bundle(list(range(9))), 0)
    groups = sorter.groups()
    next(groups)
    groups.close()  # type: ignore[attr-defined]
    sorter.close()
    sorter.close()
    assert list(room.path.iterdir()) == []


def test_keys_that_are_equal_meet_also_on_disk(room: PartitionFiles) -> None:
    sorter = KeySorter(room, limit_bytes=0)
    found = sort(sorter, [(0, [(1, "a", None)]), (0, [(1.0, "b", None)]), (0, [(True, "c", None)])])
    assert [rows for _, rows in found] == [[(0, "a"), (0, "b"), (0, "c")]]


@pytest.mark.parametrize("limit", [0, 400, 1 << 30])
def test_nothing_is_lost_of_keys_that_are_not_equal_but_have_the_same_bytes(
    room: PartitionFiles, limit: int
) -> None:
    keys = [Decimal("NaN"), Decimal("NaN"), {1}, frozenset({1}), b"x", bytearray(b"x")]
    sorter = KeySorter(room, limit)
    found = sort(sorter, [(0, [(key, at, None) for at, key in enumerate(keys)])] * 3)
    assert sorted(record for _, rows in found for _, record in rows) == sorted([*range(6)] * 3)


def test_keys_need_not_be_hashable_and_records_not_comparable(room: PartitionFiles) -> None:
    for limit in (0, 1 << 30):
        found = sort(
            KeySorter(room, limit),
            [(0, [([1, 2], {"x": 1}, 3), ({"a": 1}, {"x": 2}, 3), ([1, 2], {"y": 1}, 3)])] * 2,
        )
        assert [(repr(key), len(rows)) for key, rows in found] in (
            [("Frozen([1, 2])", 4), ("Frozen({'a': 1})", 2)],
            [("Frozen({'a': 1})", 2), ("Frozen([1, 2])", 4)],
        )


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["a", "b", None, 1, (1, 2), 2.5]), st.integers(), st.integers(0, 9)
            ),
            max_size=8,
        ),
        max_size=8,
    ),
    st.sampled_from([0, 600, 3000, 1 << 30]),
)
def test_any_batch_comes_out_as_a_plain_sort_has_it(
    bundles: list[list[tuple[Any, int, int]]], limit: int
) -> None:
    room = PartitionFiles()
    expected: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for rows in bundles:
        for key, record, time in rows:
            expected[key].append((time, record))
    found = sort(KeySorter(room, limit), [(0, list(rows)) for rows in bundles])
    room.close()
    assert len(found) == len(expected)
    assert {key: [record for _, record in rows] for key, rows in found} == {
        key: [record for _, record in sorted(rows, key=lambda row: row[0])]
        for key, rows in expected.items()
    }
