"""Records of topics from a mock cluster: each partition in order, cut and resumed anywhere."""

import threading
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from headgate.api.environment import StreamExecutionEnvironment
from headgate.base.elements import MIN_WATERMARK_MS, Bundle
from headgate.base.errors import KafkaRefused, PlanInvalid
from headgate.common import Duration, Types, WatermarkStrategy
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.kafka.deserialization import KafkaRecord, KafkaRecordDeserializationSchema
from headgate.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from headgate.connectors.kafka.source import KafkaSource
from headgate.core.chain.watermarks import source_time_plan
from headgate.core.operators.source import SourceOperator
from tests.connectors.kafka.kit import QUICK, MockCluster, text_source
from tests.connectors.kit import PATIENCE_S, read_some, read_to_end, read_until, task_context
from tests.core.chain.kit import HandClock, open_operator

LATEST = KafkaOffsetsInitializer.latest()


def read_all(source: KafkaSource) -> dict[tuple[str, int], list[Any]]:
    """What each partition gives up to the end of a bounded source."""
    context = task_context()
    splits = source.splits(1)
    readers = [source.open(split, None, context) for split in splits]
    try:
        return {
            (split.topic, split.partition): read_to_end(reader)
            for split, reader in zip(splits, readers, strict=True)
        }
    finally:
        for reader in readers:
            reader.close()


def test_each_partition_is_read_in_order_up_to_the_end_at_the_start(cluster: MockCluster) -> None:
    topic = cluster.new_topic(3)
    first, second = [f"a{n}" for n in range(2500)], [f"b{n}" for n in range(30)]
    cluster.produce(topic, first, 0)
    cluster.produce(topic, second, 1)
    found = read_all(text_source(cluster, topic, stop=LATEST))
    assert found == {(topic, 0): first, (topic, 1): second, (topic, 2): []}


def test_several_topics_with_the_same_partitions_are_told_apart(cluster: MockCluster) -> None:
    one_topic, other = cluster.new_topic(2), cluster.new_topic(2)
    cluster.produce(one_topic, ["a", "b"], 1)
    cluster.produce(other, ["c", "d", "e"], 1)
    found = read_all(text_source(cluster, [one_topic, other], stop=LATEST))
    assert found[one_topic, 1] == ["a", "b"]
    assert found[other, 1] == ["c", "d", "e"]


def test_records_that_come_later_are_read_and_bring_their_times(cluster: MockCluster) -> None:
    topic = cluster.new_topic()
    source = text_source(cluster, topic)
    [split] = source.splits(1)
    reader = source.open(split, None, task_context())
    assert read_some(reader) == []
    cluster.produce(topic, ["a", "b"])
    bundles: list[Bundle] = []
    while sum(len(bundle.records) for bundle in bundles) < 2:
        found = reader.poll(10)
        if found:
            bundles.append(found)
    assert [time for bundle in bundles for time in bundle.timestamps or ()] == [1000, 1001]
    assert reader.position() == 2
    reader.close()


def test_the_slowest_partition_holds_event_time_back_until_it_is_idle(
    cluster: MockCluster,
) -> None:
    topic = cluster.new_topic(2)
    cluster.produce(topic, "abcdef", 0)  # times 1000 to 1005
    source = text_source(cluster, topic)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(50))
    clock = HandClock()
    plan = source_time_plan(strategy, 10, batch=False)
    operator = SourceOperator(source, tuple(source.splits(1)), plan)
    output = open_operator(operator, within=clock.context())
    while len(output.records) < 6:
        operator.poll()
    clock.move_to(clock.now_ms + 20)
    assert output.watermark_ms == MIN_WATERMARK_MS
    operator.poll()
    clock.move_to(clock.now_ms + 60)
    operator.poll()
    clock.move_to(clock.now_ms + 20)
    assert output.watermark_ms == 1004
    cluster.produce(topic, "x", 1)  # time 1000, after what is idle no more
    while len(output.records) < 7:
        operator.poll()
    assert output.timed[-1] == ("x", 1000)
    operator.close()


def test_a_task_is_woken_when_records_have_come(cluster: MockCluster) -> None:
    topic = cluster.new_topic()
    source = text_source(cluster, topic)
    [split] = source.splits(1)
    woken = threading.Event()
    reader = source.open(split, None, replace(task_context(), wake=woken.set))
    assert reader.poll(10) == ()
    assert reader.wait_ms() == inf
    cluster.produce(topic, ["a"])
    assert woken.wait(PATIENCE_S)
    assert read_until(reader, bool) == ["a"]
    reader.close()


def test_without_a_schema_records_come_whole(cluster: MockCluster) -> None:
    topic = cluster.new_topic()
    cluster.call("produce", topic, [[0, "k", "v", 7, [["h", "x"]]], [0, None, None, 8, None]])
    found = read_all(text_source(cluster, topic, stop=LATEST, schema=None))
    assert found[topic, 0] == [
        KafkaRecord(topic, 0, 0, 7, b"k", b"v", [("h", b"x")]),
        KafkaRecord(topic, 0, 1, 8, None, None, ()),
    ]


def test_a_schema_for_values_leaves_tombstones_out(cluster: MockCluster) -> None:
    topic = cluster.new_topic()
    cluster.call("produce", topic, [[0, "k", None, 1, None], [0, "k", "v", 2, None]])
    assert read_all(text_source(cluster, topic, stop=LATEST)) == {(topic, 0): ["v"]}


@pytest.mark.parametrize("charset", ["UTF-8", "utf8", "latin-1", "utf-16"])
def test_texts_are_read_in_their_charset(charset: str) -> None:
    schema = KafkaRecordDeserializationSchema.value_only(SimpleStringSchema(charset))
    texts = ["", "größer", "plain"]
    assert schema.read_all([text.encode(charset) for text in texts]) == texts


def test_a_new_reader_goes_on_from_the_position_of_an_old_one(cluster: MockCluster) -> None:
    topic = cluster.new_topic()
    values = [str(n) for n in range(100)]
    cluster.produce(topic, values)
    source = text_source(cluster, topic, stop=LATEST)
    [split] = source.splits(1)
    found: list[Any] = []
    position = None
    for limit in (1, 7, 13, 1000):
        reader = source.open(split, position, task_context())
        found += read_to_end(reader) if limit == 1000 else read_first(reader, limit)
        position = reader.position()
        reader.close()
    assert found == values


def read_first(reader: Any, limit: int) -> list[Any]:
    found: list[Any] = []
    while not found:
        found = read_some(reader, limit) or []
    assert len(found) <= limit
    return found


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (KafkaOffsetsInitializer.earliest(), list("abcdef")),
        (LATEST, []),
        (KafkaOffsetsInitializer.timestamp(2**50), []),
    ],
)
def test_starting_points(cluster: MockCluster, start: Any, expected: list[str]) -> None:
    topic = cluster.new_topic()
    cluster.produce(topic, "abcdef")
    assert read_all(text_source(cluster, topic, start=start, stop=LATEST))[topic, 0] == expected


def test_reading_begins_at_offsets_that_are_given_and_ends_at_others(cluster: MockCluster) -> None:
    topic = cluster.new_topic(2)
    cluster.produce(topic, "abcdef", 0)
    cluster.produce(topic, "xyz", 1)
    start = KafkaOffsetsInitializer.offsets({(topic, 0): 2})
    stop = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 5, (topic, 1): 1})
    found = read_all(text_source(cluster, topic, start=start, stop=stop))
    assert found == {(topic, 0): list("cde"), (topic, 1): ["x"]}


def test_a_group_that_has_committed_nothing_begins_as_the_strategy_says(
    cluster: MockCluster,
) -> None:
    topic = cluster.new_topic()
    cluster.produce(topic, "abc")
    earliest = KafkaOffsetResetStrategy.EARLIEST
    start = KafkaOffsetsInitializer.committed_offsets(earliest)
    source = text_source(cluster, topic, start=start, stop=LATEST, group_id=f"of {topic}")
    assert read_all(source)[topic, 0] == list("abc")
    strict = KafkaOffsetsInitializer.committed_offsets()
    with pytest.raises(Exception, match=f"committed no offset for {topic}-0; give KafkaOff"):
        text_source(cluster, topic, start=strict, group_id=f"of {topic}").splits(1)


def test_a_topic_that_is_not_there_is_named(cluster: MockCluster) -> None:
    with pytest.raises(KafkaRefused, match="looking for topic 'nowhere'.*create the topic, or"):
        text_source(cluster, "nowhere").splits(1)


def test_the_builder_has_the_names_of_pyflink(cluster: MockCluster) -> None:
    topic = cluster.new_topic()
    cluster.produce(topic, ["a", "b"])
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(cluster.servers)
        .set_topics(topic)
        .set_group_id("builders")
        .set_client_id_prefix("mine")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(LATEST)
        .set_properties(QUICK)
        .set_property("value.deserializer", "org.apache.kafka.Ignored")
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    assert source.bounded
    assert source.default_name == f"Kafka {topic}"
    assert source.get_produced_type() == Types.STRING()
    assert read_all(source) == {(topic, 0): ["a", "b"]}


def test_a_stream_has_the_type_that_the_schema_gives_unless_another_is_declared() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    texts = KafkaSource("h:1", "t", schema=SimpleStringSchema())
    assert env.from_source(texts).get_type() == Types.STRING()
    assert env.from_source(texts, type_info=Types.LONG()).get_type() == Types.LONG()
    assert env.from_source(KafkaSource("h:1", "t")).get_type() == Types.PICKLED_BYTE_ARRAY()
    env.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: KafkaSource("", "t"), "the bootstrap servers are ''; give host:port"),
        (lambda: KafkaSource("h:1", ()), "give exactly one of topics, a pattern"),
        (lambda: KafkaSource("h:1", "t", start=7), "was given the offsets 7; give a KafkaOff"),  # type: ignore[arg-type]
        (lambda: KafkaSource("h:1", "t", schema=7), "was given the schema 7; give a Deser"),
        (
            lambda: KafkaSource("h:1", "t", start=KafkaOffsetsInitializer.committed_offsets()),
            "give a group id",
        ),
        (
            lambda: KafkaSource("h:1", "t", properties={"partition.discovery.interval.ms": "x"}),
            "partition.discovery.interval.ms is 'x'; give a whole number from -1 on",
        ),
        (lambda: KafkaOffsetsInitializer.timestamp(-1), "give milliseconds since 1970"),
        (lambda: KafkaOffsetsInitializer.offsets({"t": 1}), "give the topic and the partition"),
        (lambda: KafkaSource.builder().set_topic_pattern("("), "is no regular expression"),
        (
            lambda: KafkaSource.builder().set_topics("a").set_topic_pattern("b"),
            "reads a already; call one of",
        ),
        (lambda: KafkaSource.builder().set_bootstrap_servers("h:1").build(), "nothing to read"),
    ],
)
def test_what_cannot_be_read_is_refused_when_the_program_is_written(
    wrong: Any, message: str
) -> None:
    with pytest.raises(PlanInvalid, match=message):
        wrong()


def test_a_property_that_the_client_does_not_know_is_told(cluster: MockCluster) -> None:
    source = text_source(cluster, "t", {"no.such.thing": "1"})
    with pytest.raises(PlanInvalid, match='No such configuration property: "no.such.thing".*libr'):
        source.splits(1)
