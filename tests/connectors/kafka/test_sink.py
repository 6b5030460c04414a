"""Records in topics, at least once; settings and errors of all guarantees."""

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from headgate.base.errors import KafkaRefused, KafkaUnready, PlanInvalid, RecordsLost
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.kafka.client import KafkaCluster
from headgate.connectors.kafka.serialization import (
    KafkaRecordSerializationSchema,
    KafkaTopicSelector,
)
from headgate.connectors.kafka.sink import KafkaSink
from headgate.connectors.kafka.transactions import ProgressTopic
from headgate.functions.sink import DeliveryGuarantee
from tests.connectors.kafka.broker_kit import StrictBroker, read_all
from tests.connectors.kafka.sink_kit import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    feed,
    seen,
    take,
    text_sink,
)
from tests.core.chain.sink_lab import open_sink, sink_context
from tests.servers import free_port

NewTopic = Callable[..., str]
BOTH = pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])


def test_at_least_once_records_are_delivered_when_the_checkpoint_is_taken(
    address: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    task = open_sink(text_sink(address, topic, guarantee=AT_LEAST_ONCE), sink_context())
    words = [f"word-{number}" for number in range(5000)]
    feed(task, *words)
    assert take(task, 1) is None
    assert seen(address, topic, 2) == sorted(words)
    task.finish()
    assert not task.awaits_checkpoint
    task.close()


def test_without_a_guarantee_records_are_delivered_at_the_end(
    address: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    task = open_sink(text_sink(address, topic, guarantee=DeliveryGuarantee.NONE), sink_context())
    feed(task, "a", "b")
    assert take(task, 1) is None
    task.finish()
    task.close()
    assert seen(address, topic) == ["a", "b"]


class ByKind(KafkaTopicSelector):
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def apply(self, data: dict[str, Any]) -> str:
        return f"{self.prefix}-{data['kind']}"


@BOTH
def test_topic_key_value_partition_headers_and_time_come_from_the_record(
    address: str, new_topic: NewTopic, guarantee: DeliveryGuarantee
) -> None:
    topic = new_topic(3)
    prefix, _, kind = topic.rpartition("-")
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(ByKind(prefix))
        .set_key_serialization_schema(lambda record: record["key"].encode())
        .set_value_serialization_schema(
            lambda record: json.dumps(record["n"]).encode() if record["n"] else None
        )
        .set_partitioner(lambda record: record["n"] % 3)
        .set_header_provider(lambda record: [("kind", kind.encode()), ("none", None)])
        .set_timestamp_provider(lambda record: 1_000_000 + record["n"])
        .build()
    )
    task = open_sink(
        text_sink(address, topic, serializer=serializer, guarantee=guarantee), sink_context()
    )
    feed(task, *({"kind": kind, "key": f"k{n}", "n": n} for n in (4, 0)))
    take(task, 1)
    task.checkpoint_completed(1)
    task.close()
    found = {message.partition(): message for message in read_all(address, topic, partitions=3)}
    assert sorted(found) == [0, 1]
    assert (found[1].key(), found[1].value()) == (b"k4", b"4")
    assert found[1].headers() == [("kind", kind.encode()), ("none", None)]
    assert found[1].timestamp()[1] == 1_000_004
    assert (found[0].key(), found[0].value()) == (b"k0", None)


def test_a_full_client_holds_the_task_up_and_loses_nothing(
    strict_broker: StrictBroker, new_topic: NewTopic
) -> None:
    topic, address = new_topic(), strict_broker.address
    properties = {"queue.buffering.max.messages": "50", "linger.ms": "0"}
    sink = text_sink(address, topic, guarantee=AT_LEAST_ONCE, properties=properties)
    task = open_sink(sink, sink_context())
    strict_broker.fault("Produce", "delay", ms=300)
    words = [f"word-{number:03}" for number in range(500)]
    feed(task, *words)
    take(task, 1)
    task.close()
    strict_broker.until_hit("Produce", "delay")
    assert seen(address, topic) == words


def test_a_record_that_the_broker_refuses_fails_the_task_with_topic_partition_and_reason(
    strict_broker: StrictBroker, new_topic: NewTopic
) -> None:
    topic, address = new_topic(**{"max.message.bytes": "1000"}), strict_broker.address
    task = open_sink(text_sink(address, topic, guarantee=AT_LEAST_ONCE), sink_context())
    feed(task, "x" * 2000)
    problem = rf"sink 'out' .*topic '{topic}' \[0\] is too large.*raise message.max.bytes"
    with pytest.raises(KafkaRefused, match=problem):
        take(task, 1)
    task.close()


@BOTH
def test_a_record_that_the_client_does_not_take_is_told_before_a_checkpoint_holds_it(
    address: str, new_topic: NewTopic, guarantee: DeliveryGuarantee
) -> None:
    topic = new_topic()
    properties = {"message.max.bytes": "2000"}
    sink = text_sink(address, topic, guarantee=guarantee, properties=properties)
    task = open_sink(sink, sink_context())
    words = *["fits"] * 999, "x" * 3000
    with pytest.raises(KafkaRefused, match=f"topic '{topic}' is too large"):
        feed(task, *words)
    task.close()
    assert "x" * 3000 not in seen(address, topic)


@BOTH
def test_records_without_a_form_go_to_the_policy_and_the_others_are_written(
    address: str, new_topic: NewTopic, guarantee: DeliveryGuarantee
) -> None:
    topic = new_topic()
    properties = {"message.max.bytes": "2000"}
    sink = text_sink(address, topic, guarantee=guarantee, properties=properties)
    left_out: list[tuple[object, str]] = []
    context = replace(
        sink_context(), malformed=lambda raw, error: left_out.append((raw, type(error).__name__))
    )
    task = open_sink(sink, context)
    feed(task, "a", 17, "b", "x" * 3000)
    feed(task, "c", "x" * 3000, "d")
    take(task, 1)
    task.checkpoint_completed(1)
    task.close()
    assert seen(address, topic) == ["a", "b", "c", "d"]
    large = ("x" * 3000, "KafkaRefused")
    assert left_out == [(17, "TypeError"), large, large]


@BOTH
def test_the_largest_record_that_gets_through_is_one_that_the_client_takes(
    address: str, new_topic: NewTopic, guarantee: DeliveryGuarantee
) -> None:
    topic = new_topic()
    serializer = KafkaRecordSerializationSchema(
        topic, SimpleStringSchema(), headers=lambda record: [("name", b"x" * 100)]
    )
    properties = {"message.max.bytes": "2000"}
    for schema in (serializer, None):
        left_out: list[object] = []
        sink = text_sink(
            address, topic, serializer=schema, guarantee=guarantee, properties=properties
        )
        context = replace(sink_context(), malformed=lambda raw, error: left_out.append(raw))  # noqa: B023
        task = open_sink(sink, context)
        for size in range(1700, 2001):
            feed(task, "x" * size)
        take(task, 1)
        task.checkpoint_completed(1)
        task.close()
        assert 0 < len(left_out) < 300


@BOTH
def test_an_unknown_topic_is_told_at_the_start(
    strict_broker: StrictBroker, guarantee: DeliveryGuarantee
) -> None:
    sink = text_sink(strict_broker.address, "nowhere", guarantee=guarantee)
    with pytest.raises(KafkaRefused, match="topic 'nowhere'.*create the topic, or correct"):
        open_sink(sink, sink_context())


def test_an_unknown_topic_of_a_single_record_is_told_before_a_checkpoint_holds_it(
    strict_broker: StrictBroker,
) -> None:
    sink = text_sink(strict_broker.address, lambda record: f"no-{record}")
    task = open_sink(sink, sink_context())
    with pytest.raises(KafkaRefused, match="topic 'no-topic'.*create the topic"):
        feed(task, "topic")
    task.close()


@BOTH
def test_brokers_that_do_not_answer_are_named(guarantee: DeliveryGuarantee) -> None:
    address = f"127.0.0.1:{free_port()}"
    properties = {"default.api.timeout.ms": "300"}
    sink = text_sink(address, "topic", guarantee=guarantee, properties=properties)
    with pytest.raises(KafkaUnready, match=f"sink 'out'.*{address}.*check that the servers run"):
        open_sink(sink, sink_context())


@pytest.fixture(scope="module")
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a broker that wants a password."""
    if request.config.getoption("--kafka"):
        pytest.skip("it needs control over the broker")
    folder: Path = tmp_path_factory.mktemp("guarded")
    broker = StrictBroker(folder, "--login", "me:secret", "--auto-create")
    broker.server.start()
    yield broker.address
    broker.server.stop()


LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
}


@BOTH
def test_wrong_credentials_are_told_at_once(guarded: str, guarantee: DeliveryGuarantee) -> None:
    properties = {**LOGIN, "sasl.password": "wrong"}
    sink = text_sink(guarded, "topic", guarantee=guarantee, properties=properties)
    with pytest.raises(KafkaRefused, match="sink 'out'.*check security.protocol.*sasl.password"):
        open_sink(sink, sink_context())


@BOTH
def test_right_credentials_let_write(guarded: str, guarantee: DeliveryGuarantee) -> None:
    properties = {**LOGIN, "sasl.password": "secret"}
    sink = text_sink(guarded, "topic", guarantee=guarantee, properties=properties)
    task = open_sink(sink, sink_context(checkpoints=False))
    feed(task, "a")
    task.finish()
    task.close()


def test_a_topic_of_progress_that_is_gone_is_told_and_not_made_anew(guarded: str) -> None:
    properties = {**LOGIN, "sasl.password": "secret", "default.api.timeout.ms": "2000"}
    cluster = KafkaCluster("KafkaSink", guarded, properties)
    with (
        closing(ProgressTopic(cluster, "gone", "sink")) as progress,
        pytest.raises(RecordsLost, match="the topic 'gone', which says what was written, is gone"),
    ):
        progress.read(["a writer"], ())


def test_the_builder_has_the_names_of_pyflink() -> None:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic("orders")
        .set_value_serialization_schema(SimpleStringSchema())
        .set_key_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers("broker:9092")
        .set_record_serializer(serializer)
        .set_delivery_guarantee(EXACTLY_ONCE)
        .set_transactional_id_prefix("shop")
        .set_progress_topic("progress")
        .set_max_pending_bytes(1000)
        .set_property("linger.ms", "7")
        .set_properties({"acks": "all"})
        .build()
    )
    found = pickle.loads(pickle.dumps(sink))
    assert found.default_name == "Kafka orders"
    assert (found.guarantee, found.transactional_id_prefix) == (EXACTLY_ONCE, "shop")
    assert (found.progress_topic, found.max_pending_bytes) == ("progress", 1000)
    assert found.cluster.properties == {"linger.ms": "7", "acks": "all"}
    assert found.serializer.function()("a") == ("orders", b"a", b"a")


SERIALIZER = KafkaRecordSerializationSchema("topic", SimpleStringSchema())


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: KafkaSink("", SERIALIZER), "give host:port"),
        (lambda: KafkaSink("a:1", SimpleStringSchema()), "KafkaRecordSerializationSchema.builder"),
        (lambda: KafkaSink("a:1", SERIALIZER, guarantee=1), "give one of DeliveryGuarantee"),
        (lambda: KafkaSink("a:1", SERIALIZER, progress_topic="a b"), "progress_topic is 'a b'"),
        (lambda: KafkaSink("a:1", SERIALIZER, max_pending_bytes=0), "give a whole number above 0"),
        (
            lambda: KafkaSink("a:1", SERIALIZER, properties={"transactional.id": "x"}),
            "is set by set_transactional_id_prefix",
        ),
        (lambda: KafkaSink.builder().set_bootstrap_servers("a:1").build(), "set_record_serializer"),
        (lambda: KafkaRecordSerializationSchema("", SimpleStringSchema()), "give its name"),
        (lambda: KafkaRecordSerializationSchema("t", 7), "the value's schema 7"),
        (lambda: KafkaRecordSerializationSchema("t", str.encode, 7), "the key's schema 7"),
        (
            lambda: KafkaRecordSerializationSchema("t", str.encode, partitioner=7),
            "the partitioner 7; give a function",
        ),
        (
            lambda: KafkaRecordSerializationSchema.builder().set_topic("t").build(),
            "call set_value_serialization_schema",
        ),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(
    make: Callable[[], object], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        make()


def test_a_property_that_the_client_does_not_know_is_told_at_the_start(address: str) -> None:
    sink = text_sink(address, "topic", guarantee=AT_LEAST_ONCE, properties={"no.such": "1"})
    with pytest.raises(PlanInvalid, match='refuses its configuration.*"no.such"'):
        open_sink(sink, sink_context())
