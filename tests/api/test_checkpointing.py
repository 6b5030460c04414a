"""Checkpoints and restarts as a program asks for them: kept, told again, and not pretended."""

import warnings
from datetime import timedelta

import pytest

from headgate.base.errors import PlanInvalid, SettingsInvalid
from headgate.common import Configuration, Duration, RestartStrategies
from headgate.datastream import (
    CheckpointConfig,
    CheckpointingMode,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    StreamExecutionEnvironment,
)
from tests.api.kit import OneTaskOutside


def test_defaults_are_those_of_flink(env: StreamExecutionEnvironment) -> None:
    config = env.get_checkpoint_config()
    assert not config.is_checkpointing_enabled()
    assert env.get_checkpoint_interval() == -1
    assert config.get_checkpointing_mode() is CheckpointConfig.DEFAULT_MODE
    assert config.get_checkpoint_timeout() == CheckpointConfig.DEFAULT_TIMEOUT
    assert config.get_min_pause_between_checkpoints() == 0
    assert config.get_max_concurrent_checkpoints() == 1
    assert config.is_fail_on_checkpointing_errors()
    assert not config.is_externalized_checkpoints_enabled()
    assert config.get_checkpoint_storage() is None
    assert env.get_default_savepoint_directory() is None
    assert env.get_state_backend() is None
    assert env.get_restart_strategy() is None
    assert env.is_changelog_state_backend_enabled() is None


def test_what_is_set_is_told_again_and_stands_under_flinks_keys(
    env: StreamExecutionEnvironment,
) -> None:
    assert env.enable_checkpointing(5000, CheckpointingMode.AT_LEAST_ONCE) is env
    config = env.get_checkpoint_config()
    config.set_checkpoint_timeout(20_000)
    config.set_min_pause_between_checkpoints(30)
    config.set_max_concurrent_checkpoints(2)
    config.set_tolerable_checkpoint_failure_number(3)
    config.set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    config.enable_unaligned_checkpoints().set_force_unaligned_checkpoints()
    config.set_aligned_checkpoint_timeout(Duration.of_seconds(4))
    config.set_checkpoint_id_of_ignored_in_flight_data(7)
    again = env.get_checkpoint_config()
    assert again.is_checkpointing_enabled()
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_checkpointing_consistency_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert (env.get_checkpoint_interval(), again.get_checkpoint_timeout()) == (5000, 20_000)
    assert again.get_min_pause_between_checkpoints() == 30
    assert again.get_max_concurrent_checkpoints() == 2
    assert again.get_tolerable_checkpoint_failure_number() == 3
    assert not again.is_fail_on_checkpointing_errors()
    retained = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    assert again.get_externalized_checkpoint_retention() is retained
    assert again.is_externalized_checkpoints_enabled()
    assert env.is_unaligned_checkpoints_enabled() and env.is_force_unaligned_checkpoints()
    assert again.get_aligned_checkpoint_timeout() == Duration.of_seconds(4)
    assert again.get_checkpoint_id_of_ignored_in_flight_data() == 7
    texts = env.get_configuration().to_dict()
    assert texts["execution.checkpointing.interval"] == "5000"
    assert texts["execution.checkpointing.mode"] == "at_least_once"
    config.disable_unaligned_checkpoints()
    assert not env.is_unaligned_checkpoints_enabled()


def test_a_configuration_says_it_with_units(env: StreamExecutionEnvironment) -> None:
    settings = Configuration().set_string("execution.checkpointing.interval", "2 min")
    settings.set_string("execution.checkpointing.mode", "EXACTLY_ONCE")
    env.configure(settings)
    assert env.get_checkpoint_interval() == 120_000
    assert env.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    env.get_configuration().set_string("execution.checkpointing.timeout", "soon")
    with pytest.raises(SettingsInvalid, match=r"checkpointing\.timeout.*'soon'"):
        env.get_checkpoint_config().get_checkpoint_timeout()


def test_values_that_cannot_be_are_refused(env: StreamExecutionEnvironment) -> None:
    config = env.get_checkpoint_config()
    with pytest.raises(PlanInvalid, match="interval was given 9; give a whole number that is 10"):
        env.enable_checkpointing(9)
    with pytest.raises(PlanInvalid, match="CheckpointingMode.EXACTLY_ONCE or"):
        config.set_checkpointing_mode("exactly once")  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="give a Duration"):
        config.set_aligned_checkpoint_timeout(5)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="give a CheckpointStorage"):
        config.set_checkpoint_storage("file:///x")  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="HashMapStateBackend"):
        env.set_state_backend("rocksdb")  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"RestartStrategies.no_restart\(\)"):
        env.set_restart_strategy("none")  # type: ignore[arg-type]
    assert not config.is_checkpointing_enabled()


def test_storage_is_kept(env: StreamExecutionEnvironment) -> None:
    config = env.get_checkpoint_config()
    config.set_checkpoint_storage_dir("file:///checkpoints")
    assert config.get_checkpoint_storage() == FileSystemCheckpointStorage("file:///checkpoints")
    config.set_checkpoint_storage(JobManagerCheckpointStorage())
    found = config.get_checkpoint_storage()
    assert isinstance(found, JobManagerCheckpointStorage)
    env.set_default_savepoint_directory("file:///saved")
    assert env.get_default_savepoint_directory() == "file:///saved"
    with pytest.raises(PlanInvalid, match="give a folder"):
        FileSystemCheckpointStorage("")


def test_state_backend_is_the_one_that_the_key_names(env: StreamExecutionEnvironment) -> None:
    rocks = EmbeddedRocksDBStateBackend(True)
    rocks.set_db_storage_paths("/fast/disk")
    assert env.set_state_backend(rocks) is env
    texts = env.get_configuration().to_dict()
    assert texts["state.backend.type"] == "rocksdb"
    assert texts["state.backend.rocksdb.localdir"] == "/fast/disk"
    found = env.get_state_backend()
    assert isinstance(found, EmbeddedRocksDBStateBackend)
    assert found.get_db_storage_paths() == ["/fast/disk"]
    env.set_state_backend(HashMapStateBackend())
    assert env.get_state_backend() == HashMapStateBackend()
    assert env.enable_changelog_state_backend(True).is_changelog_state_backend_enabled()
    with pytest.raises(PlanInvalid, match="give one folder"):
        rocks.set_db_storage_paths("/a", "/b")


def test_restart_strategies_replace_each_other(env: StreamExecutionEnvironment) -> None:
    often = RestartStrategies.failure_rate_restart(3, timedelta(minutes=1), 500)
    env.set_restart_strategy(often)
    assert env.get_restart_strategy() == often
    thrice = RestartStrategies.fixed_delay_restart(3, 1000)
    env.set_restart_strategy(thrice)
    assert env.get_restart_strategy() == thrice != often
    assert env.get_configuration().to_dict() == {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "1000 ms",
    }
    assert "3 times" in thrice.get_description()
    for wrong in (-1, "3"):
        with pytest.raises(PlanInvalid, match="0 or more"):
            RestartStrategies.fixed_delay_restart(wrong, 1)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="milliseconds or a timedelta"):
        RestartStrategies.fixed_delay_restart(1, "5 s")  # type: ignore[arg-type]


def test_a_job_that_asks_for_checkpoints_runs_and_is_told_that_there_are_none(
    env: StreamExecutionEnvironment, outside: OneTaskOutside
) -> None:
    env.enable_checkpointing(1500)
    env.from_collection([1]).print()
    with pytest.warns(UserWarning, match="takes no checkpoints.*every 1.5 s") as told:
        env.execute()
    assert len(told) == 1
    assert told[0].filename == __file__, "it points at the program"
    assert outside.printed == [1]
    stream = env.from_collection([2])
    with pytest.warns(UserWarning, match="takes no checkpoints") as told:
        assert stream.execute_and_collect(limit=1) == [2]
    assert told[0].filename == __file__


def test_a_job_that_asks_for_restarts_is_told_that_there_are_none(
    env: StreamExecutionEnvironment,
) -> None:
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
    env.from_collection([1]).print()
    with pytest.warns(UserWarning, match="restarts no job.*'fixed-delay'"):
        env.execute()
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.from_collection([1]).print()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.execute()
