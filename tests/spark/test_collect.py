"""Records on their way to whoever iterates in the driver: each once, over all runs of a job."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from headgate.base.elements import Bundle
from headgate.core.chain.snapshots import OperatorRestored
from headgate.functions.context import SnapshotMoment
from headgate.host.driver.results import ResultServer
from headgate.spark import collect
from headgate.spark.collect import BatchReceiver, CollectedResults, CollectSink, ResultBatch
from tests.core.chain.sink_lab import STEPS, TOTAL, SinkJob, open_sink, run_job, sink_context


@pytest.fixture(scope="module")
def server() -> Iterator[ResultServer]:
    server = ResultServer()
    yield server
    server.close()


def connected(server: ResultServer) -> CollectSink:
    sink = CollectSink()
    stream = sink.driver_stream
    assert stream.take is not None
    stream.address = server.open(stream.take)
    return sink


def got(sink: CollectSink) -> list[Any]:
    assert sink.results is not None
    return [record for records in sink.results._lists for record in records]


def test_without_checkpoints_records_arrive_as_they_come(server: ResultServer) -> None:
    sink = connected(server)
    task = open_sink(sink, sink_context(checkpoints=False))
    task.process(Bundle([1, 2]), 0)
    task.before_barrier(SnapshotMoment(1, 0))
    assert task.snapshot(SnapshotMoment(1, 0, is_savepoint=True)).sink is None
    assert got(sink) == [1, 2]
    task.process(Bundle([3]), 0)
    task.finish()
    task.close()
    assert got(sink) == [1, 2, 3]


def test_with_checkpoints_records_arrive_when_one_is_complete(server: ResultServer) -> None:
    sink = connected(server)
    task = open_sink(sink, sink_context())
    task.process(Bundle([1]), 0)
    task.process(Bundle([2]), 0)
    state = task.snapshot(SnapshotMoment(1, 0)).sink
    assert got(sink) == []
    task.checkpoint_completed(1)
    assert got(sink) == [1, 2]
    task.close()
    assert state is not None
    open_sink(sink, sink_context(restored=OperatorRestored(1, sinks=(state,)))).close()
    assert got(sink) == [1, 2]


def test_large_batches_are_cut(server: ResultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "BATCH_BYTES", 100)
    sink = connected(server)
    task = open_sink(sink, sink_context())
    for number in range(10):
        task.process(Bundle([str(number) * 30]), 0)
    task.snapshot(SnapshotMoment(1, 0))
    task.checkpoint_completed(1)
    task.close()
    assert got(sink) == [str(number) * 30 for number in range(10)]
    assert sink.results is not None and len(sink.results._lists) > 3


def test_two_runs_that_send_the_same_batch_at_once_deliver_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collect, "QUEUED_LISTS", 1)
    results = CollectedResults()
    receiver = BatchReceiver(results)
    receiver([0])  # from now on there is no room
    batch = ResultBatch("w", 1, (b"\x80\x05]K\x01a.",))
    runs = [threading.Thread(target=receiver, args=(batch,)) for _ in range(2)]
    for run in runs:
        run.start()
    found = [next(results), next(results)]
    for run in runs:
        run.join()
    assert found == [0, 1]
    assert not results._lists


def test_whatever_happens_each_record_arrives_once(
    server: ResultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "QUEUED_LISTS", 10_000)

    @settings(max_examples=30, deadline=None)
    @given(STEPS)
    def once(steps: list[tuple[Any, ...]]) -> None:
        sink = connected(server)
        run_job(SinkJob(lambda: sink, lambda: got(sink)), steps, TOTAL)
        assert sink.driver_stream.address is not None
        server.close_stream(sink.driver_stream.address)

    once()
