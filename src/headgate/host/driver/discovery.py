"""The enumerators of a job's sources, each on a thread of the driver.

Owned by a run, which starts them with each attempt and ends them with it. Law: nothing of the
user's runs on another thread or under a lock; what an enumerator has found is reported together
with its position, and nothing that it has returned is lost, whatever raises behind it; it is closed
on every path. Ending waits for nobody: a ``discover`` that hangs holds up its own thread and no
more, and what it returns after the end is dropped.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import structs

from headgate.base.checkpoints import SplitData
from headgate.base.errors import HeadgateError, StateBroken, UserFunctionFailed, raise_user_error
from headgate.base.messages import Failure
from headgate.control.split_assignment import PlannedSource
from headgate.core.chain.log_facts import log_always_with
from headgate.core.operators.split_discovery import pickled_position, pickled_splits
from headgate.functions.source import SplitEnumerator
from headgate.host.shipping.failures import describe, root_of

log = logging.getLogger(__name__)

SHORTEST_MS: Final = 1.0
"""Between two calls of ``discover``."""


class DiscoveryListener(Protocol):
    """Learns what enumerators find; called on their threads."""

    def splits_discovered(
        self, run: str, uid: str, position: bytes, splits: Sequence[SplitData], is_last: bool
    ) -> None:
        """Splits that were not there before, and the position behind them."""

    def discovery_failed(self, run: str, failure: Failure) -> None:
        """The first look for splits has failed, or splits cannot travel."""


class Discovery:
    """Of one attempt at a time; called by one thread at a time."""

    def __init__(self, listener: DiscoveryListener, facts: Callable[[], Mapping[str, object]]):
        """``facts``: what lines of the log say about the job."""
        self._listener = listener
        self._facts = facts
        self._threads: list[_EnumeratorThread] = []

    def start(self, run: str, source: PlannedSource) -> None:
        """Look for splits of a source from now on."""
        thread = _EnumeratorThread(run, source, self._listener, self._facts())
        self._threads.append(thread)
        thread.start()

    def end(self) -> None:
        """Look no more; waits for nobody. Idempotent."""
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.ended.set()


class _EnumeratorThread(threading.Thread):
    def __init__(
        self,
        run: str,
        source: PlannedSource,
        listener: DiscoveryListener,
        facts: Mapping[str, object],
    ) -> None:
        super().__init__(name=f"headgate-discovery of {source.name}", daemon=True)
        self.ended = threading.Event()
        self._run_name = run
        self._source = source
        self._listener = listener
        self._facts = facts
        self._found: list[object] = []
        """Splits that were returned and not reported yet."""
        self._failures = 0
        """In a row."""

    def run(self) -> None:
        log_always_with(self._facts)
        source = self._source
        try:
            enumerator = source.create(b"" if source.restored is None else source.restored.position)
        except (Exception, SystemExit) as error:
            self._fail(error)
            return
        try:
            self._discover_until_ended(enumerator)
        finally:
            self._close(enumerator)

    def _discover_until_ended(self, enumerator: SplitEnumerator) -> None:
        is_first = True
        while not self.ended.is_set():
            try:
                interval_ms = self._discover(enumerator)
            except (Exception, SystemExit) as error:
                interval_ms = enumerator.interval_ms
                if is_first or interval_ms is None or isinstance(error, StateBroken):
                    self._fail(error)
                    return
                self._warn(error, interval_ms)
            else:
                is_first, self._failures = False, 0
            if interval_ms is None:
                return
            self.ended.wait(max(SHORTEST_MS, interval_ms) / 1000)

    def _discover(self, enumerator: SplitEnumerator) -> float | None:
        """Look once; returns after how long to look again."""
        try:
            self._found += enumerator.discover()
            position = enumerator.position()
            interval_ms = enumerator.interval_ms
            is_last = interval_ms is None
            assert is_last or interval_ms == interval_ms, "interval_ms is nan"
        except (Exception, SystemExit) as error:
            raise_user_error(error, self._source.name, "in discover()")
        splits = pickled_splits(self._found)
        stored = pickled_position(position)
        self._found = []
        if not self.ended.is_set():
            uid = self._source.uid
            self._listener.splits_discovered(self._run_name, uid, stored, splits, is_last)
        return interval_ms

    def _fail(self, error: BaseException) -> None:
        if self.ended.is_set():
            return
        name = self._source.name
        if isinstance(error, StateBroken):  # it would come again in every attempt
            failure = describe(StateBroken(f"source {name!r}: {error}"))
            failure = structs.replace(failure, operator=name, is_final=True)
        else:
            is_own = isinstance(error, HeadgateError)
            failure = describe(error if is_own else UserFunctionFailed(name, error))
        self._listener.discovery_failed(self._run_name, failure)

    def _warn(self, error: BaseException, interval_ms: float) -> None:
        self._failures += 1
        if self._failures == 1 and not self.ended.is_set():
            log.warning(
                "source %r cannot look for new splits: %s; it is tried again every %g s, and the "
                "job goes on with those that it has",
                self._source.name,
                error,
                interval_ms / 1000,
                exc_info=root_of(error) if log.isEnabledFor(logging.DEBUG) else None,
            )

    def _close(self, enumerator: SplitEnumerator) -> None:
        try:
            enumerator.close()
        except (Exception, SystemExit) as error:
            log.warning(
                "the enumerator of source %r cannot be closed: %s", self._source.name, error
            )
