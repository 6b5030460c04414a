"""Time to live: states whose entries are forgotten a while after they were touched.

Each entry is kept as a pair of itself and the time (ms) at which it was touched last: the value,
each element of a list, each item of a map. Law: an entry has expired once its time to live is over,
to the millisecond; then it is dropped when it is read, and given out at that moment only if the
configuration allows it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import TypeAlias

from headgate.base.elements import Key, Record
from headgate.core.state.backend import KeyedBackend, Sieve, StateSpec, state_of
from headgate.core.state.cursor import Namespace
from headgate.functions.state import (
    ListState,
    MapState,
    State,
    StateTtlConfig,
    StateVisibility,
    UpdateType,
    ValueState,
)


class Lifetime:
    """What the states below ask: has this expired, does reading count, who cleans up."""

    def __init__(self, config: StateTtlConfig, now_ms: Callable[[], int]) -> None:
        self.ttl_ms = config.ttl_ms
        self.now_ms = now_ms
        self.counts_reading = config.update_type is UpdateType.OnReadAndWrite
        self.shows_expired = config.state_visibility is StateVisibility.ReturnExpiredIfNotCleanedUp
        self.sweep: Callable[[], None] = _rest
        self.rests_until_ms: float = inf
        """Before this time ``sweep`` does nothing."""

    @property
    def cleans(self) -> bool:
        """Whether using a state cleans it up."""
        return self.sweep is not _rest

    def horizon_ms(self) -> int:
        """What was touched at this time or earlier has expired."""
        return self.now_ms() - self.ttl_ms


class TtlValue(ValueState[Record]):
    """A value; reducing and aggregating stand on it, too."""

    def __init__(self, held: ValueState[Record], lifetime: Lifetime) -> None:
        self.held = held
        """State of pairs: a value, and when it was touched."""
        self.lifetime = lifetime

    def value(self) -> Record:
        self.lifetime.sweep()
        pair = self.held.value()
        return None if pair is None else self.read(pair, self.lifetime.now_ms())

    def read(self, pair: Record, now_ms: int) -> Record:
        """What the pair of the current key shows at this time; reading it counts, or drops it."""
        lifetime = self.lifetime
        if pair[1] <= now_ms - lifetime.ttl_ms:
            self.held.clear()
            return pair[0] if lifetime.shows_expired else None
        if lifetime.counts_reading:
            self.held.update((pair[0], now_ms))
        return pair[0]

    def update(self, value: Record) -> None:
        self.lifetime.sweep()
        if value is None:
            self.held.clear()
        else:
            self.held.update((value, self.lifetime.now_ms()))

    def clear(self) -> None:
        self.held.clear()

    def drop_expired(self) -> int | None:
        """Drop what the current key has outlived; returns the earliest time that is left."""
        pair = self.held.value()
        if pair is None:
            return None
        if pair[1] <= self.lifetime.horizon_ms():
            self.held.clear()
            return None
        return pair[1]  # type: ignore[no-any-return]


class TtlList(ListState[Record]):
    """A list whose elements live each for itself."""

    def __init__(self, held: ListState[Record], lifetime: Lifetime) -> None:
        self.held = held
        self.lifetime = lifetime

    def get(self) -> list[Record]:
        lifetime = self.lifetime
        lifetime.sweep()
        pairs = list(self.held.get())
        alive = self._alive(pairs)
        if lifetime.counts_reading and alive:
            now_ms = lifetime.now_ms()
            self.held.update([(value, now_ms) for value, _ in alive])
        elif len(alive) < len(pairs):
            self.held.update(alive)
        return [value for value, _ in (pairs if lifetime.shows_expired else alive)]

    def add(self, value: Record) -> None:
        self.lifetime.sweep()
        self.held.add((value, self.lifetime.now_ms()))

    def add_all(self, values: Iterable[Record]) -> None:
        self.lifetime.sweep()
        now_ms = self.lifetime.now_ms()
        self.held.add_all([(value, now_ms) for value in values])

    def update(self, values: Iterable[Record]) -> None:
        self.lifetime.sweep()
        now_ms = self.lifetime.now_ms()
        self.held.update([(value, now_ms) for value in values])

    def clear(self) -> None:
        self.held.clear()

    def drop_expired(self) -> int | None:
        """Drop what the current key has outlived; returns the earliest time that is left."""
        pairs = list(self.held.get())
        alive = self._alive(pairs)
        if len(alive) < len(pairs):
            self.held.update(alive)
        return min((touched_ms for _, touched_ms in alive), default=None)

    def _alive(self, pairs: list[Record]) -> list[Record]:
        horizon_ms = self.lifetime.horizon_ms()
        return [pair for pair in pairs if pair[1] > horizon_ms]


class TtlMap(MapState[Record, Record]):
    """A map whose items live each for itself."""

    def __init__(self, held: MapState[Record, Record], lifetime: Lifetime) -> None:
        self.held = held
        self.lifetime = lifetime

    def get(self, key: Record) -> Record:
        pair = self._visible(key)
        return None if pair is None else pair[0]

    def put(self, key: Record, value: Record) -> None:
        self.lifetime.sweep()
        self.held.put(key, (value, self.lifetime.now_ms()))

    def remove(self, key: Record) -> None:
        self.held.remove(key)

    def contains(self, key: Record) -> bool:
        return self._visible(key) is not None

    def items(self) -> list[tuple[Record, Record]]:
        lifetime = self.lifetime
        lifetime.sweep()
        now_ms = lifetime.now_ms()
        found = []
        for key, (value, touched_ms) in list(self.held.items()):
            if touched_ms <= now_ms - lifetime.ttl_ms:
                self.held.remove(key)
                if not lifetime.shows_expired:
                    continue
            elif lifetime.counts_reading:
                self.held.put(key, (value, now_ms))
            found.append((key, value))
        return found

    def is_empty(self) -> bool:
        horizon_ms = self.lifetime.horizon_ms()
        shows = self.lifetime.shows_expired
        return not any(shows or pair[1] > horizon_ms for pair in self.held.values())

    def clear(self) -> None:
        self.held.clear()

    def drop_expired(self) -> int | None:
        """Drop what the current key has outlived; returns the earliest time that is left."""
        horizon_ms = self.lifetime.horizon_ms()
        left = []
        for key, (_, touched_ms) in list(self.held.items()):
            if touched_ms <= horizon_ms:
                self.held.remove(key)
            else:
                left.append(touched_ms)
        return min(left, default=None)

    def _visible(self, key: Record) -> tuple[Record, int] | None:
        """The pair, if it may be seen; reading it counts, and removes it if it has expired."""
        self.lifetime.sweep()
        pair: tuple[Record, int] | None = self.held.get(key)
        return None if pair is None else self.read(key, pair, self.lifetime.now_ms())

    def read(self, key: Record, pair: tuple[Record, int], now_ms: int) -> tuple[Record, int] | None:
        """The pair of this key, if it may be seen at this time."""
        lifetime = self.lifetime
        if pair[1] <= now_ms - lifetime.ttl_ms:
            self.held.remove(key)
            return pair if lifetime.shows_expired else None
        if lifetime.counts_reading:
            self.held.put(key, (pair[0], now_ms))
        return pair


TtlState: TypeAlias = TtlValue | TtlList | TtlMap


class Sweeper:
    """Goes round the entries of a state, a few at a time, and drops what has expired.

    After a round it rests until the next entry can have expired.
    """

    def __init__(
        self,
        backend: KeyedBackend,
        spec: StateSpec,
        state: TtlState,
        lifetime: Lifetime,
        size: int,
    ) -> None:
        self._backend = backend
        self._spec = spec
        self._state = state
        self._lifetime = lifetime
        self._size = size
        self._places: Iterator[tuple[Namespace, Key]] | None = None
        self._earliest_ms = 0
        """The earliest touch that the round has left, or its own start."""
        lifetime.rests_until_ms = 0

    def step(self, records: int = 1) -> None:
        """Look at the next few entries for each record; at most to the end of the round."""
        if self._places is None:
            now_ms = self._lifetime.now_ms()
            if now_ms < self._lifetime.rests_until_ms:
                return
            self._lifetime.rests_until_ms = 0  # whatever the clock shows: a round has begun
            self._earliest_ms = now_ms
            self._places = self._backend.places(self._spec)
        cursor = self._backend.cursor
        key, namespace = cursor.key, cursor.namespace
        try:
            self._visit(self._places, self._size * records)
        finally:
            cursor.key, cursor.namespace = key, namespace

    def _visit(self, places: Iterator[tuple[Namespace, Key]], count: int) -> None:
        cursor = self._backend.cursor
        for _ in range(count):
            place = next(places, None)
            if place is None:
                self._places = None
                self._lifetime.rests_until_ms = self._earliest_ms + self._lifetime.ttl_ms
                return
            cursor.namespace, cursor.key = place
            left_ms = self._state.drop_expired()
            if left_ms is not None and left_ms < self._earliest_ms:
                self._earliest_ms = left_ms


def with_ttl(
    backend: KeyedBackend, spec: StateSpec, config: StateTtlConfig, now_ms: Callable[[], int]
) -> State:
    """The state of a backend, with a time to live."""
    lifetime = Lifetime(config, now_ms)
    strategies = config.cleanup_strategies
    sieve = (lambda: _sieve(spec.kind, lifetime)) if strategies.in_full_snapshot() else None
    spec = replace(spec, has_ttl=True, sieve=sieve)
    kinds: dict[str, Callable[..., TtlState]] = {"list": TtlList, "map": TtlMap}
    state = kinds.get(spec.kind, TtlValue)(state_of(backend, spec), lifetime)
    cleanup = strategies.get_incremental_cleanup_strategy()
    if cleanup is not None:
        sweeper = Sweeper(backend, spec, state, lifetime, cleanup.cleanup_size)
        lifetime.sweep = sweeper.step
        if cleanup.for_every_record:
            backend.sweeps.append(sweeper.step)
    return state


def _sieve(kind: str, lifetime: Lifetime) -> Sieve:
    """Lets through what has not expired at this moment."""
    horizon_ms = lifetime.horizon_ms()

    def of_value(pair: Record) -> Record:
        return pair if pair[1] > horizon_ms else None

    def of_list(pairs: Record) -> Record:
        return [pair for pair in pairs if pair[1] > horizon_ms] or None

    def of_map(items: Record) -> Record:
        return {key: pair for key, pair in items.items() if pair[1] > horizon_ms} or None

    return {"list": of_list, "map": of_map}.get(kind, of_value)


def _rest() -> None:
    """No cleanup in the background."""
