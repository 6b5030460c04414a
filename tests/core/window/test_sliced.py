"""Windows in slices give what the general keeper gives; and they survive a restart."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.state.memory import MemoryBackend
from headgate.core.window.general import GeneralKeeper
from headgate.core.window.sliced import SlicedKeeper
from headgate.core.window.spec import Aggregated, WindowCall, WindowPlan
from headgate.functions.assigners import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from headgate.functions.evictors import CountEvictor
from headgate.functions.triggers import CountTrigger, EventTimeTrigger, PurgingTrigger
from headgate.functions.window import TimeWindow
from tests.core.window.kit import (
    LISTED,
    SUMS,
    Bounds,
    CollectingAggregate,
    FixedBackends,
    Lab,
    lateness,
    plan,
    restarted,
)

TEN = TumblingEventTimeWindows(10)
BOUNDS = WindowCall("apply", Bounds())

Step = int | list[tuple[tuple[str, int], int]]
"""A watermark, or a bundle of records with times."""

assigners = st.one_of(
    st.builds(TumblingEventTimeWindows, st.integers(3, 12), st.integers(-2, 2)),
    st.integers(1, 12).flatmap(
        lambda slide: st.builds(
            SlidingEventTimeWindows,
            st.integers(1, 25),
            st.just(slide),
            st.integers(1 - slide, slide - 1),
        )
    ),
)
records = st.tuples(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), st.integers(-20, 60))
steps = st.lists(
    st.one_of(st.integers(-20, 70), st.lists(records, min_size=1, max_size=8)), max_size=12
)


def run(window_plan: WindowPlan, steps: Iterable[Step], sliced: bool) -> tuple[Any, ...]:
    """All that came out: results between two watermarks in no order, for each key in order."""
    lab = Lab(window_plan, sliced)
    assert isinstance(lab.operator._keeper, SlicedKeeper if sliced else GeneralKeeper)
    watermark, found = -100, []
    for step in steps:
        if isinstance(step, int):
            watermark = max(watermark, step)
            lab.watermark(watermark)
        else:
            lab.send(*step)
        found.append(sorted(lab.taken_timed(), key=lambda timed: (timed[1], str(timed[0]))))
    lab.end()
    found.append(sorted(lab.taken_timed(), key=lambda timed: (timed[1], str(timed[0]))))
    return found, lab.output.side_records("late"), lateness(lab), lab.kept()


@given(
    assigners.filter(lambda assigner: getattr(assigner, "slide_ms", 0) <= assigner.size_ms),
    st.sampled_from([SUMS, Aggregated(CollectingAggregate()), LISTED]),
    st.booleans(),
    st.integers(0, 15),
    st.sampled_from([None, "late"]),
    steps,
)
def test_slices_give_what_the_general_keeper_gives(
    assigner: Any,
    contents: Any,
    with_function: bool,
    lateness_ms: int,
    late_tag: str | None,
    steps: list[Step],
) -> None:
    function = BOUNDS if with_function or contents is LISTED else None
    window_plan = plan(assigner, contents, function, lateness_ms=lateness_ms, late_tag=late_tag)
    sliced, general = run(window_plan, steps, True), run(window_plan, steps, False)
    assert sliced == general
    assert sliced[3] == []


def test_only_what_can_be_sliced_is() -> None:
    refused = [
        plan(TEN, SUMS, trigger=CountTrigger(3)),
        plan(TEN, SUMS, trigger=PurgingTrigger(EventTimeTrigger())),
        plan(TEN, SUMS, evictor=CountEvictor(3)),
        plan(SlidingEventTimeWindows(2, 5), SUMS),
    ]
    for window_plan in refused:
        assert type(Lab(window_plan).operator._keeper) is GeneralKeeper


def test_a_backend_that_lends_no_tables_gets_the_general_keeper() -> None:
    class Closed(MemoryBackend):
        def direct(self, spec: Any) -> Any:
            return None

        def value_state(self, spec: Any) -> Any:
            return MemoryBackend(range(128), 128).value_state(spec)

    lab = Lab(plan(TEN, SUMS), backends=FixedBackends(Closed(range(128), 128)))
    assert type(lab.operator._keeper) is GeneralKeeper


def test_a_window_with_many_keys_is_sent_in_pieces() -> None:
    lab = Lab(plan(TEN, SUMS))
    lab.send(*[((key, 1), 1) for key in range(5000)])
    lab.watermark(9)
    assert [len(bundle.records) for bundle in lab.output.bundles] == [4096, 904]
    assert len(lab.taken()) == 5000


@pytest.mark.parametrize("sliced", [True, False])
@pytest.mark.parametrize("contents", [SUMS, LISTED])
def test_windows_go_on_after_a_restart(sliced: bool, contents: Any) -> None:
    window_plan = plan(SlidingEventTimeWindows(10, 5), contents, BOUNDS, lateness_ms=5)
    lab = Lab(window_plan, sliced)
    lab.send((("a", 1), 7), (("b", 1), 7))
    lab.watermark(9)
    assert [result[:2] for result in lab.taken()] == [(0, 10), (0, 10)]
    again = restarted(lab, window_plan, sliced)
    again.watermark(8)
    assert again.taken() == []
    again.watermark(10)  # what has fired does not fire again by itself
    assert again.taken() == []
    again.send((("a", 2), 8))
    ((start, end, *held),) = again.taken()
    assert (start, end, sum(number for _, number in held)) == (0, 10, 3)
    again.end()
    found = {
        records[0][0]: sum(n for _, n in records)
        for start, _, *records in again.taken()
        if start == 5
    }
    assert found == {"a": 3, "b": 1}
    assert again.kept() == []


@pytest.mark.parametrize("sliced", [True, False])
def test_after_a_restart_a_record_on_time_joins_what_had_fired(sliced: bool) -> None:
    window_plan = plan(TEN, SUMS, lateness_ms=5)
    lab = Lab(window_plan, sliced)
    lab.send((("a", 1), 7), (("b", 1), 7))
    lab.watermark(9)
    lab.taken()
    again = restarted(lab, window_plan, sliced)
    again.send((("a", 2), 8))
    again.watermark(9)
    assert again.taken() == [("a", 3)]
    again.send((("b", 2), 8))
    assert again.taken() == [("b", 3)]
    again.watermark(14)
    assert again.kept() == []


def test_a_snapshot_does_not_change_when_windows_go_on() -> None:
    window_plan = plan(TEN, LISTED, BOUNDS)
    lab = Lab(window_plan)
    lab.send((("a", 1), 1))
    keyed_context: Any = lab.operator._keyed
    snapshot = keyed_context.backend.snapshot()
    lab.send((("a", 2), 2))
    parts = list(snapshot.groups())
    snapshot.close()
    lab.send((("a", 3), 3))
    assert lab.end().taken() == [(0, 10, ("a", 1), ("a", 2), ("a", 3))]
    backend = MemoryBackend(range(128), 128)
    backend.restore(parts)
    again = Lab(window_plan, backends=FixedBackends(backend))
    assert again.end().taken() == [(0, 10, ("a", 1))]


def test_windows_of_a_stream_in_order_are_sent_in_order() -> None:
    lab = Lab(plan(SlidingEventTimeWindows(20, 10), SUMS, BOUNDS))
    for number in range(0, 100, 7):
        lab.send((("a", 1), number))
    windows = [TimeWindow(*result[:2]) for result in lab.end().taken()]
    assert windows == sorted(windows)
