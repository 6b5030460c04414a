"""The parts of the sections about Kafka of ``bench sources`` that need no Spark."""

import pytest

pytest.importorskip("confluent_kafka")

from benchmarks.kafka_sink import TextReader
from benchmarks.kafka_topics import PARTITIONS, TextMeter, mock_brokers, plain_round


def test_the_plain_loop_reads_all_that_the_brokers_have() -> None:
    with mock_brokers(["first", "second"], 30) as servers:
        found = plain_round(servers, ["first", "second"], 2 * PARTITIONS * 30)
    assert found.elapsed_s > 0
    assert found.cpu_s > 0


def test_texts_are_counted_from_the_first_to_the_last() -> None:
    meter = TextMeter()
    meter.take(["a", "b"])
    meter.take(["c"])
    report = meter.report()
    assert report["records"] == 3
    assert report["round"][0] > 0


def test_the_source_of_texts_gives_as_many_as_it_should() -> None:
    reader = TextReader(2_500)
    sizes = [len(texts) for texts in iter(lambda: reader.poll(700), None)]
    assert sizes == [700, 700, 700, 400]
    assert reader.position() == 0
