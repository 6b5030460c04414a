"""Queries and jobs that are killed between any two steps: nothing is lost, nothing comes twice.

Each process dies by SIGKILL before a step (a file that is created, settled, linked, replaced or
removed, and what Spark and the job note in checkpoints of their own), and another goes on from what
there is. Spark's part is played as it plays it: its logs of offsets and commits decide what is
repeated.
"""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from headgate.connectors.streaming.stream_log import StreamLog
from headgate.functions.context import SnapshotMoment
from headgate.spark.streaming import stream_writer
from headgate.spark.streaming.data_source import HeadgateDataSource
from tests.connectors.kill_kit import STEPS, StepKiller, dies_at
from tests.connectors.kit import read_some, task_context
from tests.connectors.streaming.kit import (
    attached_input,
    attached_output,
    discovered,
    owner,
    read_ids,
    rows,
    write_batch,
)

FILES: list[tuple[Any, str]] = [
    *((os, name) for name in ("fsync", "link", "unlink", "replace")),
    (pa.ipc, "new_file"),
]
"""Functions whose calls are steps; before the last, a part is there and empty."""
SCHEMA = StructType([StructField("id", LongType()), StructField("price", DoubleType())])
QUERY = "q"
BATCHES = 2
TASKS = 2
UNKILLED = -1


def store(file: Path, state: object, killer: StepKiller) -> None:
    """What Spark or a job notes, whole or not at all."""
    killer.step()
    file.with_suffix(".new").write_bytes(pickle.dumps(state))
    os.replace(file.with_suffix(".new"), file)
    killer.step()


def stored(file: Path, otherwise: Any) -> Any:
    return pickle.loads(file.read_bytes()) if file.exists() else otherwise


def data_source(folder: Path) -> HeadgateDataSource:
    return HeadgateDataSource({"path": str(folder)})


def write_task(folder: Path, number: int, partition: int) -> Any:
    """A task of a micro-batch; what it tells Spark. It has two rows."""
    context: Any = TaskContext._getOrCreate()
    context._partitionId = partition
    context._localProperties = {stream_writer.QUERY: QUERY, stream_writer.BATCH: str(number)}
    first = (number * TASKS + partition) * 2
    batch = rows(first, first + 1)
    given = (
        [batch]
        if stream_writer._GETS_BATCHES
        else [tuple(row.values()) for row in batch.to_pylist()]
    )
    return data_source(folder).streamWriter(SCHEMA, False).write(iter(given))


def commit(folder: Path, messages: list[Any], number: int) -> None:
    data_source(folder).streamWriter(SCHEMA, False).commit(messages, number)


@pytest.fixture(autouse=True)
def _no_task_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "_taskContext", None)


class FeedingJob:
    """A job that lives, and reads what queries have committed."""

    def __init__(self, folder: Path) -> None:
        self.source = attached_input(folder)
        self.log = StreamLog(str(folder))
        self._enumerator, _ = discovered(self.source)
        self._splits: list[Any] = []
        self.ids: list[int] = []

    def read(self) -> None:
        found = self._discover()
        self.ids += read_ids(self.source, found)
        self._splits += found

    def finish(self) -> None:
        """A checkpoint covers all; the rest is tidied up."""
        self.source.splits_finished(self._splits)
        self._discover()
        assert self.log.parts() == {} and self.log.marked_read() == set()

    def _discover(self) -> list[Any]:
        self._enumerator._tidied = 0.0
        return list(self._enumerator.discover())


def run_query(folder: Path, commits: Path, killer: StepKiller) -> None:
    """From the micro-batch after the last one in the query's own log to the last one."""
    for number in range(stored(commits, -1) + 1, BATCHES):
        messages = [write_task(folder, number, partition) for partition in range(TASKS)]
        killer.step()
        commit(folder, messages, number)
        store(commits, number, killer)


def test_a_query_that_is_killed_at_any_step_feeds_each_row_once(tmp_path: Path) -> None:
    for last in range(1, STEPS):
        folder, commits = tmp_path / str(last), tmp_path / f"commits-{last}"
        job = FeedingJob(folder)
        was_killed = dies_at(last, FILES, lambda k: run_query(folder, commits, k))  # noqa: B023
        job.read()
        run_query(folder, commits, StepKiller(UNKILLED))
        job.read()

        assert job.ids == list(range(BATCHES * TASKS * 2)), f"killed at step {last}"
        job.finish()
        if not was_killed:
            assert last > BATCHES * TASKS * 3
            return
    raise AssertionError("it has too many steps")


def test_a_commit_and_its_abort_may_be_killed_at_any_step(tmp_path: Path) -> None:
    """The process that commits dies, and so does the one that Spark then asks to abort."""
    tried: list[tuple[int, int]] = []
    for last in range(1, STEPS):
        for abort_last in range(1, STEPS):
            folder = tmp_path / f"{last}-{abort_last}"
            job = FeedingJob(folder)
            messages = [write_task(folder, 0, partition) for partition in range(TASKS)]
            writer = data_source(folder).streamWriter(SCHEMA, False)
            if not dies_at(last, FILES, lambda _: writer.commit(messages, 0)):  # noqa: B023
                assert len(tried) > last > 3
                return
            job.read()
            was_killed = dies_at(abort_last, FILES, lambda _: writer.abort(messages, 0))  # noqa: B023
            run_query(folder, tmp_path / f"commits-{last}-{abort_last}", StepKiller(UNKILLED))
            job.read()

            tried.append((last, abort_last))
            assert job.ids == list(range(BATCHES * TASKS * 2)), f"killed at {tried[-1]}"
            job.finish()
            if not was_killed:
                break
    raise AssertionError("it has too many steps")


def run_job(folder: Path, checkpoint: Path, killer: StepKiller) -> list[int]:
    """A job from its newest checkpoint until it has read all and removed it; the rows of all."""
    position, splits, ids = stored(checkpoint, (None, [], []))
    source, log = attached_input(folder, f"{os.getpid()}"), StreamLog(str(folder))
    enumerator = source.create_enumerator(1, position)
    for _ in range(STEPS):
        enumerator._tidied = 0.0
        splits += [(split, None) for split in enumerator.discover()]
        if not splits and not log.parts():
            return list(ids)
        ended, left = [], []
        for split, place in splits:
            reader = source.open(split, place, task_context())
            read = [row.id for row in read_some(reader, 1) or ()]
            ids += read
            place = reader.position()
            reader.close()
            (left if read else ended).append((split, place))
        # As tasks do: those that have ended are in it, until it is known to be complete.
        store(checkpoint, (enumerator.position(), ended + left, ids), killer)
        source.splits_finished([split for split, _ in ended])
        splits = left
    raise AssertionError("the job reads for ever")


def test_a_job_that_is_killed_at_any_step_reads_each_row_once(tmp_path: Path) -> None:
    for last in range(1, STEPS):
        folder, checkpoint = tmp_path / str(last), tmp_path / f"checkpoint-{last}"
        attached_input(folder)
        StreamLog(str(folder)).set_owner(owner(state="FAILED"))
        write_batch(folder, QUERY, 0, rows(0, 1), rows(2))
        write_batch(folder, QUERY, 1)
        write_batch(folder, QUERY, 2, rows(3))
        was_killed = dies_at(last, FILES, lambda k: run_job(folder, checkpoint, k))  # noqa: B023
        ids = run_job(folder, checkpoint, StepKiller(UNKILLED))

        assert sorted(ids) == [0, 1, 2, 3], f"killed at step {last}"
        if not was_killed:
            assert last > 20
            return
    raise AssertionError("it has too many steps")


class Shown:
    """A job that lives, and commits rows."""

    def __init__(self, folder: Path) -> None:
        sink = attached_output(folder)
        self._writer, self._committer = (
            sink.create_writer(task_context()),
            sink.create_committer(task_context()),
        )
        self._count = 0

    def show(self) -> None:
        """One row more."""
        self._writer.write([(self._count, 0.5)])
        self._count += 1
        self._committer.commit(self._writer.prepare_commit(SnapshotMoment(self._count, 0)))


class Logs:
    """What Spark keeps of a query that reads: offsets by micro-batch, commits, rows in the sink."""

    def __init__(self, folder: Path) -> None:
        self._file = folder
        self.offsets: list[str] = []
        self.committed = -1
        self.rows: dict[int, list[int]] = {}
        self.__dict__.update(stored(folder, {}))

    def store(self, killer: StepKiller) -> None:
        store(self._file, self.__dict__, killer)


def run_reader(folder: Path, place: Path, killer: StepKiller) -> None:
    """A query from its checkpoint until there is no more, as Spark's micro-batches go."""
    reader, logs = data_source(folder).streamReader(SCHEMA), Logs(place)
    while True:
        number = logs.committed + 1
        start = json.loads(logs.offsets[number - 1]) if number else reader.initialOffset()
        if number == len(logs.offsets):  # else it is repeated
            end: Any = reader.latestOffset(start, None)
            if end == start:
                return
            logs.offsets.append(json.dumps(end))
            logs.store(killer)
            if number:
                reader.commit(start)
        end = json.loads(logs.offsets[number])
        parts = reader.partitions(start, end)
        batches = [batch for part in parts for batch in reader.read(part)]
        logs.rows[number] = [row["id"] for batch in batches for row in batch.to_pylist()]
        logs.committed = number
        logs.store(killer)


@pytest.mark.parametrize("begun", [0, 1])
def test_a_query_that_is_killed_at_any_step_reads_each_row_once(tmp_path: Path, begun: int) -> None:
    """In its first micro-batch, and in a later one."""
    for last in range(1, STEPS):
        folder, place = tmp_path / str(last), tmp_path / f"query-{last}"
        job = Shown(folder)
        for _ in range(begun):
            job.show()
            run_reader(folder, place, StepKiller(UNKILLED))
        job.show()
        was_killed = dies_at(last, FILES, lambda k: run_reader(folder, place, k))  # noqa: B023
        job.show()
        run_reader(folder, place, StepKiller(UNKILLED))

        found = [number for ids in Logs(place).rows.values() for number in ids]
        assert found == list(range(begun + 2)), f"killed at step {last}"
        if not was_killed:
            assert last > 5
            return
    raise AssertionError("it has too many steps")
