"""How much memory and how many buffers everybody gets. Rows 58-60."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.settings import GIB, KIB, MIB, ExchangeSettings, FlowControl
from headgate.core.buffers.sizing import (
    BufferNeed,
    GateShape,
    PoolBounds,
    buffer_need,
    gate_bounds,
    network_memory_bytes,
    partition_bounds,
    segment_count,
)

DEFAULT = ExchangeSettings()
TCP = ExchangeSettings(flow_control=FlowControl.TCP)


@pytest.mark.parametrize(
    ("heap_bytes", "memory"),
    [
        (0, 64 * MIB),
        (576 * MIB, 64 * MIB),  # 576 / 0.9 * 0.1 is exactly the minimum
        (900 * MIB, 100 * MIB),
        (9 * GIB, GIB),
        (100 * GIB, GIB),
    ],
)
def test_network_memory_is_the_fraction_within_its_bounds(heap_bytes: int, memory: int) -> None:
    assert abs(network_memory_bytes(DEFAULT, heap_bytes) - memory) <= 1


def test_raising_the_fraction_alone_has_no_effect_beyond_the_maximum() -> None:
    raised = ExchangeSettings(memory_fraction=0.5)
    assert network_memory_bytes(raised, 100 * GIB) == network_memory_bytes(DEFAULT, 100 * GIB)
    with_max = ExchangeSettings(memory_fraction=0.5, memory_max_bytes=200 * GIB)
    assert network_memory_bytes(with_max, 100 * GIB) == 100 * GIB


def test_there_are_at_most_32768_segments_by_default() -> None:
    assert segment_count(DEFAULT, 100 * GIB) == 32_768
    assert segment_count(ExchangeSettings(segment_bytes=48 * KIB), 0) == 64 * MIB // (48 * KIB)


@given(st.integers(0, 2**44), st.floats(0, 0.99))
def test_network_memory_stays_within_minimum_and_maximum(heap: int, fraction: float) -> None:
    memory = network_memory_bytes(ExchangeSettings(memory_fraction=fraction), heap)
    assert 64 * MIB <= memory <= GIB


@pytest.mark.parametrize(
    ("subpartitions", "bounds"),
    [(1, PoolBounds(2, 10)), (4, PoolBounds(5, 16)), (100, PoolBounds(101, 208))],
)
def test_a_bounded_partition_has_two_buffers_a_channel_and_eight_more(
    subpartitions: int, bounds: PoolBounds
) -> None:
    assert partition_bounds(DEFAULT, subpartitions, bounded=True) == bounds


def test_a_partition_without_bound_may_take_everything() -> None:
    assert partition_bounds(DEFAULT, 4, bounded=False) == PoolBounds(5, None)


def test_the_maximum_is_never_below_the_minimum() -> None:
    meagre = ExchangeSettings(buffers_per_channel=0, floating_per_gate=1)
    assert partition_bounds(meagre, 4, bounded=True) == PoolBounds(5, 5)
    assert gate_bounds(meagre, 4, bounded=True) == PoolBounds(1, 1)


def test_with_credits_a_gates_pool_holds_the_floating_buffers() -> None:
    assert gate_bounds(DEFAULT, 4, bounded=True) == PoolBounds(0, 8)
    assert gate_bounds(DEFAULT, 4, bounded=False) == PoolBounds(0, None)


def test_channels_without_exclusive_buffers_are_sure_of_one_floating_buffer() -> None:
    floating = ExchangeSettings(buffers_per_channel=0)
    assert gate_bounds(floating, 4, bounded=True) == PoolBounds(1, 8)
    assert gate_bounds(floating, 4, bounded=False) == PoolBounds(1, None)


def test_without_credits_a_gates_pool_holds_all_of_its_buffers() -> None:
    assert gate_bounds(TCP, 4, bounded=True) == PoolBounds(4, 4 * 2 + 8)
    assert gate_bounds(TCP, 4, bounded=False) == PoolBounds(4, None)


def test_the_need_of_a_task_manager_names_each_holder() -> None:
    gates = [GateShape(channels=4, remote=3), GateShape(channels=2, remote=2)]
    need = buffer_need(DEFAULT, partitions=[4, 1], gates=gates, connections=2)
    spare = (16 - 5) + (10 - 2) + 8 + 8
    assert need == BufferNeed(7, gates=0, exclusive=5 * 2, landing=2 * 24, spare=spare)
    assert need.total == 65


def test_without_credits_nothing_is_exclusive() -> None:
    gates = [GateShape(channels=4, remote=3), GateShape(channels=2, remote=2)]
    need = buffer_need(TCP, partitions=[4], gates=gates, connections=1)
    assert need == BufferNeed(partitions=5, gates=6, exclusive=0, landing=24, spare=11 + 12 + 10)
