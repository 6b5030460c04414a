"""Time to live, on the backend in memory; and how the sweeper spares itself work."""

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.core.state.backend import StateSpec
from headgate.core.state.memory import MemoryBackend
from headgate.functions.state import ValueStateDescriptor
from tests.core.state.conformance import Make
from tests.core.state.kit import Lab
from tests.core.state.ttl_conformance import TTL_MS, TtlConformance, living


class TestMemory(TtlConformance):
    @pytest.fixture
    def make(self) -> Make:
        return MemoryBackend


class CountedRounds(MemoryBackend):
    """Counts how often somebody begins to go round the entries."""

    rounds = 0

    def places(self, spec: StateSpec) -> Iterator[tuple[Any, Any]]:
        self.rounds += 1
        return super().places(spec)


def test_the_sweeper_rests_until_something_can_have_expired() -> None:
    lab = Lab(CountedRounds)
    state = lab.open(living(ValueStateDescriptor("s"), lambda builder: builder))
    lab.at("a")
    state.update(1)
    for _ in range(100):
        state.value()
    backend: Any = lab.backend
    before = backend.rounds
    assert before <= 2
    lab.now_ms += TTL_MS - 1
    for _ in range(100):
        state.value()
    assert backend.rounds == before
    lab.now_ms += 1
    lab.at("b")
    state.value()
    state.value()
    assert backend.rounds == before + 1


def test_a_value_is_copied_for_a_snapshot_with_its_time() -> None:
    lab = Lab()
    state = lab.open(living(ValueStateDescriptor("s")))
    lab.at("a")
    state.update([1])
    snapshot = lab.backend.snapshot()
    state.value().append(2)
    other = Lab()
    other.backend.restore(snapshot.groups())
    snapshot.close()
    other.at("a")
    assert other.open(living(ValueStateDescriptor("s"))).value() == [1]
    assert state.value() == [1, 2]
