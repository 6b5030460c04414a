"""The virtual clock."""

from headgate.sim.clock import Clock


def test_timers_fire_by_time_and_then_in_the_order_they_were_set() -> None:
    clock, fired = Clock(), []
    for delay_ms, name in ((5, "late"), (1, "first"), (1, "second"), (0, "now")):
        clock.later(delay_ms, name, lambda name=name: fired.append(name))
    while clock.jump():
        label, call = clock.pop_due()
        call()
        assert fired[-1] == label
    assert fired == ["now", "first", "second", "late"]
    assert clock.now_ms == 5


def test_time_moves_only_when_it_is_told_to() -> None:
    clock = Clock()
    clock.later(10, "timer", lambda: None)
    assert (clock.now_ms, clock.is_due) == (0, False)
    clock.advance(4)
    assert (clock.now_ms, clock.is_due) == (4, False)
    assert clock.jump()
    assert (clock.now_ms, clock.is_due) == (10, True)


def test_a_clock_that_is_late_does_not_go_back() -> None:
    clock = Clock()
    clock.later(1, "timer", lambda: None)
    clock.advance(50)
    assert clock.jump()
    assert clock.now_ms == 50


def test_without_timers_there_is_nowhere_to_jump() -> None:
    assert not Clock().jump()
