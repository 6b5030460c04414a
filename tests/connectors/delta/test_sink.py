"""Rows of Delta tables, each once: real tables, read with the library and from the log's words."""

import datetime
import decimal
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.api.row import Row, RowKind
from headgate.api.types.types import Types
from headgate.base.errors import (
    RecordUnfit,
    TableUnfit,
    TableUnready,
)
from tests.connectors.lake_kit import (
    checkpoint,
    feed,
    restored,
)
from tests.core.chain.sink_lab import open_sink, sink_context

pytest.importorskip("deltalake")

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from headgate.connectors.delta.sink import DeltaSink
from tests.connectors.delta import kit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return kit.make_table(tmp_path / "table")


@pytest.mark.parametrize(("kept", "is_late"), [("1 second", True), ("1 week 2 days", False)])
def test_a_lot_that_is_older_than_the_table_remembers_is_refused(
    tmp_path: Path, kept: str, is_late: bool
) -> None:
    configuration = {"delta.setTransactionRetentionDuration": f"interval {kept}"}
    path = kit.make_table(tmp_path / "table", configuration=configuration)
    prepared_ms = int(time.time() * 1000) - 5_000
    task = open_sink(DeltaSink(path), sink_context(now_ms=lambda: prepared_ms))
    feed(task, (1, "a"))
    state = restored(checkpoint(task, 1))
    task.close()
    late = pytest.raises(TableUnfit, match="older than the table remembers")
    with late if is_late else nullcontext():
        open_sink(DeltaSink(path), sink_context(restored=state)).close()
    assert kit.numbers(path) == ([] if is_late else [1])


def test_a_table_that_the_sink_creates_forgets_writers_after_a_month(tmp_path: Path) -> None:
    path = tmp_path / "table"
    open_sink(DeltaSink(path, schema=kit.SCHEMA, create=True), sink_context()).close()
    month_ms = 30 * 24 * 3600 * 1000
    for writer, age_ms in (("old", month_ms + 60_000), ("young", month_ms - 60_000)):
        note = Transaction(writer, 1, kit.now_ms() - age_ms)
        properties = CommitProperties(app_transactions=[note])
        rows = pa.table({"n": [1], "word": ["a"]})
        write_deltalake(str(path), rows, mode="append", commit_properties=properties)
    DeltaTable(str(path)).create_checkpoint()
    (file,) = (path / "_delta_log").glob("*.checkpoint.parquet")
    notes = [row["txn"] for row in pq.read_table(file, columns=["txn"]).to_pylist()]
    assert [note["appId"] for note in notes if note and note["appId"]] == ["young"]


@dataclass
class Sale:
    country: str
    day: datetime.date
    price: decimal.Decimal
    at: datetime.datetime
    tags: list[str]
    place: Any
    sold: bool
    share: float
    size: int


SALES = pa.schema(
    [
        ("country", pa.string()),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int32())])),
        ("sold", pa.bool_()),
        ("share", pa.float64()),
        ("size", pa.int32()),
    ]
)
AT = datetime.datetime(2024, 2, 29, 12, 30, 0, 5, tzinfo=datetime.timezone.utc)
DAY = datetime.date(2024, 2, 29)


@pytest.mark.parametrize(
    "partitions", [(), ("country", "day"), ("sold", "size"), ("at",), ("price",)]
)
def test_every_type_is_read_as_it_was_written(tmp_path: Path, partitions: tuple[str, ...]) -> None:
    sales = [
        Sale("a b/ü%20", DAY, decimal.Decimal("1.50"), AT, ["x"], {"x": 1}, True, 0.5, 1),
        Sale("x" * 300, DAY, decimal.Decimal("2.50"), AT, [], Row(x=2), False, -1.0, -2),
    ]
    empty = {"country": "c"}
    sink = DeltaSink(tmp_path / "t", schema=SALES, create=True, partition_by=partitions)
    task = open_sink(sink, sink_context(now_ms=kit.now_ms))
    feed(task, *sales, empty)
    checkpoint(task, 1)
    task.checkpoint_completed(1)
    task.close()
    wanted = [{**vars(sales[0])}, {**vars(sales[1]), "place": {"x": 2}}]
    wanted.append({**dict.fromkeys(SALES.names), **empty})
    found = kit.rows(tmp_path / "t")
    assert sorted(found, key=str) == sorted(wanted, key=str)
    only = DeltaTable(str(tmp_path / "t")).scan(predicate="size = -2 AND at IS NOT NULL")
    assert [row["price"] for row in pa.table(only).to_pylist()] == [decimal.Decimal("2.50")]


def test_statistics_let_readers_leave_files_out(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    feed(task, (5, "a"), (7, "z" * 40))
    checkpoint(task, 1)
    task.checkpoint_completed(1)
    task.close()
    (added,) = [action["add"] for action in kit.actions(path) if "add" in action]
    assert '"minValues":{"n":5},"maxValues":{"n":7},"nullCount":{"n":0,"word":0}' in added["stats"]


# Changes by keys.


def test_a_change_has_no_place_in_an_appending_sink(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    with pytest.raises(RecordUnfit, match=r"is a change \(-D\), and the sink appends"):
        feed(task, (1, "a"), Row.of_kind(RowKind.DELETE, 1, "a"))
    task.close()


def test_a_change_without_its_key_is_refused(path: Path) -> None:
    task = open_sink(DeltaSink(path, mode="upsert", keys=["n"]), sink_context())
    feed(task, (None, "a"))
    with pytest.raises(RecordUnfit, match="column 'n': None is the key of a row"):
        checkpoint(task, 1)
    task.close()


# Others at the same table, and at the same lot.


def prepared(sink: DeltaSink, *records: Any) -> Any:
    """The lot of a task that has ended."""
    context = sink_context()
    writer = sink.create_writer(context)
    writer.write(list(records))
    (lot,) = writer.prepare_commit(None)
    writer.close()
    return lot


# What becomes of the table meanwhile.


def test_a_column_that_was_changed_meanwhile_is_named(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    feed(task, (1, "a"))
    checkpoint(task, 1)
    other = pa.table({"n": ["text"]})
    write_deltalake(str(path), other, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(TableUnfit, match=r"column 'n' was int64 .* and is (large_)?string"):
        task.checkpoint_completed(1)
    task.close()


def test_a_column_that_was_added_meanwhile_is_null(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    feed(task, (1, "a"))
    checkpoint(task, 1)
    write_deltalake(str(path), pa.table({"more": [1.5]}), mode="append", schema_mode="merge")
    task.checkpoint_completed(1)
    task.close()
    assert {"n": 1, "word": "a", "more": None} in kit.rows(path)


def test_changes_that_nobody_committed_for_a_week_are_removed(path: Path) -> None:
    sink = DeltaSink(path, mode="upsert", keys=["n"])
    lot = prepared(sink, (1, "a"))
    week_ms = 7 * 24 * 3600 * 1000
    for age_ms, kept in ((0, True), (week_ms + 60_000, False)):
        now_ms = int((path / lot.files[0].path).stat().st_mtime * 1000) + age_ms
        open_sink(sink, sink_context(now_ms=lambda: now_ms)).close()  # noqa: B023
        assert (path / lot.files[0].path).exists() == kept


# Tables and records that do not fit.


def test_a_folder_that_is_no_folder_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    sink = DeltaSink(tmp_path / "file" / "t", schema=kit.SCHEMA, create=True)
    with pytest.raises(TableUnready, match="cannot be created|cannot be opened"):
        open_sink(sink, sink_context())


def test_a_table_with_rules_that_files_do_not_keep_is_refused(path: Path) -> None:
    DeltaTable(str(path)).alter.add_constraint({"small": "n < 10"})
    with pytest.raises(TableUnfit, match=r"checks rows \(delta.constraints.small\)"):
        open_sink(DeltaSink(path), sink_context())


@pytest.mark.parametrize("keys", [(), ("n",)])
def test_records_that_do_not_fit_are_left_out_if_the_policy_says_so(
    path: Path, keys: tuple[str, ...]
) -> None:
    rejected: list[tuple[Any, str]] = []

    def reject(record: object, error: Exception) -> None:
        rejected.append((record, str(error)))

    sink = DeltaSink(path, mode="upsert" if keys else "append", keys=keys)
    writer = sink.create_writer(replace(sink_context(), malformed=reject))
    change = Row.of_kind(RowKind.DELETE, 7, "z")
    writer.write([(1, "a"), ("x", "b"), (2,), (None, "n"), change, (3, "c")])
    writer.flush()
    assert [record for record, _ in rejected if record not in ((None, "n"), change)] == [
        ("x", "b"),
        (2,),
    ]
    (lot,) = writer.prepare_commit(None)
    writer.close()
    committer = sink.create_committer(sink_context())
    committer.commit([lot])
    committer.close()
    assert kit.numbers(path) == ([1, 3] if keys else [1, None, 3])
    assert len(rejected) == 3


def test_an_empty_text_cannot_be_a_partition(tmp_path: Path) -> None:
    path = kit.make_table(tmp_path / "t", partition_by=["word"])
    task = open_sink(DeltaSink(path), sink_context())
    feed(task, (1, ""))
    with pytest.raises(RecordUnfit, match="column 'word': '' cannot be the partition"):
        checkpoint(task, 1)
    task.close()


def test_columns_are_taken_in_the_declared_order(path: Path) -> None:
    declared = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.INT()])
    task = open_sink(DeltaSink(path).for_type(declared), sink_context())
    feed(task, ("a", 1))
    checkpoint(task, 1)
    task.checkpoint_completed(1)
    task.close()
    assert kit.rows(path) == [{"n": 1, "word": "a"}]


# Whatever happens.
