"""Delta tables are read: one version, and what later ones append; real tables, by hand."""

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.api.row import Row
from headgate.base.errors import FileGone, PathUnusable, PlanInvalid, TableUnfit
from headgate.functions.source import SplitEnumerator
from tests.connectors.kit import read_to_end, task_context
from tests.connectors.lake_kit import again, found_once, numbers, read, refused

pytest.importorskip("deltalake")

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake

from headgate.connectors.delta.source import DeltaSource
from tests.connectors.delta import kit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return kit.make_table(tmp_path / "table")


def test_a_table_is_read_as_of_a_version(path: Path) -> None:
    kit.add(path, 1, 2)
    kit.add(path, 3)
    second = DeltaSource(path, version=1)
    assert numbers(second, found_once(second)) == [1, 2]


def test_row_groups_that_were_read_are_not_read_again(path: Path) -> None:
    from deltalake import WriterProperties

    kit.add(path, *range(50), writer_properties=WriterProperties(max_row_group_size=10))
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


def test_rows_that_are_only_rearranged_are_not_read_again(path: Path) -> None:
    kit.add(path, 1)
    kit.add(path, 2)
    source = DeltaSource(path, follow=True)
    enumerator: SplitEnumerator = source.create_enumerator(1, None)
    assert numbers(source, enumerator.discover()) == [1, 2]
    DeltaTable(str(path)).optimize.compact()
    enumerator = again(source, enumerator)
    assert enumerator.discover() == []
    kit.add(path, 4)
    assert numbers(source, enumerator.discover()) == [4]


def test_columns_that_are_added_later_are_read_from_then_on(path: Path) -> None:
    kit.add(path, 1)
    source = DeltaSource(path, follow=True)
    enumerator = source.create_enumerator(1, None)
    splits = list(enumerator.discover())
    write_deltalake(
        str(path), pa.table({"n": [2], "more": [1.5]}), mode="append", schema_mode="merge"
    )
    kit.add(path, 3, schema_mode="merge")
    splits += enumerator.discover()
    assert read(source, splits) == [
        Row(n=1, word="w1"),
        Row(n=2, word=None, more=1.5),
        Row(n=3, word="w3", more=None),
    ]


def test_a_version_that_the_log_has_lost_ends_the_job(path: Path) -> None:
    source = DeltaSource(path, follow=True)
    enumerator = source.create_enumerator(1, None)
    enumerator.discover()
    kit.add(path, 1)
    kit.add(path, 2)
    (path / "_delta_log" / f"{1:020}.json").unlink()
    refused(source, enumerator, "its version 1 is not in the log any more")


def test_a_file_that_a_vacuum_has_removed_is_named(path: Path) -> None:
    kit.add(path, 1)
    source = DeltaSource(path)
    splits = source.create_enumerator(1, None).discover()
    (path / splits[0].path).unlink()
    with pytest.raises(FileGone, match="a VACUUM has removed it before it was read"):
        read(source, splits)


def test_a_file_that_is_no_parquet_is_named(path: Path) -> None:
    kit.add(path, 1)
    source = DeltaSource(path)
    splits = source.create_enumerator(1, None).discover()
    (path / splits[0].path).write_bytes(b"no rows at all")
    with pytest.raises(PathUnusable, match=r"\.parquet: cannot be read: ArrowInvalid"):
        read(source, splits)


def test_a_log_that_was_shortened_is_read_from_its_checkpoint(path: Path) -> None:
    hook = PostCommitHookProperties(create_checkpoint=False)
    for number in range(3):
        kit.add(path, number, post_commithook_properties=hook, commit_properties=CommitProperties())
    DeltaTable(str(path)).create_checkpoint()
    for version in range(3):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    assert len(read(DeltaSource(path), found_once(DeltaSource(path)))) == 3


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
