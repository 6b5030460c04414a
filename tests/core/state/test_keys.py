"""Key groups: who owns which. Hashes are shown with the router, which needs them."""

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.state.keys import groups_of, key_bytes, key_group, stable_hash


@pytest.mark.parametrize(("parallelism", "groups"), [(1, 1), (1, 128), (2, 128), (3, 7), (7, 128)])
def test_tasks_share_all_groups_between_them(parallelism: int, groups: int) -> None:
    owned = [group for task in range(parallelism) for group in groups_of(task, parallelism, groups)]
    assert owned == list(range(groups))


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5, 128])
def test_owner_of_a_group_is_the_task_that_the_router_sends_its_keys_to(parallelism: int) -> None:
    for key in range(500):
        group = key_group(key, 128)
        assert group in groups_of(group * parallelism // 128, parallelism, 128)


def test_moments_in_zones_have_the_group_and_the_bytes_of_what_they_equal() -> None:
    noon = datetime(2024, 7, 1, 12, tzinfo=timezone.utc)
    for zone in map(ZoneInfo, ("Europe/Berlin", "Asia/Tokyo", "UTC")):
        key = noon.astimezone(zone)
        assert key == noon
        assert (key_group(key, 128), key_bytes(key)) == (key_group(noon, 128), key_bytes(noon))
    twice = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert key_bytes(twice) == key_bytes(twice.replace(fold=1)), "equal, though an hour apart"


def test_zones_and_what_no_zone_can_move_are_keys_too() -> None:
    zones = [ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Tokyo")]
    for keys in (zones, [datetime(1, 1, 1, tzinfo=zone) for zone in zones]):
        assert len({*map(key_bytes, keys)}) == 2
        assert all(key_group(key, 128) in range(128) for key in keys)


@given(st.one_of(st.integers(), st.text(), st.binary(), st.floats(), st.tuples(st.integers())))
def test_the_group_of_a_key_is_its_stable_hash_modulo_their_number(key: object) -> None:
    assert key_group(key, 1000) == stable_hash(key) % 1000
