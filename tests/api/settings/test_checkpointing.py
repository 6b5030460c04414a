"""Checkpoints and restarts as a program asks for them: kept, told again, and checked."""

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
    PredefinedOptions,
    StreamExecutionEnvironment,
)
from tests.api.kit import OneTaskRuntime


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
    assert texts["execution.checkpointing.mode"] == "AT_LEAST_ONCE"
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


def test_a_strategy_with_growing_pauses_is_checked_where_it_is_made() -> None:
    grows = RestartStrategies.exponential_delay_restart(100, timedelta(seconds=5), 2.0, 60_000, 0.1)
    assert grows.texts["restart-strategy.type"] == "exponential-delay"
    assert grows.texts["restart-strategy.exponential-delay.max-backoff"] == "5000 ms"
    with pytest.raises(PlanInvalid, match="max-backoff.*below the first pause"):
        RestartStrategies.exponential_delay_restart(100, 10, 2.0, 60_000, 0.1)
    with pytest.raises(PlanInvalid, match="jitter-factor.*above 1"):
        RestartStrategies.exponential_delay_restart(1, 10, 2.0, 60_000, 3)


def test_who_falls_back_gets_the_strategy_of_the_settings(local_runtime: OneTaskRuntime) -> None:
    local_runtime.given = {"restart-strategy.type": "none", "pipeline.name": "orders"}
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
    env.set_restart_strategy(RestartStrategies.fall_back_restart())
    assert env.get_restart_strategy() == RestartStrategies.no_restart()
    assert env.get_configuration().to_dict() == local_runtime.given


def test_a_program_that_asks_for_overtaking_gets_it_at_once(
    env: StreamExecutionEnvironment,
) -> None:
    config = env.get_checkpoint_config()
    assert config.is_unaligned_checkpoints_enabled()
    assert config.get_aligned_checkpoint_timeout() == Duration.of_seconds(5)
    config.enable_unaligned_checkpoints()
    assert config.get_aligned_checkpoint_timeout() == Duration.of_seconds(0)
    config.set_aligned_checkpoint_timeout(Duration.of_seconds(9))
    assert config.get_aligned_checkpoint_timeout() == Duration.of_seconds(9)


def test_storage_and_backend_keep_all_that_they_were_given(
    env: StreamExecutionEnvironment,
) -> None:
    storage = FileSystemCheckpointStorage("s3://bucket", 1024, 65_536)
    assert storage.get_min_file_size_threshold() == 1024
    assert storage.get_write_buffer_size() == 65_536
    assert FileSystemCheckpointStorage("x").get_min_file_size_threshold() == 20 * 1024
    env.get_checkpoint_config().set_checkpoint_storage(storage)
    texts = env.get_configuration().to_dict()
    assert texts["execution.checkpointing.data-inline-threshold"] == "1024"
    with pytest.raises(PlanInvalid, match="bytes from 0 to 1048576"):
        FileSystemCheckpointStorage("x", 2**21)
    env.set_state_backend(EmbeddedRocksDBStateBackend(True))
    backend = env.get_state_backend()
    assert isinstance(backend, EmbeddedRocksDBStateBackend)
    assert backend.is_incremental_checkpoints_enabled()


def test_folders_may_stand_under_the_keys_that_they_had_before(
    env: StreamExecutionEnvironment,
) -> None:
    env.get_configuration().set_string("state.checkpoints.dir", "s3://all")
    env.get_configuration().set_string("state.savepoints.dir", "s3://saved")
    storage = env.get_checkpoint_config().get_checkpoint_storage()
    assert storage == FileSystemCheckpointStorage("s3://all")
    assert env.get_default_savepoint_directory() == "s3://saved"


def test_settings_of_recovery_that_cannot_be_are_refused_before_a_job_starts(
    env: StreamExecutionEnvironment, local_runtime: OneTaskRuntime
) -> None:
    for key, text in (
        ("execution.checkpointing.timeout", "soon"),
        ("pipeline.job-id", "a job"),
        ("restart-strategy.type", "hope"),
    ):
        env.get_configuration().set_string(key, text)
        env.from_collection([1]).print()
        with pytest.raises(SettingsInvalid, match=repr(text)):
            env.execute()
        env.get_configuration().remove_config(key)
    assert local_runtime.programs == []


def test_a_job_that_asks_for_a_log_of_changes_is_told_that_there_is_none(
    env: StreamExecutionEnvironment, local_runtime: OneTaskRuntime
) -> None:
    env.enable_checkpointing(1500).enable_changelog_state_backend(True)
    env.from_collection([1]).print()
    with pytest.warns(UserWarning, match="state.changelog.enabled has no effect") as warned:
        env.execute()
    assert len(warned) == 1
    assert warned[0].filename == __file__, "it points at the program"
    assert local_runtime.printed == [1]
    stream = env.from_collection([2])
    with pytest.warns(UserWarning, match="no effect") as warned:
        assert stream.execute_and_collect(limit=1) == [2]
    assert warned[0].filename == __file__


def test_a_job_that_asks_for_checkpoints_and_restarts_needs_no_warning(
    env: StreamExecutionEnvironment,
) -> None:
    env.enable_checkpointing(1500)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
    env.from_collection([1]).print()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.execute()


def test_setters_give_back_the_configuration(env: StreamExecutionEnvironment) -> None:
    config = env.get_checkpoint_config()
    chained = (
        config.set_checkpoint_interval(5000)
        .set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
        .set_checkpointing_consistency_mode(CheckpointingMode.AT_LEAST_ONCE)
        .set_checkpoint_timeout(7000)
        .set_min_pause_between_checkpoints(10)
        .set_max_concurrent_checkpoints(1)
        .set_tolerable_checkpoint_failure_number(3)
        .set_fail_on_checkpointing_errors(True)
        .set_aligned_checkpoint_timeout(alignment_timeout=Duration.of_millis(3))
        .set_alignment_timeout(alignment_timeout=Duration.of_millis(4))
    )
    assert chained is config
    assert config.get_checkpoint_timeout() == 7000
    assert config.get_tolerable_checkpoint_failure_number() == 0
    assert config.get_alignment_timeout().to_millis() == 4


def test_options_of_rocksdb_are_kept_and_told_again() -> None:
    backend = EmbeddedRocksDBStateBackend()
    assert backend.get_predefined_options() is PredefinedOptions.DEFAULT
    assert backend.get_number_of_transfer_threads() == 4
    backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    backend.set_number_of_transfer_threads(2)
    assert backend.get_predefined_options() is PredefinedOptions.FLASH_SSD_OPTIMIZED
    assert backend.get_number_of_transfer_threads() == 2
    with pytest.raises(PlanInvalid, match="give for instance PredefinedOptions"):
        backend.set_predefined_options("fast")  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="was given 0; give a whole number above 0"):
        backend.set_number_of_transfer_threads(0)


def test_a_storage_says_nothing_about_savepoints() -> None:
    assert FileSystemCheckpointStorage("file:///c").get_savepoint_path() is None
    assert JobManagerCheckpointStorage(max_state_size=None).get_max_state_size() == 5 << 20


def test_strategies_tell_what_they_were_made_of() -> None:
    fixed = RestartStrategies.FixedDelayRestartStrategyConfiguration(3, timedelta(seconds=2))
    assert fixed == RestartStrategies.fixed_delay_restart(3, 2000)
    assert fixed.get_restart_attempts() == 3
    assert fixed.get_delay_between_attempts_interval() == timedelta(seconds=2)
    rate = RestartStrategies.FailureRateRestartStrategyConfiguration(4, 60_000, 500)
    assert rate == RestartStrategies.failure_rate_restart(4, 60_000, 500)
    assert rate.get_max_failure_rate() == 4
    assert rate.get_failure_interval() == timedelta(minutes=1)
    assert rate.get_delay_between_attempts_interval() == timedelta(milliseconds=500)
    for kind, made in (
        (RestartStrategies.NoRestartStrategyConfiguration, RestartStrategies.no_restart()),
        (
            RestartStrategies.FallbackRestartStrategyConfiguration,
            RestartStrategies.fall_back_restart(),
        ),
    ):
        assert isinstance(made, kind)
