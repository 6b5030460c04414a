"""Joins of columns in RocksDB: the same rows as in memory, and snapshots that either can read."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, Watermark
from headgate.base.settings import StateBackendKind, StateSettings
from headgate.core.columns import window_rows
from headgate.core.columns.window_join import JoinWindows
from headgate.core.state.memory import MemoryBackends
from headgate.host.rocksdb.backend import RocksBackends
from tests.core.chain.restore_kit import Send
from tests.core.columns.join_kit import ROWS, batch_of, rows_of, tasks

SMALL = StateSettings(backend=StateBackendKind.ROCKSDB, rocksdb_memory_bytes=8 * 1024 * 1024)
WINDOWS = [JoinWindows(100, 100), JoinWindows(90, 60), JoinWindows(gap_ms=40, lateness_ms=50)]


@pytest.fixture(scope="module")
def rocks() -> Iterator[RocksBackends]:
    backends = RocksBackends(SMALL)
    backends.keyed("first", range(1), 1).close()  # its folder is there from here on, not in a test
    yield backends
    backends.close()


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    windows=st.sampled_from(WINDOWS),
    sent=st.lists(st.tuples(st.sampled_from([0, 1]), ROWS), min_size=1, max_size=6),
    cut_at=st.integers(0, 6),
    most=st.sampled_from([0, 1_000, window_rows.MEMORY_BYTES]),
)
def test_joins_on_disk_are_those_in_memory(
    rocks: RocksBackends, windows: JoinWindows, sent: list[Any], cut_at: int, most: int
) -> None:
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_rows, "MEMORY_BYTES", most)
        for first, second in ((MemoryBackends(), rocks), (rocks, MemoryBackends()), (rocks, rocks)):
            found.append(joined_through(first, second, windows, sent, cut_at))
    assert found[0] == found[1] == found[2]


def joined_through(
    first: Any, second: Any, windows: JoinWindows, sent: list[Any], cut_at: int
) -> list[Any]:
    """What is emitted if the join goes on in other backends and more tasks after some batches."""
    found = []
    with ExitStack() as ends:
        join = tasks(windows, parallelism=2, backends=first)
        ends.callback(join.close)
        for number, (side, rows) in enumerate(sent):
            if number == cut_at:
                found += rows_of(join)
                join = tasks(windows, parallelism=3, backends=second, states=join.stored_states())
                ends.callback(join.close)
            join.apply(Send([(batch_of(side, rows), None)], side))
            join.apply(Watermark(60 * number))
        join.apply(Watermark(MAX_WATERMARK_MS))
        found += rows_of(join)
    return sorted(found, key=repr)
