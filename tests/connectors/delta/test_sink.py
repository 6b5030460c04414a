"""Rows of Delta tables, each once: real tables, read with the library and from the log's words."""

import datetime
import decimal
import pickle
import shutil
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from headgate.api.row import Row, RowKind
from headgate.api.types.types import Types
from headgate.base.errors import (
    PartLost,
    PathUnusable,
    PlanInvalid,
    RecordUnfit,
    TableUnfit,
    TableUnready,
)
from headgate.core.chain.snapshots import OperatorRestored
from tests.connectors.lake_kit import (
    checkpoint,
    feed,
    full_disk,
    go_on,
    killed_jobs,
    memory_folder,
    restored,
)
from tests.core.chain.sink_lab import STEPS, TOTAL, SinkJob, open_sink, run_job, sink_context

pytest.importorskip("deltalake")

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from headgate.connectors.arrow.lake_sink import StagedLotCommitter
from headgate.connectors.delta.sink import DeltaSink, DeltaTarget
from headgate.connectors.delta.table import OpenTable, TableAddress
from tests.connectors.delta import kit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return kit.make_table(tmp_path / "table")


def test_rows_are_there_when_their_checkpoint_is_complete(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    feed(task, (1, "a"), Row(2, "b"))
    checkpoint(task, 1)
    feed(task, {"n": 3}, Row(word="d", n=4))
    assert kit.rows(path) == []
    task.checkpoint_completed(1)
    assert kit.rows(path) == [{"n": 1, "word": "a"}, {"n": 2, "word": "b"}]
    checkpoint(task, 2)
    task.checkpoint_completed(2)
    task.close()
    assert kit.numbers(path) == [1, 2, 3, 4]
    assert kit.files(path) == kit.named_files(path)
    ((writer, first), (same, second)) = kit.transactions(path)
    assert (writer, first, second) == (same, 1, 2)


def test_lots_of_several_checkpoints_are_one_entry_of_the_log(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    for number in (1, 2, 3):
        feed(task, (number, ""))
        checkpoint(task, number)
    task.checkpoint_completed(3)
    task.close()
    assert [number for _, number in kit.transactions(path)] == [3]
    assert kit.numbers(path) == [1, 2, 3]


def test_a_lot_that_is_in_is_not_written_again(path: Path) -> None:
    sink = DeltaSink(path)
    task = open_sink(sink, sink_context())
    feed(task, (1, "a"))
    state = checkpoint(task, 1)
    task.checkpoint_completed(1)
    feed(task, (2, "b"))
    checkpoint(task, 2)
    task.checkpoint_completed(2)
    task.close()
    open_sink(sink, sink_context(restored=restored(state))).close()
    assert kit.numbers(path) == [1, 2]


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


def test_a_fresh_start_with_the_same_name_is_another_writer(path: Path) -> None:
    for _ in range(2):
        task = open_sink(DeltaSink(path), sink_context())
        feed(task, (1, "a"))
        checkpoint(task, 1)
        task.checkpoint_completed(1)
        task.close()
    assert kit.numbers(path) == [1, 1]
    assert len({writer for writer, _ in kit.transactions(path)}) == 2


def test_a_savepoint_keeps_its_commits_for_the_job_that_is_started_from_it(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    feed(task, (1, "a"))
    state = checkpoint(task, 1, savepoint=True)
    task.close()
    assert kit.rows(path) == []
    for subtask in range(2):  # with another parallelism
        mine = OperatorRestored(1, sinks=(state,) if subtask == 0 and state else ())
        open_sink(DeltaSink(path), sink_context(subtask, 2, restored=mine)).close()
    assert kit.numbers(path) == [1]


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


def change(kind: RowKind, *values: Any) -> Row:
    return Row.of_kind(kind, *values)


def test_changes_are_merged_by_their_keys(path: Path) -> None:
    task = open_sink(DeltaSink(path, mode="upsert", keys=["n"]), sink_context())
    feed(task, (1, "a"), (2, "b"), (1, "A"), (3, "c"))
    checkpoint(task, 1)
    task.checkpoint_completed(1)
    assert sorted(map(tuple, map(dict.values, kit.rows(path)))) == [(1, "A"), (2, "b"), (3, "c")]
    feed(
        task,
        change(RowKind.UPDATE_BEFORE, 2, "b"),
        change(RowKind.UPDATE_AFTER, 2, "B"),
        change(RowKind.DELETE, 3, None),
        change(RowKind.DELETE, 9, None),
        (4, "d"),
    )
    checkpoint(task, 2)
    task.checkpoint_completed(2)
    task.close()
    found = sorted((row["n"], row["word"]) for row in kit.rows_by_log(path))
    assert found == [(1, "A"), (2, "B"), (4, "d")]
    assert not list((path / "_headgate").iterdir())


def test_a_change_has_no_place_in_an_appending_sink(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    with pytest.raises(RecordUnfit, match=r"is a change \(-D\), and the sink appends"):
        feed(task, (1, "a"), change(RowKind.DELETE, 1, "a"))
    task.close()


def test_a_change_without_its_key_is_refused(path: Path) -> None:
    task = open_sink(DeltaSink(path, mode="upsert", keys=["n"]), sink_context())
    feed(task, (None, "a"))
    with pytest.raises(RecordUnfit, match="column 'n': None is the key of a row"):
        checkpoint(task, 1)
    task.close()


# Others at the same table, and at the same lot.


class Together(DeltaTarget):
    """Waits for the others when all have read the table and nobody has written."""

    barrier: threading.Barrier

    def check(self, table: OpenTable, lots: Any) -> None:
        super().check(table, lots)
        with suppress(threading.BrokenBarrierError):  # in the second attempt
            self.barrier.wait(20)
        self.barrier.abort()


def commit_together(path: Path, lots: list[Any], keys: tuple[str, ...]) -> None:
    problems: list[BaseException] = []

    def commit(target: DeltaTarget, lot: Any) -> None:
        try:
            StagedLotCommitter(target, bool(keys), 60_000).commit([lot])
        except BaseException as error:
            problems.append(error)

    barrier = threading.Barrier(len(lots))
    threads = []
    for lot in lots:
        target = Together(TableAddress(str(path), "DeltaSink"), keys)
        target.barrier = barrier
        threads.append(threading.Thread(target=commit, args=(target, lot)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []


def prepared(sink: DeltaSink, *records: Any) -> Any:
    """The lot of a task that has ended."""
    context = sink_context()
    writer = sink.create_writer(context)
    writer.write(list(records))
    (lot,) = writer.prepare_commit(None)
    writer.close()
    return lot


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_two_attempts_that_commit_the_same_lot_at_once_commit_it_once(
    path: Path, mode: str
) -> None:
    keys = ("n",) if mode == "upsert" else ()
    lot = prepared(DeltaSink(path, mode=mode, keys=keys), (1, "a"))
    commit_together(path, [lot, lot], keys)
    assert kit.numbers(path) == [1]
    assert len(kit.transactions(path)) == 1


def test_two_jobs_write_one_table_at_once(path: Path) -> None:
    append, upsert = DeltaSink(path), DeltaSink(path, mode="upsert", keys=["n"])
    commit_together(path, [prepared(append, (1, "a")), prepared(append, (2, "b"))], ())
    commit_together(path, [prepared(upsert, (2, "B")), prepared(upsert, (3, "c"))], ("n",))
    assert sorted(kit.numbers(path)) == [1, 2, 3]


class Overtaken(DeltaTarget):
    """Whenever it is about to merge, somebody else was faster."""

    def write(self, table: OpenTable, lots: Any) -> None:
        write_deltalake(table.table_uri, pa.table({"n": [0], "word": [""]}), mode="append")
        super().write(table, lots)


def test_a_table_that_others_commit_to_all_the_time_is_given_up_in_time(path: Path) -> None:
    lot = prepared(DeltaSink(path, mode="upsert", keys=["n"]), (1, "a"))
    target = Overtaken(TableAddress(str(path), "DeltaSink"), ["n"])
    with pytest.raises(TableUnready, match="others have committed to it .* raise commit_timeout"):
        StagedLotCommitter(target, True, timeout_ms=60).commit([lot])
    assert set(kit.numbers(path)) == {0}


# What becomes of the table meanwhile.


def test_a_table_that_was_dropped_meanwhile_is_named(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    feed(task, (1, "a"))
    checkpoint(task, 1)
    shutil.rmtree(path)
    with pytest.raises(TableUnfit, match=f"there is no Delta table at {path}"):
        task.checkpoint_completed(1)
    task.close()
    assert not path.exists()


def test_a_table_that_was_replaced_meanwhile_is_another(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    feed(task, (1, "a"))
    checkpoint(task, 1)
    kit.make_table(path, mode="overwrite")
    with pytest.raises(TableUnfit, match="was replaced by another table"):
        task.checkpoint_completed(1)
    task.close()


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


def test_a_file_that_was_removed_meanwhile_ends_the_job(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    feed(task, (1, "a"))
    state = checkpoint(task, 1)
    task.close()
    DeltaTable(str(path)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    with pytest.raises(PartLost, match="is not there, and its records wait for their commit"):
        open_sink(DeltaSink(path), sink_context(restored=restored(state)))


def test_a_full_disk_leaves_no_half_file_behind(path: Path) -> None:
    task = open_sink(DeltaSink(path, compression="none"), sink_context())
    feed(task, *((number, f"{number:0100}") for number in range(1000)))
    with (
        full_disk(4096),
        pytest.raises(PathUnusable, match=r"\.parquet: cannot be written: .*File"),
    ):
        checkpoint(task, 1)
    task.close()
    assert kit.files(path) == set()


def test_what_no_checkpoint_has_named_goes_with_its_task(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    feed(task, *((number, "a") for number in range(3_000)))
    task._writer._write_files()  # type: ignore[union-attr] # as when the buffer is full
    assert len(kit.files(path)) == 1
    task.close()
    assert kit.files(path) == set()


def test_changes_that_nobody_committed_for_a_week_are_removed(path: Path) -> None:
    sink = DeltaSink(path, mode="upsert", keys=["n"])
    lot = prepared(sink, (1, "a"))
    week_ms = 7 * 24 * 3600 * 1000
    for age_ms, kept in ((0, True), (week_ms + 60_000, False)):
        now_ms = int((path / lot.files[0].path).stat().st_mtime * 1000) + age_ms
        open_sink(sink, sink_context(now_ms=lambda: now_ms)).close()  # noqa: B023
        assert (path / lot.files[0].path).exists() == kept


# Tables and records that do not fit.


def test_a_missing_table_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(TableUnfit, match="there is no Delta table at .*create the table first"):
        open_sink(DeltaSink(tmp_path / "none"), sink_context())


def test_a_folder_that_is_no_folder_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    sink = DeltaSink(tmp_path / "file" / "t", schema=kit.SCHEMA, create=True)
    with pytest.raises(TableUnready, match="cannot be created|cannot be opened"):
        open_sink(sink, sink_context())


def test_tasks_that_create_the_same_table_find_one(tmp_path: Path) -> None:
    typed = Types.ROW_NAMED(["n", "word"], [Types.LONG(), Types.STRING()])
    sink = DeltaSink(tmp_path / "t", create=True).for_type(typed)
    threads = [
        threading.Thread(target=lambda: open_sink(sink, sink_context()).close()) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pa.schema(DeltaTable(str(tmp_path / "t")).schema().to_arrow()) == kit.SCHEMA


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"schema": pa.schema([("n", pa.string())])}, "its column 'n' is int64, not string"),
        ({"schema": pa.schema([("m", pa.int64())])}, "it has no column 'm'; it has 'n', 'word'"),
        ({"partition_by": ["word"]}, "has partitions by no column, not by 'word'"),
        ({"mode": "upsert", "keys": ["id"]}, "the records have no column 'id'"),
    ],
)
def test_a_table_that_does_not_fit_is_said_at_the_start(
    path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(TableUnfit, match=problem):
        open_sink(DeltaSink(path, **options), sink_context())


def test_a_table_with_rules_that_files_do_not_keep_is_refused(path: Path) -> None:
    DeltaTable(str(path)).alter.add_constraint({"small": "n < 10"})
    with pytest.raises(TableUnfit, match=r"checks rows \(delta.constraints.small\)"):
        open_sink(DeltaSink(path), sink_context())


def test_a_record_that_does_not_fit_is_named_by_its_column(path: Path) -> None:
    task = open_sink(DeltaSink(path), sink_context())
    feed(task, ("x", "a"))
    with pytest.raises(RecordUnfit, match="operator 'out': column 'n': 'x' is no whole number"):
        checkpoint(task, 1)
    task.close()


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


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mode": "merge"}, "give one of append, upsert"),
        ({"mode": "upsert"}, r"needs keys=\[...\]"),
        ({"keys": ["n"]}, "mode='append' takes none"),
        ({"keys": "n", "mode": "upsert"}, "give a list of names"),
        ({"compression": "rar"}, "give one of snappy"),
        ({"commit_timeout_ms": 0}, "give a whole number above 0"),
        ({"schema": kit.SCHEMA, "partition_by": ["day"]}, "partition_by has 'day'"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        DeltaSink("t", **options)


def test_a_table_to_be_created_needs_a_schema() -> None:
    with pytest.raises(PlanInvalid, match="has no schema, and the stream declares no type"):
        DeltaSink("t", create=True).for_type(None)


def test_descriptions_travel(path: Path) -> None:
    sink = pickle.loads(pickle.dumps(DeltaSink(path)))
    open_sink(sink, sink_context()).close()
    assert sink.default_name.startswith("Delta table ")


# Whatever happens.


def test_a_writer_killed_at_any_step_writes_each_record_once() -> None:
    with memory_folder() as folder:
        jobs = killed_jobs("tests.connectors.delta.kit", folder)
        assert list(jobs) == ["append", "upsert"]
        for job, runs in jobs.items():
            assert len(runs) > 5
            make_sink, make_record, _ = kit.JOBS[job]
            for run in runs:
                go_on(run, make_sink, make_record)
                assert sorted(kit.numbers(run / "table")) == list(range(20)), run


def test_whatever_happens_each_record_is_one_row() -> None:
    @settings(max_examples=5, deadline=None)
    @given(STEPS)
    def once(steps: list[tuple[Any, ...]]) -> None:
        with memory_folder() as folder:
            path = kit.make_table(folder / "table")
            job = SinkJob(
                lambda: DeltaSink(path), lambda: kit.numbers(path), lambda number: (number, "x")
            )
            run_job(job, steps, TOTAL)

    once()
