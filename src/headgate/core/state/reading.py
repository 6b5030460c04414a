"""Keyed state, as somebody outside of the task reads it while the job runs: pickled and bounded.

Called on the task's thread between two elements, so that all values of an answer are of one moment.
Laws: reading changes nothing, neither values nor caches, nor when they expire; what has expired is
not shown, unless the state itself would show it. Whatever the user's classes raise is a sentence in
the answer; it never fails the task.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence

from headgate.base.checkpoints import KEYED, WINDOWED, StateShape
from headgate.base.elements import UNREADABLE, Key, Record, error_text
from headgate.base.inspections import MAX_STATE_BYTES, MAX_VALUE_BYTES, StateValue, StateValues
from headgate.base.moved import loads
from headgate.base.values import ATOMS, own
from headgate.core.state.backend import KeyedBackend, ValueTooLarge
from headgate.core.state.cursor import seen
from headgate.core.state.keys import Frozen
from headgate.core.state.migration import StateShapes
from headgate.core.state.opening import StateOpener
from headgate.core.state.snapshot import LIST, MAP, NONE, TTL
from headgate.functions.context import TimeDomain
from headgate.functions.state import AggregatingStateDescriptor, StateDescriptor, StateVisibility


class StateReader:
    """Reads the state of one operator; used on the task's thread."""

    def __init__(
        self,
        backend: KeyedBackend,
        shapes: StateShapes,
        opener: StateOpener,
        now_ms: Callable[[], int],
    ) -> None:
        self._backend = backend
        self._shapes = shapes
        self._opener = opener
        self._now_ms = now_ms

    def read(self, name: str, keys: Sequence[bytes]) -> StateValues:
        """What a state holds at each of these pickled keys, now."""
        shape = next((shape for shape in self._by_key() if shape.name == name), None)
        if shape is None:
            return StateValues(problem=self._no_state(name))
        descriptor = self._opener.opened(name)
        if descriptor is None and shape.kind == AggregatingStateDescriptor.kind:
            return StateValues(
                problem=f"its state {name!r} was restored, and its function has not asked for it "
                f"since: what it makes of an accumulator is not known; a savepoint shows that"
            )
        stored_as = self._backend.catalog.stored_as.get(name, "")
        content = _Content(stored_as, descriptor, self._now_ms())
        values, room = [], MAX_STATE_BYTES
        for key in keys:
            value = self._value(name, content, key, room)
            room -= 0 if value.data is None else len(value.data)
            values.append(value)
        return StateValues(shape.kind, tuple(values))

    def timers(self) -> Iterator[tuple[int, Key, TimeDomain]]:
        """Time, key and domain of all timers that have not fired, in no given order."""
        queues = (
            (self._backend.event_timers, TimeDomain.EVENT_TIME),
            (self._backend.processing_timers, TimeDomain.PROCESSING_TIME),
        )
        for queue, domain in queues:
            for time_ms, key, _ in queue.items():
                yield time_ms, key.key if isinstance(key, Frozen) else key, domain

    def _value(self, name: str, content: "_Content", key_data: bytes, room: int) -> StateValue:
        try:
            key: Key = seen(loads(key_data))
        except UNREADABLE as error:
            return StateValue(problem=f"the key cannot be read in the task: {error_text(error)}")
        most = min(MAX_VALUE_BYTES, room)
        try:
            held = self._backend.read(name, content.kind, key, most)
            is_there, value = (False, None) if held is None else content.visible(held)
            return StateValue(pickled(value, most)) if is_there else StateValue()
        except ValueTooLarge:
            return StateValue(problem=_too_large(room))
        except UNREADABLE as error:
            return StateValue(problem=f"its value cannot be read: {error_text(error)}")

    def _by_key(self) -> list[StateShape]:
        return [shape for shape in self._shapes.all() if shape.scope == KEYED]

    def _no_state(self, name: str) -> str:
        if any(shape.name == name and shape.scope == WINDOWED for shape in self._shapes.all()):
            return f"its state {name!r} is kept for each window, and such a state cannot be read"
        there = ", ".join(f"{shape.name!r} ({shape.kind})" for shape in self._by_key())
        if not there:
            return f"it has no state {name!r}; it has opened no state by key at all"
        return f"it has no state {name!r}; it has {there}"


class _Content:
    """From what a backend holds at a key to what the state would show there."""

    def __init__(self, stored_as: str, descriptor: StateDescriptor | None, now_ms: int) -> None:
        """``descriptor`` None: the state was restored, and the function has not asked for it."""
        self.kind = stored_as.removesuffix(TTL)
        self._has_ttl = stored_as.endswith(TTL)
        self._descriptor = descriptor
        config = None if descriptor is None else descriptor.ttl_config
        self._horizon_ms: int | None = None
        if config is not None and config.state_visibility is StateVisibility.NeverReturnExpired:
            self._horizon_ms = now_ms - config.ttl_ms

    def visible(self, held: Record) -> tuple[bool, Record]:
        """Whether there is anything, and what; raises ValueTooLarge."""
        if self.kind in (LIST, MAP):
            if len(held) > MAX_VALUE_BYTES:  # each takes a byte at least
                raise ValueTooLarge
            shown = self._elements(held) if self._has_ttl else held
            return bool(shown), shown
        if self._has_ttl:
            if self._has_expired(held):
                return False, None
            held = held[0]
        if isinstance(self._descriptor, AggregatingStateDescriptor):
            function = self._descriptor.agg_function
            return True, function.get_result(None if held is NONE else own(held))
        return True, None if held is NONE else held

    def _elements(self, held: Record) -> Record:
        expired = self._has_expired
        if self.kind == LIST:
            return [pair[0] for pair in held if not expired(pair)]
        return {key: pair[0] for key, pair in held.items() if not expired(pair)}

    def _has_expired(self, pair: Record) -> bool:
        return self._horizon_ms is not None and bool(pair[1] <= self._horizon_ms)


class _BoundedBytes:
    """A file that takes so many bytes, and then raises ValueTooLarge."""

    __slots__ = ("_room", "parts")

    def __init__(self, room: int) -> None:
        self.parts: list[bytes] = []
        self._room = room

    def write(self, data: bytes | memoryview) -> int:
        size = len(data)
        self._room -= size
        if self._room < 0:
            raise ValueTooLarge
        self.parts.append(bytes(data))
        return size


def pickled(value: Record, most_bytes: int) -> bytes:
    """A value as bytes; one that is too large is given up early. Raises ValueTooLarge."""
    if type(value) in ATOMS and not isinstance(value, str | bytes):
        return pickle.dumps(value, 5)
    target = _BoundedBytes(most_bytes)
    pickle.Pickler(target, 5).dump(value)
    return b"".join(target.parts)


def _too_large(room: int) -> str:
    if room < MAX_VALUE_BYTES:
        return "the answer has no room for its value beside the others; ask for it alone"
    return f"its value takes more than {MAX_VALUE_BYTES:,} bytes, too many to be read from outside"
