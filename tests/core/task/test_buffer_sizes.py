"""A task looks at its inputs from time to time, and its producers learn what it wants."""

from dataclasses import replace

from headgate.base.elements import Bundle, PickleSerializer, Record, encode_element
from headgate.base.settings import ExchangeSettings
from headgate.core.chain.operator import Operator
from headgate.core.exchange.view import NO_LIMIT
from headgate.core.operators.source import SourceOperator
from headgate.core.task.debloating import BufferSizes, sizes_for
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.processors import InputProcessor, SourceProcessor
from headgate.core.task.task import StepResult, Task, TaskParts, TaskServices
from headgate.functions.context import TaskInfo
from tests.core.operators.kit import ScriptedSource
from tests.core.pair import SMALL
from tests.core.task.kit import Lab

SETTINGS: ExchangeSettings = replace(
    SMALL,
    segment_bytes=128,
    floating_per_gate=60,
    min_buffer_bytes=16,
    debloat_target_ms=10,
    debloat_period_ms=10,
    debloat_samples=5,
)
RECORD = bytes(90)
"""Two of them do not fit into a buffer."""
LONG: ExchangeSettings = replace(SETTINGS, segment_bytes=1024)
SEGMENTS = 200


class Desk:
    """An input that is read at the test's pace; its task is never idle."""

    def __init__(self, lab: Lab, on_core: float = 1.0) -> None:
        self.lab = lab
        self.writer = lab.writer("p")
        self.input: NetworkInput = lab.open_input("p")
        self.sizes = BufferSizes([self.input], SETTINGS, lab.timers.later)
        self.sizes.start(lambda: lab.timers.now_ms, lambda: (1 - on_core) * lab.timers.now_ms)

    def pass_periods(self, count: int, records: int) -> None:
        """In each of them so many records are made and consumed, one by one."""
        for _ in range(count):
            for _ in range(records):
                self.writer.emit_all([RECORD])
                assert isinstance(self.input.take(1), Bundle)
            self.lab.timers.pass_ms(10)

    def close(self) -> None:
        self.sizes.close()
        self.writer.finish()
        self.input.close()


def test_a_slow_input_gets_short_buffers_and_a_fast_one_long_ones() -> None:
    with Lab(SEGMENTS, SETTINGS) as lab:
        desk = Desk(lab)
        for _ in range(4):
            desk.writer.emit_all([RECORD])  # they wait all the time
        desk.pass_periods(20, records=1)
        size = desk.sizes.buffer_size
        assert desk.writer.sizes == [size]
        assert size < 60, "a record in the target time, and four wait"
        assert 30 <= desk.sizes.in_flight_ms <= 60
        desk.pass_periods(20, records=50)
        assert desk.writer.sizes == [NO_LIMIT]
        assert desk.sizes.buffer_size == SETTINGS.segment_bytes
        desk.close()


def test_an_input_that_is_slow_for_want_of_a_core_keeps_long_buffers() -> None:
    with Lab(SEGMENTS, SETTINGS) as lab:
        desk = Desk(lab, on_core=0.05)
        for _ in range(4):
            desk.writer.emit_all([RECORD])  # they wait all the time
        desk.pass_periods(20, records=1)
        assert desk.sizes.buffer_size == SETTINGS.segment_bytes
        desk.close()


def test_nobody_looks_after_the_end() -> None:
    with Lab(SEGMENTS, SETTINGS) as lab:
        desk = Desk(lab)
        lab.timers.pass_ms(10)
        pauses = len(lab.timers.pauses)
        lab.timers.pass_ms(10)
        assert lab.timers.pauses[pauses:] == [10]
        desk.close()
        lab.timers.pass_ms(10)
        lab.timers.pass_ms(10)
        assert len(lab.timers.pauses) == pauses + 1


def test_an_input_that_has_ended_is_not_asked_about_any_more() -> None:
    with Lab(SEGMENTS, SETTINGS) as lab:
        desk = Desk(lab)
        desk.writer.finish()
        while not desk.input.ended:
            desk.input.take(1)
        desk.input.gate.close()
        lab.timers.pass_ms(10)
        assert (desk.sizes.buffer_size, desk.sizes.in_flight_ms) == (SETTINGS.segment_bytes, 0.0)
        desk.sizes.close()
        desk.input.close()


def test_what_is_consumed_is_counted_as_the_chain_gets_it() -> None:
    """Half of a long bundle is half of its bytes; what is left of a buffer was not read."""
    with Lab(SEGMENTS, LONG) as lab:
        writer, source = lab.writer("p"), lab.open_input("p")
        assert source.consumed() == (0.0, 0)
        writer.emit_all([RECORD] * 8)
        whole = bytes_of([RECORD] * 8)
        source.take(4)
        consumed, buffers = source.consumed()
        assert (consumed, buffers) == (whole / 2, 1)
        source.take(4)
        assert source.consumed() == (whole, 1)
        writer.timeout_ms = -1
        for _ in range(2):
            writer.emit_all([RECORD] * 4)
            writer.seal()
        writer.flush_all()
        source.take(4)
        half, buffers = source.consumed()
        assert buffers == 2
        source.take(4)
        assert source.consumed() == (whole + 2 * (half - whole), 2)
        writer.finish()
        source.close()


def bytes_of(records: list[Record]) -> int:
    """What a bundle of them is, with its length."""
    prefix, body = encode_element(Bundle(records, None), PickleSerializer())
    return len(prefix) + len(body)


def test_records_by_reference_count_by_their_weight() -> None:
    with Lab(SEGMENTS, LONG) as lab:
        writer, source = lab.writer("p"), lab.open_input("p")
        writer.hands_over = True
        writer.emit_all([RECORD] * 8)
        source.take(2)
        consumed, buffers = source.consumed()
        assert buffers == 1
        assert 90 * 2 <= consumed <= 120 * 2
        source.take(8)
        assert source.consumed()[0] == 4 * consumed
        writer.finish()
        source.close()


class Slow(Operator):
    """Takes ten milliseconds for a record."""

    def __init__(self, lab: Lab) -> None:
        self.got: list[Record] = []
        self._lab = lab

    def process(self, bundle: Bundle, number: int) -> None:
        for record in bundle.records:
            self._lab.timers.pass_ms(10)
            self.got.append(record)


def test_a_task_looks_while_it_runs_and_idle_time_does_not_count() -> None:
    with Lab(SEGMENTS, SETTINGS) as lab:
        writer, gate = lab.writer("p"), lab.gate("p")
        source = lab.input(0, gate)
        slow = Slow(lab)
        chain = lab.chain(lambda: slow)
        processor = InputProcessor(chain, [source], lab.loan, lab.clock)
        sizes = sizes_for(processor, SETTINGS, lab.timers.later)
        assert sizes is not None
        parts = TaskParts(chain, processor, [gate], [], sizes)
        services = TaskServices(lab.loan, lab.clock, lab.wake)
        task = Task("0.0", TaskInfo("job", "vertex", 0, 1), parts, services, lab)
        assert task.figures().buffer_size == SETTINGS.segment_bytes
        for _ in range(4):
            writer.emit_all([RECORD])
        for _ in range(30):
            writer.emit_all([RECORD])
            assert task.step() is StepResult.MORE
        shrunk = task.figures().buffer_size
        assert writer.sizes == [shrunk]
        assert shrunk < 60
        while task.step() is not StepResult.IDLE:
            pass
        for _ in range(100):
            lab.timers.pass_ms(10)
        seen = task.figures()
        assert (seen.buffer_size, seen.in_flight_ms) == (shrunk, 0.0)
        writer.finish()
        while task.step() is not StepResult.DONE:
            pass
        task.close(None)
        pauses = len(lab.timers.pauses)
        lab.timers.pass_ms(20)
        assert len(lab.timers.pauses) == pauses


def test_sources_and_tasks_that_shall_not_have_no_say() -> None:
    with Lab(SEGMENTS, SETTINGS) as lab:
        writer, source = lab.writer("p"), lab.open_input("p")
        processor = InputProcessor(lab.chain(lambda: Slow(lab)), [source], lab.loan, lab.clock)
        assert sizes_for(processor, replace(SETTINGS, debloat=False), lab.timers.later) is None
        head = lab.chain(lambda: SourceOperator(ScriptedSource(), [()]))
        polled = SourceProcessor(head, lab.loan, lab.clock, lab.idling())
        assert sizes_for(polled, SETTINGS, lab.timers.later) is None
        task = lab.task(lambda: Slow(lab), gates=((lab.gate("p"),),))
        seen = task.figures()
        assert (seen.buffer_size, seen.in_flight_ms) == (0, 0.0)
        writer.finish()
        source.close()
