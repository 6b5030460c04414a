"""A moment of a task in figures: sums over its gates and writers, the least of its times."""

from headgate.base.elements import MIN_WATERMARK_MS, Watermark
from headgate.base.figures import LATENCY_BOUNDS_MS
from headgate.base.messages import TaskState
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.task.statistics import Latencies, OwnFigures, TimeSpent, figures_of
from tests.core.task.kit import Lab, take_all

SPENT = TimeSpent(1, 2, 3, 4)


def test_what_passes_several_inputs_and_outputs_is_added_up() -> None:
    with Lab() as lab:
        ups = [lab.writer("a"), lab.writer("b")]
        downs = [lab.writer("c"), lab.writer("d")]
        gates = [lab.gate("a"), lab.gate("b")]
        inputs = [lab.input(number, gate) for number, gate in enumerate(gates)]
        for gate in gates:
            gate.request_partitions()
        for number, up in enumerate(ups):
            up.emit_all([1] * (number + 1))
            up.emit_element(Watermark(5 + number))
            take_all(inputs[number])
        downs[1].emit_all([1, 2, 3])
        chain = lab.chain(lambda: SinkFunctionOperator(print))
        seen = figures_of(
            TaskState.RUNNING,
            SPENT,
            chain,
            inputs,
            gates,
            downs,
            latencies=None,
            own=OwnFigures(chain),
            sizes=None,
        )
        assert seen.state is TaskState.RUNNING
        times = seen.busy_ms, seen.soft_backpressured_ms, seen.hard_backpressured_ms, seen.idle_ms
        assert (times, seen.backpressured_ms) == ((1, 2, 3, 4), 5)
        assert (seen.records_in, seen.records_out) == (3, 3)
        assert seen.buffers_in == sum(gate.statistics().buffers_in for gate in gates) > 0
        assert seen.queued_out == downs[1].partition.queued > 0
        assert (seen.input_watermarks_ms, seen.output_watermark_ms) == ((5, 6), MIN_WATERMARK_MS)
        assert [operator.name for operator in seen.operators] == ["op0"]
        assert seen.latency is None
        assert [gate.channels for gate in seen.gates] == [1, 1]
        assert [output.records for output in seen.outputs] == [0, 3]
        assert seen.outputs[1].queued_bytes > 0 == seen.outputs[0].queued_bytes
        assert 0 < seen.outputs[1].pool_in_use <= seen.outputs[1].pool_size
        for source in inputs:
            source.close()


def test_latencies_are_counted_in_fixed_buckets() -> None:
    latencies = Latencies(lambda: 0.0)
    assert latencies.histogram() is None
    for latency_ms in (0.5, 1.0, 1.5, 70_000.0, -3.0):
        latencies.measured(latency_ms)
    seen = latencies.histogram()
    assert seen is not None
    assert seen.counts == (3, 1, *[0] * (len(LATENCY_BOUNDS_MS) - 2), 1)
    assert (seen.count, seen.sum_ms) == (5, 70_003.0), "clocks that differ do not count down"


def test_a_task_without_outputs_is_as_far_as_its_chain() -> None:
    """The head of the page asks the last vertices how far event time has come."""
    with Lab() as lab:
        chain = lab.chain(lambda: SinkFunctionOperator(print))
        watermarks = []
        for time_ms in (None, 7, 12):
            if time_ms is not None:
                chain.watermark_advanced(Watermark(time_ms))
            seen = figures_of(
                *(TaskState.RUNNING, SPENT, chain, [], [], []),
                latencies=None,
                own=OwnFigures(chain),
                sizes=None,
            )
            watermarks.append(seen.output_watermark_ms)
        assert watermarks == [MIN_WATERMARK_MS, 7, 12]
