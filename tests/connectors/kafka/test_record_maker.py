"""Records on their way to the client: what it would refuse is found before it is written."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.base.errors import KafkaUnready
from headgate.connectors.kafka.serialization import KafkaRecordSerializationSchema
from headgate.connectors.kafka.sink import RecordMaker

LARGEST = 2000


def whole() -> KafkaRecordSerializationSchema:
    """Each record says all by itself: value, key, partition, time and headers."""
    return KafkaRecordSerializationSchema(
        "topic",
        lambda record: record[0],
        key=lambda record: record[1],
        partitioner=lambda record: record[2],
        timestamp=lambda record: record[3],
        headers=lambda record: record[4],
    )


class Letters:
    """A policy that lets records go."""

    def __init__(
        self,
        serializer: KafkaRecordSerializationSchema,
        partitions_of: Callable[[str], int] = lambda topic: 2,
    ) -> None:
        self.left_out: list[Any] = []
        self.errors: list[Exception] = []
        self.maker = RecordMaker(serializer, LARGEST, "sink 'out'", self.take, partitions_of)

    def take(self, raw: object, error: Exception) -> None:
        self.left_out.append(raw)
        self.errors.append(error)


FINE = (b"value", "key", 1, 7, [("name", None)])
FINE_MADE = ("topic", b"value", "key", 1, None, None, 7, [("name", None)])


@pytest.mark.parametrize(
    ("part", "value", "problem"),
    [
        (0, 17, "the value is 17"),
        (1, ["key"], "the key is ['key']"),
        (2, 2, "the partition is 2"),
        (2, -2, "the partition is -2"),
        (2, "0", "the partition is '0'"),
        (3, -1, "the time is -1"),
        (3, 1 << 63, "the time is 9223372036854775808"),
        (4, ["name"], "a header is 'name'"),
        (4, [("name", 1)], "a header is ('name', 1)"),
        (4, [("name", b"x" * LARGEST)], "is too large: about"),
    ],
)
def test_a_record_that_the_client_would_refuse_is_left_out_with_the_reason(
    part: int, value: object, problem: str
) -> None:
    letters = Letters(whole())
    unfit = (*FINE[:part], value, *FINE[part + 1 :])
    assert letters.maker.make([FINE, unfit, FINE]) == [FINE_MADE, FINE_MADE]
    assert letters.left_out == [unfit]
    text = str(letters.errors[0])
    assert text.startswith("sink 'out': a record for topic 'topic'")
    assert problem in text


def test_records_are_made_once_if_all_can_be_made() -> None:
    calls: list[str] = []

    def value(record: str) -> bytes | None:
        calls.append(record)
        return None if record == "deleted" else record.encode()

    letters = Letters(KafkaRecordSerializationSchema("topic", value, str.encode))
    for records in (["a", "b"], ["deleted"], ["x" * LARGEST, "c"]):
        letters.maker.make(records)
    assert calls == ["a", "b", "deleted", "x" * LARGEST, "c"]
    assert letters.left_out == ["x" * LARGEST]


def test_many_small_records_are_no_large_one() -> None:
    letters = Letters(KafkaRecordSerializationSchema("topic", str.encode))
    words = ["word" * 10] * 1000
    assert letters.maker.make(words) == [("topic", word.encode()) for word in words]


def test_a_topic_is_looked_up_once_and_again_when_it_seems_to_have_grown() -> None:
    asked: list[str] = []
    counts = {"a": 1, "b": 1}

    def partitions_of(topic: str) -> int:
        asked.append(topic)
        return counts[topic]

    def value(record: Any) -> bytes:
        return b"x"

    by_name = KafkaRecordSerializationSchema(lambda record: record, value)
    chosen = Letters(by_name, partitions_of)
    for _ in range(3):
        assert chosen.maker.make(["a", "b", "a"]) == [("a", b"x"), ("b", b"x"), ("a", b"x")]
    assert asked == ["a", "b"]
    placed = KafkaRecordSerializationSchema("a", value, partitioner=lambda record: record)
    grown = Letters(placed, partitions_of)
    assert grown.maker.make([1]) == []
    counts["a"] = 2
    assert len(grown.maker.make([1, 1, 0])) == 3
    assert asked == ["a", "b", "a", "a"]


def test_a_topic_without_a_name_is_told() -> None:
    letters = Letters(KafkaRecordSerializationSchema(lambda record: record, lambda record: b"x"))
    assert letters.maker.make([None, "", "there"]) == [("there", b"x")]
    assert letters.left_out == [None, ""]
    assert "the topic is None" in str(letters.errors[0])


def test_a_registry_or_broker_that_is_away_is_no_fault_of_the_record() -> None:
    def away(record: Any) -> Any:
        raise KafkaUnready("the registry is away")

    serializers = (
        KafkaRecordSerializationSchema("topic", away),
        KafkaRecordSerializationSchema(lambda record: "topic", lambda record: b"x"),
    )
    for serializer in serializers:
        letters = Letters(serializer, away)
        with pytest.raises(KafkaUnready):
            letters.maker.make(["a"])
        assert letters.left_out == []
