"""Keys that nobody knows are found, with what was probably meant; others are left alone."""

import pytest

from headgate.base.known_settings import ELSEWHERE, KEYS, SECTIONS, is_known, unknown_settings
from headgate.base.setting_fields import FORMER_KEYS
from headgate.base.settings import describe_settings

OURS = [key for key, _, _ in describe_settings()]


def test_every_setting_of_ours_is_known_and_stands_in_no_list_of_others() -> None:
    assert unknown_settings(OURS) == []
    assert [key for key in OURS if key in KEYS or key.startswith(SECTIONS)] == []
    assert [key for key in OURS if key in ELSEWHERE or key in FORMER_KEYS] == []


def test_former_keys_that_are_read_are_known() -> None:
    assert unknown_settings(FORMER_KEYS) == []
    assert set(FORMER_KEYS.values()) <= set(OURS)
    assert not KEYS.intersection(FORMER_KEYS)


@pytest.mark.parametrize(
    "key",
    [
        "taskmanager.numberOfTaskSlots",
        "taskmanager.numberoftaskslots",  # out of an environment variable
        "taskmanager.memory.managed.fraction",
        "jobmanager.memory.process.size",
        "jobmanager.rpc.address",
        "python.fn-execution.bundle.size",
        "python.client.executable",
        "pipeline.jars",
        "pipeline.classpaths",
        "state.backend.rocksdb.metrics.block-cache-hit",
        "state.backend.rocksdb.writebuffer.size",
        "execution.batch-shuffle-mode",
        "execution.target",
        "rest.port",
        "rest.flamegraph.enabled",
        "rest.address",
        "table.exec.mini-batch.enabled",
        "metrics.reporter.prom.port",
        "env.java.opts.all",
        "high-availability.storageDir",
        "spark.sql.shuffle.partitions",
    ],
)
def test_keys_of_pyflink_and_spark_that_are_passed_over_on_purpose_are_known(key: str) -> None:
    assert is_known(key)


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("paralelism.default", "parallelism.default"),
        ("Parallelism.default", "parallelism.default"),
        ("execution.checkpoint.interval", "execution.checkpointing.interval"),
        ("restart-strategy.fixed-delay.attempt", "restart-strategy.fixed-delay.attempts"),
        # These begin as keys do that Flink has and Headgate does not use.
        ("taskmanager.memroy.segment-size", "taskmanager.memory.segment-size"),
        ("jobmanager.rpc.prot", "jobmanager.rpc.port"),
        ("python.file", "python.files"),
        ("pipeline.jar", "pipeline.jars"),
        ("rest.bind-adress", "rest.bind-address"),
        ("rest.bind-port", "rest.port"),
        ("State.backend.type", "state.backend.type"),
    ],
)
def test_a_misspelt_key_is_found_with_what_was_meant(key: str, suggestion: str) -> None:
    (found,) = unknown_settings([key])
    assert (found.key, found.suggestion) == (key, suggestion)
    assert str(found) == f"{key} is no setting; did you mean {suggestion}?"


def test_a_key_that_comes_near_no_other_gets_no_suggestion() -> None:
    (found,) = unknown_settings(["my.shop.currency"])
    assert found.suggestion == ""
    assert str(found) == "my.shop.currency is no setting of Headgate's, PyFlink's or Spark's."
