"""State of a function as a whole, without keys, as ``initialize_state`` gets at it.

A function that has ``initialize_state(context)`` is called with this before ``open``, and its
``snapshot_state(context)`` before each snapshot, to bring the lists up to date. Law: what the store
holds is the task's; another number of tasks shares lists out anew.
"""

from headgate.base.elements import Record
from headgate.core.chain.runtime import KeyedStateStore
from headgate.core.state.operator_state import OperatorStateStore
from headgate.functions.state import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
)


class FunctionStateStore:
    """Lists and maps that belong to the task, not to a key."""

    def __init__(self, store: OperatorStateStore) -> None:
        self._store = store

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState[Record]:
        """A list; when the job is rescaled, its elements are split among the tasks."""
        return self._store.get_list_state(descriptor)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> ListState[Record]:
        """A list; when the job is restored, every task gets the elements of all."""
        return self._store.get_union_list_state(descriptor)

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[Record, Record]:
        """A map that every task fills alike."""
        return self._store.get_broadcast_state(descriptor)


class FunctionInitializationContext:
    """What ``initialize_state`` gets."""

    def __init__(
        self, store: OperatorStateStore, keyed: KeyedStateStore, is_restored: bool = False
    ) -> None:
        self._store = FunctionStateStore(store)
        self._keyed = keyed
        self._is_restored = is_restored

    def is_restored(self) -> bool:
        """Whether the states hold what an earlier run has left."""
        return self._is_restored

    def get_operator_state_store(self) -> FunctionStateStore:
        """State of the task."""
        return self._store

    def get_keyed_state_store(self) -> KeyedStateStore:
        """State by key, on a keyed stream."""
        return self._keyed


class FunctionSnapshotContext:
    """What ``snapshot_state`` gets."""

    def __init__(self, checkpoint_id: int, timestamp_ms: int) -> None:
        self._checkpoint_id = checkpoint_id
        self._timestamp_ms = timestamp_ms

    def get_checkpoint_id(self) -> int:
        return self._checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        """Milliseconds since 1970."""
        return self._timestamp_ms
