"""Rows of Iceberg tables, each once: a real catalog on SQLite, files read one by one."""

import datetime
import decimal
import pickle
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from headgate.control.error_classes import is_final
from headgate.core.chain.snapshots import OperatorRestored
from tests.connectors.kit import CancelledTask
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
from tests.servers import free_port

pytest.importorskip("pyiceberg")

from pyiceberg.transforms import DayTransform

from headgate.connectors.arrow.lake_sink import StagedLotCommitter
from headgate.connectors.iceberg.catalog import IcebergAddress, OpenTable
from headgate.connectors.iceberg.sink import FORGOTTEN, NOTE, IcebergSink, IcebergTarget
from tests.connectors.iceberg import kit


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return kit.make_table(tmp_path)


def sink_of(place: Path, **options: Any) -> IcebergSink:
    return IcebergSink(kit.settings(place), kit.NAME, **options)


def written(place: Path, *records: Any, number: int = 1, **options: Any) -> bytes | None:
    """What a sink keeps in the checkpoint that has committed the records."""
    task = open_sink(sink_of(place, **options), sink_context())
    feed(task, *records)
    state = checkpoint(task, number)
    task.checkpoint_completed(number)
    task.close()
    return state


def test_rows_are_there_when_their_checkpoint_is_complete(place: Path) -> None:
    task = open_sink(sink_of(place), sink_context())
    feed(task, (1, "a"), Row(2, "b"))
    checkpoint(task, 1)
    feed(task, {"n": 3}, Row(word="d", n=4))
    assert kit.rows(place) == []
    task.checkpoint_completed(1)
    assert kit.rows(place) == [{"n": 1, "word": "a"}, {"n": 2, "word": "b"}]
    checkpoint(task, 2)
    task.checkpoint_completed(2)
    task.close()
    assert sorted(kit.numbers(place)) == [1, 2, 3, 4]
    assert kit.files(place) == {kit.local(path) for path, _ in kit.named_files(place)}
    with kit.table(place) as table:
        summaries = [snapshot.summary.additional_properties for snapshot in table.snapshots()]
    assert [summary["headgate.checkpoint"] for summary in summaries] == ["1", "2"]
    (note,) = [value for key, value in kit.properties(place).items() if key.startswith(NOTE)]
    assert note.startswith("2@")


def test_a_lot_that_is_in_is_not_written_again_though_its_snapshot_has_expired(
    place: Path,
) -> None:
    state = written(place, (1, "a"))
    written(place, (2, "b"))
    with kit.table(place) as table:
        first = table.snapshots()[0].snapshot_id
        table.maintenance.expire_snapshots().by_id(first).commit()
        assert len(table.refresh().snapshots()) == 1
    open_sink(sink_of(place), sink_context(restored=restored(state))).close()
    assert sorted(kit.numbers(place)) == [1, 2]


def test_a_fresh_start_with_the_same_name_is_another_writer(place: Path) -> None:
    written(place, (1, "a"))
    written(place, (1, "a"))
    assert kit.numbers(place) == [1, 1]


def test_a_savepoint_keeps_its_commits_for_the_job_that_is_started_from_it(place: Path) -> None:
    task = open_sink(sink_of(place), sink_context())
    feed(task, (1, "a"))
    state = checkpoint(task, 1, savepoint=True)
    task.close()
    assert kit.rows(place) == []
    for subtask in range(2):  # with another parallelism
        mine = OperatorRestored(1, sinks=(state,) if subtask == 0 and state else ())
        open_sink(sink_of(place), sink_context(subtask, 2, restored=mine)).close()
    assert kit.numbers(place) == [1]


AT = datetime.datetime(2024, 2, 29, 12, 30, 0, 5, tzinfo=datetime.timezone.utc)
DAY = datetime.date(2024, 2, 29)
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
    ]
)


@pytest.mark.parametrize("partitions", [(), ("country", "day")])
def test_every_type_is_read_as_it_was_written(tmp_path: Path, partitions: tuple[str, ...]) -> None:
    sales: list[dict[str, Any]] = [
        dict(zip(SALES.names, values, strict=True))
        for values in (
            ("a b/ü%20", DAY, decimal.Decimal("1.50"), AT, ["x"], {"x": 1}, True, 0.5),
            (None, DAY, decimal.Decimal("2.50"), AT, [], {"x": 2}, False, -1.0),
        )
    ]
    options = {"schema": SALES, "create": True, "partition_by": partitions}
    written(tmp_path, *sales, {"country": "c"}, **options)
    wanted = [*sales, {**dict.fromkeys(SALES.names), "country": "c"}]
    assert sorted(kit.rows(tmp_path), key=str) == sorted(wanted, key=str)
    with kit.table(tmp_path) as table:
        found = table.scan(row_filter="country = 'c'").to_arrow().to_pylist()
    assert found == [wanted[-1]]


def test_a_table_whose_partitions_need_another_library_is_refused_without_it(
    tmp_path: Path,
) -> None:
    kit.make_table(tmp_path, SALES)
    with kit.table(tmp_path) as table, table.update_spec() as spec:
        spec.add_field("at", DayTransform(), "at_day")
    days = [AT + datetime.timedelta(days=day) for day in (0, 1, 1)]
    records = [{"at": day} for day in days]
    if find_spec("pyiceberg_core") is None:
        with pytest.raises(PlanInvalid, match=r"has partitions by day\(at\), .* pip install"):
            written(tmp_path, *records)
        return
    written(tmp_path, *records)
    assert sorted(count for _, count in kit.named_files(tmp_path)) == [1, 2]
    assert sorted(row["at"] for row in kit.rows(tmp_path)) == days


# Changes by keys.


def test_changes_are_merged_by_their_keys(place: Path) -> None:
    task = open_sink(sink_of(place, mode="upsert", keys=["n"]), sink_context())
    feed(task, (1, "a"), (2, "b"), (1, "A"), (3, "c"))
    checkpoint(task, 1)
    task.checkpoint_completed(1)
    feed(
        task,
        Row.of_kind(RowKind.UPDATE_BEFORE, 2, "b"),
        Row.of_kind(RowKind.UPDATE_AFTER, 2, "B"),
        Row.of_kind(RowKind.DELETE, 3, None),
        Row.of_kind(RowKind.DELETE, 9, None),
        (4, "d"),
    )
    checkpoint(task, 2)
    task.checkpoint_completed(2)
    task.close()
    found = sorted((row["n"], row["word"]) for row in kit.rows_by_files(place))
    assert found == [(1, "A"), (2, "B"), (4, "d")]
    assert not list((place / "warehouse").rglob("changes-*"))


CHANGES = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["x", "y's"]), st.integers(0, 9), st.booleans()),
    min_size=1,
    max_size=12,
)


def test_whatever_the_changes_the_table_has_the_last_of_each_key() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])

    @settings(max_examples=4, deadline=None)
    @given(st.lists(CHANGES, min_size=1, max_size=3))
    def merged(lots: list[list[tuple[int, str, int, bool]]]) -> None:
        with memory_folder() as place:
            kit.make_table(place, schema)
            task = open_sink(sink_of(place, mode="upsert", keys=["a", "b"]), sink_context())
            wanted: dict[tuple[int, str], int] = {}
            for number, lot in enumerate(lots, 1):
                for a, b, v, is_deleted in lot:
                    kind = RowKind.DELETE if is_deleted else RowKind.INSERT
                    feed(task, Row.of_kind(kind, a, b, v))
                    wanted.pop((a, b), None)
                    if not is_deleted:
                        wanted[a, b] = v
                checkpoint(task, number)
                task.checkpoint_completed(number)
            task.close()
            found = [((row["a"], row["b"]), row["v"]) for row in kit.rows(place)]
            assert sorted(found) == sorted(wanted.items())

    merged()


# Others at the same table, and at the same lot.


class Together(IcebergTarget):
    """Waits for the others when all have read the table and nobody has written."""

    barrier: threading.Barrier

    def check(self, table: OpenTable, lots: Any) -> None:
        super().check(table, lots)
        with suppress(threading.BrokenBarrierError):  # in the second attempt
            self.barrier.wait(20)
        self.barrier.abort()


def commit_together(place: Path, lots: list[Any], keys: tuple[str, ...] = ()) -> None:
    problems: list[BaseException] = []

    def commit(lot: Any) -> None:
        target = Together(address_of(place), address_of(place).open(), keys)
        target.barrier = barrier
        committer = StagedLotCommitter(target, bool(keys), 60_000)
        try:
            committer.commit([lot])
        except BaseException as error:
            problems.append(error)
        finally:
            committer.close()

    barrier = threading.Barrier(len(lots))
    threads = [threading.Thread(target=commit, args=(lot,)) for lot in lots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []


def address_of(place: Path) -> IcebergAddress:
    return IcebergAddress(kit.NAME, kit.settings(place), "IcebergSink")


def prepared(sink: IcebergSink, *records: Any) -> Any:
    """The lot of a task that has ended."""
    writer = sink.create_writer(sink_context())
    writer.write(list(records))
    (lot,) = writer.prepare_commit(None)
    writer.close()
    return lot


@pytest.mark.parametrize("keys", [(), ("n",)])
def test_two_attempts_that_commit_the_same_lot_at_once_commit_it_once(
    place: Path, keys: tuple[str, ...]
) -> None:
    sink = sink_of(place, mode="upsert" if keys else "append", keys=keys)
    lot = prepared(sink, (1, "a"))
    commit_together(place, [lot, lot], keys)
    assert kit.numbers(place) == [1]
    with kit.table(place) as table:
        assert len(table.snapshots()) == 1


def test_two_jobs_write_one_table_at_once(place: Path) -> None:
    append, upsert = sink_of(place), sink_of(place, mode="upsert", keys=["n"])
    commit_together(place, [prepared(append, (1, "a")), prepared(append, (2, "b"))])
    commit_together(place, [prepared(upsert, (2, "B")), prepared(upsert, (3, "c"))], ("n",))
    assert sorted((row["n"], row["word"]) for row in kit.rows(place)) == [
        (1, "a"),
        (2, "B"),
        (3, "c"),
    ]


class Overtaken(IcebergTarget):
    """Whenever it is about to commit, somebody else was faster."""

    def write(self, table: OpenTable, lots: Any) -> None:
        self.load().append(pa.table({"n": [0], "word": [""]}))
        super().write(table, lots)


def test_a_table_that_others_commit_to_all_the_time_is_given_up_in_time(place: Path) -> None:
    lot = prepared(sink_of(place), (1, "a"))
    target = Overtaken(address_of(place), address_of(place).open(), ())
    committer = StagedLotCommitter(target, False, timeout_ms=60)
    with pytest.raises(TableUnready, match="others have committed to it .* raise commit_timeout"):
        committer.commit([lot])
    committer.close()
    assert set(kit.numbers(place)) == {0}


def test_a_commit_that_others_are_faster_than_ends_with_its_task(place: Path) -> None:
    lot = prepared(sink_of(place), (1, "a"))
    target = Overtaken(address_of(place), address_of(place).open(), ())
    task = CancelledTask()
    committer = StagedLotCommitter(target, False, 60_000, task.context.sleep)
    task.cancel_while(lambda: committer.commit([lot]))
    committer.close()
    assert set(kit.numbers(place)) == {0}


# Notes of what was committed.


def test_notes_are_forgotten_after_a_month_and_older_commits_refused(place: Path) -> None:
    now_ms = 1_700_000_000_000
    with kit.table(place) as table, table.transaction() as transaction:
        transaction.set_properties({f"{NOTE}old": f"3@{now_ms}", f"{NOTE}new": f"4@{10**14}"})
    task = open_sink(sink_of(place), sink_context(now_ms=lambda: now_ms))
    feed(task, (1, "a"))
    state = checkpoint(task, 1)
    task.close()
    written(place, (2, "b"))
    noted = kit.properties(place)
    assert f"{NOTE}old" not in noted
    assert f"{NOTE}new" in noted
    assert now_ms < int(noted[FORGOTTEN])
    with pytest.raises(TableUnfit, match="from before the table's notes begin"):
        open_sink(sink_of(place), sink_context(restored=restored(state)))
    assert kit.numbers(place) == [2]


# What becomes of the table meanwhile.


def test_a_table_that_was_dropped_meanwhile_is_named(place: Path) -> None:
    task = open_sink(sink_of(place), sink_context())
    feed(task, (1, "a"))
    checkpoint(task, 1)
    with kit.catalog(place) as catalog:
        catalog.drop_table(kit.NAME)
    with pytest.raises(TableUnfit, match="the catalog has no table 'shop.sales'"):
        task.checkpoint_completed(1)
    task.close()


def test_a_table_that_was_replaced_meanwhile_is_another(place: Path) -> None:
    task = open_sink(sink_of(place), sink_context())
    feed(task, (1, "a"))
    checkpoint(task, 1)
    with kit.catalog(place) as catalog:
        catalog.drop_table(kit.NAME)
        catalog.create_table(kit.NAME, kit.SCHEMA)
    with pytest.raises(TableUnfit, match="was replaced by another table"):
        task.checkpoint_completed(1)
    task.close()


def test_columns_may_be_renamed_and_added_meanwhile(place: Path) -> None:
    task = open_sink(sink_of(place), sink_context())
    feed(task, (1, "a"))
    checkpoint(task, 1)
    with kit.table(place) as table, table.update_schema() as update:
        update.rename_column("word", "text")
        update.add_column("more", pa_type())
    task.checkpoint_completed(1)
    task.close()
    assert kit.rows(place) == [{"n": 1, "text": "a", "more": None}]


def pa_type() -> Any:
    from pyiceberg.types import DoubleType

    return DoubleType()


def test_partitions_that_were_changed_meanwhile_are_named(place: Path) -> None:
    task = open_sink(sink_of(place), sink_context())
    feed(task, (1, "a"))
    checkpoint(task, 1)
    with kit.table(place) as table, table.update_spec() as spec:
        spec.add_identity("word")
    with pytest.raises(TableUnfit, match="its partitions were changed while records waited"):
        task.checkpoint_completed(1)
    task.close()


def test_a_column_that_was_dropped_while_changes_waited_ends_the_job(place: Path) -> None:
    sink = sink_of(place, mode="upsert", keys=["n"])
    task = open_sink(sink, sink_context())
    feed(task, (1, "a"))
    state = checkpoint(task, 1)
    task.close()
    with kit.table(place) as table, table.update_schema(True) as schema:
        schema.delete_column("word")
    with pytest.raises(TableUnfit, match="its columns were changed while rows waited") as unfit:
        open_sink(sink, sink_context(restored=restored(state)))
    assert is_final(unfit.value)


def test_a_file_that_was_removed_meanwhile_ends_the_job(place: Path) -> None:
    task = open_sink(sink_of(place), sink_context())
    feed(task, (1, "a"))
    state = checkpoint(task, 1)
    task.close()
    (file,) = kit.files(place)
    file.unlink()
    with pytest.raises(PartLost, match="is not there, and its records wait for their commit"):
        open_sink(sink_of(place), sink_context(restored=restored(state)))


def test_a_full_disk_leaves_no_half_file_behind(place: Path) -> None:
    task = open_sink(sink_of(place), sink_context())
    feed(task, *((n, f"{hash(str(n)):040}") for n in range(1000)))
    with full_disk(4096), pytest.raises(PathUnusable, match="cannot be written: .*File too large"):
        checkpoint(task, 1)
    task.close()
    assert kit.files(place) == set()


def test_what_no_checkpoint_has_named_goes_with_its_task(place: Path) -> None:
    task = open_sink(sink_of(place), sink_context())
    feed(task, *((number, "a") for number in range(3_000)))
    task._writer._write_files()  # type: ignore[union-attr] # as when the buffer is full
    assert len(kit.files(place)) == 1
    task.close()
    assert kit.files(place) == set()


# Tables and records that do not fit.


def test_a_catalog_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    sink = IcebergSink({"type": "sql", "uri": f"sqlite:///{tmp_path}/no/where.db"}, "shop.sales")
    with pytest.raises(TableUnready, match="the catalog 'default' cannot be opened"):
        open_sink(sink, sink_context())


def test_a_catalog_that_does_not_answer_is_named() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    sink = IcebergSink({"name": "far", "type": "rest", "uri": address}, "shop.sales")
    with pytest.raises(TableUnready, match="the catalog 'far' cannot be opened: ConnectionError"):
        open_sink(sink, sink_context())


def test_a_missing_table_is_said_at_the_start(place: Path) -> None:
    for name in ("shop.none", "none.none"):
        with pytest.raises(TableUnfit, match=f"the catalog has no table '{name}'"):
            open_sink(IcebergSink(kit.settings(place), name), sink_context())


def test_tasks_that_create_the_same_table_find_one(tmp_path: Path) -> None:
    typed = Types.ROW_NAMED(["n", "word"], [Types.LONG(), Types.STRING()])
    sink = sink_of(tmp_path, create=True, partition_by=["word"]).for_type(typed)
    with kit.catalog(tmp_path):
        """The tables of the catalog itself are there."""
    threads = [
        threading.Thread(target=lambda: open_sink(sink, sink_context()).close()) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    open_sink(sink, sink_context()).close()
    assert kit.rows(tmp_path) == []


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
    place: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(TableUnfit, match=problem):
        open_sink(sink_of(place, **options), sink_context())


def test_a_key_that_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    place = kit.make_table(tmp_path, SALES)
    with pytest.raises(TableUnfit, match="'share' is double; keys are whole numbers, texts or"):
        open_sink(sink_of(place, mode="upsert", keys=["share"]), sink_context())


def test_a_record_that_does_not_fit_is_named_by_its_column(place: Path) -> None:
    task = open_sink(sink_of(place), sink_context())
    feed(task, ("x", "a"))
    with pytest.raises(RecordUnfit, match="operator 'out': column 'n': 'x' is no whole number"):
        checkpoint(task, 1)
    task.close()


@pytest.mark.parametrize(
    ("catalog", "table", "problem"),
    [
        ("c", "sales", "give its namespace, too"),
        (5, "shop.sales", "the catalog is a int; give the name"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(
    catalog: Any, table: str, problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        IcebergSink(catalog, table)


def test_descriptions_travel_and_show_no_password(place: Path) -> None:
    sink = pickle.loads(pickle.dumps(sink_of(place)))
    open_sink(sink, sink_context()).close()
    assert sink.default_name == "Iceberg table shop.sales"
    assert "sqlite" not in repr(sink.address)


# Whatever happens.


def test_a_writer_killed_at_any_step_writes_each_record_once() -> None:
    with memory_folder() as folder:
        jobs = killed_jobs("tests.connectors.iceberg.kit", folder)
        assert list(jobs) == ["append", "upsert"]
        for job, runs in jobs.items():
            assert len(runs) > 5
            make_sink, make_record, _ = kit.JOBS[job]
            for run in runs:
                go_on(run, make_sink, make_record)
                assert sorted(kit.numbers(run)) == list(range(20)), run


def test_whatever_happens_each_record_is_one_row() -> None:
    @settings(max_examples=4, deadline=None)
    @given(STEPS)
    def once(steps: list[tuple[Any, ...]]) -> None:
        with memory_folder() as place:
            kit.make_table(place)
            with kit.catalog(place) as catalog:
                job = SinkJob(
                    lambda: sink_of(place),
                    lambda: kit.numbers_in(catalog.load_table(kit.NAME)),
                    lambda number: (number, "x"),
                )
                run_job(job, steps, TOTAL)

    once()
