"""A job's need of buffers decides on the memory of its exchange, before anything starts."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headgate.base.errors import InsufficientBuffers, JobExceedsMemory
from headgate.base.ids import PartitionId, PeerName
from headgate.base.messages import TaskOrder
from headgate.base.settings import MIB, ExchangeSettings, FlowControl
from headgate.core.egress.partition import PartitionKind
from headgate.core.task.environment import Environment, Here, Input, RemoteProducer
from headgate.plan import ship_strategies as ships
from headgate.plan.exchange_memory import size_exchange
from headgate.plan.execution_graph import build_execution_graph
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import StreamGraph
from tests.arena import plain_segments
from tests.core.pair import SECRET, Timers
from tests.plan.programs import Program, key_of, programs, reads

DEFAULT = ExchangeSettings()


def all_to_all(width: int) -> JobGraph:
    program = Program(parallelism=width)
    program.operator("count", reads(program.source(), ships.hash_by(key_of)))
    return build_job_graph(program.graph)


@contextmanager
def environment_of(settings: ExchangeSettings, segments: int) -> Iterator[Environment]:
    """A task manager on tiny segments: only their number counts."""
    made = Environment(
        settings,
        plain_segments(segments, 1),
        secret=SECRET,
        dial=lambda address: pytest.fail("nobody is dialled"),
        later=Timers().later,
        make_store=lambda partition, index: pytest.fail("nothing is stored"),
    )
    try:
        yield made
    finally:
        made.close()


def set_up(environment: Environment, slot: int, tasks: tuple[TaskOrder, ...]) -> None:
    """All that the tasks of a slot ask for: outputs, gates, and a connection to each peer."""
    slot_of = {task.id: task.slot for task in tasks}
    peers: set[int] = set()
    for task in tasks:
        if task.slot != slot:
            continue
        for output in task.outputs:
            environment.create_partition(
                output.partition, PartitionKind[output.kind], output.subpartitions
            )
        for number, gate in enumerate(task.gates):
            homes = [slot_of[channel.producer] for channel in gate]
            peers.update(homes)
            inputs = [
                Input(
                    PartitionId(channel.partition),
                    channel.subpartition,
                    Here() if home == slot else RemoteProducer((f"slot-{home}", 1)),
                )
                for channel, home in zip(gate, homes, strict=True)
            ]
            environment.create_gate(f"{task.id}/{number}", inputs)
    for peer in peers - {slot}:
        environment.consumer_end(PeerName(f"slot-{peer}"), bytes(16), 0.0)


@hypothesis_settings(max_examples=40)
@given(
    programs(),
    st.sampled_from(FlowControl),
    st.integers(0, 3),
    st.integers(1, 30),
)
def test_what_is_needed_is_what_the_tasks_ask_for_and_no_more(
    graph: StreamGraph, flow_control: FlowControl, exclusive: int, landing: int
) -> None:
    job = build_job_graph(graph)
    if job.batch:
        return
    settings = ExchangeSettings(
        flow_control=flow_control, buffers_per_channel=exclusive, landing_buffers=landing
    )
    sized = size_exchange(job, settings)
    execution = build_execution_graph(job, "job", 0)
    assert sized.settings == settings, "the default maximum is far away"
    short = 0
    for slot in range(execution.slots):
        with environment_of(settings, sized.need.total) as environment:
            set_up(environment, slot, execution.tasks)
        with environment_of(settings, max(0, sized.need.total - 1)) as environment:
            try:
                set_up(environment, slot, execution.tasks)
            except InsufficientBuffers:
                short += 1
    assert short or not sized.need.total, "with one buffer less the busiest slot cannot start"


@pytest.mark.parametrize(("width", "need"), [(2, 3 + 2 + 24), (85, 86 + 84 * 26), (128, 3431)])
def test_all_to_all_takes_26_buffers_for_each_peer(width: int, need: int) -> None:
    sized = size_exchange(all_to_all(width), DEFAULT)
    assert sized.need.total == need
    assert sized.segments >= need + sized.need.spare
    assert sized.settings == DEFAULT


def test_a_small_job_has_the_memory_it_always_had() -> None:
    assert size_exchange(all_to_all(4), DEFAULT).segments == 64 * MIB // DEFAULT.segment_bytes


def test_memory_grows_with_the_job_within_its_maximum() -> None:
    settings = ExchangeSettings(memory_max_bytes=3500 * DEFAULT.segment_bytes)
    sized = size_exchange(all_to_all(128), settings)
    assert sized.need.total == 3431
    assert sized.segments == 3500


def test_connections_land_in_fewer_buffers_before_a_job_is_refused() -> None:
    settings = ExchangeSettings(memory_max_bytes=64 * MIB)
    sized = size_exchange(all_to_all(128), settings)
    assert sized.settings.landing_buffers == 13  # (2048 - 129 - 254) // 127
    assert sized.need.total == 129 + 254 + 127 * 13 <= sized.segments == 2048


def test_a_job_that_cannot_fit_is_refused_with_the_number_it_needs() -> None:
    least = 129 + 254 + 127
    settings = ExchangeSettings(
        memory_min_bytes=1, memory_max_bytes=(least - 1) * DEFAULT.segment_bytes
    )
    with pytest.raises(JobExceedsMemory) as caught:
        size_exchange(all_to_all(128), settings)
    error = caught.value
    assert (error.required, error.allocated, error.missing) == (least, least - 1, 1)
    assert error.required_bytes == least * DEFAULT.segment_bytes
    assert f"needs {least} network buffers of 32768 bytes" in str(error)
    assert "127 for connections to 127 other task managers" in str(error)
    assert f"raise it to {error.required_bytes} bytes or more" in str(error)
    enough = ExchangeSettings(memory_min_bytes=1, memory_max_bytes=error.required_bytes)
    assert size_exchange(all_to_all(128), enough).need.total == least


def test_branches_of_a_batch_job_may_read_at_the_same_time() -> None:
    program = Program(parallelism=80, batch=True)
    for number in range(3):
        program.operator(f"count{number}", reads(program.source(), ships.hash_by(key_of)))
    graph = build_job_graph(program.graph)
    memory = size_exchange(graph, ExchangeSettings())
    slot = [task for task in build_execution_graph(graph, "", 0).tasks if task.slot == 0]
    assert memory.segments >= 2_613, f"what {len(slot)} tasks of a slot need if they all read"


def test_tasks_of_a_batch_job_do_not_read_at_the_same_time() -> None:
    program = Program(parallelism=8, batch=True)
    before = program.source()
    for _ in range(3):
        before = program.operator("next", reads(before, ships.rebalance()))
    job = build_job_graph(program.graph)
    need = size_exchange(job, DEFAULT).need
    assert (need.partitions, need.exclusive, need.landing) == (3 * 9, 7 * 2, 7 * 24)
