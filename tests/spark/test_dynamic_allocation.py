"""The setting that Spark's check of barrier stages reads, while jobs start side by side.

That executors are asked for, and that jobs run on them, is shown on a real cluster.
"""

import threading
from typing import TYPE_CHECKING, Any

import pytest

from headgate.spark.executors import DYNAMIC, allocate, barriers_allowed, is_dynamic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Conf(dict[str, str]):
    """As much of Java's as is asked for."""

    def set(self, key: str, text: str) -> None:
        self[key] = text


class Context:
    """A context with such a configuration, and the way to it."""

    def __init__(self, application: str, **settings: str) -> None:
        self.applicationId = application
        self.settings = Conf(settings)
        self._jsc = self

    def sc(self) -> "Context":
        return self

    def conf(self) -> Conf:
        return self.settings


def dynamic(application: str) -> Any:
    return Context(application, **{DYNAMIC: "true"})


def test_the_setting_is_as_it_was_when_the_last_of_several_jobs_has_started() -> None:
    context = dynamic("app-1")
    with barriers_allowed(context):
        with barriers_allowed(context):
            assert context.settings[DYNAMIC] == "false"
        assert context.settings[DYNAMIC] == "false", "the first job has not started"
        assert is_dynamic(context), "whatever the setting says for the moment"
    assert context.settings[DYNAMIC] == "true"


def test_the_setting_comes_back_after_a_job_that_cannot_start() -> None:
    context = dynamic("app-2")
    with pytest.raises(RuntimeError), barriers_allowed(context):
        raise RuntimeError
    assert context.settings[DYNAMIC] == "true" and is_dynamic(context)


def test_sessions_of_a_fixed_size_are_left_alone() -> None:
    context: Any = Context("app-3")
    with barriers_allowed(context):
        assert not is_dynamic(context)
    assert context.settings == {}


def test_a_request_that_is_over_before_spark_has_it_holds_no_slots(spark: "SparkSession") -> None:
    context: Any = spark.sparkContext
    tracker = context.statusTracker()

    def running(group: str) -> int:
        jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        return sum(stage.numActiveTasks for stage in stages if stage)

    assert allocate(context, 2, running, is_over=lambda: True) == 0
    assert "headgate-executors" not in [thread.name for thread in threading.enumerate()]
    assert running("") == 0
