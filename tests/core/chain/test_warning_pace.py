"""Lines about what happens over and over come at growing intervals, and lose no count."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.chain.left_out import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, WarningPace


def test_the_first_line_comes_at_once_and_the_pauses_double_up_to_an_hour() -> None:
    pace, now_ms, lines = WarningPace(), 0.0, []
    assert not pace.has_begun
    while now_ms <= 5 * LONGEST_PAUSE_MS:
        if pace.count(1, now_ms):
            lines.append(now_ms)
        now_ms += 1_000
    assert pace.has_begun
    pauses = [after - before for before, after in pairwise(lines)]
    assert lines[0] == 0
    assert pauses[:7] == [FIRST_PAUSE_MS * 2**number for number in range(6)] + [LONGEST_PAUSE_MS]
    assert set(pauses[6:]) == {LONGEST_PAUSE_MS}


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1e5))))
def test_nothing_that_was_counted_is_lost(events: list[tuple[int, float]]) -> None:
    pace, now_ms, written = WarningPace(), 0.0, 0
    for number, pause_ms in events:
        now_ms += pause_ms
        written += pace.count(number, now_ms)
    assert written + pace.rest() == sum(number for number, _ in events)
    assert pace.rest() == 0
