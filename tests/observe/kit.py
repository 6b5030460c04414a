"""Job graphs, figures of their tasks, windows made of them, and a job that reports them."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future

from hypothesis import strategies as st

from headgate.api.job import JobStatus
from headgate.base.errors import InspectionFailed
from headgate.base.figures import AsyncFigures, BatchFigures, OutputFigures, TaskManagerFigures
from headgate.base.inspections import Found, Inspection
from headgate.base.messages import TaskFigures, TaskState
from headgate.connectors.generator import DataGeneratorSource
from headgate.datastream import StreamExecutionEnvironment
from headgate.observe.analysis.windows import EMPTY, JobWindow, snapshot_of, window_between
from headgate.observe.web.answers import VertexDetails
from headgate.observe.web.job_answers import vertex_details
from headgate.plan.job_graph import JobGraph

SOURCE, MIDDLE, END = 0, 1, 2


def three_vertices(parallelism: int = 2, *, batch: bool = False) -> JobGraph:
    """Source → squares, by key → slow, the end."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    numbers = env.from_source(DataGeneratorSource(abs, 10), None, "numbers")
    squares = numbers.key_by(abs).map(abs).name("squares")
    squares.rebalance().map(abs).name("slow").add_sink(abs).name("end")
    graph = env.get_job_graph()
    return JobGraph(graph.name, graph.vertices, graph.edges, batch)


def diamond(parallelism: int = 1) -> JobGraph:
    """Source 0 → left 1 and right 2 → their union 3."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    numbers = env.from_source(DataGeneratorSource(abs, 10), None, "numbers")
    left = numbers.rebalance().map(abs).name("left")
    right = numbers.rebalance().map(abs).name("right")
    left.union(right).rebalance().map(abs).name("both").add_sink(abs).name("end")
    return env.get_job_graph()


def figures(
    vertex: int,
    subtask: int = 0,
    *,
    busy: float = 0,
    held_up: float = 0,
    idle: float = 0,
    records: int = 0,
    made: int = 0,
    out: int = 0,
    state: TaskState = TaskState.RUNNING,
    cpu: float = 0,
    runnable: float = 0,
    commit: float = 0,
    outputs: Sequence[int] = (),
    slot: int = 0,
    full: float | None = None,
    splits: int = 0,
    throttled: float | None = None,
    lag: int = -1,
    lag_ms: float = -1,
) -> TaskFigures:
    return TaskFigures(
        task=f"{vertex}.{subtask}",
        vertex=vertex,
        subtask=subtask,
        state=state,
        records_in=records,
        records_made=made,
        records_out=out,
        busy_ms=busy,
        backpressured_ms=held_up,
        soft_backpressured_ms=held_up,
        idle_ms=idle,
        cpu_ms=cpu,
        runnable_ms=runnable,
        commit_ms=commit,
        outputs=tuple(OutputFigures(sent) for sent in outputs),
        slot=slot,
        async_calls=() if full is None else (AsyncFigures("enrich", 100, 100, full),),
        batch_calls=()
        if throttled is None
        else (BatchFigures("enrich", 50, 5_000, 1, throttled, 7),),
        splits=splits,
        lag_records=lag,
        lag_ms=lag_ms,
    )


def details(window: JobWindow) -> list[VertexDetails]:
    """What is shown of its vertices."""
    return [vertex_details(vertex, JobStatus.RUNNING, 0.0) for vertex in window.vertices]


def process(
    slot: int = 0, cpu: float = 0.0, cores: int = 8, host: str = "a", pid: int = 1
) -> TaskManagerFigures:
    return TaskManagerFigures(slot=slot, host=host, pid=pid, cores=cores, cpu_ms=cpu)


def window_of(
    graph: JobGraph,
    tasks: Sequence[TaskFigures],
    processes: Sequence[TaskManagerFigures] = (),
    before: Sequence[TaskFigures] = (),
) -> JobWindow:
    """In which the tasks have gained these figures; ten seconds, if there were some before."""
    first = snapshot_of(before, (), -10_000.0) if before else EMPTY
    return window_between(graph, [first, snapshot_of(tasks, processes, 0.0)], tasks, processes)


@st.composite
def windows(draw: st.DrawFn) -> JobWindow:
    """Any window, of any shape of job, also with tasks that have not reported."""
    graph = draw(st.sampled_from(_GRAPHS))
    tasks = [
        _any_task(draw, vertex.id, subtask, vertex.is_source)
        for vertex in graph.vertices
        for subtask in range(draw(st.integers(0, vertex.parallelism)))
    ]
    before = [figures(0, lag=draw(st.sampled_from([-1, 0, 10**7])))] if draw(st.booleans()) else []
    return window_of(graph, tasks, [process(cpu=draw(_SPANS), cores=2)], before)


def _any_task(draw: st.DrawFn, vertex: int, subtask: int, is_source: bool) -> TaskFigures:
    records = draw(_COUNTS)
    return figures(
        vertex,
        subtask,
        busy=draw(_SPANS),
        held_up=draw(_SPANS),
        idle=draw(_SPANS),
        made=records if is_source else 0,
        records=0 if is_source else records,
        outputs=draw(st.lists(_COUNTS, max_size=2)),
        cpu=draw(_SPANS),
        runnable=draw(_SPANS),
        commit=draw(_SPANS),
        full=draw(st.none() | _SPANS),
        lag=draw(st.sampled_from([-1, 0, 10**6])),
        splits=draw(st.integers(0, 4)),
        state=draw(st.sampled_from([TaskState.RUNNING, TaskState.FINISHED])),
    )


_SPANS = st.floats(0, 1e6) | st.sampled_from([0.0, 10_000.0])
_COUNTS = st.integers(0, 10**9)
_GRAPHS = [three_vertices(2), diamond(2), three_vertices(3, batch=True)]


class ScriptedJob:
    """Reports what a test puts into it; says when it was looked at."""

    def __init__(self, graph: JobGraph, tasks: Sequence[TaskFigures] = ()) -> None:
        self.graph = graph
        self.tasks = list(tasks)
        self.processes: list[TaskManagerFigures] = []
        self.restarted = 0
        self.waiting = ""
        self.state = JobStatus.RUNNING
        self.answers: dict[type[Inspection], Found] = {}
        self.asked: list[tuple[str, Inspection]] = []
        self.looked_at = threading.Event()
        self.ended = threading.Event()
        self.started_at_ms = 1_000

    @property
    def ended_at_ms(self) -> int | None:
        return 13_400 if self.ended.is_set() else None

    def status(self) -> JobStatus:
        return JobStatus.FINISHED if self.ended.is_set() else self.state

    def has_ended(self) -> bool:
        return self.ended.is_set()

    def figures(self) -> list[TaskFigures]:
        self.looked_at.set()
        return list(self.tasks)

    def task_managers(self) -> list[TaskManagerFigures]:
        return list(self.processes)

    def waits_for(self) -> str:
        return self.waiting

    def restarts(self) -> int:
        return self.restarted

    def inspect(self, task: str, what: Inspection, timeout_s: float = 10.0) -> "Future[Found]":
        self.asked.append((task, what))
        future: Future[Found] = Future()
        found = self.answers.get(type(what))
        if found is None:
            future.set_exception(InspectionFailed(task, "it does not answer"))
        else:
            future.set_result(found)
        return future
