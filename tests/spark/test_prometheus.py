"""A real Prometheus scrapes a job on Spark, with the configuration that docs/metrics.md shows."""

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

from headgate import Configuration
from headgate.api.job import JobClient
from headgate.base.settings import RestSettings
from headgate.connectors.generator import DataGeneratorSource
from headgate.datastream import StreamExecutionEnvironment
from headgate.observe.web.server import close_page_server, page_server

DOCUMENT = Path(__file__).parents[2] / "docs/metrics.md"
DEADLINE_S = 60.0
RATE = 2_000

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Prometheus is not installed"
)


class Prometheus:
    """A server that scrapes every second."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/query"

    def values(self, query: str) -> dict[str, float]:
        """By task, or by job."""
        with urlopen(f"{self._url}?{urlencode({'query': query})}", timeout=DEADLINE_S) as response:
            answer = json.load(response)
        assert answer["status"] == "success"
        found: dict[str, float] = {}
        for series in answer["data"]["result"]:
            labels = series["metric"]
            name = labels.get("task") or labels["job"]
            assert name not in found, f"{query} has {name} twice"
            found[name] = float(series["value"][1])
        return found

    def wait_for(self, query: str, **expected: Any) -> None:
        """Until the values are about these; Prometheus may still start, and so may the job."""
        deadline = time.monotonic() + DEADLINE_S
        found: object = None
        while time.monotonic() < deadline:
            try:
                found = self.values(query)
            except (URLError, ConnectionError):  # it starts
                found = "no answer"
            if found == {name: pytest.approx(value, rel=0.1) for name, value in expected.items()}:
                return
            time.sleep(0.2)
        raise AssertionError(f"{query}: {found}, not {expected}")


@contextmanager
def scraping(target: str, folder: Path) -> Iterator[Prometheus]:
    text = DOCUMENT.read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(scrape_configs:.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert "127.0.0.1:8081" in example and "scrape_interval: 15s" in example
    config = example.replace("127.0.0.1:8081", target).replace("15s", "1s")
    (folder / "prometheus.yml").write_text(config, encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield Prometheus(port)
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


@contextmanager
def paced_job() -> Iterator[JobClient]:
    """numbers → key_by → count, two tasks each; it runs until the end of the block."""
    settings = Configuration().set_string("rest.enabled", "true")
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(2)
    source = DataGeneratorSource(abs, records_per_second=RATE)
    numbers = env.from_source(source, None, "numbers")
    counted = numbers.key_by(lambda n: n % 7).map(lambda n: n).name("count")
    counted.add_sink(lambda n: None).name("end")
    client = env.execute_async("paced")
    try:
        yield client
    finally:
        client.cancel()
        close_page_server()


def test_prometheus_tells_rates_shares_and_the_end_of_a_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, sink = "Source: numbers", "count -> Sink: end"
    with paced_job() as client:
        page = page_server(RestSettings())
        assert page is not None
        with scraping(page.url.removeprefix("http://"), tmp_path) as prometheus:
            prometheus.wait_for(
                "rate(headgate_task_records_in_total[5s])", **{source: RATE, sink: RATE}
            )
            prometheus.wait_for('headgate_job_status{status="RUNNING"}', paced=1)
            prometheus.wait_for("headgate_task_subtasks", **{source: 2, sink: 2})
            shares = "+".join(
                f"rate(headgate_task_{part}_seconds_total[5s])"
                for part in ("busy", "backpressured", "idle")
            )
            prometheus.wait_for(shares, **{source: 2, sink: 2})
            prometheus.wait_for("count by (job) (headgate_taskmanager_memory_bytes > 1e6)", paced=2)
            client.cancel()
            prometheus.wait_for('headgate_job_status{status="CANCELED"}', paced=1)
            records = prometheus.values("headgate_task_records_in_total")
            assert records[sink] > 5 * RATE / 10
