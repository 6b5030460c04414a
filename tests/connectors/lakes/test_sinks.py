"""Rows of lake tables, each once: real tables, read with their library and file by file."""

import pickle
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
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
from headgate.connectors.arrow.lake_sink import StagedLotCommitter
from headgate.core.chain.snapshots import OperatorRestored
from tests.connectors.kit import CancelledTask
from tests.connectors.lake_kit import (
    checkpoint,
    commit_to_read_only,
    feed,
    full_disk,
    go_on,
    killed_jobs,
    memory_folder,
    restored,
)
from tests.connectors.once_kit import written
from tests.core.chain.sink_lab import STEPS, TOTAL, SinkJob, open_sink, run_job, sink_context

BOTH_MODES = pytest.mark.parametrize("keys", [(), ("n",)])


def sink_of(lake: Any, place: Path, keys: tuple[str, ...]) -> Any:
    return lake.sink(place, mode="upsert" if keys else "append", keys=keys)


def words(lake: Any, place: Path) -> list[tuple[int, str]]:
    return sorted((row["n"], row["word"]) for row in lake.rows_by_files(place))


def test_rows_are_there_when_their_checkpoint_is_complete(lake: Any, place: Path) -> None:
    task = open_sink(lake.sink(place), sink_context())
    feed(task, (1, "a"), Row(2, "b"))
    checkpoint(task, 1)
    feed(task, {"n": 3}, Row(word="d", n=4))
    assert lake.rows(place) == []
    task.checkpoint_completed(1)
    assert lake.rows(place) == [{"n": 1, "word": "a"}, {"n": 2, "word": "b"}]
    checkpoint(task, 2)
    task.checkpoint_completed(2)
    task.close()
    assert sorted(lake.numbers(place)) == [1, 2, 3, 4]
    assert lake.files(place) == lake.named_files(place)
    (first, second) = lake.lots(place)
    assert (first[0], first[1], second[1]) == (second[0], 1, 2)


def test_lots_of_several_checkpoints_are_one_commit(lake: Any, place: Path) -> None:
    task = open_sink(lake.sink(place), sink_context())
    for number in (1, 2, 3):
        feed(task, (number, ""))
        checkpoint(task, number)
    task.checkpoint_completed(3)
    task.close()
    assert [number for _, number in lake.lots(place)] == [3]
    assert sorted(lake.numbers(place)) == [1, 2, 3]


def test_a_lot_that_is_in_is_not_written_again(lake: Any, place: Path) -> None:
    state = written(lake.sink(place), (1, "a"))
    written(lake.sink(place), (2, "b"))
    lake.forget_first(place)
    open_sink(lake.sink(place), sink_context(restored=restored(state))).close()
    assert sorted(lake.numbers(place)) == [1, 2]


def test_a_fresh_start_with_the_same_name_is_another_writer(lake: Any, place: Path) -> None:
    written(lake.sink(place), (1, "a"))
    written(lake.sink(place), (1, "a"))
    assert lake.numbers(place) == [1, 1]
    assert len({writer for writer, _ in lake.lots(place)}) == 2


def test_a_savepoint_keeps_its_commits_for_the_job_that_is_started_from_it(
    lake: Any, place: Path
) -> None:
    task = open_sink(lake.sink(place), sink_context())
    feed(task, (1, "a"))
    state = checkpoint(task, 1, savepoint=True)
    task.close()
    assert lake.rows(place) == []
    for subtask in range(2):  # with another parallelism
        mine = OperatorRestored(1, sinks=(state,) if subtask == 0 and state else ())
        open_sink(lake.sink(place), sink_context(subtask, 2, restored=mine)).close()
    assert lake.numbers(place) == [1]


def test_changes_are_merged_by_their_keys(lake: Any, place: Path) -> None:
    task = open_sink(sink_of(lake, place, ("n",)), sink_context())
    feed(task, (1, "a"), (2, "b"), (1, "A"), (3, "c"))
    checkpoint(task, 1)
    task.checkpoint_completed(1)
    assert words(lake, place) == [(1, "A"), (2, "b"), (3, "c")]
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
    assert words(lake, place) == [(1, "A"), (2, "B"), (4, "d")]
    assert not list(place.rglob("changes-*"))


# Others at the same table, and at the same lot.


def together(target: type[Any], barrier: threading.Barrier) -> type[Any]:
    """Waits for the others when all have read the table and nobody has written."""

    class Together(target):
        def check(self, table: Any, lots: Any) -> None:
            super().check(table, lots)
            with suppress(threading.BrokenBarrierError):  # in the second attempt
                barrier.wait(20)
            barrier.abort()

    return Together


def commit_together(lake: Any, place: Path, lots: list[Any], keys: tuple[str, ...]) -> None:
    problems: list[BaseException] = []
    kind = together(lake.Target, threading.Barrier(len(lots)))

    def commit(lot: Any) -> None:
        committer = StagedLotCommitter(lake.target(place, keys, kind), bool(keys), 60_000)
        try:
            committer.commit([lot])
        except BaseException as error:
            problems.append(error)
        finally:
            committer.close()

    threads = [threading.Thread(target=commit, args=(lot,)) for lot in lots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []


def prepared(sink: Any, *records: Any) -> Any:
    """The lot of a task that has ended."""
    writer = sink.create_writer(sink_context())
    writer.write(list(records))
    (lot,) = writer.prepare_commit(None)
    writer.close()
    return lot


@BOTH_MODES
def test_two_attempts_that_commit_the_same_lot_at_once_commit_it_once(
    lake: Any, place: Path, keys: tuple[str, ...]
) -> None:
    lot = prepared(sink_of(lake, place, keys), (1, "a"))
    commit_together(lake, place, [lot, lot], keys)
    assert lake.numbers(place) == [1]
    assert len(lake.lots(place)) == 1


def test_two_jobs_write_one_table_at_once(lake: Any, place: Path) -> None:
    append, upsert = lake.sink(place), sink_of(lake, place, ("n",))
    commit_together(lake, place, [prepared(append, (1, "a")), prepared(append, (2, "b"))], ())
    changes = [prepared(upsert, (2, "B")), prepared(upsert, (3, "c"))]
    commit_together(lake, place, changes, ("n",))
    assert words(lake, place) == [(1, "a"), (2, "B"), (3, "c")]


def overtaken(lake: Any, place: Path) -> Any:
    """Whenever it is about to commit, somebody else was faster."""

    class Overtaken(lake.Target):  # type: ignore[misc,name-defined]
        def write(self, table: Any, lots: Any) -> None:
            lake.add(place, 0)
            super().write(table, lots)

    return lake.target(place, ("n",), Overtaken)


def test_a_table_that_others_commit_to_all_the_time_is_given_up_in_time(
    lake: Any, place: Path
) -> None:
    lot = prepared(sink_of(lake, place, ("n",)), (1, "a"))
    committer = StagedLotCommitter(overtaken(lake, place), True, timeout_ms=60)
    with pytest.raises(TableUnready, match="others have committed to it .* raise commit_timeout"):
        committer.commit([lot])
    committer.close()
    assert set(lake.numbers(place)) == {0}


def test_a_commit_that_others_are_faster_than_ends_with_its_task(lake: Any, place: Path) -> None:
    lot = prepared(sink_of(lake, place, ("n",)), (1, "a"))
    task = CancelledTask()
    committer = StagedLotCommitter(overtaken(lake, place), True, 60_000, task.context.sleep)
    task.cancel_while(lambda: committer.commit([lot]))
    committer.close()
    assert set(lake.numbers(place)) == {0}


# What becomes of the table meanwhile.


def test_a_table_that_was_dropped_or_replaced_meanwhile_is_named(lake: Any, place: Path) -> None:
    for make, problem in ((False, lake.MISSING), (True, "was replaced by another table")):
        task = open_sink(lake.sink(place), sink_context())
        feed(task, (1, "a"))
        checkpoint(task, 1)
        lake.drop(place)
        if make:
            lake.make_table(place)
        with pytest.raises(TableUnfit, match=problem):
            task.checkpoint_completed(1)
        task.close()
        if not make:
            lake.make_table(place)


def test_a_file_that_was_removed_meanwhile_ends_the_job(lake: Any, place: Path) -> None:
    task = open_sink(lake.sink(place), sink_context())
    feed(task, (1, "a"))
    state = checkpoint(task, 1)
    task.close()
    lake.remove_unnamed(place)
    with pytest.raises(PartLost, match="is not there, and its records wait for their commit"):
        open_sink(lake.sink(place), sink_context(restored=restored(state)))


def test_a_full_disk_leaves_no_half_file_behind(lake: Any, place: Path) -> None:
    task = open_sink(lake.sink(place), sink_context())
    feed(task, *((number, f"{hash(str(number)):040}") for number in range(1000)))
    with full_disk(4096), pytest.raises(PathUnusable, match="cannot be written: .*File too large"):
        checkpoint(task, 1)
    task.close()
    assert lake.files(place) == set()


def test_what_no_checkpoint_has_named_goes_with_its_task(lake: Any, place: Path) -> None:
    task = open_sink(lake.sink(place), sink_context())
    feed(task, *((number, "a") for number in range(3_000)))
    task._writer._write_files()  # type: ignore[union-attr] # as when the buffer is full
    assert len(lake.files(place)) == 1
    task.close()
    assert lake.files(place) == set()


# Tables and records that do not fit.


def test_a_missing_table_is_said_at_the_start(lake: Any, place: Path) -> None:
    lake.drop(place)
    with pytest.raises(TableUnfit, match=f"{lake.MISSING}.*create (the table|it) first"):
        open_sink(lake.sink(place), sink_context())


def test_tasks_that_create_the_same_table_find_one(lake: Any, place: Path) -> None:
    lake.drop(place)
    typed = Types.ROW_NAMED(["n", "word"], [Types.LONG(), Types.STRING()])
    sink = lake.sink(place, create=True, partition_by=["word"]).for_type(typed)
    threads = [
        threading.Thread(target=lambda: open_sink(sink, sink_context()).close()) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    open_sink(sink, sink_context()).close()
    assert lake.rows(place) == []
    assert lake.schema(place).names == lake.SCHEMA.names


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
    lake: Any, place: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(TableUnfit, match=problem):
        open_sink(lake.sink(place, **options), sink_context())


def test_a_record_that_does_not_fit_is_named_by_its_column(lake: Any, place: Path) -> None:
    task = open_sink(lake.sink(place), sink_context())
    feed(task, ("x", "a"))
    with pytest.raises(RecordUnfit, match="operator 'out': column 'n': 'x' is no whole number"):
        checkpoint(task, 1)
    task.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mode": "merge"}, "give one of append, upsert"),
        ({"mode": "upsert"}, r"needs keys=\[...\]"),
        ({"keys": ["n"]}, "mode='append' takes none"),
        ({"keys": "n", "mode": "upsert"}, "give a list of names"),
        ({"commit_timeout_ms": 0}, "give a whole number above 0"),
        ({"schema": pa.schema([("n", pa.int64())]), "partition_by": ["day"]}, "_by has 'day'"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(
    lake: Any, tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        lake.sink(tmp_path, **options)


def test_a_table_to_be_created_needs_a_schema(lake: Any, tmp_path: Path) -> None:
    with pytest.raises(PlanInvalid, match="has no schema, and the stream declares no type"):
        lake.sink(tmp_path, create=True).for_type(None)


def test_descriptions_travel_and_show_no_password(lake: Any, place: Path) -> None:
    sink = pickle.loads(pickle.dumps(lake.sink(place)))
    open_sink(sink, sink_context()).close()
    assert sink.default_name.startswith(lake.KIND)
    assert "sqlite" not in repr(sink.address)


# Whatever happens.


@pytest.mark.parametrize("job", ["append", "upsert"])
def test_a_folder_that_is_read_only_is_named_and_costs_no_record(lake: Any, job: str) -> None:
    make_sink, make_record, _ = lake.JOBS[job]
    with memory_folder() as folder:
        lake.prepare(folder)
        commit, write = commit_to_read_only(make_sink, make_record, folder)
        assert "it does not take a commit: " in commit and "Permission denied" in commit
        assert commit.endswith("; check its address, rights and space")
        assert str(folder) in write and "cannot be written: " in write
        assert "Permission denied" in write and "rights and space" in write
        assert "\n" not in commit + write
        assert sorted(lake.job_numbers(folder)) == [0, 1, 2]


def test_a_writer_killed_at_any_step_writes_each_record_once(lake: Any) -> None:
    with memory_folder() as folder:
        jobs = killed_jobs(lake.__name__, folder)
        assert list(jobs) == ["append", "upsert"]
        for job, runs in jobs.items():
            assert len(runs) > 5
            make_sink, make_record, _ = lake.JOBS[job]
            for run in runs:
                go_on(run, make_sink, make_record)
                assert sorted(lake.job_numbers(run)) == list(range(20)), run


def test_whatever_happens_each_record_is_one_row(lake: Any) -> None:
    @settings(max_examples=4, deadline=None)
    @given(STEPS)
    def once(steps: list[tuple[Any, ...]]) -> None:
        with memory_folder() as folder:
            place = lake.make_table(folder / "table")
            with lake.reading(place) as numbers:
                job = SinkJob(lambda: lake.sink(place), numbers, lambda number: (number, "x"))
                run_job(job, steps, TOTAL)

    once()
