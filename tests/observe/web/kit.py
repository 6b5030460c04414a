"""Jobs that exist only as figures, and a real server that shows them: no Spark, no worker."""

import http.client
import json
import math
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from headgate.api.job import JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.errors import InspectionFailed
from headgate.base.figures import (
    AsyncFigures,
    GateFigures,
    OperatorFigures,
    OutputFigures,
    TaskManagerFigures,
)
from headgate.base.inspections import (
    ChannelFigures,
    ChannelTable,
    CountKeys,
    Found,
    Inspection,
    KeyCount,
    KeyCounts,
    PeekRecords,
    ReadChannels,
    ReadState,
    SampledActivity,
    SampledStack,
    SampleStacks,
    ShownState,
    StackSamples,
    StateValue,
    StateValues,
    WaitingEntry,
    WaitingRecords,
)
from headgate.base.job_records import (
    CheckpointPart,
    CheckpointRecord,
    CheckpointsRecord,
    FailureRecord,
    LogLine,
)
from headgate.base.messages import TaskFigures, TaskState, UserFigure
from headgate.base.settings import RestSettings
from headgate.connectors.generator import DataGeneratorSource
from headgate.datastream import StreamExecutionEnvironment
from headgate.host.driver.state_reads import shown_state
from headgate.observe.web.server import PageServer
from headgate.plan.execution_graph import task_id
from headgate.plan.job_graph import JobGraph, JobVertex

pytest.importorskip("uvicorn", reason="the web libraries need Python 3.11")

DEADLINE_S = 60.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def five_vertices(parallelism: int = 2) -> JobGraph:
    """orders -> parse -> enrich, which joins rates -> totals -> print."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    env.disable_operator_chaining()
    orders = env.from_source(DataGeneratorSource(abs, 10), None, "orders")
    parsed = orders.rebalance().map(abs).name("parse")
    enriched = parsed.key_by(abs).map(abs).name("enrich")
    totals = enriched.key_by(abs).map(abs).name("totals")
    totals.add_sink(abs).name("print").set_parallelism(1)
    return replace(env.get_job_graph(), name="orders by customer")


def two_branches(parallelism: int = 2) -> JobGraph:
    """orders -> left and right -> print; in a narrow window the branches stand side by side."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    env.disable_operator_chaining()
    orders = env.from_source(DataGeneratorSource(abs, 10), None, "orders")
    left, right = (orders.rebalance().map(abs).name(name) for name in ("left", "right"))
    left.union(right).rebalance().add_sink(abs).name("print")
    return replace(env.get_job_graph(), name="two branches")


def wide_vertex(parallelism: int) -> JobGraph:
    """ticks -> work, with so many subtasks."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.disable_operator_chaining()
    ticks = env.from_source(DataGeneratorSource(abs, 10), None, "ticks")
    ticks.rebalance().add_sink(abs).name("work").set_parallelism(parallelism)
    return replace(env.get_job_graph(), name="ticks")


@dataclass(frozen=True)
class Load:
    """How a vertex spends its time, and what it gets through."""

    busy: float
    backpressured: float
    records_per_s: float
    backlog: int = 0
    cpu: float = 0.0


CALM = [Load(0.2, 0, 9000), Load(0.3, 0, 9000), Load(0.4, 0, 9000), Load(0.2, 0, 9000)]
HELD_UP = [
    Load(0.08, 0.92, 1450, cpu=0.08),
    Load(0.14, 0.84, 1450, 11, cpu=0.12),
    Load(0.99, 0.0, 1450, 42, cpu=0.12),
    Load(0.11, 0.0, 1450, cpu=0.1),
    Load(0.05, 0.0, 210, cpu=0.05),
]


BRANCH_LOADS = [
    Load(0.05, 0.95, 1450, cpu=0.05),
    Load(0.2, 0.8, 1450, 10, cpu=0.1),
    Load(0.1, 0.85, 1450, 10, cpu=0.1),
    Load(0.99, 0.0, 1450, 10, cpu=0.1),
]


@dataclass
class ScriptedJob:
    """A job whose figures a script makes; it can end, fail, restart, and be asked things."""

    graph: JobGraph
    loads: list[Load] = field(default_factory=lambda: list(HELD_UP))
    job_id: str = "ab12"
    started_at_ms: int = field(default_factory=now_ms)
    ended_at_ms: int | None = None
    configuration: Mapping[str, str] = field(
        default_factory=lambda: {"parallelism.default": "2", "rest.token": "******"}
    )
    state: JobStatus = JobStatus.RUNNING
    clock: Callable[[], float] = time.monotonic
    reasons: list[str] = field(default_factory=list)
    savepoints: list[tuple[str | None, Stop, "Future[str]"]] = field(default_factory=list)
    savepoint_error: Exception | None = None
    answers: Callable[[str, Inspection], Found] | None = None
    failure_records: list[FailureRecord] = field(default_factory=list)
    checkpoint_records: CheckpointsRecord = field(default_factory=CheckpointsRecord)
    lines: list[LogLine] = field(default_factory=list)
    silent: bool = False
    """Its tasks have not reported yet."""
    uneven: float = 0.0
    """So much less of the time the second subtasks of busy vertices are busy."""
    late: int = 0
    """Records that each task has dropped."""
    immortal: bool = False
    """Cancelling it is noted, and has no effect."""

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._frozen: list[TaskFigures] | None = None
        self._restarts = 0
        self.times = {"RUNNING": self.started_at_ms}

    def age(self, seconds: float) -> None:
        """Let it have run for so long already."""
        self._began -= seconds
        self.started_at_ms -= int(1000 * seconds)

    def status(self) -> JobStatus:
        return self.state

    def state_times(self) -> Mapping[str, int]:
        return dict(self.times)

    def has_ended(self) -> bool:
        return self.state.is_globally_terminal_state()

    def end(self, state: JobStatus = JobStatus.FINISHED) -> None:
        ends = {JobStatus.FINISHED: TaskState.FINISHED, JobStatus.FAILED: TaskState.FAILED}
        self._frozen = self._made(ends.get(state, TaskState.CANCELLED))
        self.ended_at_ms = self.times[state.name] = now_ms()
        self.state = state

    def figures(self) -> list[TaskFigures]:
        return self._made(TaskState.RUNNING) if self._frozen is None else self._frozen

    def _made(self, state: TaskState) -> list[TaskFigures]:
        if self.silent:
            return []
        ran_s = self.clock() - self._began
        return [
            self._task(vertex, subtask, ran_s, state)
            for vertex in self.graph.vertices
            for subtask in range(vertex.parallelism)
        ]

    def _task(self, vertex: JobVertex, subtask: int, ran_s: float, state: TaskState) -> TaskFigures:
        load = self.loads[min(vertex.id, len(self.loads) - 1)]
        turn = ran_s / 7 + subtask + vertex.id
        wave = 1 + 0.1 * math.cos(turn)  # of the rate; the count is its integral
        records = int(load.records_per_s * (ran_s + 0.7 * math.sin(turn) + 1) / vertex.parallelism)
        ran_ms = ran_s * 1000
        if load.busy > 0.5 and subtask:
            load = replace(load, busy=load.busy - self.uneven)
        held_up_ms = load.backpressured * ran_ms
        gates, outputs = self.graph.inputs_of(vertex.id), self.graph.outputs_of(vertex.id)
        return TaskFigures(
            task=task_id(vertex.id, subtask),
            vertex=vertex.id,
            subtask=subtask,
            state=state,
            records_in=0 if vertex.is_source else records,
            records_made=records if vertex.is_source else 0,
            records_out=records if outputs else 0,
            bytes_in=0 if vertex.is_source else 40 * records,
            bytes_out=40 * records if outputs else 0,
            busy_ms=load.busy * ran_ms,
            backpressured_ms=held_up_ms,
            soft_backpressured_ms=0.9 * held_up_ms,
            hard_backpressured_ms=0.1 * held_up_ms,
            idle_ms=max(0.0, ran_ms - (load.busy + load.backpressured) * ran_ms),
            cpu_ms=load.cpu * ran_ms,
            queued_in=load.backlog,
            latency_p50_ms=0.0 if vertex.is_source else 80.0 * vertex.id * wave,
            latency_p99_ms=0.0 if vertex.is_source else 210.0 * vertex.id * wave,
            input_watermarks_ms=tuple(now_ms() - 2_000 for _ in gates),
            output_watermark_ms=now_ms() - 2_000 - 100 * subtask,
            slot=subtask,
            gates=tuple(
                GateFigures(
                    channels=self.graph.vertices[edge.source].parallelism,
                    queued_buffers=load.backlog,
                    queued_bytes=load.backlog * 32_768,
                    backlog=load.backlog // 2,
                    credit=max(0, 10 - load.backlog),
                    exclusive_in_use=min(4, load.backlog),
                    exclusive_total=4,
                    floating_in_use=min(8, load.backlog),
                    pool_size=8,
                )
                for edge in gates
            ),
            outputs=tuple(
                OutputFigures(records, 40 * records, records // 100, 2, 65_536, 12, 7)
                for _ in outputs
            ),
            operators=tuple(
                OperatorFigures(
                    operator.name,
                    records,
                    records if outputs else 0,
                    late=self.late,
                    most_late_ms=120,
                )
                for operator in vertex.chain.operators
            ),
            async_calls=(AsyncFigures("enrich", 100, 97, 12_000.0),) if vertex.id == 2 else (),
            state_bytes=1_048_576 * vertex.id if vertex.id in (2, 3) else -1,
            lag_records=120_000 + int(900 * ran_s) if vertex.is_source else -1,
            user=(UserFigure("enrich", ("cache",), "hits", "counter", {"count": records}),)
            if vertex.id == 2
            else (),
        )

    def task_managers(self) -> list[TaskManagerFigures]:
        slots = max(vertex.parallelism for vertex in self.graph.vertices)
        return [
            TaskManagerFigures(slot, "worker-1", 4711 + slot, 4, 12_000.0, 200_000_000, 2048, 1900)
            for slot in range(min(slots, 64))
        ]

    def waits_for(self) -> str:
        return ""

    def restarts(self) -> int:
        return self._restarts

    def fail_once(self, failure: FailureRecord) -> None:
        self._restarts += 1
        self.failure_records.insert(0, failure)

    def failures(self) -> list[FailureRecord]:
        return list(self.failure_records)

    def checkpoints(self) -> CheckpointsRecord:
        return self.checkpoint_records

    def log_lines(self, after: int = 0, limit: int = 1000) -> list[LogLine]:
        return [line for line in self.lines if line.number > after][:limit]

    def inspect(self, task: str, what: Inspection, timeout_s: float = 10.0) -> "Future[Found]":
        future: Future[Found] = Future()
        if self.has_ended():
            future.set_exception(InspectionFailed(task, "the job has ended"))
            return future
        answers = self.answers or usual_answers

        def answer() -> None:
            try:
                future.set_result(answers(task, what))
            except InspectionFailed as error:
                future.set_exception(error)

        takes_s = min(what.seconds, 0.05) if isinstance(what, SampleStacks) else 0.0
        timer = threading.Timer(takes_s, answer)
        timer.daemon = True
        timer.start()
        return future

    def shown_state(
        self, operator: str, state: str, keys: Sequence[str], key_type: str, timeout_s: float
    ) -> ShownState:
        return shown_state(self, operator, state, keys, key_type, timeout_s)

    def savepoint(self, directory: str | None, stop: Stop) -> "Future[str]":
        if self.savepoint_error is not None:
            raise self.savepoint_error
        future: Future[str] = Future()
        self.savepoints.append((directory, stop, future))
        return future

    def cancel_soon(self, reason: str) -> None:
        self.reasons.append(reason)
        if not self.immortal:
            self.end(JobStatus.CANCELED)


def usual_answers(task: str, what: Inspection) -> Found:
    """What the task called `enrich` would answer: it waits for somebody else's server."""
    match what:
        case SampleStacks():
            run = ("run (headgate/core/task.py:210)", "process (headgate/core/chain.py:88)")
            lookup = ("enrich (shop.py:31)", "lookup (shop.py:17)", "recv (socket.py:706)")
            stacks = (
                SampledStack((*run, *lookup), 150, 9.0, user_at=2),
                SampledStack((*run, "enrich (shop.py:33)"), 30, 21.0, user_at=2),
                SampledStack(
                    (*run, "wait (headgate/core/mailbox.py:60)"), 20, 0.0, -1, SampledActivity.IDLE
                ),
            )
            return StackSamples(200, 2_000.0, 30.0, stacks)
        case PeekRecords():
            entries = tuple(
                WaitingEntry(n % 2, "record", f"{{'order': {n}, 'customer': 7}}", "7", now_ms())
                for n in range(min(what.limit, 30))
            )
            return WaitingRecords(what.gate, 2, entries, len(entries), 42, complete=False)
        case CountKeys():
            return KeyCounts(1_000, 40, (KeyCount("7", 610), KeyCount("3", 55)))
        case ReadChannels():
            rows = tuple(
                ChannelFigures(0, n, f"1.{n}", False, 20, 655_360, 11, 0, 0, 2, False, 9_000, 400)
                for n in range(min(what.limit, 2))
            )
            return ChannelTable(2, rows)
        case ReadState():
            if what.state != "total":
                return StateValues(
                    problem=f"it has no state {what.state!r}; it has 'total' (value)"
                )
            values = [StateValue(pickle.dumps({"n": n})) for n in range(len(what.keys))]
            return StateValues("value", tuple(values))


def a_failure(at_ms: int = 1_000, attempt: int = 0) -> FailureRecord:
    return FailureRecord(
        at_ms=at_ms,
        attempt=attempt,
        kind="builtins.ZeroDivisionError",
        message="division by zero",
        task=task_id(2, 1),
        vertex=2,
        subtask=1,
        host="worker-1:4712",
        operator="enrich",
        record="{'order': 17}",
        traceback='Traceback (most recent call last):\n  File "shop.py", line 31, in enrich\n',
        restarted=True,
    )


def some_checkpoints() -> CheckpointsRecord:
    parts = tuple(
        CheckpointPart(
            task_id(vertex, 0), vertex, 0, 80.0 + vertex, 12.0, 3.0, 60.0, 4096, 0, False
        )
        for vertex in range(5)
    )
    began_ms = now_ms() - 5_000
    done = CheckpointRecord(
        7, "checkpoint", "completed", began_ms, 84.0, 20_480, 0, False, "/tmp/chk-7", "", 5, parts
    )
    failed = CheckpointRecord(6, "checkpoint", "failed", began_ms - 9_000, 60_000.0, problem="late")
    return CheckpointsRecord(7, 6, 1, 0, "", (done, failed))


def some_lines() -> list[LogLine]:
    return [
        LogLine(
            number=number,
            at_ms=now_ms() - 100 * (20 - number),
            level="WARNING" if number % 5 == 0 else "INFO",
            logger="shop",
            message=f"customer {number} has no address",
            task="enrich",
            subtask=number % 2,
            attempt=0,
            operator="enrich",
            host="worker-1:4711",
        )
        for number in range(1, 20)
    ]


@dataclass(frozen=True)
class Reply:
    """What the server has answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Caller:
    """Asks a server as a program does."""

    server: PageServer

    def __call__(
        self,
        path: str,
        method: str = "GET",
        *,
        body: object = None,
        **headers: str,
    ) -> Reply:
        where = urlsplit(self.server.url)
        connection = http.client.HTTPConnection(
            where.hostname or "", self.server.port, timeout=DEADLINE_S
        )
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            sent.setdefault("content-type", "application/json")
        try:
            connection.request(method, path, body=data, headers=sent)
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, named, response.read())
        finally:
            connection.close()


def free_port_settings(**changed: Any) -> RestSettings:
    """Any free port: tests run side by side."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return RestSettings(**{"port": port, **changed})


@contextmanager
def serving(*jobs: ScriptedJob, **settings: Any) -> Iterator[Caller]:
    server = PageServer(free_port_settings(**settings))
    try:
        for job in jobs:
            server.show(job)
        yield Caller(server)
    finally:
        server.close()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, "it has not come about"
        time.sleep(0.01)
