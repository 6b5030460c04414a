"""How long state lives: ``StateTtlConfig.new_builder(Time.hours(1)).build()``.

Processing time only. Unless it is said otherwise, an entry's time starts anew when it is written,
an expired entry is never seen again, and expired entries are removed little by little while the
state is used. The names are PyFlink's.
"""

from dataclasses import dataclass, field
from enum import Enum

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
        for name in ("to_milliseconds", "to_millis"):
            measure = getattr(self.ttl, name, None)
            if measure is not None:
                return int(measure())
        raise TypeError(f"{self.ttl!r} is no time to live; give Time.seconds(60) or a Duration")

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
