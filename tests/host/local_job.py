"""Whole jobs in one process: a program, planned and run on one or several exchanges.

`Job` writes the program a line at a time; `Run` deploys it and gathers states and results.
Functions are shared by all tasks, so a test's list can be a sink.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headgate.base.messages import (
    SourceTimeAnnounced,
    SourceTimeReported,
    SplitsAssigned,
    TaskOrder,
    TaskState,
)
from headgate.control.split_assignment import SplitAssignment
from headgate.core.chain.operator import Operator
from headgate.core.exchange.link import Address
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.operators.source import SourceOperator
from headgate.core.operators.split_discovery import pickled_splits
from headgate.core.state.backend import Backends
from headgate.core.state.memory import MemoryBackends
from headgate.core.task.assembly import JobInfo, TaskAssembly
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader
from headgate.host.net.exchange import Exchange
from headgate.host.worker.deployment import Deployment, ExchangeWorker
from headgate.plan import ship_strategies as ships
from headgate.plan.execution_graph import (
    ExecutionGraph,
    build_execution_graph,
    planned_sources,
)
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, ShipStrategy, StreamEdge, StreamGraph, StreamNode
from tests.host.rig import PATIENCE_S, eventually


class Listed(Source):
    """A source of lists, one split for each; ``endless`` gives nothing at the end, for ever."""

    bounded = True

    def __init__(self, endless: bool = False) -> None:
        self.endless = endless

    def splits(self, parallelism: int) -> Sequence[object]:
        return []

    def open(self, split: Any, position: object, context: ConnectorContext) -> "ListReader":
        return ListReader(list(split), self.endless)


class ListReader(SplitReader):
    """Gives at most as many as it is asked for."""

    def __init__(self, records: list[Any], endless: bool) -> None:
        self._records = records
        self._endless = endless

    def poll(self, limit: int) -> list[Any] | None:
        found, self._records = self._records[:limit], self._records[limit:]
        return found if found or self._endless else None

    def wait_ms(self) -> float:
        return 1.0

    def position(self) -> object:
        return None

    def close(self) -> None:
        """Nothing is open."""


class Job:
    """A program; every method answers with the new node's number."""

    def __init__(self, **settings: Any) -> None:
        self.graph = StreamGraph("test job", **settings)

    def source(self, *splits: Sequence[Any], endless: bool = False, **fields: Any) -> int:
        """A source with a task for each split."""
        make = functools.partial(SourceOperator, Listed(endless), splits)
        return self._node(NodeKind.SOURCE, make, max(1, len(splits)), (), fields)

    def polled(self, make: Callable[[], SourceOperator], **fields: Any) -> int:
        """A source with one task."""
        return self._node(NodeKind.SOURCE, make, 1, (), fields)

    def operator(
        self,
        make: Callable[[], Operator],
        *inputs: "int | StreamEdge",
        parallelism: int = 1,
        **fields: Any,
    ) -> int:
        return self._node(NodeKind.OPERATOR, make, parallelism, inputs, fields)

    def collect(self, *inputs: "int | StreamEdge", parallelism: int = 1) -> list[Any]:
        """A sink that keeps everything in a list, in the order of arrival."""
        kept: list[Any] = []
        make = functools.partial(SinkFunctionOperator, kept.append)
        self._node(NodeKind.SINK, make, parallelism, inputs, {})
        return kept

    def _node(
        self,
        kind: NodeKind,
        make: Callable[[], Operator],
        parallelism: int,
        inputs: "tuple[int | StreamEdge, ...]",
        fields: dict[str, Any],
    ) -> int:
        number = len(self.graph.nodes) + 1
        name = fields.pop("name", f"{kind.name.lower()}{number}")
        self.graph.nodes[number] = StreamNode(number, name, kind, make, parallelism, **fields)
        for gate in inputs:
            edge = reads(gate) if isinstance(gate, int) else gate
            target = StreamEdge(edge.source, number, edge.input, edge.ship, edge.tag, edge.selected)
            self.graph.edges.append(target)
        return number


def reads(
    source: int, ship: ShipStrategy | None = None, number: int = 0, tag: str | None = None
) -> StreamEdge:
    """How the node that is about to be written reads another one."""
    return StreamEdge(source, -1, number, ship or ships.default_strategy(), tag)


class Run:
    """A job on its exchanges: task i of a vertex on the i-th, round and round."""

    def __init__(
        self,
        job: Job,
        *exchanges: Exchange,
        name: str = "j",
        backends: Backends | None = None,
        **info: Any,
    ) -> None:
        self.job_graph: JobGraph = build_job_graph(job.graph)
        self.graph: ExecutionGraph = build_execution_graph(self.job_graph, name, 0)
        self.exchanges = exchanges
        self.states: dict[str, list[TaskState]] = {}
        self.errors: dict[str, BaseException] = {}
        self._lock = threading.Lock()
        vertices = {vertex.id: vertex for vertex in self.job_graph.vertices}
        self.splits = self._assignments()
        self.deployments = [
            Deployment(
                exchange,
                TaskAssembly(
                    ExchangeWorker(exchange, backends or MemoryBackends()),
                    vertices,
                    JobInfo(name, **info),
                    self,
                ),
            )
            for exchange in exchanges
        ]

    def _assignments(self) -> list[SplitAssignment]:
        """Of sources whose splits are handed out; all are found before the first task asks."""
        found = []
        for source in planned_sources(self.job_graph, self.graph, {}):
            homes = {task.id: self.home(task) for task in self.graph.tasks}
            splits = SplitAssignment(
                "r", replace(source, slots={t: homes[t] for t in source.slots})
            )
            enumerator = source.create(b"")
            splits.discovered(b"", pickled_splits(enumerator.discover()), True)
            enumerator.close()
            found.append(splits)
        return found

    def home(self, task: TaskOrder) -> int:
        return task.subtask % len(self.exchanges)

    def deploy(self, tasks: Sequence[TaskOrder] | None = None, *, late: bool = False) -> None:
        """Start tasks; ``late``: producers elsewhere are placed when everybody runs."""
        tasks = self.graph.tasks if tasks is None else tasks
        for index, deployment in enumerate(self.deployments):
            own = [task for task in tasks if self.home(task) == index]
            known = {
                task.id: self._address(task, index)
                for task in self.graph.tasks
                if not late or self.home(task) == index
            }
            deployment.deploy(own, known)
        if late:
            self.place()

    def place(self) -> None:
        """Tell every exchange where the tasks of the others run."""
        for index, deployment in enumerate(self.deployments):
            for task in self.graph.tasks:
                if self.home(task) != index:
                    deployment.placed(task.id, self._address(task, index))

    def finish(self) -> "Run":
        """Run to the end; every task must have finished."""
        self.await_end()
        ends = {task: states[-1] for task, states in self.states.items()}
        assert set(ends.values()) == {TaskState.FINISHED}, (ends, self.errors)
        return self

    def await_end(self) -> None:
        for deployment in self.deployments:
            assert deployment.ends_within(PATIENCE_S), self.states

    def run(self, *, late: bool = False) -> "Run":
        self.deploy(late=late)
        return self.finish()

    def run_in_stages(self) -> "Run":
        """A stage reads when the one before has finished."""
        for vertex in self.job_graph.vertices:
            self.deploy([task for task in self.graph.tasks if task.vertex == vertex.id])
            self.await_end()
        return self.finish()

    def await_state(self, state: TaskState) -> None:
        """Until every task has been in this state."""
        eventually(
            lambda: all(state in self.states.get(task.id, ()) for task in self.graph.tasks),
            f"{state} of all tasks",
        )

    def figures(self) -> dict[str, Any]:
        return {
            figures.task: figures
            for deployment in self.deployments
            for figures in deployment.report()
        }

    def cancel(self) -> None:
        for deployment in self.deployments:
            deployment.cancel()

    def close(self) -> None:
        """End what still runs, everywhere, and drop what nobody has read."""
        if not all(deployment.ends_within(0) for deployment in self.deployments):
            self.cancel()
        for deployment in self.deployments:
            assert deployment.close(PATIENCE_S)

    def _address(self, task: TaskOrder, index: int) -> Address | None:
        home = self.home(task)
        return None if home == index else self.exchanges[home].address

    # What tasks report (``TaskListener``), from their threads.

    def state_changed(self, task: str, state: TaskState, error: BaseException | None) -> None:
        with self._lock:
            self.states.setdefault(task, []).append(state)
            if error is not None:
                self.errors[task] = error

    def time_reported(self, task: str, group: str, watermark_ms: int | None) -> None:
        """Nobody aligns sources here."""

    def splits_wanted(self, task: str, count: int, held: int) -> None:
        """The driver's machine hands them out; its enumerators have found all."""
        with self._lock:
            splits = next(each for each in self.splits if task in each.source.slots)
            messages = splits.wanted(task, count, held)
        for home, message in messages:
            self._order(home, message)

    def source_time_reported(
        self, task: str, received: int, watermark_ms: int, rests: bool
    ) -> None:
        """The driver's machine tells others of the source."""
        with self._lock:
            splits = next(each for each in self.splits if task in each.source.slots)
            report = SourceTimeReported("", task, received, watermark_ms, rests)
            messages = splits.time_reported(report)
        for home, message in messages:
            self._order(home, message)

    def _order(self, home: int, message: SplitsAssigned | SourceTimeAnnounced) -> None:
        deployment = self.deployments[home]
        with deployment.inside():
            for deployed in deployment.tasks:
                if deployed.name == message.task:
                    deployed.task.obey(message)

    def checkpoint_declined(self, task: str, checkpoint: int, reason: str, subsumed: bool) -> None:
        raise AssertionError("nobody takes a checkpoint here")

    def checkpoint_wanted(self, task: str) -> None:
        raise AssertionError("nobody takes a checkpoint here")
