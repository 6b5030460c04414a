"""Mutants of asynchronous calls and calls to models."""

from tests.mutants.mutant import Mutant

CALLS = (
    Mutant(
        "async-capacity-off-by-one",
        "core/operators/async_wait.py",
        "            room = queue.capacity - queue.size\n            if room == 0:\n"
        "                self._await_place(calls)\n",
        "            room = queue.capacity - queue.size + 1\n            if room == 0:\n"
        "                self._await_place(calls)\n",
        "one call more is in flight than the user has allowed",
        "tests/core/operators/test_async_wait.py",
    ),
    Mutant(
        "restored-calls-change-places",
        "core/operators/async_wait.py",
        "    rows += waiting\n    try:\n",
        "    rows[:0] = waiting\n    try:\n",
        "after a restore ordered results come in another order than their records",
        "tests/core/operators/test_async_restored.py",
    ),
    Mutant(
        "rescaled-calls-lose-the-last",
        "core/operators/async_wait.py",
        "deque(records[count * subtask // parallelism : count * (subtask + 1) // parallelism])",
        "deque(records[count // parallelism * subtask : count // parallelism * (subtask + 1)])",
        "with another parallelism some records in flight are not called again",
        "tests/core/operators/test_async_restored.py",
    ),
    Mutant(
        "time-overtakes-an-async-record",
        "core/chain/async_queue.py",
        "            if first.waiting or not first.updates:\n",
        "            if not first.updates:\n",
        "a watermark leaves before the results of the records before it",
        "tests/core/chain/test_async_queue.py",
    ),
    Mutant(
        "done-calls-not-in-the-checkpoint",
        "core/chain/async_queue.py",
        "                *segment.done,\n",
        "",
        "results that are there and have not left are lost by a restore",
        "tests/core/chain/test_async_queue.py",
    ),
    Mutant(
        "rate-limit-grants-one-too-many",
        "core/chain/rate_limiter.py",
        "return 0.0 if missing <= LEAST_WAIT_MS * self._rate else missing / self._rate",
        "return 0.0 if missing < 1 else missing / self._rate",
        "a call begins before its token is there",
        "tests/core/chain/test_rate_limiter.py",
    ),
    Mutant(
        "large-call-leaves-no-debt",
        "core/chain/rate_limiter.py",
        "        self._tokens -= amount\n",
        "        self._tokens = max(0.0, self._tokens - amount)\n",
        "calls that cost more than the bucket holds exceed the limit for good",
        "tests/core/chain/test_rate_limiter.py",
    ),
    Mutant(
        "refusals-double-the-pause-each",
        "core/chain/rate_limiter.py",
        "            if is_paused:  # one of several calls that were refused together\n"
        "                return\n",
        "",
        "ten calls that are refused together cost a minute instead of a second",
        "tests/core/chain/test_rate_limiter.py",
    ),
    Mutant(
        "cache-ttl-off-by-one",
        "core/chain/batch_scheduler.py",
        "if now_ms >= found.until_ms:",
        "if now_ms > found.until_ms:",
        "a result is used when it is as old as its time to live",
        "tests/core/chain/test_call_cache.py",
    ),
    Mutant(
        "cache-evicts-what-is-used",
        "core/chain/batch_scheduler.py",
        "        self._results.move_to_end(key)\n        return found\n",
        "        return found\n",
        "the result that is used most gives way first",
        "tests/core/chain/test_call_cache.py",
    ),
    Mutant(
        "calls-at-once-off-by-one",
        "core/chain/batch_scheduler.py",
        "while self._called < self._max_calls and",
        "while self._called <= self._max_calls and",
        "one call more is in flight than the user has allowed",
        "tests/core/chain/test_batch_scheduler.py",
    ),
    Mutant(
        "batch-over-its-cost",
        "core/chain/batch_scheduler.py",
        "            if more > self._max_cost and count:\n",
        "            if cost > self._max_cost and count:\n",
        "a batch costs more than a call may",
        "tests/core/chain/test_call_batcher.py",
    ),
    Mutant(
        "last-batch-waits",
        "core/chain/batch_scheduler.py",
        "        self._waiting = deque((call, -math.inf) for call, _ in self._waiting)\n",
        "",
        "at the end of its input a job waits for records that do not come",
        "tests/core/chain/test_call_batcher.py",
    ),
)
