"""Commands and a running job on Spark: found, asked for savepoints, stopped, and gone on with."""

import json
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.base.errors import SettingsInvalid, StateUnclaimed
from headgate.common import JobClient, JobStatus
from headgate.datastream import StreamExecutionEnvironment
from headgate.datastream.connectors import DataGeneratorSource, TextFileSink
from headgate.host.driver.job_directory import entries
from tests.cli.kit import Done, in_process
from tests.spark.cluster import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Headgate = Callable[..., Done]
KEYS = 3


@pytest.fixture
def headgate(
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Headgate:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return partial(in_process, monkeypatch, capsys)


def environment(**texts: str) -> StreamExecutionEnvironment:
    """With settings whose dots are two underscores."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    for key, text in texts.items():
        env.get_configuration().set_string(key.replace("__", ".").replace("_", "-"), text)
    return env


def endless(uid: str = "count", **texts: str) -> StreamExecutionEnvironment:
    """Counts per key, without an end."""
    env = environment(**texts)
    numbers = env.from_source(DataGeneratorSource(abs, None, 500.0), None, "numbers")
    numbers.key_by(lambda number: number % KEYS).sum().uid(uid)
    return env


def started(env: StreamExecutionEnvironment, name: str) -> JobClient:
    client = env.execute_async(name)
    assert until(lambda: client.get_job_status().result() is JobStatus.RUNNING, 60)
    return client


def test_a_running_job_is_listed_and_cancelled(headgate: Headgate) -> None:
    client = started(endless(), "endless")
    (row,) = json.loads(headgate("list", "--json").stdout)["jobs"]
    assert (row["job"], row["name"], row["state"]) == (client.get_job_id(), "endless", "running")
    done = headgate("cancel", client.get_job_id()[:5])
    assert done.returncode == 0, done.stderr
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert entries() == []


def test_a_job_stops_with_a_savepoint_and_another_goes_on_from_it(
    headgate: Headgate, tmp_path: Path
) -> None:
    count, saved = 1500, tmp_path / "saved"

    def sums(folder: str, rate: float | None, **texts: str) -> StreamExecutionEnvironment:
        env = environment(**texts)
        numbers = env.from_source(DataGeneratorSource(abs, count, rate), None, "numbers")
        counts = numbers.key_by(lambda number: number % KEYS).sum().uid("sums").map(str)
        counts.sink_to(TextFileSink(str(tmp_path / folder)))
        return env

    client = started(sums("first", 500.0), "sums")
    done = headgate("savepoint", "sums", saved)
    assert done.returncode == 0, done.stderr
    assert client.get_job_status().result() is JobStatus.RUNNING
    assert Path(done.stdout.strip()).parent == saved
    stopped = headgate("stop", "sums", saved, "--json")
    assert stopped.returncode == 0, stopped.stderr
    report = json.loads(stopped.stdout)
    assert report["state"] == "finished"
    client.get_job_execution_result().result()
    assert headgate("checkpoints", saved).returncode == 0

    sums("second", None, execution__state_recovery__path=report["path"]).execute("again")
    found = [lines(tmp_path / folder) for folder in ("first", "second")]
    assert all(found), "both runs have written something"
    expected = [total for key in range(KEYS) for total in accumulate(range(key, count, KEYS))]
    assert sorted(found[0] + found[1]) == sorted(expected), "nothing lost, nothing twice"

    other = endless("other", execution__state_recovery__path=report["path"])
    with pytest.raises(StateUnclaimed, match="--allow-non-restored-state"):
        other.execute("without the sums")


def lines(folder: Path) -> list[int]:
    """The numbers in all files that are there for good."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name[0] not in "._"]
    return [int(line) for path in files for line in path.read_text().split()]


def test_a_savepoint_needs_a_directory_and_one_that_can_be_written(
    headgate: Headgate, tmp_path: Path
) -> None:
    client = started(endless(), "endless")
    try:
        done = headgate("savepoint", "endless")
        assert done.returncode == 1
        assert "setting execution.checkpointing.savepoint-dir: is not set" in done.stderr
        (tmp_path / "file").write_text("")
        drained = headgate("stop", "endless", tmp_path / "file", "--drain")
        assert drained.returncode == 1
        assert "a file stands where a folder must be" in drained.stderr
        with pytest.raises(SettingsInvalid, match="savepoint-dir"):
            client.trigger_savepoint()
        assert client.get_job_status().result() is JobStatus.RUNNING
        path = client.trigger_savepoint(str(tmp_path / "saved")).result()
        assert (Path(path) / "_metadata").is_file()
    finally:
        client.cancel().result()
