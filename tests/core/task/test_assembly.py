"""A task is put together as its order and its vertex say, and what fails gives everything back."""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from headgate.base.checkpoints import ReassignedStream
from headgate.base.elements import Bundle, PickleSerializer
from headgate.base.errors import InsufficientBuffers, PartitionError, SettingsInvalid
from headgate.base.messages import CheckpointOrder
from headgate.core.buffers.buffer import bundle_bytes
from headgate.core.checkpoint.alignment import BarrierPolicy
from headgate.core.checkpoint.snapshot import SnapshotTask
from headgate.core.egress.router import CustomPartitioner
from headgate.core.ingress.channel import LocalChannel, UnknownChannel
from headgate.core.ingress.remote import RemoteChannel
from headgate.core.operators.one_input import MapOperator
from headgate.core.task.assembly import JobInfo
from headgate.core.task.processors import SourceProcessor
from tests.arena import assert_all_home
from tests.core.pair import SMALL
from tests.core.task.assembly_kit import (
    HERE,
    WAIT_MS,
    Hall,
    Writings,
    double,
    order,
    reads,
    sink,
    source,
    vertex,
)
from tests.core.task.kit import Lab, Shelf, trigger

AWAY = ("there", 9)


# What an order says.


def test_tasks_are_wired_to_each_other_and_run_to_the_end() -> None:
    got: list[Any] = []
    with Lab() as lab:
        hall = Hall(lab, source([1], [2, 3]), double(), sink(got))
        hall.deploy(
            order("0.0", writes=1), order("1.0", reads("0.0"), writes=1), order("2.0", reads("1.0"))
        )
        hall.finish()
        assert got == [2, 4, 6]
        assert hall.worker.flushed == ["source (1/1)", "double (1/1)"]
        hall.end()


def test_gates_of_one_input_are_a_union_and_those_of_two_are_not() -> None:
    got: list[Any] = []
    with Lab() as lab:
        hall = Hall(lab, source([1], [2]), source([3]), sink(got, gate_inputs=(0, 0)))
        *_, united = hall.deploy(
            order("0.0", writes=1),
            order("1.0", writes=1),
            order("2.0", (("0.0",), ("1.0",))),
        )
        assert len(united.gates) == 2 and len(united.deserializers) == 2
        hall.finish()
        assert sorted(got) == [1, 2, 3]
        hall.end()


def test_each_gate_has_the_serializer_of_its_producers() -> None:
    first, second = PickleSerializer(), PickleSerializer()
    with Lab() as lab:
        gates: dict[str, Any] = {"gate_inputs": (0, 0), "gate_serializers": (first, second)}
        hall = Hall(lab, source(), source(), sink([], **gates))
        *_, task = hall.deploy(
            order("0.0", writes=1), order("1.0", writes=1), order("2.0", (("0.0",), ("1.0",)))
        )
        assert [each.serializer for each in task.deserializers] == [first, second]
        hall.end()


def test_the_places_of_producers_decide_on_the_channels() -> None:
    with Lab() as lab:
        hall = Hall(lab, sink([]))
        (task,) = hall.deploy(
            order("0.0", reads("1.0", "2.0", "3.0", "4.0")),
            places={"1.0": None, "2.0": list(HERE), "3.0": list(AWAY)},
        )
        kinds = [type(channel) for channel in task.gates[0].channels]
        assert kinds == [LocalChannel, LocalChannel, RemoteChannel, UnknownChannel]
        hall.assembly.placed("4.0", AWAY)
        hall.assembly.placed("4.0", AWAY)  # nobody waits for it any more
        placed = task.gates[0].channels[3]
        assert isinstance(placed, RemoteChannel) and placed.address == AWAY
        hall.end()


def test_a_producer_that_comes_late_is_read() -> None:
    got: list[Any] = []
    with Lab() as lab:
        hall = Hall(lab, source([7]), sink(got))
        hall.deploy(order("1.0", reads("0.0")), places={})
        hall.deploy(order("0.0", writes=1))
        hall.tasks.placed("0.0", None)
        hall.finish()
        assert got == [7]
        hall.end()


# What a vertex says.


def test_further_tasks_of_a_vertex_have_functions_of_their_own() -> None:
    loaded: list[dict[int, Any]] = []

    def load() -> dict[int, Any]:
        loaded.append({0: vertex("again", lambda: MapOperator(abs), gate_inputs=(0,))})
        return loaded[-1]

    with Lab() as lab:
        hall = Hall(lab, double(outputs=0, parallelism=3), load_again=load)
        hall.deploy(*(order(f"0.{subtask}", reads("9.0")) for subtask in range(3)), places={})
        assert [info.vertex for info in hall.worker.made] == ["double", "again", "again"]
        assert len(loaded) == 2
        hall.end()


def test_tasks_know_their_job_and_their_number() -> None:
    shelf = Shelf()
    with Lab() as lab:
        info = JobInfo("orders", 3, {"key": "value"})
        order_of_run = CheckpointOrder("folder", "job-7")
        given = {"info": info, "checkpoints": Writings(order_of_run, shelf)}
        hall = Hall(lab, sink([], parallelism=2), **given)
        hall.deploy(order("0.1", reads("1.0")), places={})
        (made,) = hall.worker.made
        assert (made.job, made.vertex, made.subtask, made.parallelism) == ("orders", "sink", 1, 2)
        assert (made.max_parallelism, made.attempt, made.parameters) == (8, 3, {"key": "value"})
        assert (made.job_id, made.checkpoint_folder) == ("job-7", "folder")
        hall.end()


@pytest.mark.parametrize("interval_ms", [0, 5])
def test_sources_send_markers_if_they_are_wanted(interval_ms: int) -> None:
    with Lab() as lab:
        hall = Hall(lab, source(), info=JobInfo("job", latency_interval_ms=interval_ms))
        (task,) = hall.deploy(order("0.0", writes=1))
        processor = task.task._processor
        assert isinstance(processor, SourceProcessor)
        assert processor._marker == ((5, 5, 0) if interval_ms else None)
        hall.end()


@pytest.mark.parametrize("wanted", [False, True])
def test_buffers_to_a_task_are_sized_if_the_settings_want_it(wanted: bool) -> None:
    with Lab(settings=replace(SMALL, debloat=wanted)) as lab:
        hall = Hall(lab, sink([]))
        (task,) = hall.deploy(order("0.0", reads("1.0")), places={})
        assert bool(task.task.figures().buffer_size) is wanted
        hall.end()


def test_a_task_that_waits_for_a_buffer_is_back_pressured() -> None:
    with Lab() as lab:
        hall = Hall(lab, source())
        (task,) = hall.deploy(order("0.0", writes=1))
        task.writers[0].partition._wait(lambda: True)
        assert task.task.figures().backpressured_ms == WAIT_MS
        hall.end()


# Checkpoints.


def test_a_task_takes_checkpoints_as_its_run_does() -> None:
    shelf = Shelf()
    writings = Writings(CheckpointOrder("", "job", False, 40, incremental=True), shelf)
    with Lab() as lab:
        hall = Hall(lab, sink([], parallelism=2), checkpoints=writings)
        (task,) = hall.deploy(order("0.1", reads("1.0")), places={})
        plan = task.task._plan
        assert plan is not None
        assert plan.policy == BarrierPolicy(False, 40)
        assert (plan.enabled, plan.incremental) == (False, True), "without a folder: savepoints"
        hall.end()


def test_a_snapshot_names_its_task() -> None:
    shelf = Shelf()
    writings = Writings(CheckpointOrder("folder", "job"), shelf)
    with Lab() as lab:
        hall = Hall(lab, source([1], [2], parallelism=2), checkpoints=writings)
        (task,) = hall.deploy(order("0.1", writes=1))
        task.task.step()
        trigger(task.task, 4)
        task.task.step()
        assert writings.tasks == [SnapshotTask("0.1", 0, 1, 2, 8)]
        shelf.last.done()
        hall.end()


def test_without_checkpoints_a_task_takes_none() -> None:
    with Lab() as lab:
        hall = Hall(lab, sink([]))
        (task,) = hall.deploy(order("0.0", reads("1.0")), places={})
        assert task.task._plan is None
        assert hall.worker.made[0].job_id == ""
        hall.end()


@pytest.mark.parametrize("routed", [False, True])
def test_reassigned_records_go_to_the_task_that_the_router_names(routed: bool) -> None:
    by_rest = CustomPartitioner(lambda key, channels: key % channels, lambda record: record)
    with Lab() as lab:
        hall = Hall(lab, source(router=lambda subtask: by_rest), sink([], parallelism=3))
        data = bundle_bytes(Bundle([1, 2, 3, 4, 5]), PickleSerializer())
        stream = ReassignedStream(0, 0, 0, routed, ())
        given = order("1.2", reads("0.0"))
        pieces = [data[:9], data[9:]]
        found = [b.records for b in hall.assembly.reassigned_bundles(given, stream, pieces)]
        assert found == ([[2, 5]] if routed else [[1, 2, 3, 4, 5]])


# What goes wrong.


def test_an_assembly_that_fails_gives_back_what_it_had_taken() -> None:
    with Lab() as lab:
        hall = Hall(lab, double())
        long = "x" * 70_000
        with pytest.raises(PartitionError, match="bytes, the limit is"), ExitStack() as undo:
            hall.assembly.assemble(order("0.0", reads("1.0", long), writes=1), {}, undo)
        assert_all_home(lab.environment.pool)
        assert not len(lab.environment.partitions)


def test_without_memory_nothing_of_a_task_stays() -> None:
    with Lab(segments=3) as lab:
        hall = Hall(lab, double(outputs=3))
        with pytest.raises(InsufficientBuffers), ExitStack() as undo:
            hall.assembly.assemble(order("0.0", reads("1.0"), writes=3), {}, undo)
        assert not len(lab.environment.partitions)


def test_a_task_that_cannot_have_checkpoints_gives_back_its_gates() -> None:
    class Choosing(MapOperator):
        def selection(self) -> tuple[int, ...]:
            return (0,)

    writings = Writings(CheckpointOrder("folder", "job"), Shelf())
    with Lab() as lab:
        choosing = vertex("choosing", lambda: Choosing(abs), gate_inputs=(0,))
        hall = Hall(lab, choosing, checkpoints=writings)
        with pytest.raises(SettingsInvalid, match="AT_LEAST_ONCE"), ExitStack() as undo:
            hall.assembly.assemble(order("0.0", reads("1.0")), {}, undo)
        assert_all_home(lab.environment.pool)
