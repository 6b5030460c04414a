"""A real cluster: two executors of two slots, driven by a process of its own."""

import json
from pathlib import Path

import pytest

from tests.spark.cluster import Cluster

DRIVER = Path(__file__).with_name("cluster_driver.py")


def test_a_barrier_stage_spans_both_executors(standalone_cluster: Cluster) -> None:
    done = standalone_cluster.run(str(DRIVER), standalone_cluster.url)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["total"], told["busy"]) == (4, 0)
    assert (told["processes"], told["executors"]) == (4, 2)
    assert told["gathered"] == [["0", "1", "2", "3"]] * 4
    assert told["doctor"] == {"Spark session": "ok", "slots": "ok", "workers": "ok"}


def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    monkeypatch.setitem(cluster.environ, "JAVA_HOME", str(tmp_path / "no-such-java"))
    with pytest.raises(RuntimeError, match="no-such-java"), cluster:
        pass
    assert not cluster._processes
