"""The session that is found or made, its settings, its slots, and what keeps one from starting."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from headgate.base.errors import SessionFailed, SparkMissing
from headgate.spark import session as session_module
from headgate.spark.cluster import cluster_of
from headgate.spark.java import OPTIMIZED_LATER
from headgate.spark.session import Slots, await_slots, find_session, is_known, slots
from tests.spark.cluster import free_port, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Built = Callable[..., dict[str, str]]


@pytest.mark.spark_smoke
def test_the_running_session_is_taken(spark: "SparkSession") -> None:
    assert find_session({"spark.app.name": "another"}) is spark
    assert spark.sparkContext.appName == "headgate"


def test_a_plain_thread_finds_the_same_session(spark: "SparkSession") -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(find_session()))
    thread.start()
    thread.join()
    assert found[0].sparkContext is spark.sparkContext


def test_a_local_session_stays_on_this_machine(spark: "SparkSession") -> None:
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings["spark.master"] == "local[4]"
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.ui.showConsoleProgress"] == "false"
    assert "SPARK_LOCAL_IP" not in os.environ


@pytest.mark.spark_smoke
def test_workers_run_the_same_python_and_have_headgate(spark: "SparkSession") -> None:
    def look(_: object) -> list[tuple[str, str]]:
        import headgate

        return [(sys.executable, headgate.__version__)]

    seen = spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect()
    assert seen[0][0] == sys.executable


@pytest.mark.spark_smoke
def test_numbers_and_arrays_of_numpy_reach_java(spark: "SparkSession") -> None:
    """Headgate has its own answer to what PySpark asks about each argument of a call."""
    numpy, java = pytest.importorskip("numpy"), cluster_of(spark).java
    assert java.java.lang.Math.abs(numpy.int64(-3)) == 3
    assert java.java.util.Arrays.hashCode(numpy.array([1, 2])) == 994
    assert java.java.util.Objects.hashCode([1, 2]) == 994, "a list stays one"


@pytest.mark.spark_smoke
def test_slots_tell_what_is_busy(spark: "SparkSession", tmp_path: Path) -> None:
    go, started = tmp_path / "go", tmp_path / "started"

    def wait(rows: Any) -> list[int]:
        import time

        index = next(iter(rows))
        Path(f"{started}-{index}").touch()
        while not go.exists():
            time.sleep(0.02)
        return [index]

    assert await_slots(spark, 4) == Slots(total=4, busy=0)
    stage = spark.sparkContext.parallelize(range(3), 3).barrier().mapPartitions(wait)
    thread = threading.Thread(target=stage.collect)
    thread.start()
    try:
        assert until(lambda: len(list(tmp_path.glob("started-*"))) == 3, 30)
        assert slots(spark) == Slots(total=4, busy=3)
        assert slots(spark).free == 1
    finally:
        go.touch()
        thread.join()
    assert until(lambda: slots(spark).busy == 0, 10)


def test_slots_fall_back_to_what_is_public(spark: "SparkSession") -> None:
    from py4j.protocol import Py4JError

    class Reserved:
        """A JVM that does not let go of what is not public."""

        def sc(self) -> Any:
            return self

        def __getattr__(self, name: str) -> Any:
            raise Py4JError(f"no {name}")

    context = spark.sparkContext
    reserved: Any = SimpleNamespace(
        _jsc=Reserved(),
        defaultParallelism=context.defaultParallelism,
        statusTracker=context.statusTracker,
    )
    assert slots(SimpleNamespace(sparkContext=reserved)) == Slots(4, 0)  # type: ignore[arg-type]


def test_waiting_for_slots_ends(spark: "SparkSession") -> None:
    assert await_slots(spark, 99, timeout_s=0.1).total == 4


# How a session would be made, without making one.


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Built:
    """`built(settings, cores=n)`: the options that a new session would get."""
    made: list[dict[str, str]] = []
    monkeypatch.setattr(session_module, "active_session", lambda: None)
    monkeypatch.setattr(session_module, "check_version", lambda: None)
    monkeypatch.setattr(session_module, "ensure_java", lambda version: None)
    monkeypatch.setattr(
        session_module, "_build", lambda options, _="": made.append({**options}) or 1
    )
    for name in ("PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    def build(settings: dict[str, str] | None = None, **more: Any) -> dict[str, str]:
        find_session(settings, **more)
        return made.pop()

    return build


def test_a_new_local_session_has_slots_for_any_job(built: Built) -> None:
    cores = str(max(4, os.cpu_count() or 1))
    options = built(needed=5)
    assert options["spark.master"] == f"local[{max(32, 4 * (os.cpu_count() or 1))}]"
    assert built(needed=200)["spark.master"] == "local[200]"
    assert options["spark.default.parallelism"] == cores  # slots are no cores
    assert options["spark.rpc.netty.dispatcher.numThreads"] == cores
    assert built({"spark.default.parallelism": "7"})["spark.default.parallelism"] == "7"


def test_slots_that_somebody_has_chosen_stay(built: Built) -> None:
    for options in (built(cores=2, needed=5), built({"spark.master": "local[2]"}, needed=5)):
        assert options["spark.master"] == "local[2]"
        assert "spark.default.parallelism" not in options


def test_the_python_of_the_workers_is_the_drivers_or_the_one_that_is_named(
    built: Built, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def build(options: dict[str, str], jvm_options: str = "") -> None:
        found.append(os.environ["PYSPARK_PYTHON"])

    found: list[str] = []
    other = tmp_path / "python"
    other.write_text("")
    other.chmod(0o755)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(session_module, "_build", build)
    monkeypatch.setattr(session_module, "_check_master", lambda master: None)
    find_session()
    find_session({"python.executable": str(other)})
    find_session({"python.executable": "/there/python", "spark.master": "spark://host:7077"})
    assert found == [sys.executable, str(other), "/there/python"]
    with pytest.raises(SessionFailed, match=r"venv\.zip/bin/python, which is no program here"):
        find_session({"python.executable": "venv.zip/bin/python"})


def test_only_settings_of_spark_reach_it(built: Built) -> None:
    options = built({"spark.driver.memory": "2g", "parallelism.default": "4"})
    assert options["spark.driver.memory"] == "2g"
    assert "parallelism.default" not in options
    assert built({"spark.master": "local[3]"})["spark.master"] == "local[3]"


def test_spark_s_own_files_and_variables_are_heeded(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "# ours\nspark.master  local[6]\nspark.driver.host=10.0.0.1\n\nspark.x   a b\n"
    (tmp_path / "spark-defaults.conf").write_text(text)
    options = built()
    assert options["spark.master"] == "local[6]"
    assert options["spark.driver.host"] == "10.0.0.1"
    assert options["spark.x"] == "a b"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master local[5] pyspark-shell")
    assert built()["spark.master"] == "local[5]"


def test_a_log_configuration_of_the_user_stays(built: Built, tmp_path: Path) -> None:
    assert "log4j2.properties" in built()["spark.driver.extraJavaOptions"]
    (tmp_path / "log4j2.properties").touch()
    assert "spark.driver.extraJavaOptions" not in built()


def test_a_local_session_starts_quickly_unless_a_script_chooses_the_options(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(session_module, "_build", lambda options, jvm="": seen.append(jvm))
    find_session({"java.class-archive": "false"})
    (tmp_path / "spark-env.sh").write_text('SPARK_SUBMIT_OPTS="$SPARK_SUBMIT_OPTS -XX:+UseG1GC"')
    find_session({"java.class-archive": "false"})
    find_session({"java.class-archive": "false", "spark.master": "yarn"})
    assert OPTIMIZED_LATER in seen[0]
    assert seen[1:] == ["", ""]


def test_a_cluster_is_not_bound_to_the_loopback_address(built: Built) -> None:
    options = built({"spark.master": "yarn"})
    assert options["spark.master"] == "yarn"
    assert "spark.driver.host" not in options


def test_spark_submit_has_decided_already(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(session_module, "_submitted_options", lambda given: {})
    assert built() == {"spark.app.name": "headgate"}


@pytest.mark.parametrize(
    ("settings", "protected"),
    [
        ({}, "true"),
        ({"spark.master": "local"}, "true"),
        ({"spark.authenticate": "false"}, "false"),
        ({"spark.master": "local-cluster[2,1,1024]"}, None),  # Spark makes no secret for it
        ({"spark.master": "yarn"}, None),
    ],
)
def test_a_session_of_one_process_is_authenticated(
    built: Built, settings: dict[str, str], protected: str | None
) -> None:
    assert built(settings).get("spark.authenticate") == protected
    assert "spark.authenticate.secret" not in built(settings), "a command line would show it"


def test_a_master_that_nobody_serves_is_told_at_once(built: Built) -> None:
    with pytest.raises(SessionFailed, match="no Spark master answers at spark://127.0.0.1:"):
        built({"spark.master": f"spark://127.0.0.1:{free_port()}"})


@pytest.mark.parametrize("found", [None, "3.5.8"])
def test_a_missing_or_old_pyspark_is_named(
    found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "spark_version", lambda: found)
    with pytest.raises(SparkMissing, match=r"pip install '\.\[spark\]'") as caught:
        find_session()
    assert caught.value.found == found


def test_known_versions() -> None:
    assert [is_known(version) for version in ("3.5.8", "4.0.0", "4.3.1", "4.4.0.dev1")] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("line", ["import headgate", "from headgate.cli.commands import command"])
def test_importing_does_not_load_pyspark(line: str) -> None:
    program = f"import sys; {line}; print([n for n in ('pyspark', 'py4j') if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
