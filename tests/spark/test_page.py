"""The web page of a job on Spark: its address, what it shows of it, and what it can do to it."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.base.errors import JobCancelled
from headgate.datastream import StreamExecutionEnvironment
from headgate.datastream.connectors import DataGeneratorSource
from headgate.host.driver.job_directory import entries
from headgate.observe.web.server import close_page_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def page_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    pytest.importorskip("uvicorn")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    close_page_server()
    yield
    close_page_server()


def large(number: int) -> tuple[int, str]:
    """So large that few wait in front of the slow task, and a savepoint's barrier comes through."""
    return number, "x" * 4096


def slowly(record: tuple[int, str]) -> int:
    time.sleep(0.001)
    return record[0]


def ask(web: str, path: str, method: str = "GET", body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-Requested-With": "test", "Content-Type": "application/json"}
    request = urllib.request.Request(web + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return json.load(answer)


def until(web: str, path: str, is_so: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so(found := ask(web, path)):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def test_a_job_is_followed_saved_and_cancelled_on_its_page(
    spark: "SparkSession", tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.get_configuration().set_string("rest.enabled", "true")
    numbers = env.from_source(DataGeneratorSource(large, None), None, "numbers")
    numbers.key_by(lambda record: record[0] % 7).map(slowly).name("slow").add_sink(lambda _: None)
    client = env.execute_async("seen")
    job_id = str(client.get_job_id())
    ((entry, _),) = entries()
    assert f"headgate: job seen: {entry.web}/#/jobs/{job_id}\n" in capfd.readouterr().err
    web, job = entry.web, f"/jobs/{job_id}"

    running = until(web, job, lambda found: found["vertices"][-1]["metrics"]["read-records"] > 0)
    assert running["state"] == "RUNNING"
    last = len(running["vertices"]) - 1
    stacks = ask(web, f"{job}/vertices/{last}/flamegraph?seconds=0.2")
    assert stacks["samples"] > 0 and stacks["data"]["children"]
    channels = ask(web, f"{job}/vertices/{last}/channels")
    assert channels["rows"][0]["producer"].startswith("0.")
    assert len(ask(web, f"{job}/taskmanagers")["taskmanagers"]) == 2
    assert ask(web, f"{job}/why?quick=true")["summary"]

    order = {"target-directory": str(tmp_path / "saved")}
    request = ask(web, f"{job}/savepoints", "POST", order)["request-id"]
    saved = until(
        *(web, f"{job}/savepoints/{request}"),
        lambda found: found["status"]["id"] == "COMPLETED",
    )
    assert Path(saved["operation"]["location"]).is_dir(), saved

    ask(web, f"{job}?mode=cancel", "PATCH")
    with pytest.raises(JobCancelled, match="on its web page"):
        client.get_job_execution_result().result()
    assert ask(web, job)["state"] == "CANCELED"
    assert ask(web, "/jobs") == {"jobs": [{"id": job_id, "status": "CANCELED"}]}
