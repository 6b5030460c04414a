"""The section ``kafka`` of ``bench sources``: texts out of topics, against a plain loop.

The brokers are librdkafka's mock in a process of its own, which keeps at most 100,000 records of a
partition and makes four partitions to a topic; so there are several topics. The yardstick consumes
the same topics with confluent-kafka in a plain loop, in batches, and decodes the values as the job
does; the job takes a checkpoint every second and counts the texts in its sink.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.measured_job import ReportingSink, bench_environment
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.kafka.client import kafka
from headgate.connectors.kafka.offsets import KafkaOffsetsInitializer
from headgate.connectors.kafka.source import KafkaSource

ROUNDS: Final = 3
PARTITIONS: Final = 4
KEPT: Final = 80_000
"""Records of a partition, below what the mock keeps."""
RATE: Final = 300_000
"""About so many records a second are expected."""
TEXT: Final = "%032d"
BATCH: Final = 500
"""Of the plain loop, at its best: the garbage collector does not begin to look at so few."""
_QUICK: Final = {"fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 10}
"""For both; the mock lets an empty fetch wait for its whole time."""

MEANINGS: Final = {
    "kafka_records_per_s": "texts from Kafka's mock through a job, a checkpoint every second",
    "kafka_plain_records_per_s": "the same with confluent-kafka in a plain loop",
    "kafka_share": "the first against the second; the aim is 0.6",
    "kafka_cpu_share": "CPU for a record in the plain loop, against that of the job's worker",
}


def kafka_section(seconds: float) -> dict[str, Any]:
    """Medians of some rounds, of about so many seconds each."""
    topics = max(1, round(seconds * RATE / (PARTITIONS * KEPT)))
    names = [f"bench-{number}" for number in range(topics)]
    records = topics * PARTITIONS * KEPT
    with mock_brokers(names, KEPT) as servers:
        _job_round(servers, names[:1], PARTITIONS * KEPT)
        plain, jobs = [], []
        for _ in range(ROUNDS):
            plain.append(plain_round(servers, names, records))
            jobs.append(_job_round(servers, names, records))
    rates = [[records / run.elapsed_s for run in runs] for runs in (jobs, plain)]
    cpus = [median(run.cpu_s for run in runs) for runs in (jobs, plain)]
    return {
        "kafka_records_per_s": round(median(rates[0])),
        "kafka_plain_records_per_s": round(median(rates[1])),
        "kafka_share": round(median(rates[0]) / median(rates[1]), 2),
        "kafka_cpu_share": round(cpus[1] / cpus[0], 2),
        "kafka_records": records,
        "kafka_all": [[round(rate) for rate in some] for some in rates],
    }


class Round(NamedTuple):
    """From the first record to the last, of all threads of the process."""

    elapsed_s: float
    cpu_s: float


@contextmanager
def mock_brokers(topics: list[str], each: int) -> Iterator[str]:
    """The address of brokers with so many records in each partition; they end with the block."""
    serve = serve_topics.__name__
    code = f"from {__name__} import {serve}; {serve}({topics!r}, {each})"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            servers = process.stdout.readline().strip()
            assert servers, "the mock brokers have not started"
            yield servers
        finally:
            process.stdin.close()


def serve_topics(topics: list[str], each: int) -> None:
    """Fill the topics, print the address, and stay until the input ends."""
    producer = kafka("bench sources").Producer({"test.mock.num.brokers": 1, "linger.ms": 20})
    for topic in topics:
        for number in range(PARTITIONS * each):
            partition = number % PARTITIONS
            while True:
                try:
                    producer.produce(topic, TEXT % number, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.05)
    assert producer.flush(60) == 0, "records were not written"
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    sys.stdout.write(f"{broker.host}:{broker.port}\n")
    sys.stdout.flush()
    sys.stdin.read()


def plain_round(servers: str, topics: list[str], records: int) -> Round:
    client = kafka("bench sources")
    config = {"bootstrap.servers": servers, "group.id": "plain", "enable.auto.commit": False}
    consumer = client.Consumer({**config, **_QUICK})
    try:
        consumer.assign(
            [client.TopicPartition(topic, at, 0) for topic in topics for at in range(PARTITIONS)]
        )
        found = len(consumer.consume(1, 30))
        began_s, cpu_s = time.monotonic(), time.process_time()
        while found < records:
            messages = consumer.consume(BATCH, 0.1)
            texts = [str(message.value(), "utf-8") for message in messages]
            found += len(texts)
        return Round(time.monotonic() - began_s, time.process_time() - cpu_s)
    finally:
        consumer.close()


def _job_round(servers: str, topics: list[str], records: int) -> Round:
    source = KafkaSource(
        servers,
        topics,
        schema=SimpleStringSchema(),
        stop=KafkaOffsetsInitializer.latest(),
        properties=_QUICK,
    )
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        settings = {
            "execution.runtime-mode": "STREAMING",
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.dir": folder,
        }
        env = bench_environment(1, settings)
        sink = ReportingSink(TextMeter)
        env.from_source(source, None, "topics").sink_to(sink)
        env.execute("bench sources: kafka")
    (report,) = sink.results()
    assert report["records"] == records, f"{records} records are there, {report['records']} came"
    return Round(*report["round"])


class TextMeter:
    """Counts texts, and notes when the first and the last have come."""

    def __init__(self) -> None:
        self._records = 0
        self._first = self._last = (0.0, 0.0)

    def take(self, records: list[str]) -> None:
        self._last = time.monotonic(), time.process_time()
        if not self._records:
            self._first = self._last
        self._records += len(records)

    def report(self) -> dict[str, Any]:
        spans = [last - first for first, last in zip(self._first, self._last, strict=True)]
        return {"records": self._records, "round": spans}
