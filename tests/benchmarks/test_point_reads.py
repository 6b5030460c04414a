"""The parts of the benchmark of point reads that need no Spark."""

from concurrent.futures import Future
from typing import Any

from benchmarks.point_reads import POINT_MEANINGS, WARM_UP_READS, PointReader, latencies
from headgate.api.job import JobClient
from headgate.base.errors import StateUnreadable
from tests.host.rig import eventually


class Answering:
    """A job whose state is read so many times before it ends."""

    def __init__(self, reads: int) -> None:
        self.left = reads

    def read_state(
        self, operator: str, state: str, keys: list[object], timeout_s: float
    ) -> "Future[Any]":
        if self.left == 0:
            raise StateUnreadable("the job has ended")
        self.left -= 1
        answer: Future[Any] = Future()
        answer.set_result([(keys[0], 1)])
        return answer


def test_reads_are_measured_behind_the_first_until_the_job_ends() -> None:
    job = Answering(WARM_UP_READS + 7)
    reader = PointReader(reads_per_s=10_000)
    with reader.beside(JobClient(job)):  # type: ignore[arg-type] # all that it asks for
        eventually(lambda: job.left == 0, "all reads")
    assert len(reader.took_ms) == 7


def test_latencies_are_those_of_all_rounds_together() -> None:
    found = latencies([float(n) for n in range(1000)])
    assert found == {"point_read_p50_ms": 500.0, "point_read_p99_ms": 990.0, "point_reads": 1000}
    assert latencies([])["point_read_p99_ms"] is None
    assert found.keys() <= POINT_MEANINGS.keys()
