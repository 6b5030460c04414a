"""Which batches are called when, and what becomes of their outcomes.

Records wait for their batch (``CallBatcher``), the batch for the rate limit and for one of
``max_calls`` places; then its call begins. A batch that waits for the limit takes more records
until it is full. The timeout runs while a batch is called and while it pauses before a retry; not
while it waits for the limit. Results may be kept for others with the same key (``ResultCache``).
Law: every record that was submitted is answered once, by a result, an error or ``timeout``; a batch
is waiting, called, pausing or over.

``advance`` has to be called after every event and at ``wake_ms``; it says which calls to begin and
which to cancel.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from enum import Enum
from heapq import heapify, heappop, heappush
from numbers import Real
from typing import NamedTuple, TypeAlias

from headgate.base.elements import Record
from headgate.base.figures import BatchFigures
from headgate.base.values import own, own_all
from headgate.core.chain.async_calls import BatchWork
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.rate_limiter import RateLimiter
from headgate.functions.async_functions import RateLimited
from headgate.functions.time import measured_ms

PricedCall: TypeAlias = tuple[PendingCall, float]
"""A record on its way, and what it costs."""


class CallBatcher:
    """Records that wait for a call, and how many of them the next batch takes.

    Law: batches keep the order of the records, and each record is in one of them. A batch has at
    most ``max_records`` records, and costs at most ``max_cost`` unless it is a single record. It is
    due once it can take no more, once its first record has waited ``max_wait_ms``, or once no
    record follows. Records are counted as they come, so that each is looked at once.
    """

    def __init__(self, max_records: int, max_wait_ms: float, max_cost: float = math.inf) -> None:
        self._max_records = max_records
        self._max_wait_ms = max_wait_ms
        self._max_cost = max_cost
        self._waiting: deque[tuple[PricedCall, float]] = deque()
        """With the time until which they wait for others."""
        self._count = 0
        """Records of the next batch."""
        self._is_full = False
        self.cost = 0.0
        """Cost of the next batch."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, calls: list[PricedCall], now_ms: float) -> None:
        """These wait for their batch from now on."""
        until_ms = now_ms + self._max_wait_ms
        self._waiting.extend((call, until_ms) for call in calls)
        if not self._is_full:
            self._fill()

    def input_ended(self) -> None:
        """No record follows, so that none waits for others."""
        self._max_wait_ms = -math.inf
        self._waiting = deque((call, -math.inf) for call, _ in self._waiting)

    def due_ms(self) -> float | None:
        """When the next batch is due; it may be in the past. None: there is no record."""
        if not self._waiting:
            return None
        return -math.inf if self._is_full else self._waiting[0][1]

    def take(self) -> list[PricedCall]:
        """The next batch, whether it is due or not."""
        taken = [self._waiting.popleft()[0] for _ in range(self._count)]
        self._count, self.cost, self._is_full = 0, 0.0, False
        self._fill()
        return taken

    def check(self) -> None:
        """The law; for tests."""
        assert self._count <= min(self._max_records, len(self._waiting))
        assert bool(self._count) == bool(self._waiting)
        assert self.cost <= self._max_cost or self._count == 1
        assert self._is_full or self._count == len(self._waiting)

    def _fill(self) -> None:
        waiting, count, cost = self._waiting, self._count, self.cost
        for place in range(count, min(len(waiting), self._max_records)):
            more = cost + waiting[place][0][1]
            if more > self._max_cost and count:
                self._is_full = True
                break
            count, cost = count + 1, more
        self._is_full = self._is_full or count == self._max_records or cost >= self._max_cost
        self._count, self.cost = count, cost


class CachedResult(NamedTuple):
    """What a call has returned for a record."""

    value: Record
    until_ms: float


class ResultCache:
    """Results of calls by key, for a while. Keys are compared as those of a dict.

    Law: at most ``max_entries`` results are kept, and the one that was not used for the longest
    time gives way; none is used once it is ``ttl_ms`` old. For each key at most one call is in
    flight: those who ask meanwhile wait for it.
    """

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


class BatchState(Enum):
    """Where a batch is."""

    WAITING = "for the rate limit"
    CALLED = "by the driver"
    PAUSING = "before a retry"
    OVER = "answered, split or timed out"


class CallBatch:
    """Records that are called together."""

    __slots__ = ("attempt", "calls", "cost", "due_ms", "left_ms", "state")

    def __init__(self, calls: list[PricedCall], left_ms: float, attempt: int = 1) -> None:
        self.calls = calls
        self.cost = sum(cost for _, cost in calls)
        self.attempt = attempt
        self.left_ms = left_ms
        """What is left of the timeout, while it does not run."""
        self.due_ms = math.inf
        """When it times out, while that runs."""
        self.state = BatchState.WAITING

    def part(self, calls: list[PricedCall]) -> "CallBatch":
        """Some of its records, to be called again within the same timeout."""
        part = CallBatch(calls, self.left_ms, self.attempt)
        part.due_ms = self.due_ms
        return part

    def values(self) -> list[Record]:
        """What the function is given; a list of its own for each call."""
        return [call.record for call, _ in self.calls]


class Due(NamedTuple):
    """What a driver has to do now."""

    begin: list[CallBatch]
    cancel: list[CallBatch]
    """Their records were answered by ``timeout``."""


class BatchScheduler:
    """For the thread where the user's function lives; only ``figures`` is for any thread."""

    def __init__(self, work: BatchWork) -> None:
        batching, limit = work.settings.batching, work.settings.rate_limit
        cache = work.settings.cache
        self._work = work
        self._name = type(work.function).__name__
        self._max_calls = batching.max_calls or math.inf
        max_cost = math.inf if batching.max_cost is None else batching.max_cost
        self._batcher = CallBatcher(batching.max_records, _ms(batching.max_wait), max_cost)
        if limit is None:
            self._limiter = RateLimiter(None, None, 0.0)
        else:
            requests, cost = limit.requests_per_second, limit.cost_per_second
            share = work.parallelism
            self._limiter = RateLimiter(
                requests and requests / share, cost and cost / share, _ms(limit.burst)
            )
        has_cost = limit is not None and limit.cost_per_second is not None
        self._needs_cost = has_cost or batching.max_cost is not None
        self._cache = None if cache is None else ResultCache(cache.max_entries, _ms(cache.ttl))
        self._cache_key = None if cache is None else cache.key
        self._keys: dict[PendingCall, Hashable] = {}
        """Keys of records whose result others with the same key wait for."""
        self._ready: deque[CallBatch] = deque()
        """Batches that are called again; they go before new ones."""
        self._pauses: list[tuple[float, int, CallBatch]] = []
        self._deadlines: list[tuple[float, int, CallBatch]] = []
        """Heaps by time. Outdated deadlines are left out when they are met."""
        self._sequence = 0
        self._called = 0
        self._answered: list[PendingCall] = []
        self._throttled_since_ms: float | None = None
        self._throttled_ms = 0.0
        self._calls = self._records = self._refused = self._retries = self._splits = 0
        self._failures = self._hits = self._misses = 0
        self.wake_ms: float | None = None
        """When to advance again, if nothing happens before."""

    # Events.

    def submitted(self, slots: Sequence[PendingCall], now_ms: float) -> None:
        """The function is to be called for these records."""
        if self._cache is not None:
            slots = [slot for slot in slots if not self._is_cached(self._cache, slot, now_ms)]
        if self._needs_cost:
            priced = []
            for slot in slots:
                cost = self._cost_of(slot)
                if cost is not None:
                    priced.append((slot, cost))
        else:
            priced = [(slot, 0.0) for slot in slots]
        self._batcher.add(priced, now_ms)

    def input_ended(self) -> None:
        """No record follows."""
        self._batcher.input_ended()

    def succeeded(self, batch: CallBatch, found: Record, now_ms: float) -> None:
        """The function has returned this for a batch that was begun."""
        if not self._ended(batch):
            return
        self._limiter.accepted()
        if not self._is_retried(batch, found, None, now_ms):
            problem = _misfit(found, len(batch.calls), self._name)
            if problem is not None:
                self._give_up(batch, problem, now_ms)
            else:
                self._take_results(batch, found, now_ms)

    def failed(self, batch: CallBatch, error: BaseException, now_ms: float) -> None:
        """The function has raised this for a batch that was begun."""
        if not self._ended(batch):
            return
        if isinstance(error, RateLimited):
            self._refuse(batch, error, now_ms)
            return
        self._limiter.accepted()
        if not isinstance(error, Exception) or not self._is_retried(batch, None, error, now_ms):
            self._give_up(batch, error, now_ms)

    # What follows.

    def advance(self, now_ms: float) -> Due:
        """What to do now; sets ``wake_ms``."""
        cancel = self._expire(now_ms)
        while self._pauses and self._pauses[0][0] <= now_ms:
            batch = heappop(self._pauses)[2]
            if batch.state is BatchState.PAUSING:
                self._stop_timeout(batch, now_ms)
                self._ready.append(batch)
        begin: list[CallBatch] = []
        wait_ms = 0.0
        while self._called < self._max_calls and (self._ready or self._is_batch_due(now_ms)):
            cost = self._ready[0].cost if self._ready else self._batcher.cost
            wait_ms = self._limiter.wait_ms(cost, now_ms)
            if wait_ms > 0:
                break
            self._limiter.take(cost)
            begin.append(self._begin(now_ms))
        self._note_throttling(wait_ms > 0, now_ms)
        self._set_wake(now_ms + wait_ms if wait_ms > 0 else None, now_ms)
        return Due(begin, cancel)

    def take_answered(self) -> list[PendingCall]:
        """Records that were answered since the last time."""
        answered, self._answered = self._answered, []
        return answered

    def figures(self, now_ms: float) -> BatchFigures:
        """Counts over all calls so far."""
        throttled_ms, since_ms = self._throttled_ms, self._throttled_since_ms
        if since_ms is not None:
            throttled_ms += max(0.0, now_ms - since_ms)
        return BatchFigures(
            self._work.operator,
            self._calls,
            self._records,
            self._called,
            throttled_ms,
            self._refused,
            self._retries,
            self._splits,
            self._failures,
            self._hits,
            self._misses,
        )

    # Before a call.

    def _is_cached(self, cache: ResultCache, slot: PendingCall, now_ms: float) -> bool:
        """Whether a record needs no call of its own; the first of a key does."""
        try:
            key = slot.record if self._cache_key is None else self._cache_key(slot.record)
            found = cache.find(key, now_ms)
            begins = found is None and cache.try_begin(key, slot)
        except Exception as error:
            problem = TypeError(
                f"the cache key of the record {slot.record!r} cannot be used "
                f"({type(error).__name__}: {error}); key of CallCache must return something that "
                f"can be hashed"
            )
            problem.__cause__ = error
            self._answer_by(slot, problem)
            return True
        if begins:
            self._misses += 1
            self._keys[slot] = key
            return False
        self._hits += 1
        if found is not None:
            self._answer_with(slot, found.value, now_ms)
        return True

    def _cost_of(self, slot: PendingCall) -> float | None:
        """None: it has no cost, and was answered with an error."""
        cause: Exception | None = None
        came = ""
        try:
            cost: object = self._work.function.cost(slot.record)
            if isinstance(cost, Real) and 0 <= float(cost) < math.inf:
                return float(cost)
            came = f"returned {cost!r}"
        except Exception as error:
            cause, came = error, f"raised {type(error).__name__}: {error}"
        problem = ValueError(
            f"cost() of {self._name} {came} for the record {slot.record!r}; it must return a "
            f"number of 0 or more"
        )
        problem.__cause__ = cause
        self._answer_by(slot, problem)
        return None

    def _is_batch_due(self, now_ms: float) -> bool:
        due_ms = self._batcher.due_ms()
        return due_ms is not None and due_ms <= now_ms

    def _begin(self, now_ms: float) -> CallBatch:
        if self._ready:
            batch = self._ready.popleft()
        else:
            batch = CallBatch(self._batcher.take(), self._work.timeout_ms)
        batch.state = BatchState.CALLED
        self._called += 1
        self._calls += 1
        self._records += len(batch.calls)
        self._run_timeout(batch, now_ms + batch.left_ms)
        return batch

    # After a call.

    def _ended(self, batch: CallBatch) -> bool:
        """Whether the outcome counts: the batch has not timed out."""
        if batch.state is not BatchState.CALLED:
            return False
        self._called -= 1
        batch.state = BatchState.OVER
        return True

    def _take_results(self, batch: CallBatch, found: Sequence[Record], now_ms: float) -> None:
        """Answer records that have a result; call the others again as far as that may help."""
        if self._take_all(batch, found):
            return
        again: list[PricedCall] = []
        refused: list[PricedCall] = []
        refusal: RateLimited | None = None
        pause_ms = 0.0
        for priced, result in zip(batch.calls, found, strict=True):
            if not isinstance(result, BaseException):
                self._answer_with(priced[0], result, now_ms)
            elif isinstance(result, RateLimited):
                refused.append(priced)
                refusal = result
            else:
                pause = self._pause_of(batch, None, result)
                if isinstance(pause, float):
                    again.append(priced)
                    pause_ms = max(pause_ms, pause)
                else:
                    self._answer_by(priced[0], pause or result)
        if again:
            self._pause(batch.part(again), pause_ms, now_ms)
        if refusal is not None:
            self._refuse(batch.part(refused), refusal, now_ms)

    def _take_all(self, batch: CallBatch, found: Sequence[Record]) -> bool:
        """Answer all records at once, if nothing is to be looked at one by one."""
        if self._cache is not None:
            return False
        if any(issubclass(kind, BaseException) for kind in dict.fromkeys(map(type, found))):
            return False
        results = list(found)
        if self._work.copies:
            try:
                results = own_all(results)
            except Exception:  # of one record; the others go on
                return False
        answered = [call for call, _ in batch.calls]
        for call, result in zip(answered, results, strict=True):
            call.results = [result]
        self._answered += answered
        return True

    def _refuse(self, batch: CallBatch, refusal: RateLimited, now_ms: float) -> None:
        """The server wants a pause: the batch waits for the limit again, as the first."""
        self._refused += 1
        seconds = refusal.retry_after
        self._limiter.refused(None if seconds is None else 1000 * seconds, now_ms)
        self._stop_timeout(batch, now_ms)
        self._ready.appendleft(batch)

    def _is_retried(
        self, batch: CallBatch, found: Record, error: Exception | None, now_ms: float
    ) -> bool:
        pause = self._pause_of(batch, found, error)
        if isinstance(pause, float):
            self._pause(batch, pause, now_ms)
            return True
        if pause is not None:
            self._give_up(batch, pause, now_ms)
        return pause is not None

    def _pause_of(
        self, batch: CallBatch, found: Record, error: BaseException | None
    ) -> float | Exception | None:
        """Before the next attempt; None: there is none. An exception: the strategy has failed."""
        retry = self._work.retry
        if retry is None or (error is not None and not isinstance(error, Exception)):
            return None
        try:
            pause_ms = retry.pause_ms(batch.attempt, found, error)
        except Exception as trouble:
            return trouble
        return None if pause_ms is None else float(pause_ms)

    def _pause(self, batch: CallBatch, pause_ms: float, now_ms: float) -> None:
        """Call it again after a while; its timeout runs on."""
        self._retries += 1
        batch.attempt += 1
        batch.state = BatchState.PAUSING
        self._sequence += 1
        heappush(self._pauses, (now_ms + pause_ms, self._sequence, batch))
        self._run_timeout(batch, batch.due_ms)

    def _give_up(self, batch: CallBatch, error: BaseException, now_ms: float) -> None:
        """The batch has failed for good: halve it, or answer its records with the error."""
        calls = batch.calls
        if self._work.splits_failed and len(calls) > 1 and isinstance(error, Exception):
            self._splits += 1
            middle = len(calls) // 2
            for half in (calls[middle:], calls[:middle]):
                self._ready.appendleft(CallBatch(half, self._work.timeout_ms))
            return
        for call, _ in calls:
            self._answer_by(call, error)

    def _expire(self, now_ms: float) -> list[CallBatch]:
        """Answer batches that have taken too long; those that are being called are to be ended."""
        cancel: list[CallBatch] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ms:
            entry = heappop(deadlines)
            if not _is_running(entry):
                continue
            batch = entry[2]
            if batch.state is BatchState.CALLED:
                self._called -= 1
                cancel.append(batch)
            batch.state = BatchState.OVER
            for call, _ in batch.calls:
                try:
                    result = self._work.function.timeout(call.record)
                except BaseException as error:
                    self._answer_by(call, error)
                else:
                    self._answer_with(call, result, now_ms, keeps=False)
        return cancel

    # Outcomes of single records; those that wait for the same key have the same.

    def _answer_with(
        self, slot: PendingCall, result: Record, now_ms: float, keeps: bool = True
    ) -> None:
        """``keeps``: the cache keeps the result."""
        copies = self._work.copies
        try:
            slot.results = [own(result) if copies else result]
            if self._cache is not None and slot in self._keys and keeps:
                self._cache.store(self._keys[slot], own(result) if copies else result, now_ms)
        except Exception as error:  # a record of the user's that cannot be copied
            self._answer_by(slot, error)
            return
        self._answered.append(slot)
        for other in self._sharers(slot):
            self._answer_with(other, result, now_ms)

    def _answer_by(self, slot: PendingCall, error: BaseException) -> None:
        self._failures += 1
        slot.results, slot.error = None, error
        self._answered.append(slot)
        for other in self._sharers(slot):
            self._answer_by(other, error)

    def _sharers(self, slot: PendingCall) -> list[PendingCall]:
        if self._cache is None or slot not in self._keys:
            return []
        return self._cache.ended(self._keys.pop(slot))

    # Time.

    def _note_throttling(self, is_throttled: bool, now_ms: float) -> None:
        since_ms = self._throttled_since_ms
        if is_throttled and since_ms is None:
            self._throttled_since_ms = now_ms
        elif not is_throttled and since_ms is not None:
            self._throttled_since_ms = None
            self._throttled_ms += now_ms - since_ms

    def _set_wake(self, limit_ms: float | None, now_ms: float) -> None:
        times = [] if limit_ms is None else [limit_ms]
        due_ms = self._batcher.due_ms()
        if due_ms is not None and due_ms > now_ms:
            times.append(due_ms)
        while self._deadlines and not _is_running(self._deadlines[0]):
            heappop(self._deadlines)
        times += [heap[0][0] for heap in (self._pauses, self._deadlines) if heap]
        self.wake_ms = min(times, default=None)

    def _run_timeout(self, batch: CallBatch, due_ms: float) -> None:
        batch.due_ms = due_ms
        self._sequence += 1
        heap = self._deadlines
        heappush(heap, (due_ms, self._sequence, batch))
        if len(heap) > 64 + 4 * (self._called + len(self._pauses)):  # most are outdated
            heap[:] = filter(_is_running, heap)
            heapify(heap)

    def _stop_timeout(self, batch: CallBatch, now_ms: float) -> None:
        """It waits for the limit from now on."""
        batch.left_ms = batch.due_ms - now_ms
        batch.due_ms = math.inf
        batch.state = BatchState.WAITING


def _is_running(deadline: tuple[float, int, CallBatch]) -> bool:
    """Whether it still counts."""
    due_ms, _, batch = deadline
    is_running = batch.state is BatchState.CALLED or batch.state is BatchState.PAUSING
    return is_running and batch.due_ms == due_ms


def _ms(span: object) -> float:
    span_ms = measured_ms(span)
    assert span_ms is not None, f"{span!r} was checked in the program"
    return span_ms


def _misfit(found: Record, count: int, whose: str) -> Exception | None:
    """What is wrong with what a function has returned for a batch; None: nothing."""
    expected = f"return a list with one result for each of the {count} values"
    if (
        found is None
        or isinstance(found, str | bytes | dict | set | frozenset)
        or not (hasattr(found, "__len__") and hasattr(found, "__iter__"))
    ):
        came = "None" if found is None else f"a value of type {type(found).__name__}"
        return TypeError(f"async_invoke_batch() of {whose} returned {came}; {expected}")
    if len(found) != count:
        return ValueError(
            f"async_invoke_batch() of {whose} returned {len(found)} results; {expected}"
        )
    return None
