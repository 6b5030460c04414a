"""Programs as a PyFlink user writes them, run on a real exchange in this process.

Each task has a copy of the functions, as it has when they travel; only sinks keep their lists.
``story`` writes watermarks among the records, so that a test decides what is late.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any

from headgate.api.program import build_graph
from headgate.base.errors import UserFunctionFailed
from headgate.common import Watermark, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from headgate.core.chain.operator import Operator
from headgate.core.state.backend import Backends
from headgate.datastream import DataStream, MapFunction, RuntimeContext, StreamExecutionEnvironment
from headgate.plan.stream_graph import NodeKind
from tests.host.conftest import MakeExchange
from tests.host.local_job import Job, Run
from tests.host.rig import eventually

MIN, MAX = -(2**63), 2**63 - 1
WATERMARK = "watermark"


def first(record: Any) -> Any:
    return record[0]


def second(record: Any, before: int = 0) -> Any:
    """Also the timestamp of a record."""
    return record[1]


def mark(time_ms: int) -> tuple[str, int]:
    """Stands for a watermark among the records of ``story``."""
    return WATERMARK, time_ms


class Marks(WatermarkGenerator):
    """A watermark for each mark."""

    def on_event(self, event: Any, timestamp: int, output: WatermarkOutput) -> None:
        if event[0] == WATERMARK:
            output.emit_watermark(Watermark(timestamp))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """All is said."""


class Subtask(MapFunction[Any, Any]):
    """Each record with the number of the task that it has come to."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        return self.subtask, value


class Lab:
    """An environment, and what its programs bring out."""

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        make_exchange: MakeExchange,
        backends: Backends | None = None,
    ) -> None:
        self.env = env
        self._make_exchange = make_exchange
        self._backends = backends

    def read(self, *records: Any) -> DataStream:
        return self.env.from_collection(list(records))

    def timed(self, records: Iterable[Any]) -> DataStream:
        """The second field is the timestamp; no watermark comes before the end."""
        self.env.get_config().set_auto_watermark_interval(3_600_000)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(second)
        return self.env.from_collection(list(records)).assign_timestamps_and_watermarks(strategy)

    def story(self, *story: Any) -> DataStream:
        """The second field is the timestamp; watermarks stand where they are marked."""
        strategy = WatermarkStrategy.for_generator(Marks).with_timestamp_assigner(second)
        elements = self.env.from_collection(list(story)).assign_timestamps_and_watermarks(strategy)
        records = elements.set_parallelism(1).filter(lambda record: record[0] != WATERMARK)
        return records.set_parallelism(1)  # in one task, so that all stay in line

    def run(self, *streams: DataStream) -> list[Any]:
        """What comes out of the streams, in one list for each if there are several."""
        kept: list[list[Any]] = [[] for _ in streams]
        for stream, records in zip(streams, kept, strict=True):
            stream.add_sink(records.append).set_parallelism(1).name("sink of the test")
        job = Job()
        job.graph = build_graph(self.env._draft, "semantics", self.env._draft.pending)
        self.env._draft.pending.clear()
        for node in job.graph.nodes.values():
            if node.kind is not NodeKind.SINK:
                node.make = Copied(node.make)
        exchange = self._make_exchange(local_only=True, segments=400)
        run = Run(job, exchange, backends=self._backends)
        try:
            if job.graph.batch:
                run.run_in_stages()
            else:
                run.deploy()
                eventually(lambda: run.errors or ended(run), "the end of the job, or an error")
                self._raise(list(run.errors.values()))
                run.finish()
        finally:
            run.close()
        return kept[0] if len(kept) == 1 else kept

    @staticmethod
    def _raise(errors: list[BaseException]) -> None:
        """The one of the user's, if tasks have failed because of each other."""
        for error in sorted(errors, key=lambda error: not isinstance(error, UserFunctionFailed)):
            raise error


class Copied:
    """Makes operators of copies, as every task does."""

    def __init__(self, make: Callable[[], Operator]) -> None:
        self._make = make

    def __call__(self) -> Operator:
        return copy.deepcopy(self._make)()


def ended(run: Run) -> bool:
    return all(deployment.ends_within(0.01) for deployment in run.deployments)
