"""The section ``kafka-sink`` of ``bench sources``: texts into a topic, against a plain loop.

The brokers are librdkafka's mock in a process of its own. The yardstick produces the same texts
with confluent-kafka in a plain loop and waits for their delivery; the job has a checkpoint every
second, and its time runs from its first record to when the last one is delivered or committed.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from benchmarks.kafka_topics import mock_brokers
from benchmarks.measured_job import bench_environment
from headgate.base.elements import Record
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.kafka.client import kafka
from headgate.connectors.kafka.serialization import KafkaRecordSerializationSchema
from headgate.connectors.kafka.sink import PROGRESS_TOPIC, KafkaSink
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import (
    Committer,
    CommittingSinkWriter,
    DeliveryGuarantee,
    TwoPhaseCommittingSink,
)
from headgate.functions.source import Source, SplitReader
from headgate.spark.collect import DriverStream

ROUNDS: Final = 3
RATE: Final = 300_000
"""About so many records a second are expected."""
TOPIC: Final = "bench-sink"
TEXTS: Final = [f"{number:032}" for number in range(1000)]
GUARANTEES: Final = {
    "kafka_sink": DeliveryGuarantee.AT_LEAST_ONCE,
    "kafka_exactly_once": DeliveryGuarantee.EXACTLY_ONCE,
}

KAFKA_SINK_MEANINGS: Final = {
    "kafka_sink_records_per_s": "texts to Kafka's mock at least once, a checkpoint every second",
    "kafka_exactly_once_records_per_s": "the same exactly once, until the last is committed",
    "kafka_sink_plain_records_per_s": "the same with confluent-kafka in a plain loop",
    "kafka_sink_share": "the first against the third; the aim is 0.6",
    "kafka_exactly_once_share": "the second against the third",
}


def kafka_sink_section(seconds: float) -> dict[str, Any]:
    """Medians of some rounds, of about so many seconds each."""
    records = max(1, round(seconds * RATE / len(TEXTS))) * len(TEXTS)
    plain: list[float] = []
    rates: dict[str, list[float]] = {name: [] for name in GUARANTEES}
    with mock_brokers([TOPIC, PROGRESS_TOPIC], 1) as servers:
        _job_rate(servers, len(TEXTS), DeliveryGuarantee.EXACTLY_ONCE)
        for _ in range(ROUNDS):
            plain.append(_plain_rate(servers, records))
            for name, guarantee in GUARANTEES.items():
                rates[name].append(_job_rate(servers, records, guarantee))
    figures: dict[str, Any] = {"kafka_sink_plain_records_per_s": round(median(plain))}
    for name, found in rates.items():
        figures[f"{name}_records_per_s"] = round(median(found))
        figures[f"{name}_share"] = round(median(found) / median(plain), 2)
    return {**figures, "kafka_sink_records": records}


def _plain_rate(servers: str, records: int) -> float:
    properties = {"enable.idempotence": True, "queue.buffering.max.kbytes": 64 << 10}
    producer = kafka("bench sources").Producer({"bootstrap.servers": servers, **properties})
    producer.list_topics(TOPIC, timeout=30)
    began_ns = time.monotonic_ns()
    for number in range(records):
        value = TEXTS[number % len(TEXTS)].encode()
        while True:
            try:
                producer.produce(TOPIC, value)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0, "records were not delivered"
    return records / (time.monotonic_ns() - began_ns) * 1e9


def _job_rate(servers: str, records: int, guarantee: DeliveryGuarantee) -> float:
    serializer = KafkaRecordSerializationSchema(TOPIC, SimpleStringSchema())
    reports: list[Any] = []
    sink = TimedSink(KafkaSink(servers, serializer, guarantee=guarantee), reports)
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        settings: Mapping[str, str] = {
            "execution.runtime-mode": "STREAMING",
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.dir": folder,
        }
        env = bench_environment(1, settings)
        env.from_source(TextSource(records), None, "texts").sink_to(sink)
        env.execute("bench sources: kafka sink")
    ((written, elapsed_ns),) = reports
    assert written == records, f"{records} records were given, {written} were written"
    return float(records / elapsed_ns * 1e9)


@dataclass(frozen=True)
class TextSource(Source):
    """The same texts over and over."""

    records: int

    def splits(self, parallelism: int) -> Sequence[int]:
        return [self.records]

    def open(self, split: object, position: object, context: ConnectorContext) -> "TextReader":
        assert isinstance(split, int), split
        return TextReader(split if position is None else int(str(position)))


class TextReader(SplitReader):
    """Gives whole lists."""

    def __init__(self, left: int) -> None:
        self._left = left

    def poll(self, limit: int) -> list[str] | None:
        if not self._left:
            return None
        texts = TEXTS[: min(limit, self._left)]
        self._left -= len(texts)
        return texts

    def position(self) -> object:
        return self._left


class TimedSink(TwoPhaseCommittingSink):
    """Reports how many records it wrote, and how long that took."""

    def __init__(self, sink: KafkaSink, reports: list[Any]) -> None:
        self._sink = sink
        self.driver_stream = DriverStream(reports.extend)

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        return TimedWriter(self._sink.create_writer(context), self.driver_stream)

    def create_committer(self, context: ConnectorContext) -> Committer:
        return TimedCommitter(self._sink.create_committer(context))


_settled_ns: list[int] = []
"""When the last record of this process was delivered or committed."""


def _note() -> None:
    _settled_ns[:] = [time.monotonic_ns()]


class TimedWriter(CommittingSinkWriter):
    """Counts, and notes when the first record came."""

    def __init__(self, writer: CommittingSinkWriter, stream: DriverStream) -> None:
        self._writer = writer
        self._results = stream.connect()
        self._began_ns = 0
        self._written = 0
        self._write: Callable[[list[Record]], None] = writer.write

    def write(self, records: list[Record]) -> None:
        if not self._written:
            self._began_ns = time.monotonic_ns()
        self._written += len(records)
        self._write(records)

    def flush(self) -> None:
        self._writer.flush()

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Record]:
        prepared = self._writer.prepare_commit(moment)
        _note()
        return prepared

    def close(self) -> None:
        self._writer.close()
        self._results.write([(self._written, _settled_ns[0] - self._began_ns)])
        self._results.flush()
        self._results.close()


class TimedCommitter(Committer):
    """Notes when all is committed."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    def commit(self, committables: Sequence[Record]) -> None:
        self._committer.commit(committables)
        _note()

    def commit_again(self, committables: Sequence[Record]) -> None:
        self._committer.commit_again(committables)

    def close(self) -> None:
        self._committer.close()
