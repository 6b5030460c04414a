"""Results of calls by key, for a while.

Law: at most ``max_entries`` results are kept, and the one that was not used for the longest time
gives way; none is used once it is ``ttl_ms`` old. For each key at most one call is in flight: those
who ask meanwhile wait for it.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from headgate.base.elements import Record
from headgate.core.chain.async_queue import PendingCall


class CachedResult(NamedTuple):
    """What a call has returned for a record."""

    value: Record
    until_ms: float


class ResultCache:
    """Keys are compared as those of a dict."""

    def __init__(self, max_entries: int, ttl_ms: float) -> None:
        self._max_entries = max_entries
        self._ttl_ms = ttl_ms
        self._results: OrderedDict[Hashable, CachedResult] = OrderedDict()
        self._waiting: dict[Hashable, list[PendingCall]] = {}
        """By key that is being called for, those who wait for the same result."""

    def __len__(self) -> int:
        return len(self._results)

    def find(self, key: Hashable, now_ms: float) -> CachedResult | None:
        """The result of this key, if there is a recent one."""
        found = self._results.get(key)
        if found is None:
            return None
        if now_ms >= found.until_ms:
            del self._results[key]
            return None
        self._results.move_to_end(key)
        return found

    def try_begin(self, key: Hashable, call: PendingCall) -> bool:
        """Whether a call for this key is to be made; else ``call`` waits for the one in flight."""
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = []
            return True
        waiting.append(call)
        return False

    def ended(self, key: Hashable) -> list[PendingCall]:
        """The call for this key has ended: those who have waited for it."""
        return self._waiting.pop(key)

    def store(self, key: Hashable, value: Record, now_ms: float) -> None:
        """Keep the result of a call."""
        self._results[key] = CachedResult(value, now_ms + self._ttl_ms)
        self._results.move_to_end(key)
        if len(self._results) > self._max_entries:
            self._results.popitem(last=False)

    def check(self) -> None:
        """The law; for tests."""
        assert len(self._results) <= self._max_entries
