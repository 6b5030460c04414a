"""The Kafka source where Kafka is not well: away, refusing, moved, cleaned up, or too much."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from headgate.base.errors import ConnectorError, KafkaRefused, KafkaUnready, OffsetsLost
from headgate.common import Types
from headgate.connectors.formats.json import JsonRowDeserializationSchema
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.kafka import fetcher
from headgate.connectors.kafka.enumerator import KafkaTopics
from headgate.connectors.kafka.offsets import KafkaOffsetsInitializer
from headgate.connectors.kafka.source import KafkaSource
from headgate.control.error_classes import is_final, is_outside
from headgate.functions.context import SnapshotMoment
from tests.connectors.kafka.broker_kit import StrictBroker, transactional
from tests.connectors.kafka.kit import QUICK, MockCluster, text_source
from tests.connectors.kit import PATIENCE_S, read_some, read_to_end, read_until, task_context
from tests.servers import free_port

LATEST = KafkaOffsetsInitializer.latest()
COMMIT_REQUEST, FETCH_REQUEST = 8, 1


@pytest.fixture
def brokers() -> Iterator[MockCluster]:
    """Two, for a test that breaks them."""
    made = MockCluster(2)
    yield made
    made.close()


def open_all(source: KafkaSource, context: Any = None) -> list[Any]:
    context = context or task_context()
    return [source.open(split, None, context) for split in source.splits(1)]


def strict_source(broker: StrictBroker, topic: Any, **settings: Any) -> KafkaSource:
    properties = QUICK | settings.pop("properties", {})
    settings.setdefault("schema", SimpleStringSchema())
    return KafkaSource(broker.address, topic, properties=properties, **settings)


def write(broker: StrictBroker, topic: str, values: list[str], **fields: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for at, value in enumerate(values):
        producer.produce(topic, value, timestamp=1000 + at, **fields)
        producer.flush(PATIENCE_S)


def eventually(done: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < give_up, what
        time.sleep(0.01)


# Where it starts.


def test_an_address_where_nobody_listens_is_told_in_one_sentence(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{free_port()}"
    source = KafkaSource(address, "t", properties={"default.api.timeout.ms": 600, **QUICK})
    with caplog.at_level(logging.INFO), pytest.raises(KafkaUnready) as caught:
        source.splits(1)
    text = str(caught.value)
    assert text.startswith(f"KafkaSource: looking for topic 't': {address}: ")
    assert "Connection refused" in text and "check that the servers run" in text
    assert is_outside(caught.value)
    lines = [line for line in caplog.messages if "Connection refused" in line]
    assert 1 <= len(lines) <= 2, "the same line is logged once a minute"
    assert capfd.readouterr().err == "", "librdkafka does not write past the log"


def test_a_name_that_nobody_knows_is_told() -> None:
    source = KafkaSource("no.such.host.invalid:9092", "t", properties={"default.api.timeout.ms": 1})
    with pytest.raises(KafkaUnready, match="no.such.host.invalid:9092"):
        source.splits(1)


def test_wrong_credentials_are_refused_at_once(tmp_path: Path) -> None:
    broker = StrictBroker(tmp_path, "--login", "me:secret")
    broker.server.start()
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    jaas = 'org.apache.PlainLoginModule required username="me" password="{}";'
    try:
        wrong = login | {"sasl.jaas.config": jaas.format("guess")}
        with pytest.raises(KafkaRefused, match="check security.protocol, sasl.mechanism, sasl.use"):
            strict_source(broker, "t", properties=wrong).splits(1)
        right = login | {"sasl.jaas.config": jaas.format("secret")}
        with pytest.raises(KafkaRefused, match="create the topic"):
            strict_source(broker, "t", properties=right).splits(1)
    finally:
        broker.server.stop()


def test_times_are_turned_into_offsets(
    strict_broker: StrictBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    write(strict_broker, topic, list("abcdef"))
    start, stop = (KafkaOffsetsInitializer.timestamp(at) for at in (1002, 1004))
    [reader] = open_all(strict_source(strict_broker, topic, start=start, stop=stop))
    assert read_to_end(reader) == ["c", "d"]
    reader.close()


def test_a_bounded_source_ends_after_the_marks_of_transactions(
    strict_broker: StrictBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    producer = transactional(strict_broker.address, topic)
    for value, ending in (("a", "commit"), ("b", "abort")):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(PATIENCE_S)
        getattr(producer, f"{ending}_transaction")(PATIENCE_S)
    [reader] = open_all(strict_source(strict_broker, topic, stop=LATEST))
    assert read_to_end(reader) == ["a"], "what was aborted is not seen"
    reader.close()


# Partitions and topics that come later.


def test_partitions_and_topics_that_come_later_are_found_once(
    strict_broker: StrictBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    write(strict_broker, topic, ["a"])
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(strict_broker.address)
        .set_topic_pattern(f"{topic}(-more)?")
        .set_starting_offsets(LATEST)
        .set_property("partition.discovery.interval.ms", "50")
        .build()
    )
    enumerator = source.create_enumerator(1, None)
    assert enumerator.interval_ms == 50
    [split] = enumerator.discover()
    assert (split.topic, split.partition, split.start) == (topic, 0, 1)
    assert enumerator.discover() == []
    admin = AdminClient({"bootstrap.servers": strict_broker.address})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(PATIENCE_S)
    found: list[Any] = []
    eventually(lambda: found.extend(enumerator.discover()) or found, "the new partition")
    assert [(at.topic, at.partition, at.start) for at in found] == [(topic, 1, -2)]
    position = enumerator.position()
    enumerator.close()
    again = source.create_enumerator(3, position)
    assert again.discover() == []
    again.close()


# While it reads.


def test_a_leader_that_changes_and_a_broker_that_is_away_only_delay(brokers: MockCluster) -> None:
    topic = brokers.new_topic()
    brokers.call("lead", topic, 0, 1)
    [reader] = open_all(text_source(brokers, topic))
    brokers.produce(topic, ["a"])
    assert read_until(reader, bool) == ["a"]
    brokers.call("lead", topic, 0, 2)
    brokers.produce(topic, ["b"])
    assert read_until(reader, bool) == ["b"]
    brokers.call("down", 2)
    give_up = time.monotonic() + 0.2
    while time.monotonic() < give_up:
        assert read_some(reader) == []
        time.sleep(0.01)
    brokers.call("up", 2)
    brokers.produce(topic, ["c"])
    assert read_until(reader, bool) == ["c"]
    reader.close()


def test_requests_that_fail_are_repeated_without_loss(brokers: MockCluster) -> None:
    topic = brokers.new_topic()
    brokers.call("fail", FETCH_REQUEST, [6, 5, 7, 3, 6])  # not leader, no leader, timed out ...
    values = [str(n) for n in range(50)]
    brokers.produce(topic, values)
    [reader] = open_all(text_source(brokers, topic, stop=LATEST))
    assert read_to_end(reader) == values
    reader.close()


def test_a_broker_that_hangs_does_not_keep_the_task_from_ending(
    brokers: MockCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fetcher, "CLOSE_S", 0.5)
    topic = brokers.new_topic()
    brokers.produce(topic, ["a"])
    [reader] = open_all(text_source(brokers, topic, group_id="hanging"))
    read_until(reader, bool)
    reader.position_at(SnapshotMoment(1, 0))
    with brokers.stopped():
        reader.checkpoint_completed(1)
        reader.close()
        assert "is left to close by itself" in caplog.text
    client_threads = [thread for thread in threading.enumerate() if "kafka" in thread.name]
    for thread in client_threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_server_that_restarts_is_read_on(own_broker: StrictBroker) -> None:
    from tests.connectors.kafka.broker_kit import create_topic

    create_topic(own_broker.address, "t")
    write(own_broker, "t", ["a"])
    [reader] = open_all(strict_source(own_broker, "t"))
    assert read_until(reader, bool) == ["a"]
    own_broker.server.kill()
    assert read_some(reader) == []
    own_broker.server.start()
    write(own_broker, "t", ["b"])
    assert read_until(reader, bool) == ["b"]
    reader.close()


def test_records_that_were_deleted_before_they_were_read_fail_the_job(cluster: MockCluster) -> None:
    topic = cluster.new_topic()
    cluster.produce(topic, "abcdef")
    source = text_source(cluster, topic)
    [split] = source.splits(1)
    cluster.call("delete_before", topic, 0, 4)
    reader = source.open(split, 2, task_context())
    with pytest.raises(OffsetsLost) as caught:
        read_until(reader, bool)
    assert f"{topic}-0 has no record at offset 2 any more" in str(caught.value)
    assert "auto.offset.reset to earliest" in str(caught.value)
    assert is_final(caught.value), "no other attempt finds them"
    reader.close()
    lenient = text_source(cluster, topic, {"auto.offset.reset": "earliest"})
    reader = lenient.open(split, 2, task_context())
    assert read_until(reader, lambda records: len(records) == 2) == ["e", "f"]
    reader.close()


def test_topics_that_are_deleted_are_told_when_partitions_are_looked_for(
    strict_broker: StrictBroker, new_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    by_name = strict_source(strict_broker, topic).create_enumerator(1, None)
    matching = KafkaTopics(pattern=topic)
    by_pattern = strict_source(strict_broker, matching).create_enumerator(1, None)
    assert [split.topic for each in (by_name, by_pattern) for split in each.discover()] == [
        topic
    ] * 2
    admin = AdminClient({"bootstrap.servers": strict_broker.address})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    with pytest.raises(KafkaRefused, match=f"looking for topic '{topic}'.*create the topic, or"):
        by_name.discover()
    assert by_pattern.discover() == []
    assert f"{topic}-0 is not there any more" in caplog.text
    by_name.close()
    by_pattern.close()


def test_a_record_that_cannot_be_read_is_named(cluster: MockCluster) -> None:
    topic = cluster.new_topic()
    cluster.produce(topic, ['{"n": 1}', "{", '{"n": 2}'])
    rows = JsonRowDeserializationSchema(Types.ROW_NAMED(["n"], [Types.LONG()]))
    source = text_source(cluster, topic, schema=rows, stop=LATEST)
    [reader] = open_all(source)
    with pytest.raises(ConnectorError, match=f"the record at offset 1 of {topic}-0 cannot be read"):
        read_to_end(reader)
    reader.close()


def test_a_policy_skips_what_cannot_be_read(cluster: MockCluster) -> None:
    from dataclasses import replace

    topic = cluster.new_topic()
    cluster.produce(topic, ['{"n": 1}', "{", "[]", '{"n": 2}'])
    rows = JsonRowDeserializationSchema(Types.ROW_NAMED(["n"], [Types.LONG()]))
    rejected: list[tuple[object, Exception]] = []
    context = replace(task_context(), malformed=lambda raw, why: rejected.append((raw, why)))
    [reader] = open_all(text_source(cluster, topic, schema=rows, stop=LATEST), context)
    assert [row.n for row in read_to_end(reader)] == [1, 2]
    assert [raw for raw, _ in rejected] == [b"{", b"[]"]
    assert reader.position() == 4
    reader.close()


# Too much, and too little.


def test_what_waits_for_a_slow_task_is_bounded(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "BUFFERED_RECORDS", 100)
    monkeypatch.setattr(fetcher, "BATCH_RECORDS", 20)
    topic = cluster.new_topic()
    values = [str(n) for n in range(2000)]
    cluster.produce(topic, values)
    [reader] = open_all(text_source(cluster, topic, stop=LATEST))
    found = read_until(reader, bool)
    eventually(lambda: reader._buffer.count >= 100, "a full buffer")
    time.sleep(0.2)
    assert reader._buffer.count < 120
    assert found + read_to_end(reader, 7) == values
    reader.close()


def test_a_partition_that_is_not_read_does_not_keep_the_others_waiting(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "BUFFERED_RECORDS", 100)
    monkeypatch.setattr(fetcher, "BATCH_RECORDS", 20)
    monkeypatch.setattr(fetcher, "STALLED_S", 0.2)
    topic = cluster.new_topic(2)
    first, second = [f"a{n}" for n in range(500)], [f"b{n}" for n in range(500)]
    cluster.produce(topic, first, 0)
    cluster.produce(topic, second, 1)
    one_reader, other = open_all(text_source(cluster, topic, stop=LATEST))
    begun = read_until(one_reader, bool)
    assert read_to_end(other) == second
    assert begun + read_to_end(one_reader) == first
    one_reader.close()
    other.close()


def test_lag_is_what_is_left_and_how_old_it_is(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "FIGURES_S", 0.01)
    topic = cluster.new_topic()
    cluster.produce(topic, [str(n) for n in range(100)])
    [reader] = open_all(text_source(cluster, topic))
    found: list[Any] = []
    while not found:
        found = read_some(reader, 30) or []
    eventually(lambda: reader.lag(), "the end of the partition")
    assert reader.lag().records == 100 - len(found)
    assert reader.lag().age_ms is not None
    found += read_until(reader, lambda records: len(records) == 100 - len(found))
    assert (reader.lag().records, reader.lag().age_ms) == (0, 0.0)
    reader.close()


# The group.


def test_offsets_are_committed_when_a_checkpoint_is_complete(cluster: MockCluster) -> None:
    topic = cluster.new_topic()
    cluster.produce(topic, "abcdef")
    group = f"of {topic}"
    [reader] = open_all(text_source(cluster, topic, group_id=group))
    while reader.position() != 3:
        read_some(reader, 3 - (reader.position() or 0))
    assert reader.position_at(SnapshotMoment(1, 0)) == 3
    read_until(reader, bool)
    reader.checkpoint_completed(1)
    reader.close()
    start = KafkaOffsetsInitializer.committed_offsets()
    [again] = open_all(text_source(cluster, topic, group_id=group, start=start, stop=LATEST))
    assert read_to_end(again) == list("def")
    again.close()


def test_a_commit_that_fails_is_only_warned_of(
    brokers: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = brokers.new_topic()
    brokers.produce(topic, "abc")
    [reader] = open_all(text_source(brokers, topic, group_id="g"))
    read_until(reader, lambda records: len(records) == 3)
    brokers.call("fail", COMMIT_REQUEST, [30] * 10)  # the group may not be written to
    reader.position_at(SnapshotMoment(1, 0))
    with caplog.at_level(logging.WARNING):
        reader.checkpoint_completed(1)
        eventually(lambda: "were not committed to the group" in caplog.text, "a warning")
    brokers.produce(topic, ["d"])
    assert read_until(reader, bool) == ["d"]
    reader.close()
