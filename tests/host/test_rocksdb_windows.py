"""Windows with their state on disk give what they give in memory, and go on there."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.base.settings import StateSettings
from headgate.core.state.memory import MemoryBackend
from headgate.core.window.general import GeneralKeeper
from headgate.core.window.spec import Aggregated, WindowCall
from headgate.functions.assigners import (
    CountSlidingWindowAssigner,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from headgate.functions.evictors import CountEvictor
from headgate.functions.triggers import ContinuousEventTimeTrigger, CountTrigger
from headgate.host.rocksdb.backend import RocksBackends
from tests.core.window.kit import (
    LISTED,
    SUMS,
    Bounds,
    CollectingAggregate,
    FixedBackends,
    Lab,
    plan,
)

BOUNDS = WindowCall("apply", Bounds())

PLANS = [
    plan(TumblingEventTimeWindows(10), SUMS, lateness_ms=4),
    plan(SlidingEventTimeWindows(10, 3), LISTED, BOUNDS),
    plan(EventTimeSessionWindows(5), Aggregated(CollectingAggregate()), BOUNDS, lateness_ms=3),
    plan(EventTimeSessionWindows(5), SUMS, BOUNDS, ContinuousEventTimeTrigger(4)),
    plan(TumblingEventTimeWindows(10), LISTED, BOUNDS, CountTrigger(2), evictor=CountEvictor(2)),
    plan(CountSlidingWindowAssigner(3, 2), SUMS),
]


@pytest.fixture
def backends(tmp_path: Path) -> Iterator[RocksBackends]:
    made = RocksBackends(StateSettings(rocksdb_folder=str(tmp_path)))
    yield made
    made.close()


def run(lab: Lab, seed: int) -> list[list[str]]:
    """Records and watermarks as the seed says; what came out after each step."""
    dice, watermark, found = random.Random(seed), -10, []
    for _ in range(15):
        if dice.random() < 0.4:
            watermark += dice.randrange(8)
            lab.watermark(watermark)
        else:
            times = [dice.randrange(watermark - 8, watermark + 25) for _ in range(4)]
            lab.send(*[((dice.choice("abc"), dice.randrange(9)), at) for at in times])
        found.append(sorted(map(str, lab.taken_timed())))
    lab.end()
    return [*found, sorted(map(str, lab.taken_timed()))]


@pytest.mark.parametrize("window_plan", PLANS, ids=lambda plan: repr(plan.assigner))
def test_results_are_the_same_on_disk_and_in_memory(
    window_plan: Any, backends: RocksBackends
) -> None:
    for seed in range(4):
        assert run(Lab(window_plan, backends=backends), seed) == run(Lab(window_plan), seed)


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(10), EventTimeSessionWindows(10)])
def test_windows_that_were_in_memory_go_on_on_disk_and_back(
    assigner: Any, backends: RocksBackends
) -> None:
    window_plan = plan(assigner, SUMS)
    lab = Lab(window_plan)
    places: list[Any] = [backends.keyed("windows", range(128), 128), MemoryBackend(range(128), 128)]
    for number, backend in enumerate(places):
        lab.send((("a", 1), number), (("b", 2), number))
        keyed: Any = lab.operator._keyed
        snapshot = keyed.backend.snapshot()
        backend.restore(snapshot.groups())
        snapshot.close()
        lab.operator.close()
        lab = Lab(window_plan, backends=FixedBackends(backend))
        assert isinstance(lab.operator._keeper, GeneralKeeper)
    lab.send((("a", 1), 3))
    assert sorted(lab.end().taken()) == [("a", 3), ("b", 4)]
