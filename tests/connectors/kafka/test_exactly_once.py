"""The Kafka sink exactly once: whoever dies, wakes or repeats, each record is there once."""

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from headgate.base.errors import ConnectorError, KafkaRefused, KafkaUnready, RecordsLost
from headgate.connectors.kafka.client import KafkaCluster
from headgate.connectors.kafka.producer import SinkProducer
from headgate.connectors.kafka.transactions import ProgressTopic
from headgate.control.error_classes import is_final
from tests.connectors.kafka.broker_kit import (
    PATIENCE_S,
    ROOT,
    StrictBroker,
    create_topic,
    delete_topic,
    read_all,
    transactional,
    values,
)
from tests.connectors.kafka.sink_kit import feed, restored, seen, take, text_sink
from tests.connectors.kafka.writer_process import STEPS
from tests.connectors.once_kit import written
from tests.core.chain.sink_lab import SinkJob, open_sink, sink_context

NewTopic = Callable[..., str]
TOTAL = 200


def test_records_are_there_when_their_checkpoint_is_complete(
    address: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    task = open_sink(text_sink(address, topic), sink_context())
    feed(task, "a", "b")
    take(task, 1)
    feed(task, "c")
    assert values(read_all(address, topic, "read_uncommitted")) == []
    task.checkpoint_completed(1)
    assert seen(address, topic) == ["a", "b"]
    take(task, 2)
    task.checkpoint_completed(2)
    task.close()
    assert seen(address, topic) == ["a", "b", "c"]


def test_no_transaction_is_open_while_records_wait(
    strict_broker: StrictBroker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    sink = text_sink(strict_broker.address, topic, transactional_id_prefix=topic)
    task = open_sink(sink, sink_context())
    feed(task, "a")
    take(task, 1)
    task.checkpoint_completed(1)
    feed(task, "b")
    take(task, 2)
    states = strict_broker.order("transactions")
    (found,) = [(name, state) for name, state in states.items() if name.startswith(topic)]
    assert found[0].startswith(f"{topic}-job-1-the-sink-0-")
    assert found[1] == "committed"
    task.close()


def test_without_checkpoints_everything_is_committed_at_the_end(
    address: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    task = open_sink(text_sink(address, topic), sink_context(checkpoints=False))
    feed(task, "a")
    assert seen(address, topic) == []
    task.finish()
    task.close()
    assert seen(address, topic) == ["a"]


def test_a_lot_that_is_in_is_not_written_again_and_one_that_is_not_is(
    address: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    sink = text_sink(address, topic)
    task = open_sink(sink, sink_context())
    feed(task, "a")
    take(task, 1)
    task.checkpoint_completed(1)
    feed(task, "b")
    state = take(task, 2)
    task.close()
    assert seen(address, topic) == ["a"]
    for _ in range(2):
        open_sink(sink, sink_context(restored=restored(state))).close()
        assert seen(address, topic) == ["a", "b"]


def test_a_job_that_starts_afresh_under_the_same_name_loses_nothing(
    address: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    for record in ("first start", "second start"):
        written(text_sink(address, topic), record)
    assert seen(address, topic) == ["first start", "second start"]


def test_a_writer_that_is_killed_at_every_step_writes_each_record_once(
    address: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(2)
    command = [sys.executable, "-m", "tests.connectors.kafka.writer_process"]
    done = subprocess.run(
        [*command, address, topic, str(tmp_path), str(TOTAL), *STEPS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = sorted(int(value) for value in seen(address, topic, 2))
    assert found == list(range(len(found)))
    assert len(found) >= TOTAL


@pytest.mark.parametrize("has_committed", [False, True])
def test_a_frozen_writer_that_wakes_up_after_its_successor_writes_nothing(
    address: str, new_topic: NewTopic, has_committed: bool
) -> None:
    topic = new_topic()
    sink = text_sink(address, topic)
    frozen = open_sink(sink, sink_context())
    if has_committed:
        feed(frozen, "a")
        take(frozen, 1)
        frozen.checkpoint_completed(1)
    feed(frozen, "b")
    state = take(frozen, 2)
    successor = open_sink(sink, sink_context(attempt=1, restored=restored(state)))
    if has_committed:
        with pytest.raises(ConnectorError, match="another attempt of this task has taken over"):
            frozen.checkpoint_completed(2)
    else:
        frozen.checkpoint_completed(2)  # it sees that everything is there
    feed(successor, "c")
    take(successor, 3)
    successor.checkpoint_completed(3)
    successor.close()
    frozen.close()
    assert seen(address, topic) == (["a"] if has_committed else []) + ["b", "c"]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_commit_on_its_way_while_a_successor_starts_counts_once(
    strict_broker: StrictBroker, new_topic: NewTopic, is_late: bool
) -> None:
    topic, address = new_topic(), strict_broker.address
    sink = text_sink(address, topic)
    task = open_sink(sink, sink_context())
    feed(task, "a")
    state = take(task, 1)
    strict_broker.fault("EndTxn", "hold")
    with ThreadPoolExecutor(1) as thread:
        commit = thread.submit(task.checkpoint_completed, 1)
        strict_broker.until_hit("EndTxn", "hold")
        if not is_late:
            strict_broker.order("release")
            commit.result()
        successor = open_sink(sink, sink_context(attempt=1, restored=restored(state)))
        assert seen(address, topic) == ["a"]
        if is_late:
            strict_broker.order("release")
            with pytest.raises(ConnectorError, match="another attempt of this task has taken over"):
                commit.result()
    successor.close()
    task.close()
    assert seen(address, topic) == ["a"]


@pytest.mark.parametrize(
    ("api", "action"),
    [
        ("InitProducerId", "drop-after"),
        ("Produce", "drop-after"),
        ("EndTxn", "drop-before"),
        ("EndTxn", "drop-after"),
    ],
)
def test_a_lost_connection_repeats_no_record(
    strict_broker: StrictBroker, new_topic: NewTopic, api: str, action: str
) -> None:
    topic, address = new_topic(), strict_broker.address
    task = open_sink(text_sink(address, topic), sink_context())
    feed(task, "a", "b")
    take(task, 1)
    strict_broker.fault(api, action)
    task.checkpoint_completed(1)
    strict_broker.until_hit(api, action)
    task.close()
    assert seen(address, topic) == ["a", "b"]


@pytest.mark.parametrize("api", ["ListOffsets", "Fetch"])
def test_a_connection_lost_while_the_progress_is_read_repeats_no_record(
    strict_broker: StrictBroker, new_topic: NewTopic, api: str
) -> None:
    topic, address = new_topic(), strict_broker.address
    sink = text_sink(address, topic)
    state = written(sink, "a")
    strict_broker.fault(api, "drop-before", times=2)
    open_sink(sink, sink_context(restored=restored(state))).close()
    strict_broker.until_hit(api, "drop-before")
    assert seen(address, topic) == ["a"]


def test_a_broker_that_is_killed_and_started_again_repeats_no_record(
    own_broker: StrictBroker,
) -> None:
    address, topic = own_broker.address, "topic"
    create_topic(address, topic)
    task = open_sink(text_sink(address, topic), sink_context())
    feed(task, "a")
    take(task, 1)
    task.checkpoint_completed(1)
    feed(task, "b")
    take(task, 2)
    own_broker.fault("Produce", "hold")
    committing = threading.Thread(target=task.checkpoint_completed, args=(2,))
    committing.start()
    own_broker.until_hit("Produce", "hold")  # in the middle of the transaction
    own_broker.server.kill()
    own_broker.server.start()
    committing.join()
    task.close()
    assert seen(address, topic) == ["a", "b"]


def test_a_record_that_the_broker_refuses_at_the_commit_is_named_and_nothing_is_seen(
    address: str, new_topic: NewTopic
) -> None:
    topic = new_topic(**{"max.message.bytes": "1000"})
    task = open_sink(text_sink(address, topic), sink_context())
    feed(task, "small", "x" * 2000)
    take(task, 1)
    with pytest.raises(KafkaRefused, match=rf"topic '{topic}' \[0\] is too large"):
        task.checkpoint_completed(1)
    task.close()
    assert seen(address, topic) == []


def test_progress_after_an_open_transaction_of_somebody_else_is_waited_for(
    address: str, new_topic: NewTopic
) -> None:
    topic, progress = new_topic(), new_topic()
    sink = text_sink(address, topic, progress_topic=progress)
    task = open_sink(sink, sink_context())
    other = transactional(address, topic)
    other.begin_transaction()
    other.produce(progress, b'{"lots": 1}', b"another writer")
    assert other.flush(30) == 0
    feed(task, "a")
    state = take(task, 1)
    ending = threading.Timer(0.5, lambda: other.abort_transaction(30))
    ending.start()
    task.checkpoint_completed(1)
    ending.join()
    other.begin_transaction()
    other.produce(progress, b'{"lots": 2}', b"another writer")
    assert other.flush(30) == 0
    task.close()
    soon = {"default.api.timeout.ms": "1500", "transaction.timeout.ms": "1000"}
    cluster = KafkaCluster("KafkaSink", address, soon)
    with (
        closing(ProgressTopic(cluster, progress, "sink")) as impatient,
        pytest.raises(KafkaUnready, match=f"'{progress}': for 1.5 s nothing .*is open for longer"),
    ):
        impatient.read(["a writer"], ())
    other.commit_transaction(30)
    other.close()
    open_sink(sink, sink_context(restored=restored(state))).close()
    assert seen(address, topic) == ["a"]


@pytest.mark.parametrize("since", [(1,), (0, 0)])
def test_progress_in_a_topic_that_was_made_anew_is_told(
    address: str, new_topic: NewTopic, since: tuple[int, ...]
) -> None:
    cluster = KafkaCluster("KafkaSink", address)
    with (
        closing(ProgressTopic(cluster, new_topic(), "sink")) as progress,
        pytest.raises(RecordsLost, match="was made anew, or has lost records") as lost,
    ):
        progress.read(["a writer"], since)
    assert is_final(lost.value), "no other attempt would find it"


def test_a_progress_topic_that_was_deleted_ends_the_job(address: str, new_topic: NewTopic) -> None:
    topic, progress = new_topic(), new_topic()
    hurried = {"default.api.timeout.ms": "2000"}
    sink = text_sink(address, topic, progress_topic=progress, properties=hurried)
    task = open_sink(sink, sink_context())
    feed(task, "a")
    state = take(task, 1)
    task.close()
    delete_topic(address, progress)
    with pytest.raises(RecordsLost, match=f"'{progress}', which says .* is gone") as lost:
        open_sink(sink, sink_context(restored=restored(state)))
    assert is_final(lost.value)


def test_a_progress_topic_that_was_made_anew_and_has_grown_is_noticed(
    address: str, new_topic: NewTopic
) -> None:
    topic, progress = new_topic(), new_topic()
    sink = text_sink(address, topic, progress_topic=progress)
    state = written(sink, "a")
    delete_topic(address, progress)
    create_topic(address, progress)
    for _ in range(3):  # more notes than the old one had
        open_sink(sink, sink_context()).close()
    with pytest.raises(RecordsLost, match=f"'{progress}', .* it was made anew"):
        open_sink(sink, sink_context(restored=restored(state)))
    assert seen(address, topic) == ["a"]


def test_lots_that_have_waited_are_written_one_by_one(
    address: str, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    task = open_sink(text_sink(address, topic), sink_context())
    begun: list[None] = []
    begin = SinkProducer.begin
    monkeypatch.setattr(SinkProducer, "begin", lambda self: (begun.append(None), begin(self)))
    for number in (1, 2, 3):
        feed(task, str(number))
        take(task, number)
    task.checkpoint_completed(3)
    task.close()
    assert len(begun) == 3
    assert seen(address, topic) == ["1", "2", "3"]


def test_a_transaction_that_takes_too_long_is_told_as_such(
    strict_broker: StrictBroker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    soon = {"transaction.timeout.ms": "1000"}
    task = open_sink(text_sink(strict_broker.address, topic, properties=soon), sink_context())
    feed(task, "a")
    state = take(task, 1)
    strict_broker.fault("AddPartitionsToTxn", "hold")
    with pytest.raises(KafkaUnready, match=r"not written within 1 s.*transaction\.timeout\.ms"):
        task.checkpoint_completed(1)
    strict_broker.order("release")
    task.close()
    open_sink(
        text_sink(strict_broker.address, topic), sink_context(restored=restored(state))
    ).close()
    assert seen(strict_broker.address, topic) == ["a"]


def test_progress_that_a_topic_has_dropped_by_age_is_told(
    address: str, new_topic: NewTopic
) -> None:
    topic, progress = new_topic(), new_topic()
    sink = text_sink(address, topic, progress_topic=progress)
    state = written(sink, "a")
    admin = AdminClient({"bootstrap.servers": address})
    place = TopicPartition(progress, 0, OFFSET_END)
    admin.delete_records([place])[place].result(PATIENCE_S)
    with pytest.raises(RecordsLost, match=f"'{progress}', .* knows nothing of 1 of its writers"):
        open_sink(sink, sink_context(restored=restored(state)))
    assert seen(address, topic) == ["a"]
    task = open_sink(sink, sink_context())  # one that is new is not concerned
    feed(task, "b")
    take(task, 1)
    task.checkpoint_completed(1)
    task.close()
    assert seen(address, topic) == ["a", "b"]


def test_progress_that_is_none_is_told(address: str, new_topic: NewTopic) -> None:
    topic, progress = new_topic(), new_topic()
    sink = text_sink(address, topic, progress_topic=progress)
    task = open_sink(sink, sink_context())
    feed(task, "a")
    state = take(task, 1)
    task.checkpoint_completed(1)
    begun, noted = read_all(address, progress)
    assert begun.key() == noted.key()
    task.close()
    stranger = transactional(address, topic)
    stranger.begin_transaction()
    stranger.produce(progress, b"junk", noted.key())
    stranger.commit_transaction(30)
    stranger.close()
    with pytest.raises(ConnectorError, match="let nobody else write to this topic"):
        open_sink(sink, sink_context(restored=restored(state)))


def test_more_records_than_may_wait_are_an_error_that_says_what_to_do(
    address: str, new_topic: NewTopic
) -> None:
    task = open_sink(text_sink(address, new_topic(), max_pending_bytes=500), sink_context())
    with pytest.raises(ConnectorError, match="more than 500 bytes wait for the next checkpoint"):
        feed(task, *["word"] * 1000)
    task.close()


def test_savepoints_crashes_and_other_parallelisms_lose_and_repeat_nothing(
    address: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    job = SinkJob(
        lambda: text_sink(address, topic),
        lambda: [int(value) for value in seen(address, topic, 2)],
        str,
        parallelism=2,
    )
    try:
        job.write(6)
        job.store(job.take())
        job.write(4)
        job.take(savepoint=True)  # what is prepared with it waits for the next checkpoint
        job.write(4)
        job.store(job.take(), notified=1)  # one task learns of it, then all die
        job.check()
        job.crash(3, frozen=True)
        job.check()
        job.write(6)
        savepoint = job.take(savepoint=True)
        job.store(savepoint)
        job.crash(1, savepoint=True)  # from the savepoint, whose records are not committed
        job.check()
        job.wake_frozen()
        job.write(5)
        job.stop(2, notified=0)  # with a savepoint that no task learns of
        job.check()
        job.end(40)
    finally:
        job.close()
