"""Mutants of keys, key groups, state, time to live, snapshots and timers."""

from tests.mutants.mutant import Mutant

STATE = (
    Mutant(
        "key-group-off-by-one",
        "core/state/keys.py",
        "first = (subtask * max_parallelism + parallelism - 1) // parallelism",
        "first = subtask * max_parallelism // parallelism",
        "two tasks own the same key group after a rescale",
        "tests/core/state/test_keys.py",
    ),
    Mutant(
        "key-group-to-a-wrong-channel",
        "core/egress/router.py",
        "return group * self.channels // self._max_parallelism",
        "return group % self.channels",
        "records go to a task that does not own their key",
        "tests/core/egress/test_router.py",
    ),
    Mutant(
        "large-number-hashed-otherwise",
        "core/state/keys.py",
        "bits ^= (bits >> 16) ^ ((key >> 32) & 0xFFFFFFFF)",
        "bits ^= bits >> 16",
        "numbers beyond 32 bits have one group in the router and another in the state",
        "tests/core/state/test_keys.py",
    ),
    Mutant(
        "moment-hashed-with-its-zone",
        "core/state/equal_keys.py",
        "clock = (clock - offset).replace(tzinfo=timezone.utc)",
        "clock = plain",
        "equal moments of two time zones go to two tasks",
        "tests/core/state/test_equal_keys.py",
    ),
    Mutant(
        "nan-in-a-tuple-is-a-new-key",
        "core/chain/keyed_context.py",
        "parts = list(chain.from_iterable(keys)) if are_tuples else keys",
        "parts = keys",
        "each record with NaN in its key has a state of its own",
        "tests/core/chain/test_keyed_context.py",
    ),
    Mutant(
        "list-state-loses-the-last",
        "core/state/operator_state.py",
        "together[count * subtask // parallelism : count * (subtask + 1) // parallelism]",
        "together[count // parallelism * subtask : count // parallelism * (subtask + 1)]",
        "with another parallelism the last elements of a split list go to nobody",
        "tests/core/state/test_operator_state.py",
    ),
    Mutant(
        "union-list-shared-out",
        "core/state/operator_state.py",
        "    if kind == SPLIT and len(lists) == parallelism:\n",
        "    if len(lists) == parallelism:\n",
        "with the same parallelism a union list holds the task's own elements alone",
        "tests/core/state/test_operator_state.py",
    ),
    Mutant(
        "value-ttl-off-by-one",
        "core/state/ttl.py",
        "        if pair[1] <= now_ms - lifetime.ttl_ms:\n            self.held.clear()\n",
        "        if pair[1] < now_ms - lifetime.ttl_ms:\n            self.held.clear()\n",
        "a value is seen a millisecond longer than it lives",
        "tests/core/state/test_ttl.py",
    ),
    Mutant(
        "list-ttl-off-by-one",
        "core/state/ttl.py",
        "        return [pair for pair in pairs if pair[1] > horizon_ms]\n",
        "        return [pair for pair in pairs if pair[1] >= horizon_ms]\n",
        "an element is seen a millisecond longer than it lives",
        "tests/core/state/test_ttl.py",
    ),
    Mutant(
        "map-ttl-not-touched-by-reading",
        "core/state/ttl.py",
        "            self.held.put(key, (pair[0], now_ms))\n",
        "            self.held.put(key, pair)\n",
        "an item that is read all the time expires nevertheless",
        "tests/core/state/test_ttl.py",
    ),
    Mutant(
        "snapshot-keeps-what-has-expired",
        "core/state/ttl.py",
        "return pair if pair[1] > horizon_ms else None",
        "return pair if pair[1] >= horizon_ms else None",
        "a value that has expired is written to the snapshot",
        "tests/core/state/test_ttl.py",
    ),
    Mutant(
        "snapshot-shares-its-timers",
        "core/state/timers.py",
        "self._table = Table(dict.copy)",
        "self._table = Table(lambda timers: timers)",
        "timers that fire while a snapshot is written are missing in it",
        "tests/core/state/test_timers.py",
    ),
    Mutant(
        "timer-registered-again-is-lost",
        "core/state/timers.py",
        "                    del timers[timer]\n                    if not timers:\n"
        "                        del self.by_time[first]\n"
        "                    yield first, *timer\n",
        "                    yield first, *timer\n                    timers.pop(timer, None)\n"
        "                    if not timers:\n"
        "                        self.by_time.pop(first, None)\n",
        "a timer that its own callback registers for the same time never fires",
        "tests/core/state/test_timers.py",
    ),
    Mutant(
        "timer-late-by-one",
        "core/state/timers.py",
        "is not None and first <= now_ms:",
        "is not None and first < now_ms:",
        "a timer waits for a watermark beyond its time",
        "tests/core/state/test_timers.py",
    ),
    Mutant(
        "timer-fired-twice-after-restore",
        "core/state/memory.py",
        "            (EVENT_TIMER, self.event_timers),\n"
        "            (PROCESSING_TIMER, self.processing_timers),\n",
        "            (EVENT_TIMER, self.event_timers),\n"
        "            (PROCESSING_TIMER, self.event_timers),\n"
        "            (PROCESSING_TIMER, self.processing_timers),\n",
        "a timer of event time fires in processing time too after a restore",
        "tests/core/state/test_memory.py",
    ),
    Mutant(
        "restored-processing-timer-sleeps",
        "core/chain/timer_service.py",
        "            self.watermark_ms = self._behind_ms = watermark_ms\n"
        "        self._await_next()\n",
        "            self.watermark_ms = self._behind_ms = watermark_ms\n",
        "timers of processing time do not fire after a restore until a new one is registered",
        "tests/core/chain/test_timer_service.py",
    ),
    Mutant(
        "state-of-foreign-groups-taken",
        "core/state/memory.py",
        "            if group in self._groups:\n",
        "            if group <= self._groups.stop:\n",
        "a task restores state of keys that it does not get",
        "tests/core/state/test_memory.py",
    ),
    Mutant(
        "last-piece-of-a-group-lost",
        "core/state/snapshot.py",
        "        if self._entries:\n            self._close_piece()\n        header",
        "        if len(self._entries) > 1:\n            self._close_piece()\n        header",
        "a key that is alone in its piece is not in the snapshot",
        "tests/core/state/test_snapshot.py",
    ),
    Mutant(
        "snapshot-checksum-unchecked",
        "core/state/snapshot.py",
        "    if zlib.crc32(body) != checksum:\n",
        "    if not body and checksum:\n",
        "a damaged snapshot is restored as far as it can be unpickled",
        "tests/core/state/test_snapshot.py",
    ),
    Mutant(
        "forgotten-key-keeps-its-timers",
        "core/state/memory.py",
        "        self.event_timers.forget_key(key)\n",
        "",
        "a key that a batch job has left still fires",
        "tests/core/state/test_memory.py",
    ),
)
