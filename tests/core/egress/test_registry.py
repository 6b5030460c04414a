"""The registry: partitions by id, views for consumers. Rows 64, 65."""

from collections.abc import Callable

import pytest

from headgate.base.errors import (
    PartitionNotFound,
    PartitionTaken,
    TaskCancelled,
)
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.egress.registry import PartitionRegistry
from tests.core.egress.kit import ORDERS, make_partition

MakePool = Callable[..., GlobalPool]


def ignore() -> None: ...


def test_a_registered_partition_gives_views_of_its_subpartitions(make_pool: MakePool) -> None:
    registry, partition = PartitionRegistry(), make_partition(make_pool(4), 2)
    registry.register(partition)
    assert ORDERS in registry and len(registry) == 1
    calls: list[str] = []
    registry.create_view(ORDERS, 1, lambda: calls.append("told"))
    partition.subpartitions[0].finish()
    assert calls == []
    partition.subpartitions[1].finish()
    assert calls == ["told"]


def test_an_unknown_id_is_not_found(make_pool: MakePool) -> None:
    registry = PartitionRegistry()
    with pytest.raises(PartitionNotFound) as caught:
        registry.create_view(ORDERS, 0, ignore)
    assert caught.value.partition == ORDERS


def test_a_second_registration_of_an_id_is_refused(make_pool: MakePool) -> None:
    registry, shelf = PartitionRegistry(), make_pool(6)
    first = make_partition(shelf)
    registry.register(first)
    with pytest.raises(PartitionTaken, match="already registered"):
        registry.register(make_partition(shelf))
    registry.create_view(ORDERS, 0, ignore)  # the first one is still there


def test_a_released_partition_leaves_and_its_id_is_free(make_pool: MakePool) -> None:
    registry, shelf = PartitionRegistry(), make_pool(6)
    first, second = make_partition(shelf), make_partition(shelf)
    registry.register(first)
    first.release()
    assert ORDERS not in registry
    registry.register(second)
    first.release()
    assert ORDERS in registry


def test_a_consumed_partition_leaves(make_pool: MakePool) -> None:
    registry, partition = PartitionRegistry(), make_partition(make_pool(6), 2)
    registry.register(partition)
    views = [registry.create_view(ORDERS, index, ignore) for index in range(2)]
    partition.finish()
    views[0].release()
    assert ORDERS in registry
    views[1].release()
    assert len(registry) == 0


def test_closing_releases_all_and_refuses_more(make_pool: MakePool) -> None:
    registry, shelf = PartitionRegistry(), make_pool(6)
    partition = make_partition(shelf)
    registry.register(partition)
    registry.close()
    assert partition.released and len(registry) == 0
    late = make_partition(shelf)
    with pytest.raises(TaskCancelled, match="shuts down"):
        registry.register(late)
    with pytest.raises(PartitionNotFound):
        registry.create_view(ORDERS, 0, ignore)
