"""Commands look into a job on Spark through its page: figures, stacks, waiting records."""

import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.common import JobClient, JobStatus
from headgate.datastream import StreamExecutionEnvironment
from headgate.datastream.connectors import DataGeneratorSource
from headgate.observe.web.server import close_page_server
from tests.cli.kit import Done, in_process
from tests.spark.cluster import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Headgate = Callable[..., Done]


def weigh(order: tuple[str, int]) -> tuple[str, int]:
    time.sleep(0.002)  # as long as nobody wakes it: a slow service
    return order


@pytest.fixture
def headgate(
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Iterator[Headgate]:
    pytest.importorskip("uvicorn")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    close_page_server()  # of an earlier test, with other settings
    yield partial(in_process, monkeypatch, capsys)
    close_page_server()


@pytest.fixture
def client(headgate: Headgate) -> Iterator[JobClient]:
    """A job whose source is held up by a slow operator behind it."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.get_configuration().set_string("rest.enabled", "true")
    orders = env.from_source(
        DataGeneratorSource(lambda n: (f"order {n}", n % 3), None), None, "all"
    )
    orders.key_by(lambda order: order[1]).map(weigh).name("weigh").add_sink(lambda order: None)
    client = env.execute_async("scales")
    assert until(lambda: client.get_job_status().result() is JobStatus.RUNNING, 60)
    yield client
    client.cancel()


def test_a_slow_operator_is_seen_from_all_sides(headgate: Headgate, client: JobClient) -> None:
    def weigh_row() -> dict[str, float]:
        report = json.loads(headgate("status", "scales", "--json").stdout)
        assert report["job"] == client.get_job_id()
        (row,) = [row for row in report["vertices"] if "weigh" in row["name"]]
        return dict(row)

    assert until(lambda: weigh_row()["busy"] > 0.8, 60)
    assert "█████" in headgate("top", "--once").stdout
    stacks = headgate("flame", "scales", "weigh", "--seconds", "1")
    assert stacks.returncode == 0, stacks.stderr
    first = stacks.stdout.splitlines()[2]
    assert re.search(r" weigh \(\S*test_page_commands\.py:\d+\) +your code", first), first
    waiting = json.loads(headgate("peek", "scales", "weigh", "--limit", "5", "--json").stdout)
    records = [entry["text"] for entry in waiting["entries"] if entry["kind"] == "record"]
    assert records and all(text.startswith("('order ") for text in records)
    done = headgate("cancel", "scales")
    assert done.stdout == f"job {client.get_job_id()} (scales) is canceled\n"
    assert client.get_job_status().result() is JobStatus.CANCELED
