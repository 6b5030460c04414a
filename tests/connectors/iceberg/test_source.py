"""Iceberg tables are read: one snapshot, and what later ones append; a catalog on SQLite."""

from pathlib import Path

import pyarrow as pa
import pytest

from headgate.api.row import Row
from headgate.base.errors import PathUnusable, TableUnfit
from tests.connectors.lake_kit import found_once, numbers, read, refused

pytest.importorskip("pyiceberg")

from pyiceberg.types import DoubleType

from tests.connectors.iceberg import kit


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return kit.make_table(tmp_path)


def test_a_table_is_read_as_of_a_snapshot(place: Path) -> None:
    kit.add(place, 1, 2)
    with kit.table(place) as table:
        first = table.current_snapshot().snapshot_id
    kit.add(place, 3)
    old = kit.source(place, snapshot=first)
    assert numbers(old, found_once(old)) == [1, 2]
    with pytest.raises(TableUnfit, match="has no snapshot 5, or it has expired"):
        found_once(kit.source(place, snapshot=5))


def test_rows_that_were_deleted_are_not_read(place: Path) -> None:
    kit.add(place, 1, 2, 3)
    with kit.table(place) as table:
        table.delete("n = 2")
    source = kit.source(place)
    assert numbers(source, found_once(source)) == [1, 3]


def test_columns_that_are_renamed_or_added_later_have_their_names_from_then_on(
    place: Path,
) -> None:
    kit.add(place, 1)
    source = kit.source(place, follow=True)
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


def test_snapshots_that_change_rows_are_left_out_if_that_is_wanted(place: Path) -> None:
    kit.add(place, 1)
    source = kit.source(place, follow=True, skip_changes=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    with kit.table(place) as table:
        table.overwrite(pa.table({"n": [5], "word": ["x"]}), "n = 1")
        table.delete("n = 5")
    kit.add(place, 3)
    found = numbers(source, enumerator.discover())
    enumerator.close()
    assert 3 in found
    assert 1 not in found


def test_snapshots_that_have_expired_before_they_were_read_end_the_job(place: Path) -> None:
    kit.add(place, 1)
    source = kit.source(place, follow=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    kit.add(place, 2)
    kit.add(place, 3)
    with kit.table(place) as table:
        for snapshot in table.snapshots()[:-1]:
            table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    refused(source, enumerator, "have expired, or the table was rolled back")


def test_the_last_snapshot_may_expire_when_it_was_read(place: Path) -> None:
    kit.add(place, 1)
    source = kit.source(place, follow=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    kit.add(place, 2)
    with kit.table(place) as table:
        old = table.snapshots()[0].snapshot_id
        table.maintenance.expire_snapshots().by_id(old).commit()
    assert numbers(source, enumerator.discover()) == [2]
    enumerator.close()


def test_a_file_that_is_gone_is_named(place: Path) -> None:
    kit.add(place, 1)
    source = kit.source(place)
    splits = found_once(source)
    kit.local(splits[0].file.path).unlink()
    with pytest.raises(PathUnusable, match=r"\.parquet: cannot be read: FileNotFoundError"):
        read(source, splits)
