"""Late records go to their side output, or are counted, measured and written to the log."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS
from headgate.core.chain.left_out import (
    FIRST_PAUSE_MS,
    LATE_METRIC,
    LONGEST_PAUSE_MS,
    LateDrops,
    LateRecords,
    WarningPace,
)
from tests.core.chain.kit import KeptOutput, context


class LateBench:
    """What one operator drops, and what it logs about it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now_ms = 0.0
        self.context = replace(
            context("windows", 1, 2),
            warn=lambda text, error: self.lines.append(text),
            elapsed_ms=lambda: self.now_ms,
        )
        self.drops = LateDrops(self.context)


def test_late_records_are_sent_in_one_bundle_or_counted() -> None:
    output, bench = KeptOutput(), LateBench()
    for tag in ("late", None):
        late = LateRecords(tag, output, bench.drops)
        late.take("a", 1, 10)
        late.take("b", 2, 20)
        late.flush(29)
        late.flush(29)
    assert [(tag, bundle.records, bundle.timestamps) for tag, bundle in output.side] == [
        ("late", ["a", "b"], [1, 2])
    ]
    assert (bench.drops.count, bench.drops.most_ms) == (2, 20)


def test_how_late_is_what_the_watermark_was_too_high_and_the_most_of_it_is_kept() -> None:
    bench = LateBench()
    late = LateRecords(None, KeptOutput(), bench.drops)
    for until_ms, watermark_ms in [(10, 10), (10, 109), (500, 500)]:
        late.take("a", 1, until_ms)
        late.flush(watermark_ms)
    assert (bench.drops.count, bench.drops.most_ms, bench.drops.last_ms) == (3, 100, 1)


def test_after_the_end_of_event_time_nobody_knows_how_late() -> None:
    bench = LateBench()
    late = LateRecords(None, KeptOutput(), bench.drops)
    late.take("a", 1, 10)
    late.flush(MAX_WATERMARK_MS)
    assert (bench.drops.count, bench.drops.most_ms) == (1, 0)
    assert "after the end of event time" in bench.lines[0]
    late.take("a", 1, 10)
    late.flush(15)
    assert (bench.drops.count, bench.drops.most_ms) == (2, 6)


def test_records_with_a_side_output_are_measured_and_not_counted() -> None:
    bench = LateBench()
    late = LateRecords("late", KeptOutput(), bench.drops)
    late.take("a", 1, 10)
    late.flush(14)
    assert (bench.drops.count, bench.drops.most_ms, bench.drops.last_ms) == (0, 0, 5)
    assert bench.lines == []


def test_the_first_drop_is_logged_at_once_and_later_ones_as_counts_ever_less_often() -> None:
    bench = LateBench()
    for count in (2, 3, 4):
        bench.drops.add(count, 1_500)
    assert [line.partition(";")[0] for line in bench.lines] == [
        "operator 'windows' (2/2): 2 records came too late and were dropped, 2 so far, up to "
        "1,500 ms too late"
    ]
    bench.now_ms = FIRST_PAUSE_MS
    bench.drops.add(1, 7_000)
    bench.drops.add(5, 10)
    bench.drops.close()
    bench.drops.close()
    assert [line.partition(": ")[2].partition(";")[0] for line in bench.lines[1:]] == [
        "8 records came too late and were dropped, 10 so far, up to 7,000 ms too late",
        "5 records came too late and were dropped, 15 so far, up to 7,000 ms too late",
    ]
    assert "side output" in bench.lines[0] and "watermark strategy" in bench.lines[0]


def test_one_late_record_is_no_plural() -> None:
    bench = LateBench()
    bench.drops.add(1, 1)
    assert "1 record came too late and was dropped" in bench.lines[0]


def test_the_metric_of_the_operator_is_flinks() -> None:
    bench = LateBench()
    bench.drops.add(3, 1)
    assert bench.context.metrics._gauges[LATE_METRIC]() == 3


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
