"""Windows that go on from a snapshot, or live on disk, tell what the reference tells."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.base.settings import MIB, StateBackendKind, StateSettings
from headgate.core.chain.context import OperatorContext
from headgate.core.state.backend import Backends, KeyedBackend
from headgate.core.state.memory import MemoryBackends
from headgate.core.window.operator import WindowOperator
from headgate.core.window.spec import WindowPlan
from headgate.functions.assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from headgate.functions.triggers import EventTimeTrigger
from headgate.host.rocksdb.backend import RocksBackends
from tests.core.chain.kit import KeptOutput, context
from tests.windows.lab import CONTENTS, LATE, feed, late_of, sent, stories
from tests.windows.reference import MIN, Firing, Mark, Story, aligned, sessions, sliding, tumbling

ASSIGNERS: dict[str, Any] = {
    "tumbling": TumblingEventTimeWindows(10, 3),
    "sliding": SlidingEventTimeWindows(10, 4),
    "sessions": EventTimeSessionWindows(6),
}
LATENESS = 9

SMALL = StateSettings(backend=StateBackendKind.ROCKSDB, rocksdb_memory_bytes=8 * MIB)


class Watched:
    """Backends that begin with what a snapshot held, and remember the last one they made."""

    def __init__(self, inner: Backends, parts: list[tuple[int, bytes]]) -> None:
        self.made: KeyedBackend
        self._inner = inner
        self._parts = parts

    def keyed(self, operator: str, groups: range, max_parallelism: int) -> KeyedBackend:
        self.made = self._inner.keyed(operator, groups, max_parallelism)
        self.made.restore(self._parts)
        return self.made


@pytest.fixture(scope="module")
def rocks() -> Iterator[RocksBackends]:
    backends = RocksBackends(SMALL)
    backends.keyed("first", range(1), 1).close()  # its folder is there from here on, not in a test
    yield backends
    backends.close()


@given(
    st.sampled_from(list(ASSIGNERS)), st.sampled_from(list(CONTENTS)), stories(), st.integers(0, 30)
)
def test_windows_in_memory_go_on_from_a_snapshot(
    kind: str, held: str, story: Story, cut_at: int
) -> None:
    check(MemoryBackends(), kind, held, story, cut_at)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(list(ASSIGNERS)), st.sampled_from(list(CONTENTS)), stories(), st.integers(0, 30)
)
def test_windows_on_disk_go_on_from_a_snapshot(
    rocks: RocksBackends, kind: str, held: str, story: Story, cut_at: int
) -> None:
    check(rocks, kind, held, story, cut_at)


def check(backends: Backends, kind: str, held: str, story: Story, cut_at: int) -> None:
    """The story, with a fall after some elements; the next task begins from the snapshot."""
    before, after = story[:cut_at], story[cut_at:]
    output = KeptOutput()
    watched = Watched(backends, [])
    parts = part_of(watched, kind, held, before, after[:3], output)
    watermark = max((element.time for element in before if isinstance(element, Mark)), default=MIN)
    # Event time begins anew; the sources say again how far it is.
    rest: Story = [*([Mark(watermark)] if before else []), *after]
    part_of(Watched(backends, parts), kind, held, rest, [], output)
    if kind == "sessions":
        expected = sessions(story, lambda record: 6, LATENESS)
    else:
        assign = tumbling(10, 3) if kind == "tumbling" else sliding(10, 4)
        expected = aligned(story, assign, LATENESS)
    wanted = [firing for firings in expected.firings for firing in firings]
    assert sorted(map(blind, sent(output.bundles))) == sorted(map(blind, wanted))
    assert list(late_of(output)) == expected.late


def part_of(
    watched: Watched, kind: str, held: str, story: Story, lost: Story, output: KeptOutput
) -> list[tuple[int, bytes]]:
    """One task's part of the story; what comes after its snapshot is lost."""
    contents, call = CONTENTS[held]()
    plan = WindowPlan(
        lambda record: record[0],
        ASSIGNERS[kind],
        EventTimeTrigger(),
        contents,
        call,
        lateness_ms=LATENESS,
        late_tag=LATE,
    )
    operator = WindowOperator(plan)
    operator.set_up(output)
    given_context: OperatorContext = replace(context(), backends=watched)
    try:
        operator.open(given_context)
        feed(operator, story)
        snapshot = watched.made.snapshot()
        sent_before = len(output.bundles), len(output.side)
        feed(operator, lost)
        del output.bundles[sent_before[0] :], output.side[sent_before[1] :]
        parts = list(snapshot.groups())
        snapshot.close()
    finally:
        operator.close()
    return parts


def blind(firing: Firing) -> tuple[Any, ...]:
    """Without what folded values do not tell, and in no order of values."""
    return firing.end, firing.key, tuple(sorted(firing.values))
