"""Delta tables are read: one version, and what later ones append; real tables, by hand."""

import datetime
import decimal
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.api.row import Row
from headgate.base.errors import FileGone, PathUnusable, PlanInvalid, TableUnfit
from headgate.functions.source import SplitEnumerator
from tests.connectors.kit import read_some, read_to_end, task_context

pytest.importorskip("deltalake")

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake

from headgate.connectors.delta.source import DeltaSource
from tests.connectors.delta import kit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return kit.make_table(tmp_path / "table")


def add(path: Path, *numbers: int, **options: Any) -> None:
    rows = pa.table({"n": pa.array(numbers, pa.int64()), "word": [f"w{n}" for n in numbers]})
    write_deltalake(str(path), rows, mode="append", **options)


def read(source: DeltaSource, splits: Any) -> list[Row]:
    return [
        row for split in splits for row in read_to_end(source.open(split, None, task_context()))
    ]


def numbers(source: DeltaSource, splits: Any) -> list[int]:
    return sorted(row["n"] for row in read(source, splits))


def all_of(source: DeltaSource) -> list[Row]:
    return read(source, source.create_enumerator(1, None).discover())


def again(source: DeltaSource, enumerator: SplitEnumerator) -> SplitEnumerator:
    """The enumerator of the next run."""
    enumerator.close()
    return source.create_enumerator(1, pickle.loads(pickle.dumps(enumerator.position())))


def test_a_table_is_read_as_of_a_version(path: Path) -> None:
    add(path, 1, 2)
    add(path, 3)
    newest, second = DeltaSource(path), DeltaSource(path, version=1)
    assert newest.bounded
    assert newest.create_enumerator(1, None).interval_ms is None
    assert sorted(all_of(newest), key=str) == [Row(n=n, word=f"w{n}") for n in (1, 2, 3)]
    assert numbers(second, second.create_enumerator(1, None).discover()) == [1, 2]
    enumerator = newest.create_enumerator(1, None)
    assert len(enumerator.discover()) == 2
    assert again(newest, enumerator).discover() == []


def test_a_reader_goes_on_from_its_position(path: Path) -> None:
    add(path, *range(50))
    source = DeltaSource(path)
    (split,) = source.create_enumerator(1, None).discover()
    split = pickle.loads(pickle.dumps(split))
    reader = source.open(split, None, task_context())
    first = read_some(reader, 20)
    assert first is not None
    assert reader.lag().records == 30  # type: ignore[union-attr]
    position = reader.position()
    reader.close()
    rest = read_to_end(source.open(split, position, task_context()), 7)
    assert [row["n"] for row in first + rest] == list(range(50))


def test_row_groups_that_were_read_are_not_read_again(path: Path) -> None:
    from deltalake import WriterProperties

    add(path, *range(50), writer_properties=WriterProperties(max_row_group_size=10))
    source = DeltaSource(path)
    (split,) = source.create_enumerator(1, None).discover()
    for position in (0, 9, 10, 25, 49, 50):
        found = read_to_end(source.open(split, position, task_context()))
        assert [row["n"] for row in found] == list(range(position, 50))


def test_every_type_is_read_also_from_partitions(tmp_path: Path) -> None:
    at = datetime.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)
    row = {
        "text": "a b/ü%20",
        "day": at.date(),
        "at": at,
        "local": at.replace(tzinfo=None),
        "price": decimal.Decimal("1.50"),
        "yes": True,
        "size": -3,
        "place": {"x": 1},
    }
    rows = pa.Table.from_pylist([row, {"text": "b"}])
    for number, columns in enumerate(([], ["text", "day"], ["at", "yes", "size"], ["local"])):
        path = tmp_path / str(number)
        write_deltalake(str(path), rows, partition_by=columns)
        source = DeltaSource(path, follow=True)
        enumerator = source.create_enumerator(1, None)
        found = read(source, enumerator.discover())
        write_deltalake(str(path), rows, mode="append")
        found += read(source, enumerator.discover())
        wanted = [Row(**{**row, "place": Row(x=1)}), Row(**{**dict.fromkeys(row), "text": "b"})]
        assert sorted(found, key=str) == sorted(wanted * 2, key=str)


def test_only_some_columns_are_read(path: Path) -> None:
    add(path, 1)
    assert all_of(DeltaSource(path, columns=["word"])) == [Row(word="w1")]
    with pytest.raises(TableUnfit, match="has no column 'm'; it has 'n', 'word'"):
        all_of(DeltaSource(path, columns=["m"]))


def test_what_later_versions_append_is_read_once(path: Path) -> None:
    add(path, 1)
    source = DeltaSource(path, follow=True)
    assert not source.bounded
    enumerator: SplitEnumerator = source.create_enumerator(1, None)
    assert numbers(source, enumerator.discover()) == [1]
    assert enumerator.discover() == []
    add(path, 2)
    add(path, 3)
    assert numbers(source, enumerator.discover()) == [2, 3]
    DeltaTable(str(path)).optimize.compact()
    enumerator = again(source, enumerator)
    assert enumerator.discover() == []
    add(path, 4)
    assert numbers(source, enumerator.discover()) == [4]


def test_only_new_rows_are_read_if_that_is_wanted(path: Path) -> None:
    add(path, 1)
    source = DeltaSource(path, follow=True, only_new=True)
    enumerator = source.create_enumerator(1, None)
    assert enumerator.discover() == []
    add(path, 2)
    assert numbers(source, enumerator.discover()) == [2]


def test_columns_that_are_added_later_are_read_from_then_on(path: Path) -> None:
    add(path, 1)
    source = DeltaSource(path, follow=True)
    enumerator = source.create_enumerator(1, None)
    splits = list(enumerator.discover())
    write_deltalake(
        str(path), pa.table({"n": [2], "more": [1.5]}), mode="append", schema_mode="merge"
    )
    add(path, 3, schema_mode="merge")
    splits += enumerator.discover()
    assert read(source, splits) == [
        Row(n=1, word="w1"),
        Row(n=2, word=None, more=1.5),
        Row(n=3, word="w3", more=None),
    ]


def refused(source: DeltaSource, enumerator: SplitEnumerator, problem: str) -> None:
    """The task that gets the split says why the job ends, and nothing is read behind it."""
    (split,) = enumerator.discover()
    with pytest.raises(TableUnfit, match=problem):
        read(source, [split])
    assert enumerator.discover() == []


def test_a_version_that_changes_rows_ends_the_job_after_what_came_before(path: Path) -> None:
    add(path, 1)
    source = DeltaSource(path, follow=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    add(path, 2)
    DeltaTable(str(path)).delete("n = 1")
    assert numbers(source, enumerator.discover()) == [2]
    refused(source, enumerator, "its version 3 changes or removes rows.* skip_changes=True")


def test_versions_that_change_rows_are_left_out_if_that_is_wanted(path: Path) -> None:
    source = DeltaSource(path, follow=True, skip_changes=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    add(path, 1, 2)
    DeltaTable(str(path)).delete("n = 1")
    add(path, 3)
    assert numbers(source, enumerator.discover()[1:]) == [3]


def test_a_version_that_the_log_has_lost_ends_the_job(path: Path) -> None:
    source = DeltaSource(path, follow=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    add(path, 1)
    add(path, 2)
    (path / "_delta_log" / f"{1:020}.json").unlink()
    refused(source, enumerator, "its version 1 is not in the log any more")


def test_a_table_that_is_dropped_or_replaced_ends_the_job(path: Path) -> None:
    for make, problem in ((False, "is gone"), (True, "was replaced by another one")):
        source = DeltaSource(path, follow=True)
        enumerator = source.create_enumerator(1, None)
        enumerator.discover()
        shutil.rmtree(path)
        if make:
            kit.make_table(path)
            add(path, 1)
            add(path, 2)
        refused(source, enumerator, problem)
        if not make:
            kit.make_table(path)


def test_a_file_that_a_vacuum_has_removed_is_named(path: Path) -> None:
    add(path, 1)
    source = DeltaSource(path)
    splits = source.create_enumerator(1, None).discover()
    (path / splits[0].path).unlink()
    with pytest.raises(FileGone, match="a VACUUM has removed it before it was read"):
        read(source, splits)


def test_a_file_that_is_no_parquet_is_named(path: Path) -> None:
    add(path, 1)
    source = DeltaSource(path)
    splits = source.create_enumerator(1, None).discover()
    (path / splits[0].path).write_bytes(b"no rows at all")
    with pytest.raises(PathUnusable, match=r"\.parquet: cannot be read: ArrowInvalid"):
        read(source, splits)


def test_a_log_that_was_shortened_is_read_from_its_checkpoint(path: Path) -> None:
    hook = PostCommitHookProperties(create_checkpoint=False)
    for number in range(3):
        add(path, number, post_commithook_properties=hook, commit_properties=CommitProperties())
    DeltaTable(str(path)).create_checkpoint()
    for version in range(3):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    assert len(all_of(DeltaSource(path))) == 3


def test_a_missing_table_or_version_is_said_at_the_start(path: Path, tmp_path: Path) -> None:
    with pytest.raises(TableUnfit, match="there is no Delta table at"):
        DeltaSource(tmp_path / "none").create_enumerator(1, None).discover()
    with pytest.raises(TableUnfit, match="has no version 99"):
        DeltaSource(path, version=99).create_enumerator(1, None).discover()


def test_a_table_that_maps_its_columns_is_refused(path: Path) -> None:
    entry = path / "_delta_log" / f"{0:020}.json"
    about, _, metadata = map(json.loads, entry.read_text().splitlines())
    schema = json.loads(metadata["metaData"]["schemaString"])
    for number, column in enumerate(schema["fields"]):
        mapped = {"id": number, "physicalName": f"c{number}"}
        column["metadata"] = {f"delta.columnMapping.{key}": mapped[key] for key in mapped}
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    metadata["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    entry.write_text("\n".join(map(json.dumps, (about, protocol, metadata))))
    with pytest.raises(TableUnfit, match=r"maps its columns \(delta.columnMapping.mode=name\)"):
        DeltaSource(path).create_enumerator(1, None).discover()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"version": -1}, "give a whole number from 0 on"),
        ({"discover_ms": 0}, "give a whole number above 0"),
        ({"only_new": True}, "reads nothing without follow=True"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        DeltaSource("t", **options)
