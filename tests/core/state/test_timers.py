"""Timers: each fires once, in the order of time, whatever is registered and deleted meanwhile."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.state.timers import TimerQueue, timers_of


def fired(queue: TimerQueue, now_ms: int) -> list[tuple[int, Any, Any]]:
    return list(queue.due(now_ms))


def test_timers_fire_in_the_order_of_time_then_of_registration() -> None:
    queue = TimerQueue()
    for time, key in [(5, "b"), (3, "z"), (5, "a"), (3, "y"), (9, "c")]:
        queue.register(time, key)
    assert queue.next_ms == 3 and len(queue) == 5
    assert fired(queue, 5) == [(3, "z", None), (3, "y", None), (5, "b", None), (5, "a", None)]
    assert queue.next_ms == 9 and len(queue) == 1
    assert fired(queue, 8) == []


def test_the_same_timer_twice_fires_once_and_can_be_set_again() -> None:
    queue = TimerQueue()
    queue.register(1, "a")
    queue.register(1, "a")
    queue.register(1, "a", "window")
    assert len(queue) == 2
    assert fired(queue, 1) == [(1, "a", None), (1, "a", "window")]
    queue.register(1, "a")
    assert fired(queue, 1) == [(1, "a", None)]


def test_a_deleted_timer_does_not_fire() -> None:
    queue = TimerQueue()
    queue.register(1, "a")
    queue.register(2, "a")
    queue.delete(1, "a")
    queue.delete(1, "a")
    queue.delete(7, "never")
    queue.delete(2, "a", "other namespace")
    assert queue.next_ms == 2
    assert fired(queue, 9) == [(2, "a", None)]
    assert queue.next_ms is None and len(queue) == 0


def test_timers_that_are_set_while_others_fire_take_their_turn() -> None:
    queue = TimerQueue()
    for key in ("a", "b", "c"):
        queue.register(5, key)
    seen = []
    for time, key, _ in queue.due(6):
        seen.append((time, key))
        if key == "a":
            queue.register(5, "same time")
            queue.register(4, "earlier")
            queue.register(6, "later")
            queue.register(7, "not due")
            queue.delete(5, "c")
    assert seen == [(5, "a"), (4, "earlier"), (5, "b"), (5, "same time"), (6, "later")]
    assert queue.next_ms == 7


def test_a_timer_may_delete_all_that_are_due_with_it() -> None:
    queue = TimerQueue()
    for key in range(200):
        queue.register(1, key)
        queue.register(key + 2, key)
    seen = []
    for _, key, _ in queue.due(1000):
        seen.append(key)
        for other in range(1, 200):
            queue.delete(1, other)
            queue.delete(other + 2, other)
    assert seen == [0, 0]
    assert queue.next_ms is None


def test_a_timer_may_set_itself_anew_without_end() -> None:
    queue = TimerQueue()
    queue.register(0, "a")
    times = []
    for time, key, _ in queue.due(50):
        times.append(time)
        queue.register(time + 10, key)
    assert times == [0, 10, 20, 30, 40, 50] and queue.next_ms == 60


def test_a_timer_that_sets_itself_again_for_its_own_time_fires_once_more() -> None:
    queue = TimerQueue()
    queue.register(5, "a")
    fires = 0
    for _ in queue.due(5):
        fires += 1
        if fires == 1:
            queue.register(5, "a")
    assert fires == 2 and len(queue) == 0


def test_many_timers_of_one_time_are_taken_one_by_one() -> None:
    queue = TimerQueue()
    for key in range(30_000):
        queue.register(1, key)
    assert [key for _, key, _ in queue.due(1)] == [*range(30_000)]


def test_times_without_timers_do_not_pile_up() -> None:
    queue = TimerQueue()
    for time in range(10_000):
        queue.register(time, "session")
        queue.delete(time - 1, "session")
    assert len(queue) == 1
    assert len(queue._times) + len(queue._new) < 200
    assert fired(queue, 10_000) == [(9_999, "session", None)]


def test_forgetting_a_key_leaves_the_timers_of_others() -> None:
    queue = TimerQueue()
    for key in ("a", "b"):
        for time in (1, 2):
            queue.register(time, key)
            queue.register(time, key, "w")
    queue.forget_key("a")
    assert set(queue.items()) == {(time, "b", space) for time in (1, 2) for space in (None, "w")}
    queue.clear()
    assert queue.next_ms is None and len(queue) == 0


def test_a_snapshot_of_the_queue_keeps_its_timers() -> None:
    queue = TimerQueue()
    queue.register(1, "a")
    queue.register(1, "b")
    frozen = queue.freeze(1)
    queue.register(1, "c")
    queue.register(2, "d")
    queue.delete(1, "a")
    assert fired(queue, 1) == [(1, "b", None), (1, "c", None)]
    assert frozen == {1: {("a", None): None, ("b", None): None}}
    assert [*timers_of(frozen[1])] == [("a", None), ("b", None)]
    queue.thaw(1)
    assert fired(queue, 2) == [(2, "d", None)]


class Narrow:
    """Equal to others of its name; cannot be compared with anything else."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: Any) -> bool:
        return bool(self.name == other.name)

    def __hash__(self) -> int:
        return hash(self.name)


def test_keys_are_compared_as_a_dictionary_does() -> None:
    queue = TimerQueue()
    queue.register(1, Narrow("a"))
    queue.delete(1, None)
    queue.delete(1, "b")
    queue.delete(1, Narrow("b"))
    assert len(queue) == 1
    queue.register(1, Narrow("a"))
    assert len(queue) == 1
    queue.delete(1, Narrow("a"), "window")
    assert queue.has(1, Narrow("a"), None) and not queue.has(1, None, None)
    queue.delete(1, Narrow("a"))
    assert len(queue) == 0


def test_times_are_put_in_order_when_they_may_be_due() -> None:
    queue = TimerQueue()
    for time in range(1000, 0, -1):
        queue.register(time, "session")
        queue.delete(time + 1, "session")
    assert not queue._times
    queue.register(500, "other")
    assert queue.next_ms == 1 and len(queue._times) < 200
    assert fired(queue, 1000) == [(1, "session", None), (500, "other", None)]


times = st.integers(-3, 3)
names = st.sampled_from(["a", "b", None])
acts = st.lists(st.tuples(st.sampled_from(["register", "delete", "due"]), times, names, names))


@given(acts)
def test_a_queue_is_a_set_that_is_taken_in_order(acts: list[Any]) -> None:
    queue, model = TimerQueue(), set()
    for act, time, key, space in acts:
        if act == "register":
            queue.register(time, key, space)
            model.add((time, key, space))
        elif act == "delete":
            queue.delete(time, key, space)
            model.discard((time, key, space))
        else:
            taken = fired(queue, time)
            assert [timer[0] for timer in taken] == sorted(timer[0] for timer in taken)
            due = {timer for timer in model if timer[0] <= time}
            assert set(taken) == due and len(taken) == len(due)
            model -= due
        assert set(queue.items()) == model and len(queue) == len(model)
        assert queue.next_ms == min((timer[0] for timer in model), default=None)
