"""An archive of Spark's classes: named by what must fit, private, made by one, used by sessions."""

import fcntl
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.spark.class_archive import ClassArchive, class_archive, without_cluster
from headgate.spark.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


@pytest.fixture
def java() -> Java:
    found = find_java().found
    assert found is not None
    return found


@pytest.fixture
def archive(java: Java, tmp_path: Path) -> ClassArchive:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core.jar").write_bytes(b"classes")
    return ClassArchive(tmp_path, java, tmp_path)


def test_another_java_or_another_jar_has_an_archive_of_its_own(archive: ClassArchive) -> None:
    newer = replace(archive.java, version="99")
    assert replace(archive, java=newer).path != archive.path
    first = archive.path
    (archive.spark_home / "jars" / "more.jar").touch()
    assert replace(archive).path != first


def test_a_session_starts_without_an_archive_that_is_not_there(archive: ClassArchive) -> None:
    assert archive.start_options() == ""


def test_java_starts_as_usual_from_an_archive_that_is_broken(archive: ClassArchive) -> None:
    archive.path.write_bytes(b"no archive")
    options = archive.start_options().split()
    command = [archive.java.home / "bin" / "java", *options, "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "archive" not in done.stdout + done.stderr


def test_an_archive_behind_a_link_is_not_used(archive: ClassArchive) -> None:
    (archive.folder / "elsewhere").write_bytes(b"somebody's code")
    archive.path.symlink_to(archive.folder / "elsewhere")
    assert archive.start_options() == ""


def test_a_folder_that_others_may_write_to_has_no_archive(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    found = class_archive(replace(java, version="17.0.1"))
    assert found is not None
    assert found.folder == tmp_path / "headgate" / "java"
    assert found.folder.stat().st_mode & 0o777 == 0o700
    found.folder.chmod(0o770)
    assert class_archive(found.java) is None


def test_a_configured_spark_has_no_archive(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").touch()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert class_archive(java) is None


def test_a_java_that_would_reject_it_has_no_archive(
    java: Java, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    assert class_archive(replace(java, version="21.0.8")) is None


def test_of_two_processes_one_makes_the_archive(archive: ClassArchive) -> None:
    with open(archive.folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not archive.make()


def test_an_archive_that_was_not_made_is_not_tried_again_on_the_same_day(
    archive: ClassArchive,
) -> None:
    assert not archive.was_tried()
    mark = archive.path.with_suffix(".tried")
    mark.touch()
    assert archive.was_tried()
    os.utime(mark, (0, 0))
    assert not archive.was_tried()


def test_it_is_made_on_this_machine_whatever_cluster_the_user_has() -> None:
    variables = {
        "HOME": "home",
        "MASTER": "spark://cluster:7077",
        "PYSPARK_GATEWAY_PORT": "4711",
        "PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell",
        "SPARK_REMOTE": "sc://cluster",
        "SPARK_SUBMIT_OPTS": "-javaagent:of-the-user.jar",
    }
    own = {"HOME": "home", "SPARK_SUBMIT_OPTS": "-Xshare:auto"}
    assert without_cluster(variables, "-Xshare:auto") == own


AT_EXIT = """
import sys
from pathlib import Path
from headgate.spark.class_archive import ClassArchive, make_at_exit
from headgate.spark.java import Java

folder = Path(sys.argv[1])
sys.executable = str(folder / "python")
make_at_exit(ClassArchive(folder, Java(folder, "17", "test", True), folder))
print("the program ends")
"""


def test_it_is_made_when_the_first_program_has_ended(archive: ClassArchive) -> None:
    program, note = archive.folder / "python", archive.folder / "note"
    os.mkfifo(note)
    program.write_text(f'#!/bin/sh\necho "$@" $(ps -o ni= $$) > {note}\n')
    program.chmod(0o755)
    command = [sys.executable, "-c", AT_EXIT, archive.folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("the program ends\n", "")
    assert note.read_text() == "-m headgate.spark.class_archive 19\n"


def test_a_session_runs_from_the_archive(java: Java, spark: "SparkSession") -> None:
    archive = class_archive(java)
    if archive is None or not archive.path.exists():
        pytest.skip("there is no archive; python -m headgate.spark.class_archive makes it")
    context: Any = spark.sparkContext
    (java_process,) = children(context._gateway.proc.pid)
    assert str(archive.path) in Path(f"/proc/{java_process}/maps").read_text()


def children(pid: int) -> list[int]:
    """The JVM replaces the shell script, or is its child."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    if "libjvm.so" in maps:
        return [pid]
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in listed.split()]
