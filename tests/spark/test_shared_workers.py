"""Workers with several slots: tasks of one operator in one process, apart from each other."""

import os
from typing import TYPE_CHECKING, Any

import pytest

from headgate.base.errors import JobExceedsMemory, SlotsShort
from headgate.common import Configuration
from headgate.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from headgate.datastream.connectors import NumberSequenceSource
from headgate.spark import submission
from headgate.spark.session import slots
from tests.spark.programs import Numbered, WithProcess, collected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


def environment(parallelism: int, **settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(parallelism)


class Tally(MapFunction[Any, Any]):
    """Counts in an attribute, which is the task's own."""

    def __init__(self) -> None:
        self.count = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        self.count += 1
        return self.subtask, self.count, os.getpid()


def test_tasks_of_a_worker_have_functions_of_their_own() -> None:
    env = environment(6, **{"worker.slots": "3"})
    found = collected(env.from_source(NumberSequenceSource(1, 60)).rebalance().map(Tally()))
    process_of = {subtask: process for subtask, _, process in found}
    assert len(set(process_of.values())) == 2
    assert process_of[0] == process_of[1] == process_of[2] != process_of[3]
    for subtask in range(6):
        counts = [count for task, count, _ in found if task == subtask]
        assert counts == list(range(1, len(counts) + 1))
    assert len(found) == 60


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_keys_are_counted_in_order_with_either_backend(backend: str) -> None:
    env = environment(8, **{"worker.slots": "4", "state.backend.type": backend})
    numbers = env.from_source(NumberSequenceSource(0, 4_999))
    counted = numbers.key_by(lambda n: n % 100).process(Numbered())
    assert len(collected(counted)) == 5_000


def test_a_local_job_with_many_slots_shares_workers_by_itself(
    monkeypatch: pytest.MonkeyPatch, spark: "SparkSession"
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    env = environment(20)
    found = collected(env.from_source(NumberSequenceSource(1, 200)).rebalance().map(WithProcess()))
    assert len(found) == 200
    assert len({process for process, _ in found}) == 4 <= slots(spark).total
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    env.from_collection([1]).rebalance().map(lambda n: n).print()
    with pytest.raises(SlotsShort, match="the job needs 20 slots and Spark has"):
        env.execute()


def test_one_slot_can_be_asked_for() -> None:
    env = environment(9, **{"worker.slots": "1"})
    env.from_collection([1]).rebalance().map(lambda n: n).print()
    with pytest.raises(SlotsShort, match="the job needs 9 slots and Spark has"):
        env.execute()


def test_slots_that_do_not_fit_into_a_workers_memory_get_more_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    size, tried = submission.size_exchange, []

    def short(graph: Any, settings: Any) -> Any:
        tried.append(graph.slots_per_worker)
        if graph.slots_per_worker > 3:
            raise JobExceedsMemory(graph.name, 9, 8, 1, "")
        return size(graph, settings)

    monkeypatch.setattr(submission, "size_exchange", short)
    env = environment(12)
    found = collected(env.from_source(NumberSequenceSource(1, 50)).rebalance().map(WithProcess()))
    assert tried == [1, 6, 3]
    assert len({process for process, _ in found}) == 4
    env = environment(12, **{"worker.slots": "6"})
    env.from_collection([1]).rebalance().map(lambda n: n).print()
    with pytest.raises(JobExceedsMemory):
        env.execute()


def test_a_job_that_reads_dataframes_has_one_slot_in_each_worker(spark: "SparkSession") -> None:
    env = environment(2, **{"worker.slots": "2"})
    rows = env.from_dataframe(spark.range(40)).map(lambda row: row.id).map(WithProcess())
    assert len({process for process, _ in collected(rows)}) == 2
