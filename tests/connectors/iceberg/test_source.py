"""Iceberg tables are read: one snapshot, and what later ones append; a catalog on SQLite."""

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.api.row import Row
from headgate.base.errors import PathUnusable, PlanInvalid, TableUnfit
from headgate.functions.source import SplitEnumerator
from tests.connectors.kit import read_some, read_to_end, task_context

pytest.importorskip("pyiceberg")

from pyiceberg.types import DoubleType

from headgate.connectors.iceberg.source import IcebergSource
from tests.connectors.iceberg import kit


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return kit.make_table(tmp_path)


def source_of(place: Path, **options: Any) -> IcebergSource:
    return IcebergSource(kit.settings(place), kit.NAME, **options)


def add(place: Path, *numbers: int) -> None:
    rows = pa.table({"n": pa.array(numbers, pa.int64()), "word": [f"w{n}" for n in numbers]})
    with kit.table(place) as table:
        table.append(rows)


def read(source: IcebergSource, splits: Any) -> list[Row]:
    return [
        row for split in splits for row in read_to_end(source.open(split, None, task_context()))
    ]


def numbers(source: IcebergSource, splits: Any) -> list[int]:
    return sorted(row["n"] for row in read(source, splits))


def found_once(source: IcebergSource) -> list[Any]:
    enumerator = source.create_enumerator(1, None)
    try:
        return list(enumerator.discover())
    finally:
        enumerator.close()


def again(source: IcebergSource, enumerator: SplitEnumerator) -> SplitEnumerator:
    """The enumerator of the next run."""
    enumerator.close()
    return source.create_enumerator(1, pickle.loads(pickle.dumps(enumerator.position())))


def test_a_table_is_read_as_of_a_snapshot(place: Path) -> None:
    assert found_once(source_of(place)) == []
    add(place, 1, 2)
    with kit.table(place) as table:
        first = table.current_snapshot().snapshot_id
    add(place, 3)
    newest = source_of(place)
    assert newest.bounded
    found = sorted(read(newest, found_once(newest)), key=str)
    assert found == [Row(n=n, word=f"w{n}") for n in (1, 2, 3)]
    old = source_of(place, snapshot=first)
    assert numbers(old, found_once(old)) == [1, 2]
    with pytest.raises(TableUnfit, match="has no snapshot 5, or it has expired"):
        found_once(source_of(place, snapshot=5))


def test_a_reader_goes_on_from_its_position(place: Path) -> None:
    add(place, *range(50))
    source = source_of(place, columns=["n"])
    (split,) = pickle.loads(pickle.dumps(found_once(source)))
    reader = source.open(split, None, task_context())
    first = read_some(reader, 20)
    assert first is not None
    assert reader.lag().records == 30  # type: ignore[union-attr]
    position = reader.position()
    reader.close()
    other = pickle.loads(pickle.dumps(source))
    rest = read_to_end(other.open(split, position, task_context()), 7)
    assert [row["n"] for row in first + rest] == list(range(50))
    assert first[0] == Row(n=0)


def test_rows_that_were_deleted_are_not_read(place: Path) -> None:
    add(place, 1, 2, 3)
    with kit.table(place) as table:
        table.delete("n = 2")
    source = source_of(place)
    assert numbers(source, found_once(source)) == [1, 3]


def test_what_later_snapshots_append_is_read_once(place: Path) -> None:
    source = source_of(place, follow=True)
    assert not source.bounded
    enumerator: SplitEnumerator = source.create_enumerator(1, None)
    assert enumerator.interval_ms == 1000
    assert enumerator.discover() == []
    add(place, 1)
    add(place, 2)
    assert numbers(source, enumerator.discover()) == [1, 2]
    enumerator = again(source, enumerator)
    assert enumerator.discover() == []
    add(place, 3)
    assert numbers(source, enumerator.discover()) == [3]
    enumerator.close()


def test_only_new_rows_are_read_if_that_is_wanted(place: Path) -> None:
    add(place, 1)
    source = source_of(place, follow=True, only_new=True)
    enumerator = source.create_enumerator(1, None)
    assert enumerator.discover() == []
    add(place, 2)
    assert numbers(source, enumerator.discover()) == [2]
    enumerator.close()


def test_columns_that_are_renamed_or_added_later_have_their_names_from_then_on(
    place: Path,
) -> None:
    add(place, 1)
    source = source_of(place, follow=True)
    enumerator = source.create_enumerator(1, None)
    splits = list(enumerator.discover())
    assert read(source, splits) == [Row(n=1, word="w1")]
    with kit.table(place) as table:
        with table.update_schema() as update:
            update.rename_column("word", "text")
            update.add_column("more", DoubleType())
        table.append(pa.table({"n": [2], "text": ["w2"], "more": [1.5]}))
    splits += enumerator.discover()
    enumerator.close()
    assert read(source, splits) == [Row(n=1, word="w1"), Row(n=2, text="w2", more=1.5)]


def refused(source: IcebergSource, enumerator: SplitEnumerator, problem: str) -> None:
    """The task that gets the split says why the job ends, and nothing is read behind it."""
    (split,) = enumerator.discover()
    with pytest.raises(TableUnfit, match=problem):
        read(source, [split])
    assert enumerator.discover() == []
    enumerator.close()


def test_a_snapshot_that_changes_rows_ends_the_job_after_what_came_before(place: Path) -> None:
    add(place, 1)
    source = source_of(place, follow=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    add(place, 2)
    with kit.table(place) as table:
        table.delete("n = 1")
    assert numbers(source, enumerator.discover()) == [2]
    refused(source, enumerator, "changes or removes rows .* skip_changes=True")


def test_snapshots_that_change_rows_are_left_out_if_that_is_wanted(place: Path) -> None:
    add(place, 1)
    source = source_of(place, follow=True, skip_changes=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    with kit.table(place) as table:
        table.overwrite(pa.table({"n": [5], "word": ["x"]}), "n = 1")
        table.delete("n = 5")
    add(place, 3)
    found = numbers(source, enumerator.discover())
    enumerator.close()
    assert 3 in found
    assert 1 not in found


def test_snapshots_that_have_expired_before_they_were_read_end_the_job(place: Path) -> None:
    add(place, 1)
    source = source_of(place, follow=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    add(place, 2)
    add(place, 3)
    with kit.table(place) as table:
        for snapshot in table.snapshots()[:-1]:
            table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    refused(source, enumerator, "have expired, or the table was rolled back")


def test_the_last_snapshot_may_expire_when_it_was_read(place: Path) -> None:
    add(place, 1)
    source = source_of(place, follow=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    add(place, 2)
    with kit.table(place) as table:
        old = table.snapshots()[0].snapshot_id
        table.maintenance.expire_snapshots().by_id(old).commit()
    assert numbers(source, enumerator.discover()) == [2]
    enumerator.close()


def test_a_table_that_is_dropped_or_replaced_ends_the_job(place: Path) -> None:
    for make, problem in ((False, "has no table"), (True, "was replaced by another one")):
        source = source_of(place, follow=True)
        enumerator = source.create_enumerator(1, None)
        enumerator.discover()
        with kit.catalog(place) as catalog:
            catalog.drop_table(kit.NAME)
            if make:
                catalog.create_table(kit.NAME, kit.SCHEMA)
        refused(source, enumerator, problem)
        if not make:
            kit.make_table(place)


def test_a_file_that_is_gone_is_named(place: Path) -> None:
    add(place, 1)
    source = source_of(place)
    splits = found_once(source)
    kit.local(splits[0].file.path).unlink()
    with pytest.raises(PathUnusable, match=r"\.parquet: cannot be read: FileNotFoundError"):
        read(source, splits)


def test_a_column_that_is_not_there_is_named(place: Path) -> None:
    add(place, 1)
    source = source_of(place, columns=["n", "m"])
    with pytest.raises(TableUnfit, match="Could not find column: 'm'"):
        read(source, found_once(source))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"discover_ms": 0}, "give a whole number above 0"),
        ({"only_new": True}, "reads nothing without follow=True"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        IcebergSource("c", "shop.sales", **options)
