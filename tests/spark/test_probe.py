"""The barrier job of `headgate doctor`, in a real session."""

import json
import platform
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from headgate import __version__
from headgate.base.errors import SessionFailed
from headgate.cli.doctor import doctor
from headgate.spark import probe
from headgate.spark.cluster import Slots, cluster_of
from headgate.spark.probe import WorkerReport, probe_spark
from headgate.spark.session import active_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark_smoke
def test_every_worker_tells_what_it_is(spark: "SparkSession") -> None:
    seen = probe_spark()
    assert (seen.master, seen.slots, seen.version) == ("local[4]", Slots(4, 0), spark.version)
    worker = WorkerReport("127.0.0.1", platform.python_version(), __version__, "")
    assert seen.workers == (worker,) * 4
    assert active_session() is spark  # it was there before, so it stays


@pytest.mark.spark_smoke
def test_doctor_finds_everything_well_here(spark: "SparkSession") -> None:
    done = CliRunner().invoke(doctor, ["--json"], standalone_mode=False)
    assert done.return_value == 0, done.output
    findings = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert {findings[name]["state"] for name in ("Spark session", "slots", "workers")} == {"ok"}
    assert "on local[4], ready after" in findings["Spark session"]["found"]


def test_a_worker_without_headgate_says_so(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_worker_function", _without_headgate)
    [worker] = probe._ask_workers(cluster_of(spark), 1)
    assert "cannot import headgate" in worker.trouble


def _without_headgate(timeout_s: float) -> object:
    look = _worker_function(timeout_s)

    def hide(rows: object) -> object:
        import sys

        hidden = {name: sys.modules.pop(name) for name in [*sys.modules] if "headgate" in name}
        sys.modules["headgate"] = None  # type: ignore[assignment]
        try:
            return look(rows)  # type: ignore[arg-type]
        finally:
            del sys.modules["headgate"]
            sys.modules.update(hidden)  # the worker is used again

    return hide


_worker_function = probe._worker_function


def test_a_job_that_fails_is_told_in_one_line(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(rows: object) -> object:
        raise RuntimeError("out of order")

    monkeypatch.setattr(probe, "_worker_function", lambda timeout_s: fail)
    with pytest.raises(SessionFailed, match="RuntimeError: out of order") as caught:
        probe._ask_workers(cluster_of(spark), 1)
    assert "\n" not in str(caught.value)


def test_another_python_on_the_workers_is_told_with_what_to_set() -> None:
    text = "has different version: 3.12 than that in driver: 3.11, PySpark cannot run"
    why = probe._why(f"... [PYTHON_VERSION_MISMATCH] Python in worker {text} with ...")
    assert why.startswith("the workers run Python 3.12, and the driver 3.11; set PYSPARK_PYTHON to")
    text = 'java.io.IOException: Cannot run program "/opt/python": error=2, No such file'
    assert probe._why(text).startswith("the workers have no program /opt/python; set PYSPARK_PYTHO")


def test_no_slots_no_job() -> None:
    assert probe._ask_workers(None, 0) == ()
