"""Methods that few programs call; each does what its name says."""

from pathlib import Path

import pytest

from headgate.common import Configuration, Encoder, RestartStrategies, Row, RowKind, Watermark
from headgate.datastream import (
    CheckpointConfig,
    CheckpointingMode,
    EmbeddedRocksDBStateBackend,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
    MemorySize,
    Sink,
)
from headgate.datastream.connectors.file_system import FileSink, RollingPolicy
from headgate.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)
from headgate.functions.async_functions import AsyncRetryStrategy


def test_the_consistency_mode_is_the_checkpointing_mode() -> None:
    config = CheckpointConfig(Configuration())
    config.set_checkpointing_consistency_mode(CheckpointingMode.AT_LEAST_ONCE)
    assert config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert config.get_checkpointing_consistency_mode() is CheckpointingMode.AT_LEAST_ONCE


def test_failing_on_checkpointing_errors_means_to_tolerate_none() -> None:
    config = CheckpointConfig(Configuration())
    config.set_tolerable_checkpoint_failure_number(3)
    assert not config.is_fail_on_checkpointing_errors()
    config.set_fail_on_checkpointing_errors(True)
    assert config.is_fail_on_checkpointing_errors()
    assert config.get_tolerable_checkpoint_failure_number() == 0
    config.set_fail_on_checkpointing_errors(False)
    assert not config.is_fail_on_checkpointing_errors()


def test_storage_and_backend_tell_what_they_were_made_with() -> None:
    assert FileSystemCheckpointStorage("file:///kept").get_checkpoint_path() == "file:///kept"
    assert JobManagerCheckpointStorage().get_checkpoint_path() is None
    assert JobManagerCheckpointStorage("kept").get_checkpoint_path() == "kept"
    assert JobManagerCheckpointStorage(max_state_size=9).get_max_state_size() == 9
    default = JobManagerCheckpointStorage.DEFAULT_MAX_STATE_SIZE
    assert JobManagerCheckpointStorage().get_max_state_size() == default == 5 << 20
    assert EmbeddedRocksDBStateBackend(True).is_incremental_checkpoints_enabled()
    assert not EmbeddedRocksDBStateBackend().is_incremental_checkpoints_enabled()


def test_sizes_are_told_in_whole_units() -> None:
    size = MemorySize.of_mebi_bytes(1536)
    assert (size.get_bytes(), size.get_mebi_bytes(), size.get_gibi_bytes()) == (1536 << 20, 1536, 1)


def test_no_restart_has_no_pause() -> None:
    assert AsyncRetryStrategy.no_restart().get_backoff_time_millis(1) <= 0


def test_restart_strategies_that_leave_it_to_the_settings_change_none() -> None:
    configuration = Configuration()
    RestartStrategies.fall_back_restart().put_into(configuration, {})
    assert configuration.to_dict() == {}


def test_any_rolling_policy_goes_into_a_file_sink(tmp_path: Path) -> None:
    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    sink = builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
    assert isinstance(sink, Sink)


def test_a_watermark_tells_its_time() -> None:
    assert Watermark(7).get_timestamp() == 7


@pytest.mark.parametrize("kind", RowKind)
def test_the_kind_of_a_row_can_be_set(kind: RowKind) -> None:
    row = Row("a")
    row.set_row_kind(kind)
    assert row.get_row_kind() is kind
    assert (row == Row("a")) == (kind is RowKind.INSERT)


@pytest.mark.parametrize(
    ("trigger", "merges"),
    [
        (EventTimeTrigger.create(), True),
        (ProcessingTimeTrigger.create(), True),
        (ContinuousEventTimeTrigger(10), True),
        (ContinuousProcessingTimeTrigger(10), True),
        (CountTrigger.of(2), True),
        (PurgingTrigger.of(CountTrigger.of(2)), True),
        (NeverTrigger(), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_built_in_triggers_can_be_used_with_windows_that_merge(
    trigger: Trigger[object, object], merges: bool
) -> None:
    assert trigger.can_merge() == merges
