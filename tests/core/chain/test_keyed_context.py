"""The room of an operator on a keyed stream: one cursor for state and timers, closed in the end."""

from dataclasses import replace
from functools import partial

import pytest

from headgate.api.types.types import Types
from headgate.base.errors import StateChanged
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.chain.timer_service import TimeDomain
from headgate.core.operators.keyed import ReduceOperator
from headgate.core.state.memory import MemoryBackend, MemoryBackends
from headgate.functions.state import ValueStateDescriptor
from tests.core.chain.kit import NOW_MS, HandClock
from tests.core.chain.restore_kit import Crew, Left, Send


def test_state_and_timers_stand_at_the_same_key() -> None:
    fired = []
    clock = HandClock()

    def fire(time_ms: int, domain: TimeDomain) -> None:
        fired.append((time_ms, state.value()))

    room = KeyedContext(clock.context(), fire, lambda: fired.append((0, "round")))
    state = room.opener.open(ValueStateDescriptor("last"))
    for key in ("a", "b"):
        room.cursor.key = key
        state.update(key * 2)  # type: ignore[attr-defined]
        room.timers.register_event_time_timer(5)
    room.timers.register_processing_time_timer(NOW_MS + 1)
    room.timers.watermark_advanced(9)
    assert sorted(fired) == [(5, "aa"), (5, "bb")]
    clock.move_to(NOW_MS + 1)
    assert fired[2:] == [(NOW_MS + 1, "bb"), (0, "round")]
    room.close()
    room.close()


def test_a_closed_room_fires_no_timers() -> None:
    clock = HandClock()
    room = KeyedContext(clock.context())
    room.cursor.key = "a"
    room.timers.register_processing_time_timer(NOW_MS + 1)
    room.close()
    clock.move_to(NOW_MS + 1)


def test_an_operator_that_said_nothing_about_timers_has_none() -> None:
    room = KeyedContext(HandClock().context())
    room.cursor.key = "a"
    room.timers.register_event_time_timer(1)
    with pytest.raises(AssertionError, match="registers none"):
        room.timers.watermark_advanced(1)
    room.close()


def test_restored_timers_of_processing_time_are_awaited() -> None:
    class Restored(MemoryBackends):
        def keyed(self, operator: str, groups: range, max_parallelism: int) -> MemoryBackend:
            backend = super().keyed(operator, groups, max_parallelism)
            backend.processing_timers.register(NOW_MS + 5, "k")
            return backend

    clock = HandClock()
    fired: list[int] = []
    within = replace(clock.context(), backends=Restored())
    room = KeyedContext(within, lambda time_ms, domain: fired.append(time_ms))
    clock.move_to(NOW_MS + 5)
    assert fired == [NOW_MS + 5]
    room.close()


def test_the_type_of_keys_may_become_wider_and_nothing_else() -> None:
    def crew(key_type: object, lefts: list[Left] | None = None) -> Crew:
        operator = partial(ReduceOperator, max, identity, False)
        return Crew(operator, (identity,), lefts=lefts, types=(key_type, None))

    old = crew(Types.INT())
    old.tell(Send([(1, None)]))
    left = old.left()
    old.close()
    for same in (Types.INT(), Types.LONG(), None):
        crew(same, left).close()
    for other in (Types.STRING(), Types.DOUBLE()):
        with pytest.raises(StateChanged, match=r"'keys' of operator 'op' was key of Types.INT\(\)"):
            crew(other, left)
    undeclared = crew(None)
    left = undeclared.left()
    undeclared.close()
    crew(Types.STRING(), left).close()


@pytest.mark.parametrize(("has", "fits"), [(Types.LONG(), True), (Types.STRING(), False)])
def test_what_is_reduced_keeps_its_type(has: object, fits: bool) -> None:
    def crew(record_type: object, lefts: list[Left] | None = None) -> Crew:
        operator = partial(ReduceOperator, max, identity, False)
        return Crew(operator, (identity,), lefts=lefts, types=(None, record_type))

    old = crew(Types.INT())
    old.tell(Send([(1, None)]))
    left = old.left()
    old.close()
    if fits:
        crew(has, left).close()
    else:
        with pytest.raises(StateChanged, match="'reduced so far'"):
            crew(has, left)


def identity(record: object) -> object:
    return record
