"""Jobs that read a topic in real worker processes, killed, stopped, rescaled: each record once."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from headgate.api.environment import StreamExecutionEnvironment
from headgate.base.checkpoints import Stop
from headgate.connectors.files.sink import TextFileSink
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.kafka.source import KafkaSource
from headgate.control.life_cycle import JobState
from headgate.plan.job_graph import JobGraph
from tests.connectors.job_kit import begin, begin_again, open_job
from tests.connectors.kafka.kit import QUICK, MockCluster
from tests.host.control_rig import ended
from tests.host.recovering_kit import completed
from tests.host.rig import eventually


class Topics:
    """Topics of one pattern that are filled while the job runs."""

    def __init__(self, cluster: MockCluster) -> None:
        self.cluster = cluster
        self.first = cluster.new_topic(3, "jobs")
        self.written: list[str] = []

    def write(self, topic: str, count: int, partitions: int = 3) -> None:
        """So many more records in each partition."""
        for partition in range(partitions):
            begin = len(self.written)
            values = [str(number) for number in range(begin, begin + count)]
            self.cluster.produce(topic, values, partition)
            self.written += values

    def add_topic(self) -> str:
        """One more that the pattern matches."""
        topic = f"{self.first}-late"
        assert self.cluster.call("topic", topic, 1) == 0
        return topic

    def graph(self, folder: Path, parallelism: int) -> JobGraph:
        """All of them to files, exactly once."""
        builder = (
            KafkaSource.builder()
            .set_bootstrap_servers(self.cluster.servers)
            .set_topic_pattern(f"{self.first}(-late)?")
            .set_group_id(f"of {self.first}")
            .set_properties({**QUICK, "partition.discovery.interval.ms": "100"})
            .set_value_only_deserializer(SimpleStringSchema())
        )
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism)
        stream = env.from_source(builder.build(), source_name="topics").uid("topics")
        stream.sink_to(TextFileSink(folder / "out")).uid("files")
        graph = env.get_job_graph()
        env.close()
        return graph

    def all_are_in(self, folder: Path) -> None:
        """Waits until each record is in a file, and once."""
        eventually(lambda: len(_lines(folder)) >= len(self.written), "the last records")
        assert sorted(_lines(folder)) == sorted(self.written)


def _lines(folder: Path) -> list[str]:
    parts = [path for path in (folder / "out").rglob("*") if path.is_file()]
    return [
        line for path in parts if not path.name.startswith(".") for line in path.read_text().split()
    ]


@pytest.fixture
def topics(cluster: MockCluster) -> Topics:
    return Topics(cluster)


def test_each_record_counts_once_over_killed_workers_new_topics_and_another_parallelism(
    topics: Topics, opened: ExitStack, tmp_path: Path
) -> None:
    topics.write(topics.first, 100)
    job = open_job(opened, tmp_path, topics.graph(tmp_path, 2))
    run, processes = begin(opened, job, 2)
    eventually(lambda: completed(job) >= 2, "checkpoints")
    topics.write(topics.first, 100)
    processes[1].signal(signal.SIGKILL)
    run = begin_again(opened, job, 2, run, "again")
    topics.write(topics.first, 100)
    topics.write(topics.add_topic(), 100, 1)
    topics.all_are_in(tmp_path)
    saved = run.savepoint(str(tmp_path / "savepoint"), Stop.SUSPEND).result(30)
    assert ended(run).state is JobState.FINISHED
    topics.write(f"{topics.first}-late", 100, 1)
    path = {"execution.savepoint.path": str(saved)}
    narrower = open_job(opened, tmp_path / "narrower", topics.graph(tmp_path, 1), **path)
    begin(opened, narrower, 1)
    topics.write(topics.first, 100)
    topics.all_are_in(tmp_path)
