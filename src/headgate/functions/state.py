"""State of a function: handles by kind, the descriptors that name them, and time to live.

A function asks for a handle by its descriptor, in ``open``; two descriptors with the same name are
the same state of an operator. Law: a handle of keyed state reads and changes the entry of the
current key only. Backends implement value, list and map state; reducing and aggregating state are
kept as values. Time to live counts in processing time; unless configured otherwise, writing an
entry renews it, an expired entry is never read, and expired entries are removed incrementally.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol

from headgate.functions.time import measured_ms
from headgate.functions.type_variables import ACC, IN, MK, OUT, T, V


class TypeOf(Protocol[T]):
    """A declared type of records or values, such as ``Types.LONG()``."""

    def coerced(self, value: Any) -> T:
        """The value as this type has it; raises TypeError if it does not fit."""


class State(ABC):
    """Base of all states."""

    @abstractmethod
    def clear(self) -> None:
        """Forget what is held for the current key."""


class ValueState(State, Generic[V]):
    """One value for each key."""

    @abstractmethod
    def value(self) -> V | None:
        """None if nothing was set."""

    @abstractmethod
    def update(self, value: V) -> None:
        """Set the value; None clears it unless the state has a declared type."""


class AppendingState(State, Generic[IN, OUT]):
    """Takes values in and gives something made of them."""

    @abstractmethod
    def get(self) -> OUT | None:
        """The result of the values so far."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Take one value in."""


class MergingState(AppendingState[IN, OUT]):
    """A state of which two can be merged, as session windows need it."""


class ReducingState(MergingState[V, V]):
    """All values in one, by a reduce function."""


class AggregatingState(MergingState[IN, OUT]):
    """All values in one accumulator, by an aggregate function."""


class ListState(MergingState[V, Iterable[V]]):
    """Values in the order in which they were added."""

    @abstractmethod
    def get(self) -> Iterable[V]:
        """An iterable, empty if nothing was added."""

    @abstractmethod
    def update(self, values: list[V]) -> None:
        """Replace what is there."""

    @abstractmethod
    def add_all(self, values: list[V]) -> None:
        """Add several values."""

    def __iter__(self) -> Iterator[V]:
        return iter(self.get())


class ReadableMap(State, Generic[MK, V]):
    """A dictionary to be read. A name that is missing gives None, never an error."""

    @abstractmethod
    def get(self, key: MK) -> V | None: ...

    @abstractmethod
    def contains(self, key: MK) -> bool: ...

    @abstractmethod
    def items(self) -> Iterable[tuple[MK, V]]: ...

    def keys(self) -> Iterable[MK]:
        return [key for key, _ in self.items()]

    def values(self) -> Iterable[V]:
        return [value for _, value in self.items()]

    @abstractmethod
    def is_empty(self) -> bool: ...

    def __getitem__(self, key: MK) -> V | None:
        return self.get(key)

    def __contains__(self, key: MK) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[MK]:
        return iter(self.keys())


class WritableMap(ReadableMap[MK, V]):
    """A readable map that can be changed."""

    @abstractmethod
    def put(self, key: MK, value: V) -> None: ...

    def put_all(self, dict_value: "Mapping[MK, V] | Iterable[tuple[MK, V]]") -> None:
        """A dictionary, or pairs of keys and values."""
        pairs = dict_value.items() if isinstance(dict_value, Mapping) else dict_value
        for key, value in pairs:
            self.put(key, value)

    @abstractmethod
    def remove(self, key: MK) -> None:
        """Nothing happens if it is missing."""

    def __setitem__(self, key: MK, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: MK) -> None:
        self.remove(key)


class MapState(WritableMap[MK, V]):
    """A dictionary for each key."""


class ReadOnlyBroadcastState(ReadableMap[MK, V]):
    """A dictionary that every task holds alike, to be read."""


class BroadcastState(WritableMap[MK, V], ReadOnlyBroadcastState[MK, V]):
    """Broadcast state that functions of the broadcast side may change."""


DEFAULT_CLEANUP_SIZE = 5
"""How many entries each use of a state looks at, unless the user has set it."""


@dataclass(frozen=True, slots=True)
class IncrementalCleanupStrategy:
    """Each use of the state looks at ``cleanup_size`` entries and removes the expired ones."""

    cleanup_size: int = DEFAULT_CLEANUP_SIZE
    for_every_record: bool = False

    def get_cleanup_size(self) -> int:
        return self.cleanup_size

    def run_cleanup_for_every_record(self) -> bool:
        """Also when a record comes whose function does not use the state."""
        return self.for_every_record


@dataclass(frozen=True, slots=True)
class RocksdbCompactFilterCleanupStrategy:
    """Kept for jobs that set it; entries are removed as by the default of incremental cleanup."""

    query_time_after_num_entries: int = 1000
    periodic_compaction_time: object = None

    def get_query_time_after_num_entries(self) -> int:
        return self.query_time_after_num_entries

    def get_periodic_compaction_time(self) -> object:
        return self.periodic_compaction_time


@dataclass(frozen=True, slots=True)
class CleanupStrategies:
    """When expired entries are removed, beside when they are read."""

    incremental: IncrementalCleanupStrategy | None = None
    rocksdb: RocksdbCompactFilterCleanupStrategy | None = None
    full_snapshot: bool = False
    background: bool = True

    def is_cleanup_in_background(self) -> bool:
        return self.background

    def in_full_snapshot(self) -> bool:
        return self.full_snapshot

    def in_rocksdb_compact_filter(self) -> bool:
        return self.rocksdb is not None

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
        """None: there is none; in the background there always is one."""
        return self.incremental or (IncrementalCleanupStrategy() if self.background else None)

    def get_rocksdb_compact_filter_cleanup_strategy(
        self,
    ) -> RocksdbCompactFilterCleanupStrategy | None:
        return self.rocksdb


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """Time to live of the entries of a state: of the value, each element, each item of a map."""

    class UpdateType(Enum):
        """What starts the time of an entry anew."""

        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Whether an expired entry that is still there can be read."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """Which kind of time counts."""

        ProcessingTime = 0

    ttl: object
    """A ``Time`` or a ``Duration``."""
    update_type: UpdateType = UpdateType.OnCreateAndWrite
    state_visibility: StateVisibility = StateVisibility.NeverReturnExpired
    ttl_time_characteristic: TtlTimeCharacteristic = TtlTimeCharacteristic.ProcessingTime
    cleanup_strategies: CleanupStrategies = field(default_factory=CleanupStrategies)

    def __post_init__(self) -> None:
        if self.ttl_ms <= 0:
            raise ValueError(f"state must live for some time, not {self.ttl_ms} ms; set a ttl > 0")

    @staticmethod
    def new_builder(ttl: object) -> "Builder":
        """``StateTtlConfig.new_builder(Time.hours(1)).…build()``"""
        return Builder(ttl)

    @property
    def ttl_ms(self) -> int:
        """In milliseconds."""
        ttl_ms = measured_ms(self.ttl)
        if ttl_ms is None:
            raise TypeError(f"{self.ttl!r} is no time to live; give Time.seconds(60) or a Duration")
        return ttl_ms

    def get_ttl(self) -> object:
        return self.ttl

    def get_update_type(self) -> UpdateType:
        return self.update_type

    def get_state_visibility(self) -> StateVisibility:
        return self.state_visibility

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        return self.ttl_time_characteristic

    def get_cleanup_strategies(self) -> CleanupStrategies:
        return self.cleanup_strategies

    def is_enabled(self) -> bool:
        """False: entries stay."""
        return self.update_type is not UpdateType.Disabled


UpdateType = StateTtlConfig.UpdateType


StateVisibility = StateTtlConfig.StateVisibility


TtlTimeCharacteristic = StateTtlConfig.TtlTimeCharacteristic


class Builder:
    """Each setter answers with the builder."""

    def __init__(self, ttl: object) -> None:
        self._ttl = ttl
        self._update_type = UpdateType.OnCreateAndWrite
        self._visibility = StateVisibility.NeverReturnExpired
        self._characteristic = TtlTimeCharacteristic.ProcessingTime
        self._full_snapshot = False
        self._background = True
        self._incremental: IncrementalCleanupStrategy | None = None
        self._rocksdb: RocksdbCompactFilterCleanupStrategy | None = None

    def set_ttl(self, ttl: object) -> "Builder":
        self._ttl = ttl
        return self

    def set_update_type(self, update_type: UpdateType) -> "Builder":
        self._update_type = update_type
        return self

    def update_ttl_on_create_and_write(self) -> "Builder":
        return self.set_update_type(UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> "Builder":
        return self.set_update_type(UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateVisibility) -> "Builder":
        self._visibility = state_visibility
        return self

    def return_expired_if_not_cleaned_up(self) -> "Builder":
        return self.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp)

    def never_return_expired(self) -> "Builder":
        return self.set_state_visibility(StateVisibility.NeverReturnExpired)

    def set_ttl_time_characteristic(
        self, ttl_time_characteristic: TtlTimeCharacteristic
    ) -> "Builder":
        self._characteristic = ttl_time_characteristic
        return self

    def use_processing_time(self) -> "Builder":
        return self.set_ttl_time_characteristic(TtlTimeCharacteristic.ProcessingTime)

    def cleanup_full_snapshot(self) -> "Builder":
        """Leave expired entries out of snapshots."""
        self._full_snapshot = True
        return self

    def cleanup_incrementally(
        self, cleanup_size: int, run_cleanup_for_every_record: bool = False
    ) -> "Builder":
        """Look at so many entries with each use of the state, and perhaps with each record."""
        if cleanup_size <= 0:
            raise ValueError(f"a cleanup of {cleanup_size} entries removes none; give 1 or more")
        self._incremental = IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
        return self

    def cleanup_in_rocksdb_compact_filter(
        self, query_time_after_num_entries: int = 1000, periodic_compaction_time: object = None
    ) -> "Builder":
        """Accepted; entries are removed incrementally, whatever the backend."""
        self._rocksdb = RocksdbCompactFilterCleanupStrategy(
            query_time_after_num_entries, periodic_compaction_time
        )
        return self

    def disable_cleanup_in_background(self) -> "Builder":
        """Remove expired entries only when they are read, or as it was set here."""
        self._background = False
        return self

    def build(self) -> StateTtlConfig:
        """Raises if the time to live is none."""
        strategies = CleanupStrategies(
            self._incremental, self._rocksdb, self._full_snapshot, self._background
        )
        return StateTtlConfig(
            self._ttl, self._update_type, self._visibility, self._characteristic, strategies
        )


# PyFlink has them inside of the classes that they belong to.
StateTtlConfig.Builder = Builder  # type: ignore[attr-defined]


StateTtlConfig.CleanupStrategies = CleanupStrategies  # type: ignore[attr-defined]


CleanupStrategies.IncrementalCleanupStrategy = IncrementalCleanupStrategy  # type: ignore[attr-defined]


CleanupStrategies.RocksdbCompactFilterCleanupStrategy = (  # type: ignore[attr-defined]
    RocksdbCompactFilterCleanupStrategy
)


class Aggregate(Protocol[IN, ACC, OUT]):
    """The interface of an aggregate function."""

    def create_accumulator(self) -> ACC: ...

    def add(self, value: IN, accumulator: ACC, /) -> ACC: ...

    def get_result(self, accumulator: ACC, /) -> OUT: ...

    def merge(self, acc_a: ACC, acc_b: ACC, /) -> ACC: ...


class StateDescriptor:
    """Base of all descriptors. ``type_info`` is a type such as ``Types.LONG()``, or None."""

    kind = ""

    def __init__(self, name: str, type_info: object = None) -> None:
        if not name or type(name) is not str:
            raise ValueError(f"a state needs a text that is not empty as its name, not {name!r}")
        self.name = name
        self.type_info = self._checked(type_info)
        self._ttl_config: StateTtlConfig | None = None

    def get_name(self) -> str:
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Forget entries that were not written (or read) for a while."""
        if not isinstance(ttl_config, StateTtlConfig):
            raise TypeError(
                f"{ttl_config!r} is no StateTtlConfig; make one with "
                f"StateTtlConfig.new_builder(Time.hours(1)).build()"
            )
        self._ttl_config = ttl_config

    def _checked(self, type_info: object) -> object:
        """A type or None, and not what is easily taken for one: ``int``, ``Types.INT``."""
        if callable(type_info) or isinstance(type_info, str):
            raise TypeError(
                f"the state {self.name!r} was given the type {type_info!r}; give one such as "
                f"Types.INT(), or none"
            )
        return type_info

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        """None: entries stay."""
        return self._ttl_config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ValueStateDescriptor(StateDescriptor, Generic[V]):
    """``ValueStateDescriptor("count", Types.LONG())``"""

    kind = "value"

    def __init__(self, name: str, value_type_info: TypeOf[V] | None = None) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor, Generic[V]):
    """The type is that of an element."""

    kind = "list"

    def __init__(self, name: str, elem_type_info: TypeOf[V] | None = None) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor, Generic[MK, V]):
    """``MapStateDescriptor("visits", Types.STRING(), Types.LONG())``"""

    kind = "map"

    def __init__(
        self,
        name: str,
        key_type_info: TypeOf[MK] | None = None,
        value_type_info: TypeOf[V] | None = None,
    ) -> None:
        super().__init__(name, value_type_info)
        self.key_type_info = self._checked(key_type_info)


class ReducingStateDescriptor(StateDescriptor, Generic[V]):
    """With a callable of two values, or a ReduceFunction."""

    kind = "reducing"

    def __init__(
        self, name: str, reduce_function: object, type_info: TypeOf[V] | None = None
    ) -> None:
        super().__init__(name, type_info)
        if isinstance(reduce_function, type) or not (
            callable(reduce_function) or hasattr(reduce_function, "reduce")
        ):
            raise TypeError(
                f"the reducing state {name!r} was given {reduce_function!r}; give a ReduceFunction "
                f"or a callable of two values"
            )
        self.reduce_function = reduce_function

    def get_reduce_function(self) -> object:
        return self.reduce_function


class AggregatingStateDescriptor(StateDescriptor, Generic[IN, OUT]):
    """With an AggregateFunction; the type is that of the accumulator."""

    kind = "aggregating"

    def __init__(
        self,
        name: str,
        agg_function: Aggregate[IN, ACC, OUT],
        state_type_info: TypeOf[ACC] | None = None,
    ) -> None:
        super().__init__(name, state_type_info)
        methods = ("create_accumulator", "add", "get_result")
        if isinstance(agg_function, type) or not all(hasattr(agg_function, m) for m in methods):
            raise TypeError(
                f"the aggregating state {name!r} was given {agg_function!r}; give an object of an "
                f"AggregateFunction"
            )
        self.agg_function: Aggregate[IN, Any, OUT] = agg_function

    def get_agg_function(self) -> Aggregate[IN, Any, OUT]:
        return self.agg_function
