"""Jobs from topic to topic in worker processes, killed, stopped, rescaled: each record once."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer

from headgate.api.environment import StreamExecutionEnvironment
from headgate.base.checkpoints import Stop
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.kafka.source import KafkaSource
from headgate.control.life_cycle import JobState
from headgate.plan.job_graph import JobGraph
from tests.connectors.job_kit import begin, begin_again, open_job
from tests.connectors.kafka.kit import QUICK
from tests.connectors.kafka.sink_kit import seen, text_sink
from tests.host.control_rig import ended
from tests.host.recovering_kit import completed
from tests.host.rig import eventually


class TopicToTopic:
    """Texts from one topic to another, exactly once."""

    def __init__(self, address: str, new_topic: Callable[..., str]) -> None:
        self.address = address
        self.input, self.output = new_topic(3), new_topic(2)
        self.written: list[str] = []

    def write(self, count: int) -> None:
        begin = len(self.written)
        more = [f"{number:06}" for number in range(begin, begin + count)]
        producer = Producer({"bootstrap.servers": self.address})
        for text in more:
            producer.produce(self.input, text, partition=int(text) % 3)
        assert producer.flush(30) == 0
        self.written += more

    def graph(self, parallelism: int) -> JobGraph:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism)
        source = KafkaSource(
            self.address, self.input, schema=SimpleStringSchema(), properties=QUICK
        )
        sink = text_sink(self.address, self.output)
        env.from_source(source, source_name="in").uid("in").sink_to(sink).uid("out")
        graph = env.get_job_graph()
        env.close()
        return graph

    def all_are_in(self) -> None:
        """Waits until each record has come, and once."""
        eventually(lambda: len(self._seen()) >= len(self.written), "the last records")
        assert self._seen() == self.written

    def _seen(self) -> list[str]:
        return seen(self.address, self.output, 2)


def test_each_record_is_written_once_over_killed_workers_savepoints_and_another_parallelism(
    address: str, new_topic: Callable[..., str], opened: ExitStack, tmp_path: Path
) -> None:
    topics = TopicToTopic(address, new_topic)
    topics.write(300)
    job = open_job(opened, tmp_path, topics.graph(2))
    run, processes = begin(opened, job, 2)
    eventually(lambda: completed(job) >= 2, "checkpoints")
    topics.write(300)
    processes[1].signal(signal.SIGKILL)
    run = begin_again(opened, job, 2, run, "again")
    topics.write(300)
    topics.all_are_in()
    saved = run.savepoint(str(tmp_path / "savepoint"), Stop.SUSPEND).result(30)
    assert ended(run).state is JobState.FINISHED
    topics.write(300)
    path = {"execution.savepoint.path": str(saved)}
    narrower = open_job(opened, tmp_path / "narrower", topics.graph(1), **path)
    begin(opened, narrower, 1)
    topics.all_are_in()
