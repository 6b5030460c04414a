"""The strict broker keeps Kafka's promises, as two clients of different make see it."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")

import kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.errors import KafkaError as PythonKafkaError

from tests.connectors.kafka.broker_kit import (
    PATIENCE_S,
    StrictBroker,
    create_topic,
    read_all,
    transactional,
    values,
)

NewTopic = Callable[..., str]


class Confluent:
    """librdkafka."""

    def __init__(self, address: str, name: str) -> None:
        self._producer: Any = transactional(address, name)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)

    def send(self, topic: str, value: str) -> None:
        self.produce(topic, value)
        assert self._producer.flush(PATIENCE_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE_S)

    def produce(self, topic: str, value: str) -> None:
        self._producer.produce(topic, value.encode())

    def close(self) -> None:
        del self._producer  # close() of a fenced one fails, and leaves its connections open

    @staticmethod
    def read(address: str, topic: str, isolation: str) -> list[str]:
        return values(read_all(address, topic, isolation))


class KafkaPython:
    """The client that is written in Python."""

    def __init__(self, address: str, name: str) -> None:
        self._producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=name)
        self._producer.init_transactions()
        self.begin = self._producer.begin_transaction
        self.abort = self._producer.abort_transaction
        self.commit = self._producer.commit_transaction

    def send(self, topic: str, value: str) -> None:
        self._producer.send(topic, value.encode()).get(PATIENCE_S)

    def close(self) -> None:
        self._producer.close(timeout=1)

    @staticmethod
    def read(address: str, topic: str, isolation: str) -> list[str]:
        found: list[str] = []
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=address,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        with closing(consumer):
            partition = kafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            end = consumer.end_offsets([partition])[partition]
            deadline = time.monotonic() + PATIENCE_S
            while consumer.position(partition) < end:
                assert time.monotonic() < deadline, f"only {found}"
                for messages in consumer.poll(100).values():
                    found += [message.value.decode() for message in messages]
        return found


Client = type[Confluent] | type[KafkaPython]


@pytest.fixture(params=[Confluent, KafkaPython])
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    return found


@pytest.fixture
def opened() -> Iterator[Callable[[Any], Any]]:
    """``opened(producer)`` is closed after the test."""
    made: list[Any] = []

    def keep(producer: Any) -> Any:
        made.append(producer)
        return producer

    yield keep
    while made:
        made.pop().close()


def test_readers_of_committed_records_see_neither_aborted_nor_open_ones(
    strict_broker: StrictBroker, new_topic: NewTopic, client: Client, opened: Any
) -> None:
    topic, address = new_topic(), strict_broker.address
    producer = opened(client(address, topic))
    producer.begin()
    producer.send(topic, "committed")
    producer.commit()
    producer.begin()
    producer.send(topic, "aborted")
    producer.abort()
    producer.begin()
    producer.send(topic, "open")
    for reader in (Confluent, KafkaPython):
        assert reader.read(address, topic, "read_committed") == ["committed"]
        everything = ["committed", "aborted", "open"]
        assert reader.read(address, topic, "read_uncommitted") == everything
    producer.commit()
    for reader in (Confluent, KafkaPython):
        assert reader.read(address, topic, "read_committed") == ["committed", "open"]


def test_a_fenced_producer_cannot_commit_and_what_it_left_open_is_aborted(
    strict_broker: StrictBroker, new_topic: NewTopic, client: Client, opened: Any
) -> None:
    topic, address = new_topic(), strict_broker.address
    old = opened(client(address, topic))
    old.begin()
    old.send(topic, "of the old one")
    new = opened(client(address, topic))
    assert strict_broker.order("transactions")[topic] == "empty"
    with pytest.raises((KafkaException, PythonKafkaError)) as caught:
        old.commit()
    assert "FENCED" in repr(caught.value).upper()
    new.begin()
    new.send(topic, "of the new one")
    new.commit()
    assert client.read(address, topic, "read_committed") == ["of the new one"]


def test_a_fenced_producer_cannot_begin_another_transaction(
    strict_broker: StrictBroker, new_topic: NewTopic, opened: Any
) -> None:
    topic, address = new_topic(), strict_broker.address
    old, _ = opened(Confluent(address, topic)), opened(Confluent(address, topic))
    old.begin()
    old.produce(topic, "too late")
    with pytest.raises(KafkaException, match="_FENCED"):
        old.commit()
    assert values(read_all(address, topic, "read_uncommitted")) == []


def test_an_open_transaction_holds_back_what_others_committed_after_it(
    strict_broker: StrictBroker, new_topic: NewTopic, opened: Any
) -> None:
    topic, address = new_topic(), strict_broker.address
    slow, quick = opened(Confluent(address, topic)), opened(Confluent(address, f"{topic}-b"))
    slow.begin()
    slow.send(topic, "slow")
    quick.begin()
    quick.send(topic, "quick")
    quick.commit()
    assert Confluent.read(address, topic, "read_committed") == []
    assert end_of(address, topic, 1) == 0
    assert end_of(address, topic, 0) == 3
    slow.abort()
    assert Confluent.read(address, topic, "read_committed") == ["quick"]
    assert end_of(address, topic, 1) == end_of(address, topic, 0) == 4


def end_of(address: str, topic: str, isolation: int) -> int:
    from confluent_kafka import IsolationLevel

    admin = AdminClient({"bootstrap.servers": address})
    partition = TopicPartition(topic, 0)
    asked = admin.list_offsets(
        {partition: OffsetSpec.latest()}, isolation_level=IsolationLevel(isolation)
    )
    offset: int = asked[partition].result(PATIENCE_S).offset
    return offset


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(
    strict_broker: StrictBroker, new_topic: NewTopic, opened: Any
) -> None:
    topic, address = new_topic(), strict_broker.address
    producer = opened(Confluent(address, topic))
    producer.begin()
    producer.send(topic, "late")
    strict_broker.order("advance", ms=61_000)
    with pytest.raises(KafkaException):
        producer.commit()
    assert Confluent.read(address, topic, "read_committed") == []


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_count_if_it_is_committed(
    strict_broker: StrictBroker, new_topic: NewTopic, commit: bool, opened: Any
) -> None:
    topic, address = new_topic(), strict_broker.address
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic})
    producer = opened(transactional(address, topic))
    place = TopicPartition(topic, 0, 7)
    with closing(consumer):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 30)
        assert python_committed(address, topic) is None
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
        (found,) = consumer.committed([TopicPartition(topic, 0)], 30)
        assert found.offset == (7 if commit else -1001)
        assert python_committed(address, topic) == (7 if commit else None)


def python_committed(address: str, group: str, topic: str = "") -> int | None:
    """As kafka-python sees it; without a topic it is called like the group."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address, group_id=group, enable_auto_commit=False
    )
    with closing(consumer):
        found: int | None = consumer.committed(kafka.TopicPartition(topic or group, 0))
        return found


@pytest.mark.parametrize(
    ("api", "action"), [("AddPartitionsToTxn", "drop-before"), ("Produce", "drop-after")]
)
def test_a_request_whose_answer_is_lost_is_carried_out_once(
    strict_broker: StrictBroker, new_topic: NewTopic, api: str, action: str, opened: Any
) -> None:
    topic, address = new_topic(), strict_broker.address
    producer = opened(transactional(address, topic, **{"retry.backoff.ms": 10}))
    strict_broker.fault(api, action)
    producer.begin_transaction()
    producer.produce(topic, b"once")
    producer.commit_transaction(PATIENCE_S)
    strict_broker.until_hit(api, action)
    assert values(read_all(address, topic)) == ["once"]
    assert values(read_all(address, topic, "read_uncommitted")) == ["once"]


def test_an_error_can_be_asked_for(
    strict_broker: StrictBroker, new_topic: NewTopic, opened: Any
) -> None:
    topic = new_topic()
    strict_broker.fault("Produce", "error", code=10)
    failed: list[str] = []
    producer = opened(Producer({"bootstrap.servers": strict_broker.address}))
    producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error.name()))
    assert producer.flush(PATIENCE_S) == 0
    assert failed == ["MSG_SIZE_TOO_LARGE"]


def test_a_killed_broker_has_kept_records_transactions_fences_and_offsets(
    own_broker: StrictBroker, opened: Any
) -> None:
    address, topic = own_broker.address, "kept"
    create_topic(address, topic)
    fenced = opened(Confluent(address, "id"))
    producer = opened(Confluent(address, "id"))
    producer.begin()
    producer.send(topic, "before")
    with closing(Consumer({"bootstrap.servers": address, "group.id": "g"})) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    own_broker.server.kill()
    own_broker.server.start()
    assert python_committed(address, "g", topic) == 1
    assert own_broker.order("transactions") == {"id": "ongoing"}
    assert Confluent.read(address, topic, "read_committed") == []
    fenced.begin()
    fenced.produce(topic, "of a fenced one")
    with pytest.raises(KafkaException, match="_FENCED"):
        fenced.commit()
    producer.send(topic, "after")
    producer.commit()
    assert Confluent.read(address, topic, "read_committed") == ["before", "after"]


def test_members_of_a_group_share_the_partitions(
    strict_broker: StrictBroker, new_topic: NewTopic, opened: Any
) -> None:
    topic, address = new_topic(2), strict_broker.address
    config = {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"}
    producer = opened(Producer({"bootstrap.servers": address}))
    for partition in (0, 1):
        producer.produce(topic, str(partition).encode(), partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    members = [opened(Consumer(config)) for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    found: dict[int, set[bytes]] = {0: set(), 1: set()}
    deadline = time.monotonic() + PATIENCE_S
    while not (found[0] | found[1] == {b"0", b"1"} and all(m.assignment() for m in members)):
        assert time.monotonic() < deadline, f"only {found}"
        for number, member in enumerate(members):
            message = member.poll(0.05)
            if message is not None and message.error() is None:
                found[number].add(message.value())
    assert [len(member.assignment()) for member in members] == [1, 1]
