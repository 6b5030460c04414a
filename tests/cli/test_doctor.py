"""`headgate doctor`: what it finds, what it says about it, and its exit code."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from headgate import __version__
from headgate.base.errors import SessionFailed
from headgate.cli import doctor
from headgate.cli.doctor import BAD, OK, WARN, Finding, exit_code, line
from headgate.cli.entry import NO_SPARK
from headgate.spark.java import Java, JavaSearch, Rejected
from headgate.spark.probe import SparkReport, WorkerReport
from headgate.spark.session import Slots

PYTHON = ".".join(map(str, sys.version_info[:3]))
FIT = WorkerReport("10.0.0.1", PYTHON, __version__, "")


def seen(*workers: WorkerReport, **more: Any) -> SparkReport:
    facts: dict[str, Any] = {
        "version": "4.3.0",
        "master": "local[4]",
        "slots": Slots(4, 0),
        "dynamic_allocation": False,
        "start_s": 5.0,
        "job_s": 2.0,
        "workers": workers or (FIT,),
    }
    return SparkReport(**{**facts, **more})


def test_without_a_session_it_is_quick_and_prints_one_json_object() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headgate", "doctor", "--json", "--no-spark"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    report = json.loads(done.stdout)
    assert report["headgate"] == __version__
    assert report["exit_code"] == done.returncode
    checks = [finding["check"] for finding in report["findings"]]
    assert {"Python", "pyarrow", "msgspec", "cloudpickle", "pyspark", "Java"} <= {*checks}
    assert "Spark session" not in checks


def test_a_line_says_state_check_found_and_how_to_mend() -> None:
    text = line(Finding("Java", BAD, "none", "install one"))
    assert text.split() == ["\x1b[31mbad", "\x1b[0m", "Java", "none", "install", "one"]
    assert "\n" not in line(Finding("Java", OK, "17"))


def test_the_exit_code_is_the_worst_of_what_is_bad() -> None:
    folder, spark = Finding("x", BAD, ""), Finding("y", BAD, "", "", NO_SPARK)
    assert exit_code([Finding("x", OK, ""), Finding("y", WARN, "", "", NO_SPARK)]) == 0
    assert exit_code([folder]) == 2
    assert exit_code([spark, folder]) == 3


@pytest.mark.parametrize(
    ("found", "state"), [(None, BAD), ("3.5.8", BAD), ("4.0.0", OK), ("4.3.1", OK), ("4.9.0", WARN)]
)
def test_pyspark_has_to_be_there_and_known(found: str | None, state: str) -> None:
    finding = doctor.check_pyspark(found)
    assert (finding.state, finding.exit_code) == (state, 3 if state == BAD else 2)


def test_packages_have_to_be_new_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_package("msgspec", "0.18").state == OK
    assert doctor.check_package("msgspec", "99").mend == "pip install 'msgspec>=99'"
    assert doctor.check_package("no-such-package", "1").found == "not installed"
    monkeypatch.setattr(doctor, "version", lambda name: "3.0.1")
    assert doctor.check_pandas().state == WARN


def test_rocksdb_is_named_and_its_absence_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", lambda name: "0.3.29")
    assert doctor.check_rocksdb() == doctor.Finding("rocksdict", OK, "0.3.29")
    monkeypatch.setattr(doctor, "version", missing)
    absent = doctor.check_rocksdb()
    assert absent.state == OK
    assert absent.found.endswith("pip install '.[rocksdb]' in a clone of Headgate")


def test_a_tree_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "requires", missing)
    assert [finding.state for finding in doctor.check_packages()] == [OK, WARN]


def test_python_has_to_be_a_tested_one() -> None:
    assert doctor.check_python((3, 10)).state == OK
    assert doctor.check_python((3, 14)).state == WARN


@pytest.mark.parametrize(
    ("found", "rejected", "state"),
    [
        (True, (), OK),
        (True, (Rejected("JAVA_HOME", "is Java 8"),), WARN),
        (True, (Rejected("PATH", "no java on the path"),), OK),
        (False, (Rejected("PATH", "no java on the path"),), BAD),
    ],
)
def test_java_says_what_was_passed_over(
    found: bool, rejected: tuple[Rejected, ...], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = Java(Path("java-17"), "17.0.1", "PATH", True) if found else None
    monkeypatch.setattr(doctor, "find_java", lambda spark_version: JavaSearch(java, rejected))
    finding = doctor.check_java()
    assert finding.state == state
    assert all(str(place) in finding.found for place in rejected)


def test_memory_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_memory(1 << 40).state == doctor.check_memory(None).state == OK
    assert doctor.check_memory(1 << 20).state == WARN
    assert doctor.check_folder(tmp_path).state == OK
    assert doctor.check_folder(tmp_path / "gone").state == BAD
    monkeypatch.setattr(doctor, "LEAST_DISK", 1 << 60)
    assert doctor.check_folder(tmp_path).state == WARN


def test_loopback_that_is_barred_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def barred(place: object) -> None:
        raise PermissionError("not here")

    assert doctor.check_loopback().state == OK
    monkeypatch.setattr(doctor.socket, "create_server", barred)
    assert doctor.check_loopback().found == "not here"


def test_a_session_that_does_not_start_is_told() -> None:
    def fail() -> SparkReport:
        raise SessionFailed("no master")

    [finding] = doctor.check_spark(fail)
    assert (finding.state, finding.found, finding.exit_code) == (BAD, "no master", 3)


def test_no_free_slot_is_bad() -> None:
    *_, finding = doctor.check_spark(lambda: seen(slots=Slots(4, 4)))
    assert (finding.check, finding.state, finding.exit_code) == ("slots", BAD, 3)


def test_dynamic_allocation_is_told_with_what_it_does_not_do() -> None:
    findings = {
        finding.check: finding
        for finding in doctor.check_spark(lambda: seen(dynamic_allocation=True))
    }
    assert findings["allocation"].state == WARN
    assert findings["workers"].state == OK


@pytest.mark.parametrize(
    ("worker", "state", "mend"),
    [
        (FIT, OK, ""),
        (WorkerReport("10.0.0.2", PYTHON, "", "cannot import headgate"), BAD, "install Headgate"),
        (WorkerReport("10.0.0.2", "3.9.1", __version__, ""), BAD, "set PYSPARK_PYTHON"),
        (WorkerReport("10.0.0.2", PYTHON, "0.0.1", ""), BAD, f"install headgate=={__version__}"),
    ],
)
def test_every_worker_has_to_fit(worker: WorkerReport, state: str, mend: str) -> None:
    *_, finding = doctor.check_spark(lambda: seen(FIT, worker))
    assert finding.state == state
    assert finding.mend.startswith(mend)
