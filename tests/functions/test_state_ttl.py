"""How long state lives, under PyFlink's names."""

import pickle
from typing import Any

import pytest

from headgate.functions.state import CleanupStrategies, StateTtlConfig, ValueStateDescriptor
from headgate.functions.time import Duration, Time


def test_without_more_words_writing_counts_and_expired_entries_are_gone() -> None:
    config = StateTtlConfig.new_builder(Time.seconds(2)).build()
    assert config.get_ttl() == Time.seconds(2) and config.ttl_ms == 2000
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnCreateAndWrite
    assert config.get_state_visibility() is StateTtlConfig.StateVisibility.NeverReturnExpired
    characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    assert config.get_ttl_time_characteristic() is characteristic
    assert config.is_enabled()
    strategies = config.get_cleanup_strategies()
    assert strategies.is_cleanup_in_background() and not strategies.in_full_snapshot()
    assert not strategies.in_rocksdb_compact_filter()
    cleanup = strategies.get_incremental_cleanup_strategy()
    assert cleanup is not None and cleanup.get_cleanup_size() == 5
    assert not cleanup.run_cleanup_for_every_record()


def test_everything_can_be_set() -> None:
    config = (
        StateTtlConfig.new_builder(Time.seconds(2))
        .set_ttl(Duration.of_millis(7))
        .update_ttl_on_create_and_write()
        .update_ttl_on_read_and_write()
        .never_return_expired()
        .return_expired_if_not_cleaned_up()
        .use_processing_time()
        .cleanup_full_snapshot()
        .cleanup_incrementally(10, True)
        .cleanup_in_rocksdb_compact_filter(500, Duration.of_days(1))
        .disable_cleanup_in_background()
        .build()
    )
    assert config.ttl_ms == 7
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
    visibility = StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
    assert config.get_state_visibility() is visibility
    strategies = config.get_cleanup_strategies()
    assert strategies.in_full_snapshot() and not strategies.is_cleanup_in_background()
    cleanup = strategies.get_incremental_cleanup_strategy()
    assert cleanup is not None and cleanup.get_cleanup_size() == 10
    assert cleanup.run_cleanup_for_every_record()
    rocksdb = strategies.get_rocksdb_compact_filter_cleanup_strategy()
    assert rocksdb is not None and strategies.in_rocksdb_compact_filter()
    assert rocksdb.get_query_time_after_num_entries() == 500
    assert rocksdb.get_periodic_compaction_time() == Duration.of_days(1)
    assert pickle.loads(pickle.dumps(config)) == config


def test_without_the_background_nothing_is_swept() -> None:
    config = StateTtlConfig.new_builder(Time.seconds(1)).disable_cleanup_in_background().build()
    assert config.get_cleanup_strategies().get_incremental_cleanup_strategy() is None
    assert isinstance(config.get_cleanup_strategies(), CleanupStrategies)


@pytest.mark.parametrize("ttl", [Time.milliseconds(0), Time.seconds(-1), Duration.of_nanos(5)])
def test_no_time_at_all_is_refused(ttl: Any) -> None:
    with pytest.raises(ValueError, match="set a ttl > 0"):
        StateTtlConfig.new_builder(ttl).build()


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(TypeError, match="3600 is no time to live; give Time.seconds"):
        StateTtlConfig.new_builder(3600).build()
    with pytest.raises(ValueError, match="a cleanup of 0 entries"):
        StateTtlConfig.new_builder(Time.seconds(1)).cleanup_incrementally(0, False)
    with pytest.raises(TypeError, match="is no StateTtlConfig"):
        ValueStateDescriptor("s").enable_time_to_live(Time.seconds(1))  # type: ignore[arg-type]
