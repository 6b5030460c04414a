"""A real cluster: two executors of two slots, driven by a process of its own."""

import json
from pathlib import Path

import pytest

from tests.spark.cluster import Cluster

DRIVER = Path(__file__).with_name("cluster_driver.py")


def test_a_barrier_stage_spans_both_executors(standalone_cluster: Cluster) -> None:
    done = standalone_cluster.run(str(DRIVER), standalone_cluster.url)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["total"], report["busy"]) == (4, 0)
    assert (report["processes"], report["executors"]) == (4, 2)
    assert report["gathered"] == [["0", "1", "2", "3"]] * 4
    assert report["doctor"] == {"Spark session": "ok", "slots": "ok", "workers": "ok"}


def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    monkeypatch.setitem(cluster.environ, "JAVA_HOME", str(tmp_path / "no-such-java"))
    with pytest.raises(RuntimeError, match="no-such-java"), cluster:
        pass
    assert not cluster._processes
