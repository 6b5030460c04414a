"""The enumerators of a job's sources, each on a thread of the driver.

Owned by a run, which starts them with each attempt and ends them with it. Law: nothing of the
user's runs on another thread or under a lock; what an enumerator has found is reported together
with its position, and nothing that it has returned is lost, whatever raises after it; it is closed
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
from headgate.core.operators.source_splits import pickled_position
from headgate.core.operators.split_discovery import pickled_splits
from headgate.functions.source import SplitEnumerator
from headgate.host.shipping.failures import describe, root_of

log = logging.getLogger(__name__)

SHORTEST_S: Final = 0.001
"""Between two calls of ``discover``."""
RETRY_S: Final = 10.0
"""After a first look of a restored job that has failed."""


class DiscoveryListener(Protocol):
    """Learns what enumerators find; called on their threads."""

    def splits_discovered(
        self, run: str, uid: str, position: bytes, splits: Sequence[SplitData], is_last: bool
    ) -> None:
        """Splits that were not there before, and the position after them."""

    def discovery_failed(self, run: str, failure: Failure) -> None:
        """The first look for splits has failed, or splits cannot travel."""


class Discovery:
    """Runs the enumerators of one attempt at a time; called by one thread at a time."""

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
        self._position = b"" if source.restored is None else source.restored.position
        """After what was found, here or before the checkpoint; empty: nothing was looked for."""
        self._has_reported = False
        self._failures = 0
        """In a row."""

    def run(self) -> None:
        log_always_with(self._facts)
        try:
            enumerator = self._source.create(self._position)
        except (Exception, SystemExit) as error:
            self._fail(error)
            return
        try:
            self._discover_until_ended(enumerator)
        finally:
            self._close(enumerator)

    def _discover_until_ended(self, enumerator: SplitEnumerator) -> None:
        interval_s: float | None = None
        while not self.ended.is_set():
            try:
                interval_s = self._discover(enumerator)
                self._failures = 0
            except (Exception, SystemExit) as error:
                if not self._position or isinstance(error, StateBroken):
                    self._fail(error)
                    return
                interval_s = interval_s or RETRY_S
                self._warn(error, interval_s)
                self._report(self._position, (), False)
            if interval_s is None:
                return
            self.ended.wait(interval_s)

    def _discover(self, enumerator: SplitEnumerator) -> float | None:
        """Look once; returns after how many seconds to look again."""
        try:
            self._found += enumerator.discover()
            position, interval_ms = enumerator.position(), enumerator.interval_ms
            interval_s = None if interval_ms is None else _bounded_s(float(interval_ms) / 1000)
        except (Exception, SystemExit) as error:
            raise_user_error(error, self._source.name, "in discover()")
        splits, stored = pickled_splits(self._found), pickled_position(position, "an enumerator")
        self._found = []
        self._report(stored, splits, interval_s is None)
        return interval_s

    def _report(self, position: bytes, splits: Sequence[SplitData], is_last: bool) -> None:
        is_news = splits or is_last or position != self._position or not self._has_reported
        self._position, self._has_reported = position, True
        if is_news and not self.ended.is_set():
            uid = self._source.uid
            self._listener.splits_discovered(self._run_name, uid, position, splits, is_last)

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

    def _warn(self, error: BaseException, interval_s: float) -> None:
        self._failures += 1
        if self._failures == 1 and not self.ended.is_set():
            log.warning(
                "source %r cannot look for new splits: %s; it is tried again every %g s, and the "
                "job goes on with those that it has",
                self._source.name,
                error,
                interval_s,
                exc_info=root_of(error) if log.isEnabledFor(logging.DEBUG) else None,
            )

    def _close(self, enumerator: SplitEnumerator) -> None:
        try:
            enumerator.close()
        except (Exception, SystemExit) as error:
            log.warning(
                "the enumerator of source %r cannot be closed: %s", self._source.name, error
            )


def _bounded_s(interval_s: float) -> float:
    return max(SHORTEST_S, min(interval_s, threading.TIMEOUT_MAX))
