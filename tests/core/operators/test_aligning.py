"""A source task and its group: what it reports, and how far it may read."""

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from headgate.core.chain.watermarks import AlignmentGroup
from headgate.core.operators.aligning import Aligned
from tests.core.chain.time_kit import HandClock


class Task:
    """A source that is where the test says."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.least_ms: int | None = MIN_WATERMARK_MS
        self.aligned = Aligned(
            AlignmentGroup("group", drift_ms=10, interval_ms=100),
            self.clock.context(),
            lambda: self.least_ms,
        )

    def told(self) -> list[int | None]:
        told, self.clock.told = self.clock.told, []
        assert {group for group, _ in told} <= {"group"}
        return [watermark_ms for _, watermark_ms in told]


def test_it_reports_at_the_start_and_at_intervals() -> None:
    task = Task()
    assert task.told() == [MIN_WATERMARK_MS]
    task.least_ms = 7
    task.clock.pass_ms(100)
    task.least_ms = None
    task.clock.pass_ms(100)
    assert task.told() == [7, None]


def test_the_limit_is_the_drift_ahead_of_the_slowest() -> None:
    aligned = Task().aligned
    assert aligned.limit_ms == MIN_WATERMARK_MS, "nothing was announced"
    aligned.announced("group", 5)
    assert aligned.limit_ms == 15
    aligned.announced("another", 0)
    assert aligned.limit_ms == 15
    aligned.announced("group", MIN_WATERMARK_MS)
    assert aligned.limit_ms == MIN_WATERMARK_MS + 10, "somebody has not begun"
    aligned.announced("group", None)
    assert aligned.limit_ms == MAX_WATERMARK_MS
    aligned.announced("group", MAX_WATERMARK_MS - 1)
    assert aligned.limit_ms == MAX_WATERMARK_MS


def test_who_is_paused_at_the_start_tells_at_once_that_it_has_begun() -> None:
    task = Task()
    task.told()
    task.least_ms = 3
    task.aligned.paused()
    assert task.told() == [3]
    task.least_ms = 8
    task.aligned.paused()
    assert task.told() == [], "later the interval is good enough"


def test_after_its_end_it_reports_no_more() -> None:
    task = Task()
    task.told()
    task.aligned.close()
    task.clock.pass_ms(500)
    assert task.told() == []
    assert task.clock.waiting == 0
