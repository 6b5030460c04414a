"""What a task does by default: read its inputs in turn, or poll its source. Row 153-161, 167."""

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, LatencyMarker, StreamStatus, Watermark
from headgate.base.messages import TimeAnnounced
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.spec import OperatorSpec
from headgate.core.chain.watermarks import OWN_TIME, TimePlan
from headgate.core.egress.writer import RecordWriter
from headgate.core.operators.source import SourceOperator
from headgate.core.task.processors import (
    FIRST_RECORDS,
    FinishedProcessor,
    InputProcessor,
    InputStatus,
    SourceProcessor,
)
from headgate.functions.context import TaskInfo
from headgate.functions.watermarks import AlignmentGroup
from tests.core.chain.time_kit import bounded
from tests.core.operators.kit import ScriptedSource
from tests.core.task.kit import WALL_MS, Lab


class Head(Operator):
    """Keeps everything that reaches it, and asks for the inputs that the test has chosen."""

    inputs = 2

    def __init__(self, lab: Lab) -> None:
        self.got: list[Any] = []
        self.chosen: Collection[int] | None = None
        self._lab = lab

    def process(self, bundle: Bundle, number: int) -> None:
        assert self._lab.loan.lent, "user code runs outside"
        self.got += [(number, record) for record in bundle.records]

    def selection(self) -> Collection[int] | None:
        return self.chosen

    def watermark_advanced(self, watermark: Watermark) -> None:
        assert self._lab.loan.lent
        self.got.append(watermark)

    def status_changed(self, status: StreamStatus) -> None:
        self.got.append(status)

    def marker_received(self, marker: LatencyMarker) -> None:
        self.got.append(marker)

    def end_input(self, number: int) -> None:
        assert self._lab.loan.lent
        self.got.append(f"end of {number}")


class Bench:
    """A processor with one writer for each of its inputs."""

    def __init__(self, lab: Lab, inputs: int = 2) -> None:
        self.head = Head(lab)
        self.writers = [lab.writer(f"p{number}") for number in range(inputs)]
        self.inputs = [lab.open_input(f"p{number}", number=number) for number in range(inputs)]
        self.processor = InputProcessor(
            lab.chain(lambda: self.head), self.inputs, lab.loan, lab.clock
        )

    def drain(self) -> InputStatus:
        while (flow := self.processor.process()) is InputStatus.MORE:
            pass
        return flow

    def got(self) -> list[Any]:
        got, self.head.got = self.head.got, []
        return got


def test_elements_reach_the_head_and_the_end_is_told_before_the_end() -> None:
    marker = LatencyMarker(WALL_MS - 30, 2, 3)
    with Lab() as lab:
        bench = Bench(lab, inputs=1)
        writer: RecordWriter = bench.writers[0]
        assert bench.drain() is InputStatus.NOTHING
        assert not bench.processor.available()
        writer.emit_all([1, 2])
        writer.emit_element(Watermark(5))
        writer.emit_element(marker)
        writer.emit_element(StreamStatus(active=False))
        assert bench.processor.available()
        writer.finish()
        assert bench.drain() is InputStatus.ENDED
        assert bench.got() == [
            (0, 1),
            (0, 2),
            Watermark(5),
            marker,
            StreamStatus(active=False),
            "end of 0",
        ]
        latency = bench.processor.latencies.histogram()
        assert latency is not None and latency.sum_ms == 30
        bench.processor.close()


@given(st.lists(st.integers(0, 2), max_size=25))
def test_inputs_with_data_take_turns(sent: list[int]) -> None:
    with Lab(400) as lab:
        bench = Bench(lab, inputs=3)
        for index, number in enumerate(sent):
            bench.writers[number].emit_all([index])
            bench.writers[number]._finish_buffers()  # bundles in one buffer are read together
        bench.drain()
        order = [number for number, _ in bench.got()]
        for start in range(len(order)):  # nobody is served twice while another one waits
            waiting = set(order[start:])
            assert set(order[start : start + len(waiting)]) == waiting
        bench.processor.close()


def test_an_operator_selects_what_it_reads() -> None:
    with Lab() as lab:
        bench = Bench(lab)
        bench.head.chosen = [1]
        bench.writers[0].emit_all(["a"])
        bench.writers[1].emit_all(["b"])
        bench.drain()
        assert bench.got() == [(1, "b")]
        assert not bench.processor.available(), "what it does not want does not wake it"
        bench.head.chosen = [0]
        assert bench.processor.available()
        bench.drain()
        assert bench.got() == [(0, "a")]
        bench.processor.close()


def test_who_selects_what_has_ended_gets_the_rest() -> None:
    with Lab() as lab:
        bench = Bench(lab)
        bench.head.chosen = [1]
        bench.writers[1].finish()
        bench.writers[0].emit_all(["a"])
        bench.drain()
        assert bench.got() == ["end of 1", (0, "a")]
        bench.writers[0].finish()
        assert bench.drain() is InputStatus.ENDED
        assert bench.got() == ["end of 0"]
        bench.processor.close()


def test_event_time_is_that_of_the_slower_input() -> None:
    with Lab() as lab:
        bench = Bench(lab)
        bench.writers[0].emit_element(Watermark(10))
        bench.writers[1].emit_element(Watermark(4))
        bench.drain()
        assert bench.got() == [Watermark(4)]
        bench.processor.close()


def test_a_slow_function_is_given_few_records_at_a_time() -> None:
    with Lab(400) as lab:
        bench = Bench(lab, inputs=1)
        sizes: list[int] = []

        def slow(bundle: Bundle, number: int) -> None:
            sizes.append(len(bundle.records))
            lab.timers.now_ms += 100.0 * len(bundle.records)

        bench.head.process = slow  # type: ignore[method-assign]
        bench.writers[0].emit_all(list(range(FIRST_RECORDS + 3)))
        bench.drain()
        assert sizes == [FIRST_RECORDS, 1, 1, 1]
        bench.processor.close()


# Sources.


def source_of(
    lab: Lab, *splits: Any, marker: Any = None, plan: TimePlan = OWN_TIME
) -> tuple[SourceProcessor, Chain, list[Any]]:
    got: list[Any] = []

    class Last(Operator):
        def process(self, bundle: Bundle, number: int) -> None:
            got.extend(bundle.records)

        def marker_received(self, marker: LatencyMarker) -> None:
            got.append(marker)

    chain = lab.chain(lambda: SourceOperator(ScriptedSource(), splits, plan), Last)
    lab.loan.lend()
    chain.open(lambda spec: _context(lab, spec))
    lab.loan.regain()
    return SourceProcessor(chain, lab.loan, lab.clock, lab.idling(), marker), chain, got


def _context(lab: Lab, spec: OperatorSpec) -> OperatorContext:
    return OperatorContext(spec.name, TaskInfo("job", "v", 0, 1), lab.clock.wall_ms)


def test_a_source_is_polled_until_it_ends() -> None:
    with Lab() as lab:
        processor, chain, got = source_of(lab, ([1, 2], [3]))
        assert processor.available()
        assert [processor.process() for _ in range(3)] == [
            InputStatus.MORE,
            InputStatus.MORE,
            InputStatus.ENDED,
        ]
        assert got == [1, 2, 3]
        chain.close()


def test_a_source_without_data_is_asked_again_when_it_said() -> None:
    with Lab() as lab:
        processor, chain, got = source_of(lab, ([], [1]))
        assert processor.process() is InputStatus.NOTHING
        assert not processor.available()
        lab.timers.pass_ms(6.9)
        assert not processor.available()
        assert lab.woken == 0
        lab.timers.pass_ms(0.1)
        assert processor.available()
        assert lab.woken == 1
        assert processor.process() is InputStatus.MORE
        assert got == [1]
        chain.close()


def test_a_source_that_is_ahead_of_its_group_is_asked_again_when_that_has_moved() -> None:
    plan = bounded(alignment=AlignmentGroup("group", drift_ms=10))
    with Lab() as lab:
        processor, chain, got = source_of(lab, ([(5,)], [(9,)]), plan=plan)
        assert processor.process() is InputStatus.MORE
        assert processor.process() is InputStatus.NOTHING
        assert not processor.available()
        assert lab.timers.pauses == [], "it waits without a clock"
        processor.obey(TimeAnnounced("run", "group", 4))
        assert processor.available()
        assert [processor.process() for _ in range(2)] == [InputStatus.MORE, InputStatus.ENDED]
        assert got == [(5,), (9,)]
        chain.close()


def test_after_its_end_a_source_wakes_nobody() -> None:
    with Lab() as lab:
        processor, chain, _ = source_of(lab, ([],))
        assert processor.process() is InputStatus.NOTHING
        processor.close()
        lab.timers.pass_ms(100)
        assert lab.woken == 0
        chain.close()


def test_latency_markers_are_sent_now_and_then() -> None:
    with Lab() as lab:
        answers = tuple([n] for n in range(6))
        processor, chain, got = source_of(lab, answers, marker=(20.0, 7, 1))
        for _ in range(6):
            lab.timers.now_ms += 10
            processor.process()
        markers = [element for element in got if isinstance(element, LatencyMarker)]
        assert markers == [LatencyMarker(WALL_MS + at, 7, 1) for at in (20, 40, 60)]
        assert [element for element in got if isinstance(element, int)] == [0, 1, 2, 3, 4, 5]
        chain.close()


def test_a_failing_source_ends_the_step_outside() -> None:
    with Lab() as lab:
        processor, chain, _ = source_of(lab, ("not a list of records", 3))
        processor.process()
        with pytest.raises(Exception, match="op0"):
            processor.process()
        lab.loan.regain()
        chain.close()


# Finished before.


def test_a_channel_is_at_its_end_before_the_head_learns_of_it() -> None:
    with Lab() as lab:
        bench = Bench(lab, inputs=1)
        bench.writers[0].finish()
        assert bench.processor.process() is InputStatus.MORE
        assert bench.got() == [], "a savepoint may have held the task at this moment"
        assert bench.processor.available()
        assert bench.drain() is InputStatus.ENDED
        assert bench.got() == ["end of 0"]
        bench.processor.close()


def test_who_had_finished_reads_to_the_ends_and_drops_all() -> None:
    with Lab() as lab:
        bench = Bench(lab)
        finished = FinishedProcessor(bench.processor)
        assert finished.process() is InputStatus.NOTHING
        assert not finished.available()
        bench.writers[0].emit_element(Watermark(5))
        bench.writers[0].finish()
        assert finished.available()
        for _ in "time", "end of the channel", "end of the input":
            assert finished.process() is InputStatus.MORE
        assert finished.process() is InputStatus.NOTHING
        bench.writers[1].finish()
        assert finished.process() is InputStatus.MORE
        assert finished.process() is InputStatus.ENDED
        assert bench.got() == []
        finished.close()


def test_a_source_that_had_finished_has_nothing_to_read() -> None:
    with Lab() as lab:
        chain = lab.chain(lambda: SourceOperator(ScriptedSource(), ([[1]],)))
        finished = FinishedProcessor(SourceProcessor(chain, lab.loan, lab.clock, lab.idling()))
        assert finished.available(), "its end is still to come"
        assert finished.process() is InputStatus.ENDED
        finished.close()
