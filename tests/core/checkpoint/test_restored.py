"""A task that gets back what an earlier run has left: state, records on their way, or its end."""

from typing import Any

from headgate.base.elements import (
    MAX_WATERMARK_MS,
    Bundle,
    PickleSerializer,
    StreamStatus,
    Watermark,
)
from headgate.base.events import CheckpointBarrier
from headgate.core.buffers.buffer import bundle_bytes
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.chain.spec import OperatorSpec
from headgate.core.checkpoint.restored import TaskRestored
from headgate.core.task.task import StepResult
from tests.core.task.kit import (
    Lab,
    Shelf,
    complete,
    live,
    read_stream,
    sink,
    source,
    step_until,
    take_all,
    trigger,
)

SERIALIZER = PickleSerializer()


class Opened(Operator):
    """Tells what it was opened with."""

    def __init__(self, opened: list[Any]) -> None:
        self._opened = opened

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._opened.append((context.operator, context.restored, context.checkpoints))
        self.output.collect(Bundle(["from open"]))

    def process(self, bundle: Bundle, number: int) -> None:
        self.output.collect(bundle)


def test_operators_get_what_was_left_under_their_uid() -> None:
    opened: list[Any] = []
    left = OperatorRestored(7, plain=(b"state",))
    with Lab() as lab:
        up = lab.writer("up")
        task = lab.task(
            lambda: Opened(opened),
            sink([]),
            gates=((lab.gate("up"),),),
            checkpoints=Shelf().plan(enabled=False),
            restored=TaskRestored({"uid0": left}),
        )
        up.finish()
        assert live(task) is None
    assert opened == [("op0", left, False)]


def test_operators_of_a_fresh_job_get_nothing_and_learn_that_checkpoints_are_taken() -> None:
    opened: list[Any] = []
    with Lab() as lab:
        up = lab.writer("up")
        task = lab.task(
            lambda: Opened(opened),
            sink([]),
            gates=((lab.gate("up"),),),
            checkpoints=Shelf().plan(),
        )
        up.finish()
        assert live(task) is None
    assert opened == [("op0", None, True)]


def test_records_that_were_on_their_way_come_first_on_both_sides() -> None:
    with Lab() as lab:
        up, down = lab.writer("up"), lab.writer("down")
        restored = TaskRestored(
            inputs=[(0, 0, [bundle_bytes(Bundle(["in"]), SERIALIZER)])],
            outputs=[(0, 0, [bundle_bytes(Bundle(["out"]), SERIALIZER)])],
        )
        task = lab.task(
            lambda: Opened([]), gates=((lab.gate("up"),),), writers=(down,), restored=restored
        )
        reader = lab.open_input("down")
        up.emit_all(["new"])
        up.finish()
        step_until(task, StepResult.IDLE)
        taken = take_all(reader)
        assert live(task) is None
        bundles = [element for element in taken + take_all(reader) if isinstance(element, Bundle)]
        records = [record for bundle in bundles for record in bundle.records]
        assert records == ["out", "from open", "in", "new"]
        reader.close()


def test_a_task_takes_no_input_while_its_consumers_have_restored_data_to_read() -> None:
    """Else more would be on its way after each restart. It takes its part in checkpoints."""
    shelf = Shelf()
    with Lab() as lab:
        up, down = lab.writer("up"), lab.writer("down")
        task = lab.task(
            lambda: Opened([]),
            gates=((lab.gate("up"),),),
            writers=(down,),
            checkpoints=shelf.plan(timeout_ms=0),
            restored=TaskRestored(
                inputs=[(0, 0, [bundle_bytes(Bundle(["in"]), SERIALIZER)])],
                outputs=[(0, 0, [bundle_bytes(Bundle(["out"]), SERIALIZER)])],
            ),
        )
        reader = lab.open_input("down")
        reader.on_barrier = lambda channel, event: None
        up.emit_all(["new"])
        up.overtake(CheckpointBarrier(8, 0, unaligned=True))
        step_until(task, StepResult.IDLE)
        kept = {place: read_stream(data) for place, data in shelf.last.bytes_in_flight.items()}
        assert kept == {
            (True, 0, 0): [Bundle(["in"])],
            (False, 0, 0): [Bundle(["out"]), StreamStatus(active=True), Bundle(["from open"])],
        }
        woken = lab.woken
        take_all(reader)
        assert lab.woken > woken, "the way is free"
        up.finish()
        shelf.last.done()
        assert live(task) is None
        assert [element for element in take_all(reader) if isinstance(element, Bundle)] == [
            Bundle(["in", "new"]),
        ]
        reader.close()


def test_a_stream_that_was_idle_on_its_way_goes_on_as_an_active_one() -> None:
    """The task begins anew and does not know that it has told of idleness."""
    idle = b"".join(_written(StreamStatus(active=False)))
    for place in ({"inputs": [(0, 0, [idle])]}, {"outputs": [(0, 0, [idle])]}):
        with Lab() as lab:
            up, down = lab.writer("up"), lab.writer("down")
            first = TaskRestored(outputs=place.get("outputs", ()))
            task = lab.task(
                lambda: Opened([]), gates=((lab.gate("up"),),), writers=(down,), restored=first
            )
            reader = lab.open_input("down")
            for gate, channel, parts in place.get("inputs", ()):
                assert gate == 0
                reader.restore(channel, parts)
            step_until(task, StepResult.IDLE)
            take_all(reader)
            up.emit_element(Watermark(5))
            step_until(task, StepResult.IDLE)
            take_all(reader)
            assert reader.watermark_ms == 5
            up.finish()
            assert live(task) is None
            take_all(reader)
            reader.close()


def _written(element: StreamStatus) -> list[bytes]:
    """As it stands in a channel."""
    with Lab() as lab:
        writer = lab.writer("any")
        reader = lab.gate("any")
        reader.request_partitions()
        writer.emit_element(element)
        arrival = reader.poll()
        assert arrival is not None and arrival.buffer is not None
        data = bytes(arrival.buffer.view)
        arrival.buffer.release()
        reader.close()
    return [data]


def test_who_had_finished_opens_nothing_and_passes_its_end_on() -> None:
    opened: list[Any] = []
    shelf = Shelf()
    with Lab() as lab:
        up, down = lab.writer("up"), lab.writer("down")
        reader = lab.open_input("down")
        reader.on_barrier = lambda channel, event: None
        task = lab.task(
            lambda: Opened(opened),
            gates=((lab.gate("up"),),),
            writers=(down,),
            checkpoints=shelf.plan(),
            restored=TaskRestored({"uid0": OperatorRestored(7, plain=(b"x",))}, finished=True),
        )
        step_until(task, StepResult.IDLE)
        assert not down.partition.finished, "its producers end first"
        up.finish()
        trigger(task, 8)
        step_until(task, StepResult.IDLE)
        taken = shelf.last.snapshot
        assert taken.finished
        assert [(operator.uid, operator.taken.plain) for operator in taken.operators] == [
            ("uid0", None)
        ]
        shelf.last.done()
        complete(task, 8)
        assert live(task) is None
        take_all(reader)
        assert reader.ended and reader.watermark_ms == MAX_WATERMARK_MS
        reader.close()
    assert opened == []


def test_a_source_that_had_finished_ends_when_it_gets_a_buffer() -> None:
    with Lab() as lab:
        down = lab.writer("down")
        reader = lab.open_input("down")
        builders = []
        while down.available():
            builders.append(down.partition.request_builder())
        task = lab.task(source([1]), writers=(down,), restored=TaskRestored(finished=True))
        step_until(task, StepResult.IDLE)
        assert not down.partition.finished, "it has no buffer for its last watermark"
        for builder in builders:
            builder.finish()
        assert live(task) is None
        take_all(reader)
        assert reader.ended and reader.watermark_ms == MAX_WATERMARK_MS
        reader.close()


def test_who_had_finished_still_commits_what_it_had_prepared() -> None:
    opened: list[Any] = []
    left = OperatorRestored(7, sinks=(b"a transaction",))
    with Lab() as lab:
        up = lab.writer("up")
        task = lab.task(
            lambda: Opened(opened),
            lambda: Opened(opened),
            gates=((lab.gate("up"),),),
            restored=TaskRestored({"uid1": left}, finished=True),
        )
        up.finish()
        assert live(task) is None
    assert opened == [("op1", left, False)]


def test_what_goes_on_opens_everything() -> None:
    spec = OperatorSpec(0, "op", "uid", Operator, ())
    assert TaskRestored().opens(spec)
    assert not TaskRestored(finished=True).opens(spec)
    assert not TaskRestored({"uid": OperatorRestored()}, finished=True).opens(spec)
    assert TaskRestored({"uid": OperatorRestored(sinks=(b"x",))}, finished=True).opens(spec)
