"""When barriers overtake."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.events import CheckpointBarrier
from headgate.core.checkpoint.barrier_policy import AT_ONCE, BarrierPolicy

BARRIER = CheckpointBarrier(1, 1_000)


def test_barriers_stay_in_order_unless_a_timeout_is_set() -> None:
    assert BarrierPolicy().overtakes_at_ms(BARRIER, 5_000) is None


def test_time_runs_from_when_the_barrier_was_made() -> None:
    assert BarrierPolicy(timeout_ms=300).overtakes_at_ms(BARRIER, 1_200) == 1_300


def test_barrier_from_a_clock_that_is_ahead_waits_no_longer_than_the_timeout() -> None:
    assert BarrierPolicy(timeout_ms=300).overtakes_at_ms(BARRIER, 10) == 310


def test_without_a_timeout_at_all_it_overtakes_at_once() -> None:
    assert BarrierPolicy(timeout_ms=0).overtakes_at_ms(BARRIER, 10) == AT_ONCE


@given(st.integers(0, 100) | st.none())
def test_barrier_that_has_overtaken_elsewhere_overtakes_at_once(timeout_ms: int | None) -> None:
    overtaking = CheckpointBarrier(1, 1_000, unaligned=True)
    assert BarrierPolicy(timeout_ms=timeout_ms).overtakes_at_ms(overtaking, 10) == AT_ONCE


def test_nothing_overtakes_where_records_may_count_twice() -> None:
    overtaking = CheckpointBarrier(1, 1_000, unaligned=True)
    assert BarrierPolicy(exactly_once=False, timeout_ms=0).overtakes_at_ms(overtaking, 9) is None


def test_a_policy_can_keep_single_barriers_in_order() -> None:
    policy = BarrierPolicy(timeout_ms=0, may_overtake=lambda barrier: barrier.checkpoint != 1)
    assert policy.overtakes_at_ms(BARRIER, 10) is None
    assert policy.overtakes_at_ms(CheckpointBarrier(2, 0), 10) == AT_ONCE
