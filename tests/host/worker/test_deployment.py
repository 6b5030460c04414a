"""Jobs on real exchanges: planned, deployed, run, cancelled, failed. Row 18, 150-153, 168-171."""

import functools
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from headgate.base.elements import PickleSerializer
from headgate.base.errors import InsufficientBuffers, TaskCancelled, UserFunctionFailed
from headgate.base.messages import CheckpointOrder, TaskState
from headgate.control.error_classes import CONSEQUENCES
from headgate.core.operators.one_input import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
)
from headgate.core.operators.reduce import ReduceOperator
from headgate.core.operators.two_inputs import CoMapOperator
from headgate.functions.context import RuntimeContext
from headgate.functions.function import OutputTag
from headgate.host.checkpoints.snapshot_writer import SnapshotWriters, WriterPool
from headgate.host.net.exchange import Exchange
from headgate.plan import ship_strategies as ships
from tests.host.conftest import MakeExchange
from tests.host.local_job import Job, Run, reads
from tests.host.rig import PATIENCE_S, blobs, eventually, pool_of, quick

WORDS = ["to", "be", "or", "not", "to", "be", "that", "is"]


def first(record: Any) -> Any:
    return record[0]


def add(count: tuple[str, int], more: tuple[str, int]) -> tuple[str, int]:
    return count[0], count[1] + more[1]


def mapped(function: Any) -> Any:
    return functools.partial(MapOperator, function)


def word_count(**settings: Any) -> tuple[Job, list[Any]]:
    """Words from two tasks, counted in two tasks by key, gathered in one."""
    job = Job(**settings)
    words = job.source(WORDS * 200, WORDS * 100)
    pairs = job.operator(mapped(lambda word: (word, 1)), words, parallelism=2)
    counts = job.operator(
        functools.partial(ReduceOperator, add, first, settings.get("batch", False)),
        reads(pairs, ships.hash_by(first)),
        parallelism=2,
    )
    return job, job.collect(reads(counts, ships.rebalance()))


def expected_counts() -> dict[str, int]:
    return {word: count * 300 for word, count in Counter(WORDS).items()}


@pytest.fixture
def exchange(make_exchange: MakeExchange) -> Exchange:
    return make_exchange(local_only=True)


# One exchange: threads share buffers.


def test_a_job_runs_to_its_end_and_tells_every_state(exchange: Exchange) -> None:
    job, results = word_count()
    run = Run(job, exchange).run()
    assert {word: max(n for w, n in results if w == word) for word, _ in results} == (
        expected_counts()
    )
    for states in run.states.values():
        assert states == [TaskState.DEPLOYING, TaskState.RUNNING, TaskState.FINISHED]


def test_every_running_count_of_a_key_comes_once_and_in_order(exchange: Exchange) -> None:
    job, results = word_count()
    Run(job, exchange).run()
    for word, count in expected_counts().items():
        assert [n for w, n in results if w == word] == list(range(1, count + 1))


def test_figures_are_those_of_the_whole_job(exchange: Exchange) -> None:
    job, results = word_count()
    run = Run(job, exchange).run()
    figures = run.figures()
    total = 300 * len(WORDS)
    assert len(results) == total
    by_vertex: dict[int, list[Any]] = {}
    for figure in figures.values():
        by_vertex.setdefault(figure.vertex, []).append(figure)
    assert [sum(f.records_out for f in by_vertex[v]) for v in sorted(by_vertex)] == [
        total,
        total,
        0,
    ]
    assert [sum(f.records_in for f in by_vertex[v]) for v in sorted(by_vertex)] == [0, total, total]
    for figure in figures.values():
        assert figure.state is TaskState.FINISHED
        assert figure.busy_ms + figure.backpressured_ms + figure.idle_ms > 0
        assert figure.cpu_ms > 0
        last = figure.operators[-1]
        assert last.records_out == figure.records_out == sum(out.records for out in figure.outputs)


def test_tasks_that_get_nothing_back_read_no_checkpoint(exchange: Exchange) -> None:
    job, results = word_count()
    run = Run(job, exchange)
    order = CheckpointOrder("nonsense://there", "j", restored_from="nonsense://there/chk-1")
    ignore: Any = lambda *_: None  # noqa: E731
    run.deployments[0]._writing = SnapshotWriters("r/1", 0, order, WriterPool(), ignore, ignore)
    run.run()
    assert len(results) == 300 * len(WORDS)


def test_without_chaining_the_same_comes_out(exchange: Exchange) -> None:
    job, results = word_count(chaining=False)
    run = Run(job, exchange).run()
    assert len(run.job_graph.vertices) == 4
    assert Counter(word for word, _ in results) == Counter(expected_counts())


def test_object_reuse_changes_no_result_of_good_functions(exchange: Exchange) -> None:
    job, results = word_count(object_reuse=True)
    Run(job, exchange).run()
    assert Counter(word for word, _ in results) == Counter(expected_counts())


def test_side_outputs_and_unions_find_their_readers(exchange: Exchange) -> None:
    def sort(value: int, ctx: Any) -> Any:
        return [value] if value % 2 else [(OutputTag("even"), value)]

    job = Job()
    numbers, more = job.source(range(100)), job.source(range(100, 120))
    sorted_ = job.operator(functools.partial(ProcessOperator, sort), numbers)
    odd = job.collect(sorted_)
    even = job.collect(reads(sorted_, tag="even"))
    both = job.collect(sorted_, more)
    Run(job, exchange).run()
    assert odd == list(range(1, 100, 2))
    assert even == list(range(0, 100, 2))
    assert sorted(both) == sorted([*range(1, 100, 2), *range(100, 120)])


def test_two_inputs_meet_in_one_operator(exchange: Exchange) -> None:
    class Both:
        def map1(self, value: int) -> Any:
            return "one", value

        def map2(self, value: int) -> Any:
            return "two", value

    job = Job()
    left, right = job.source(range(50)), job.source(range(80))
    meeting = job.operator(
        functools.partial(CoMapOperator, Both()), reads(left, number=0), reads(right, number=1)
    )
    results = job.collect(meeting)
    Run(job, exchange).run()
    assert [n for side, n in results if side == "one"] == list(range(50))
    assert [n for side, n in results if side == "two"] == list(range(80))


def test_a_broadcast_reaches_every_task(exchange: Exchange) -> None:
    job = Job()
    numbers = job.source(range(300))
    everywhere = job.operator(mapped(lambda n: n), reads(numbers, ships.broadcast()), parallelism=3)
    results = job.collect(everywhere)
    Run(job, exchange).run()
    assert Counter(results) == Counter(dict.fromkeys(range(300), 3))


@pytest.mark.parametrize("ship", [ships.rebalance(), ships.shuffle(), ships.global_()])
def test_every_ship_delivers_every_record_once(exchange: Exchange, ship: Any) -> None:
    job = Job()
    numbers = job.source(range(500), range(500, 700))
    results = job.collect(reads(numbers, ship), parallelism=3)
    Run(job, exchange).run()
    assert sorted(results) == list(range(700))


class Shouting(PickleSerializer):
    """Writes texts in capitals, so that a test sees who wrote and who read."""

    def dumps(self, records: Sequence[Any]) -> bytes:
        return "\n".join(records).upper().encode()

    def loads(self, data: memoryview) -> Any:
        return bytes(data).decode().split("\n")

    def __reduce__(self) -> Any:
        return Shouting, ()


def test_a_serializer_of_its_own_is_used_on_both_sides(
    make_exchange: MakeExchange,
) -> None:
    job = Job()
    words = job.source(["a", "b"], ["c"], serializer=Shouting(), name="words")
    plain = job.source(["x"], [])
    loud = job.collect(reads(words, ships.rebalance()), parallelism=2)
    mixed = job.collect(
        reads(words, ships.rebalance()), reads(plain, ships.rebalance()), parallelism=2
    )
    Run(job, make_exchange(), make_exchange()).run()
    assert {word.lower() for word in loud} == {"a", "b", "c"}
    assert {word.lower() for word in mixed} == {"a", "b", "c", "x"}
    assert "x" in mixed


def test_what_a_function_changes_is_not_seen_by_its_neighbours(exchange: Exchange) -> None:
    def spoil(record: list[int]) -> list[int]:
        record.append(99)
        return record

    job = Job()
    lists = job.operator(mapped(lambda n: [n]), job.source(range(50)))
    spoiled = job.collect(job.operator(mapped(spoil), lists))
    untouched = job.collect(lists)
    shipped = job.collect(reads(lists, ships.rebalance()), parallelism=2)
    Run(job, exchange).run()
    assert spoiled == [[n, 99] for n in range(50)]
    assert untouched == [[n] for n in range(50)]
    assert sorted(shipped) == [[n] for n in range(50)]


class Growing:
    """Returns one and the same list, longer each time."""

    def __init__(self) -> None:
        self.kept: list[int] = []

    def map(self, value: int) -> list[int]:
        self.kept.append(value)
        return self.kept


@pytest.mark.parametrize("chaining", [True, False])
def test_records_are_sent_as_they_were(exchange: Exchange, chaining: bool) -> None:
    job = Job(chaining=chaining)
    results = job.collect(job.operator(mapped(Growing()), job.source(range(60))))
    Run(job, exchange).run()
    assert results == [list(range(end + 1)) for end in range(60)]


def test_records_larger_than_a_segment_arrive_whole(make_exchange: MakeExchange) -> None:
    job = Job()
    large = blobs(30, 20_000)
    results = job.collect(reads(job.source(large), ships.rebalance()), parallelism=2)
    Run(job, make_exchange(), make_exchange()).run()
    assert sorted(results) == sorted(large)


# Two exchanges: the network.


@pytest.mark.parametrize("late", [False, True])
def test_a_job_on_two_task_managers_gives_the_same(
    pair: tuple[Exchange, Exchange], late: bool
) -> None:
    job, results = word_count()
    Run(job, *pair).run(late=late)
    for word, count in expected_counts().items():
        assert [n for w, n in results if w == word] == list(range(1, count + 1))


def test_a_consumer_waits_for_producers_that_come_late(pair: tuple[Exchange, Exchange]) -> None:
    job = Job()
    results = job.collect(reads(job.source(range(100), range(100, 200)), ships.global_()))
    run = Run(job, *pair)
    sinks = [task for task in run.graph.tasks if task.gates]
    sources = [task for task in run.graph.tasks if not task.gates]
    run.deploy(sinks)
    eventually(lambda: TaskState.RUNNING in run.states.get(sinks[0].id, ()), "the sink")
    run.deploy(sources)
    run.finish()
    assert sorted(results) == list(range(200))


def test_markers_measure_the_way_and_functions_do_not_see_them(
    pair: tuple[Exchange, Exchange],
) -> None:
    job = Job(buffer_timeout_ms=1)
    seen: set[type] = set()
    numbers = job.source(range(10), endless=True)
    results = job.collect(
        reads(job.operator(mapped(lambda n: seen.add(type(n)) or n), numbers), ships.broadcast()),
        parallelism=2,
    )
    run = Run(job, *pair, latency_interval_ms=2)
    run.deploy()
    deployed = [task for deployment in run.deployments for task in deployment.tasks]
    sinks = [task for task in deployed if task.order.gates]

    def markers() -> list[int]:
        figures = [sink.task.figures().latency for sink in sinks]
        return [0 if latency is None else latency.count for latency in figures]

    eventually(lambda: min(markers()) >= 3, "markers at both sinks")
    eventually(lambda: len(results) == 20, "all records at both sinks")
    run.close()
    assert seen == {int}


# Batch.


@pytest.mark.parametrize("exchanges", [1, 2])
def test_in_batch_a_stage_reads_what_the_one_before_has_stored(
    make_exchange: MakeExchange, exchanges: int
) -> None:
    job, results = word_count(batch=True)
    managers = [make_exchange() for _ in range(exchanges)]
    run = Run(job, *managers).run_in_stages()
    assert dict(results) == expected_counts()
    assert len(results) == len(expected_counts())
    run.close()


def test_in_batch_a_stored_partition_can_be_read_by_two(exchange: Exchange) -> None:
    job = Job(batch=True)
    numbers = job.source(range(1000))
    results = [job.collect(reads(numbers, ships.rebalance()), parallelism=2) for _ in range(2)]
    run = Run(job, exchange).run_in_stages()
    run.close()
    assert [sorted(found) for found in results] == [list(range(1000))] * 2


# Back pressure, cancellation, failure.


class Gate:
    """Lets records pass when the test says so."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def map(self, value: Any) -> Any:
        assert self.opened.wait(60)
        return value


def held_job(records: Sequence[Any]) -> tuple[Job, Gate, list[Any]]:
    """A source whose consumer holds every record until the gate is opened."""
    job, gate = Job(), Gate()
    held = job.operator(mapped(gate), reads(job.source(records), ships.rebalance()))
    return job, gate, job.collect(held)


def test_a_slow_consumer_stops_its_producer_and_nothing_is_lost(
    make_exchange: MakeExchange,
) -> None:
    job, gate, results = held_job(blobs(3000))
    run = Run(job, make_exchange(segments=40))
    run.deploy()
    eventually(lambda: run.figures()["0.0"].backpressured_ms > 50, "back pressure")
    held = run.figures()["0.0"]
    assert held.records_out < 3000
    assert held.soft_backpressured_ms > held.hard_backpressured_ms
    (output,) = held.outputs
    assert output.records == held.records_out
    assert output.queued_bytes > 0 and output.pool_in_use >= output.pool_size > 0
    gate.opened.set()
    run.finish()
    assert results == blobs(3000)


def test_cancellation_interrupts_a_writer_that_waits_for_a_buffer(
    make_exchange: MakeExchange,
) -> None:
    job, gate = Job(), Gate()
    flood = functools.partial(FlatMapOperator, lambda n: iter(blobs(5000)))
    many = job.operator(flood, job.source([1]))
    job.collect(job.operator(mapped(gate), reads(many, ships.rebalance())))
    run = Run(job, make_exchange(segments=40))
    run.deploy()
    eventually(lambda: run.figures()["0.0"].hard_backpressured_ms > 20, "a wait within the step")
    run.cancel()
    gate.opened.set()
    run.await_end()
    assert {states[-1] for states in run.states.values()} == {TaskState.CANCELLED}
    assert not run.errors


class Stuck:
    """Waits for something outside of the job that does not come."""

    def __init__(self) -> None:
        self.waits = threading.Event()
        self.was_cancelled = False

    def open(self, runtime_context: RuntimeContext) -> None:
        self.context = runtime_context

    def map(self, value: Any) -> Any:
        assert not self.context.is_cancelled()
        self.waits.set()
        try:
            self.context.sleep(10 * PATIENCE_S)
        finally:
            self.was_cancelled = self.context.is_cancelled()
        return value


def test_cancellation_interrupts_a_function_that_sleeps(exchange: Exchange) -> None:
    job, stuck = Job(), Stuck()
    results = job.collect(job.operator(mapped(stuck), job.source([1])))
    run = Run(job, exchange)
    run.deploy()
    assert stuck.waits.wait(PATIENCE_S)
    run.cancel()
    run.await_end()
    assert {states[-1] for states in run.states.values()} == {TaskState.CANCELLED}
    assert stuck.was_cancelled and not results and not run.errors


def test_an_endless_job_is_cancelled_everywhere(pair: tuple[Exchange, Exchange]) -> None:
    job = Job(buffer_timeout_ms=1)
    numbers = job.source(range(10), range(10), endless=True)
    results = job.collect(reads(numbers, ships.rebalance()), parallelism=2)
    run = Run(job, *pair)
    run.deploy()
    run.await_state(TaskState.RUNNING)
    eventually(lambda: len(results) == 20, "all records")
    run.close()
    for task, states in run.states.items():
        # Who hears of a neighbour's end before the cancellation reaches it fails by that.
        assert states[-1] is TaskState.CANCELLED or isinstance(run.errors[task], CONSEQUENCES)


def test_nothing_is_deployed_after_the_cancellation(exchange: Exchange) -> None:
    job, _ = word_count()
    run = Run(job, exchange)
    run.deployments[0].cancel()
    with pytest.raises(TaskCancelled):
        run.deploy()
    assert not run.states


@pytest.mark.parametrize("where", ["open", "map", "close"])
def test_a_failing_function_is_reported_and_leaks_nothing(
    pair: tuple[Exchange, Exchange], where: str
) -> None:
    class Failing:
        def open(self, context: Any) -> None:
            self._fail("open")

        def map(self, value: int) -> int:
            self._fail("map")
            return value

        def close(self) -> None:
            self._fail("close")

        def _fail(self, what: str) -> None:
            if what == where:
                raise ValueError("a bad day")

    job = Job()
    numbers = job.source(range(1000), range(1000))
    failing = job.operator(
        mapped(Failing()), reads(numbers, ships.rebalance()), parallelism=2, name="failing"
    )
    job.collect(reads(failing, ships.rebalance()))
    run = Run(job, *pair)
    run.deploy()
    eventually(lambda: bool(run.errors), "an error")
    run.cancel()
    run.close()
    culprits = [error for error in run.errors.values() if isinstance(error, UserFunctionFailed)]
    assert culprits
    for error in culprits:
        assert error.operator == "failing"
        assert "ValueError: a bad day" in str(error)
        assert isinstance(error.__cause__, ValueError)


def test_a_stop_iteration_of_the_users_is_no_end_of_input(exchange: Exchange) -> None:
    def stop(value: int) -> bool:
        if value == 700:
            raise StopIteration
        return True

    job = Job()
    job.collect(job.operator(functools.partial(FilterOperator, stop), job.source(range(1000))))
    run = Run(job, exchange)
    run.deploy()
    run.await_end()
    (error,) = run.errors.values()
    assert isinstance(error, UserFunctionFailed)
    assert isinstance(error.__cause__, StopIteration)


def test_a_task_that_does_not_fit_gives_back_what_its_neighbours_had_taken(
    make_exchange: MakeExchange,
) -> None:
    job = Job(chaining=False)
    node = job.source(*[[n] for n in range(8)])
    for _ in range(3):
        node = job.operator(mapped(lambda n: n), reads(node, ships.rebalance()), parallelism=8)
    job.collect(node)
    exchange = make_exchange(segments=30)
    run = Run(job, exchange)
    with pytest.raises(InsufficientBuffers):
        run.deploy()
    assert pool_of(exchange) == (30, 30)
    assert not run.states


def test_an_operator_that_cannot_be_made_takes_nothing(exchange: Exchange) -> None:
    def broken() -> Any:
        raise ValueError("cannot be made")

    job = Job()
    job.collect(job.operator(broken, reads(job.source(range(9)), ships.rebalance())))
    run = Run(job, exchange)
    with pytest.raises(ValueError, match="cannot be made"):
        run.deploy()
    free, total = pool_of(exchange)
    assert free == total


def test_two_jobs_share_an_exchange(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(quick(), segments=200)
    jobs = [word_count() for _ in range(2)]
    runs = [Run(job, exchange, name=f"job{index}") for index, (job, _) in enumerate(jobs)]
    for run in runs:
        run.deploy()
    for run, (_, results) in zip(runs, jobs, strict=True):
        run.finish()
        assert Counter(word for word, _ in results) == Counter(expected_counts())


# Metrics of the user's functions.


class Metered:
    """A map with a gauge."""

    def __init__(self, gauge: Any) -> None:
        self.gauge = gauge

    def open(self, context: Any) -> None:
        context.get_metrics_group().gauge("mine", self.gauge)

    def map(self, value: Any) -> Any:
        return value


def test_a_gauge_that_raises_is_logged_once_with_its_operator_and_the_job_goes_on(
    exchange: Exchange, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job()
    asked = threading.Semaphore(0)

    def gauge() -> int:
        asked.release()
        raise SystemExit("nothing to tell")

    numbers = job.source([1, 2, 3], endless=True)
    results = job.collect(job.operator(mapped(Metered(gauge)), numbers, name="meter"))
    run = Run(job, exchange)
    run.deploy()
    eventually(lambda: results == [1, 2, 3], "all records have come")
    for _ in range(3):
        run.figures()
        assert asked.acquire(timeout=PATIENCE_S)
    eventually(lambda: bool(run.figures() and caplog.records), "it is logged")
    run.close()
    run.figures()
    (record,) = [record for record in caplog.records if "metric" in record.message]
    assert "metric 'mine' of operator 'meter' is left out: SystemExit" in record.message
    assert not run.errors


def test_a_slow_gauge_costs_only_its_own_task(exchange: Exchange) -> None:
    job, entered, go_on = Job(), threading.Event(), threading.Event()

    def slow() -> int:
        entered.set()
        assert go_on.wait(PATIENCE_S)
        return 7

    held = job.collect(job.operator(mapped(Metered(slow)), job.source([1], endless=True)))
    free = job.collect(job.source(range(50_000)))
    run = Run(job, exchange)
    run.deploy()
    eventually(lambda: held == [1], "the first task runs")
    run.figures()
    assert entered.wait(PATIENCE_S)
    eventually(lambda: len(free) == 50_000, "the other task reads to its end")
    assert run.figures(), "figures of the others are there"
    go_on.set()
    eventually(
        lambda: any(
            figure.user and figure.user[0].values == {"value": 7}
            for figure in run.figures().values()
        ),
        "the gauge is reported",
    )
    run.close()
