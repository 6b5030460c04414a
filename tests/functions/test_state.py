"""States as functions see them: on top of a backend, their descriptors, their time to live."""

import pickle
from collections.abc import Iterable
from typing import Any

import pytest

from headgate.api.types.types import Types
from headgate.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    AppendingState,
    BroadcastState,
    CleanupStrategies,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    MergingState,
    ReadOnlyBroadcastState,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateTtlConfig,
    ValueState,
    ValueStateDescriptor,
)
from headgate.functions.time import Duration, Time
from tests.core.state.kit import Named, Sum, Whole


class Bare(MapState[Any, Any]):
    """A map with the least that a backend must give."""

    def __init__(self) -> None:
        self.held: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        return self.held.get(key)

    def put(self, key: Any, value: Any) -> None:
        self.held[key] = value

    def remove(self, key: Any) -> None:
        self.held.pop(key, None)

    def contains(self, key: Any) -> bool:
        return key in self.held

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list(self.held.items())

    def is_empty(self) -> bool:
        return not self.held

    def clear(self) -> None:
        self.held.clear()


class BareBroadcast(Bare, BroadcastState[Any, Any]):  # type: ignore[misc]
    """The same as a broadcast state."""


@pytest.mark.parametrize("kind", [Bare, BareBroadcast])
def test_a_map_reads_like_a_dictionary(kind: type[Any]) -> None:
    state = kind()
    state["a"] = 1
    state.put_all({"b": 2, "c": 3})
    assert state["a"] == 1 and state["no"] is None
    assert "b" in state and "no" not in state
    del state["b"], state["no"]
    assert list(state) == list(state.keys()) == ["a", "c"] and list(state.values()) == [1, 3]


def test_what_can_be_done_with_a_state_follows_its_kind() -> None:
    for kind in (ListState, ReducingState, AggregatingState):
        assert issubclass(kind, MergingState) and issubclass(kind, AppendingState)
    for kind in (ValueState, MapState, ReadOnlyBroadcastState):
        assert issubclass(kind, State) and not issubclass(kind, AppendingState)
    assert not hasattr(ReadOnlyBroadcastState, "put")


@pytest.mark.parametrize("kind", [State, ValueState, ListState, MapState, BroadcastState])
def test_a_face_alone_is_no_state(kind: type[Any]) -> None:
    with pytest.raises(TypeError, match="abstract"):
        kind()


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_state_needs_a_name(name: Any) -> None:
    with pytest.raises(ValueError, match="a state needs a text"):
        ValueStateDescriptor(name, Whole())


@pytest.mark.parametrize("kind", [int, Types.INT, "int"])
def test_what_is_easily_taken_for_a_type_is_refused(kind: Any) -> None:
    for make in (
        lambda: ValueStateDescriptor("v", kind),
        lambda: ListStateDescriptor("v", kind),
        lambda: MapStateDescriptor("v", kind, Whole()),
        lambda: MapStateDescriptor("v", Whole(), kind),
        lambda: ReducingStateDescriptor("v", max, kind),
        lambda: AggregatingStateDescriptor("v", Sum(), kind),
    ):
        with pytest.raises(TypeError, match=r"'v' was given the type .*; give one such as"):
            make()


@pytest.mark.parametrize("function", [5, None, Sum, Sum()], ids=["5", "none", "class", "object"])
def test_a_reducing_state_needs_a_function_of_two(function: Any) -> None:
    with pytest.raises(TypeError, match="the reducing state 'r' was given .*ReduceFunction or"):
        ReducingStateDescriptor("r", function)


@pytest.mark.parametrize("function", [5, max, Sum], ids=["5", "callable", "class"])
def test_an_aggregating_state_needs_an_object_of_an_aggregate_function(function: Any) -> None:
    with pytest.raises(TypeError, match="the aggregating state 'a' was given .*AggregateFunction"):
        AggregatingStateDescriptor("a", function)


def test_descriptors_take_the_arguments_of_pyflink() -> None:
    value = ValueStateDescriptor("v", value_type_info=Whole())
    assert value.get_name() == value.name == "v" and isinstance(value.type_info, Whole)
    assert value.ttl_config is None
    elements = ListStateDescriptor("l", elem_type_info=Whole())
    assert isinstance(elements.type_info, Whole)
    items = MapStateDescriptor("m", key_type_info=Named(), value_type_info=Whole())
    assert isinstance(items.key_type_info, Named) and isinstance(items.type_info, Whole)
    reducing = ReducingStateDescriptor("r", reduce_function=max, type_info=Whole())
    assert reducing.get_reduce_function() is max
    aggregate = Sum()
    folding = AggregatingStateDescriptor("a", agg_function=aggregate, state_type_info=Whole())
    assert folding.get_agg_function() is aggregate
    assert repr(folding) == "AggregatingStateDescriptor('a')"


def test_descriptors_travel_with_their_function() -> None:
    again = pickle.loads(pickle.dumps(MapStateDescriptor("m", Named(), Whole())))
    assert again.name == "m" and isinstance(again.key_type_info, Named)


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
