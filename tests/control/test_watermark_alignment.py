"""How far a group of sources is: the least of those that count, told to whom it concerns."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.messages import TimeAnnounced
from headgate.control.attempt import WatermarkAlignment


def announced(orders: list[tuple[int, TimeAnnounced]]) -> list[tuple[int, int | None]]:
    assert {(order.run, order.group) for _, order in orders} <= {("run", "group")}
    return [(slot, order.watermark_ms) for slot, order in orders]


def begun() -> WatermarkAlignment:
    alignment = WatermarkAlignment("run")
    assert alignment.all_started() == []
    return alignment


def test_nothing_is_announced_before_all_have_started() -> None:
    alignment = WatermarkAlignment("run")
    assert alignment.reported("group", "a", 0, 5) == alignment.reported("group", "a", 0, 8) == []
    assert alignment.reported("group", "b", 1, 3) == []
    assert announced(alignment.all_started()) == [(0, 3), (1, 3)]
    assert announced(alignment.reported("group", "b", 1, 4)) == [(0, 4), (1, 4)]


def test_who_is_new_is_told_also_if_its_slot_is_not() -> None:
    alignment = begun()
    alignment.reported("group", "a", 0, 5)
    assert announced(alignment.reported("group", "b", 0, 9)) == [(0, 5)]
    assert announced(alignment.reported("group", "b", 0, 9)) == []


def test_groups_do_not_wait_for_each_other() -> None:
    alignment = begun()
    alignment.reported("group", "a", 0, 5)
    [(slot, order)] = alignment.reported("another", "b", 1, 2)
    assert (slot, order) == (1, TimeAnnounced("run", "another", 2))
    assert announced(alignment.reported("group", "a", 0, 6)) == [(0, 6)]


reports = st.lists(
    st.tuples(st.integers(0, 4), st.none() | st.integers(0, 20) | st.just("end")), max_size=40
)


@given(reports)
def test_every_slot_knows_the_least_of_those_that_count(happened: list[tuple[int, object]]) -> None:
    alignment = begun()
    reached: dict[int, int | None] = {}
    known: dict[int, int | None] = {}
    for task, what in happened:
        is_new = task not in reached
        if what == "end":
            orders = alignment.ended(str(task))
            reached.pop(task, None)
        else:
            assert what is None or isinstance(what, int)
            orders = alignment.reported("group", str(task), task // 2, what)
            reached[task] = what
        news = dict(announced(orders))
        assert is_new or not news or any(known[slot] != at for slot, at in news.items())
        known.update(news)
        least = min(
            (reached_ms for reached_ms in reached.values() if reached_ms is not None), default=None
        )
        for task in reached:
            assert known[task // 2] == least
