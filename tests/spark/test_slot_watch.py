"""What is said of a job that Spark has no slots for, although it had when it was submitted."""

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from headgate.base.errors import SessionFailed, SlotsShort
from headgate.spark.cluster import ClassicCluster, Slots
from headgate.spark.executors import ExcludedExecutor
from headgate.spark.slot_watch import UNTOLD_LOOKS, SlotWatch, shortage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.spark.cluster import SparkCluster

LEFT_OUT = ExcludedExecutor("3", "10.1.2.3", 2)


class ScriptedCluster:
    """Answers what a test puts into it."""

    def __init__(self, slots: Slots) -> None:
        self.found: Slots | Exception = slots
        self.running = 0
        self.gone = ""

    def slots(self, profile: object = None) -> Slots:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def absence(self) -> str:
        return self.gone


def watch(cluster: ScriptedCluster) -> SlotWatch:
    return SlotWatch(cast("SparkCluster", cluster), "sums", 4, lambda: cluster.running)


def test_what_fits_waits_for_nothing() -> None:
    assert shortage(4, Slots(6, 2)) == ""


def test_slots_that_others_have_taken_are_counted() -> None:
    found = shortage(4, Slots(6, 3))
    assert found == "waiting for 4 slots; 3 of 6 are taken by other jobs of this application"
    assert "2 of 2 are taken" in shortage(2, Slots(2, 4)), "tasks may be smaller than slots"


def test_executors_that_are_excluded_or_lost_are_the_reason() -> None:
    found = shortage(4, Slots(2, 0, (LEFT_OUT,)))
    why = "because executor 3 on 10.1.2.3 is excluded after failures"
    assert found == f"waiting for 4 slots; Spark has 2, {why}"
    assert shortage(4, Slots(2, 0)).endswith("Spark has 2, because executors are lost")
    two = Slots(2, 0, (LEFT_OUT, ExcludedExecutor("4", "10.1.2.4", 2)))
    assert shortage(8, two).endswith(
        "executors 3 on 10.1.2.3, 4 on 10.1.2.4 are excluded after failures"
    )
    error = SlotsShort(4, 2, 0, [str(LEFT_OUT)])
    assert "(2 in total, 0 busy, without the excluded executors 3 on 10.1.2.3)" in str(error)
    assert "spark.excludeOnFailure.timeout" in str(error)


def test_a_shortage_is_told_at_the_second_look_and_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headgate.spark.slot_watch")
    cluster = ScriptedCluster(Slots(4, 4))
    seen = watch(cluster)
    seen.look()
    assert (seen.reason, caplog.messages) == ("", []), "it may be over in a moment"
    seen.look()
    seen.look()
    reason = "waiting for 4 slots; 4 of 4 are taken by other jobs of this application"
    assert (seen.reason, caplog.messages) == (reason, [f"job sums is {reason}"])
    cluster.found = Slots(4, 1)
    seen.look()
    assert "1 of 4" in seen.reason and "1 of 4" in caplog.messages[-1], "it has changed"
    cluster.running, cluster.found = 4, Slots(4, 4)  # its own
    seen.look()
    assert (seen.reason, len(caplog.messages)) == ("", 3)
    assert caplog.messages[-1].startswith("job sums has waited")
    seen.ended()
    assert len(caplog.messages) == 3


def test_where_nobody_tells_who_has_the_slots_a_job_without_tasks_waits_for_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = ScriptedCluster(Slots(4, 0, tells_busy=False))
    seen = watch(cluster)
    for _ in range(UNTOLD_LOOKS):
        seen.look()
    assert (seen.reason, caplog.messages) == ("", []), "Python takes its time to start"
    seen.look()
    assert seen.reason.startswith("waiting for 4 slots; other sessions of the server may have them")
    assert caplog.messages == [f"job sums is {seen.reason}"]
    cluster.found = Slots(2, 0, tells_busy=False)
    seen.look()
    assert seen.reason.endswith("Spark has 2, because executors are lost")


def test_a_spark_that_does_not_answer_is_no_shortage() -> None:
    cluster = ScriptedCluster(Slots(4, 4))
    seen = watch(cluster)
    seen.look()
    seen.look()
    cluster.found = RuntimeError("Java is gone")
    seen.look()
    assert seen.reason == ""


def test_a_spark_that_is_gone_at_two_looks_is_waited_for_in_vain() -> None:
    cluster = ScriptedCluster(Slots(4, 4))
    seen = watch(cluster)
    cluster.gone = "the server does not answer"
    seen.look()
    assert seen.absence == "", "it may have been busy"
    seen.look()
    assert (seen.reason, seen.absence) == ("", "the server does not answer")
    cluster.gone = ""
    seen.look()
    assert seen.absence == ""


def test_a_session_that_spark_has_stopped_says_so() -> None:
    """As a standalone master does it with an application whose executors keep dying."""
    context = SimpleNamespace(_jsc=None, master="spark://here:7077")  # what PySpark leaves of it
    with pytest.raises(SessionFailed, match="session has been stopped; .* executors could not st"):
        ClassicCluster(cast("SparkSession", SimpleNamespace(sparkContext=context))).slots()
