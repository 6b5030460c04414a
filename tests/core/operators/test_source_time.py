"""Event time that the tasks of a source share: who tells what, and who follows whom."""

from dataclasses import replace

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, StreamStatus, Watermark
from headgate.base.messages import SourceTimeAnnounced
from headgate.core.operators.source_time import REPORT_MS, SharedTime, SplitWatermarks
from tests.core.chain.time_kit import ACTIVE, HandClock, Line

AWAITS = StreamStatus(active=False, together=True, awaits_splits=True)
IDLE = StreamStatus(active=False, together=True)


class Sharing:
    """A task, its clock, and what it has told."""

    def __init__(self, *, idle_ms: int | None = None) -> None:
        self.clock, self.line = HandClock(), Line()
        self.times = SplitWatermarks(self.line)
        self.reports: list[tuple[int, int, bool]] = []
        self.received = 0
        context = replace(
            self.clock.context(),
            elapsed_ms=lambda: float(self.clock.now_ms),
            tell_source_time=lambda *report: self.reports.append(report),
        )
        self.shared = SharedTime(self.times, context, lambda: self.received, idle_ms)

    def hear(self, watermark_ms: int, *, all_rest: bool = False, followed: bool = False) -> None:
        announced = SourceTimeAnnounced("run", "0.0", watermark_ms, all_rest, followed)
        self.shared.announced(announced)
        self.shared.follow()


def test_a_task_that_rests_emits_what_it_hears_and_falls_idle_with_all_others() -> None:
    task = Sharing()
    task.shared.report()
    assert task.reports == [(0, MIN_WATERMARK_MS, True)]
    task.hear(5)
    task.hear(8, all_rest=True)
    task.clock.pass_ms(1_000_000)
    assert task.line.seen == [Watermark(5), Watermark(8), AWAITS]


def test_a_strategy_declares_a_task_without_splits_idle_after_its_time_only() -> None:
    task = Sharing(idle_ms=60)
    task.hear(8, all_rest=True)
    task.clock.pass_ms(59)
    assert task.line.seen == [Watermark(8), AWAITS]
    task.clock.pass_ms(1)
    assert task.line.seen[2:] == [ACTIVE, IDLE]
    task.clock.pass_ms(200)
    assert len(task.line.seen) == 4, "it is said once"


def test_the_time_of_a_strategy_begins_anew_when_the_source_has_read_something() -> None:
    task = Sharing(idle_ms=60)
    task.hear(8, all_rest=True)
    task.clock.pass_ms(40)
    task.hear(9, all_rest=True)
    task.clock.pass_ms(59)
    assert task.line.seen[-1] == AWAITS
    task.clock.pass_ms(1)
    assert task.line.seen[-1] == IDLE


def test_a_task_that_has_split_or_end_is_not_declared_idle() -> None:
    for wake in (True, False):
        task = Sharing(idle_ms=60)
        task.hear(8, all_rest=True)
        if wake:
            task.times.add()
            task.shared.report()
        else:
            task.shared.close()
        task.clock.pass_ms(200)
        assert IDLE not in task.line.seen


def test_a_task_whose_splits_are_idle_is_not_said_to_await_some() -> None:
    task = Sharing()
    task.times.add().mark_idle()
    task.hear(8, all_rest=True)
    assert task.line.seen[1:] == [StreamStatus(active=False, together=True)]


def test_splits_that_are_idle_rest_without_a_word_to_those_downstream() -> None:
    task = Sharing()
    split = task.times.add()
    split.emit_watermark(4)
    split.mark_idle()
    task.shared.report()
    assert task.line.seen == [Watermark(4)]
    assert task.reports == [(0, 4, True)]
    split.collect(Bundle(["a"], [9]))
    task.shared.report()
    assert task.reports[1:] == [(0, 4, False)]


def test_a_task_that_reads_does_not_follow() -> None:
    task = Sharing()
    task.times.add()
    task.hear(5)
    task.hear(8, all_rest=True)
    assert task.line.seen == []


def test_a_split_that_has_not_brought_anything_wakes_its_task() -> None:
    task = Sharing()
    task.hear(8, all_rest=True)
    task.times.add()
    task.received = 1
    task.shared.report()
    assert task.line.seen[-1] == ACTIVE
    assert task.reports == [(1, 8, False)], "no further than what it has emitted"


def test_reports_of_a_task_that_moves_on_are_some_time_apart() -> None:
    task = Sharing()
    split = task.times.add()
    task.hear(MIN_WATERMARK_MS, followed=True)
    for reached_ms in range(1, 300):
        split.emit_watermark(reached_ms)
        task.shared.report()
        task.clock.pass_ms(1)
    assert [report[1] for report in task.reports] == [1, 100, 200]
    task.clock.pass_ms(int(REPORT_MS))
    assert task.reports[-1] == (0, 299, False), "the last one comes, too"
    split.emit_watermark(400)
    task.shared.close()
    task.shared.report()
    assert task.reports[-1] == (0, 299, False)
