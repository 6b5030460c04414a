"""Key groups: who owns which. Hashes are shown with the router, which needs them."""

import pytest

from headgate.core.state.keys import groups_of, key_group


@pytest.mark.parametrize(("parallelism", "groups"), [(1, 1), (1, 128), (2, 128), (3, 7), (7, 128)])
def test_tasks_share_all_groups_between_them(parallelism: int, groups: int) -> None:
    owned = [group for task in range(parallelism) for group in groups_of(task, parallelism, groups)]
    assert owned == list(range(groups))


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5, 128])
def test_owner_of_a_group_is_the_task_that_the_router_sends_its_keys_to(parallelism: int) -> None:
    for key in range(500):
        group = key_group(key, 128)
        assert group in groups_of(group * parallelism // 128, parallelism, 128)
