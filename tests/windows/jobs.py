"""Window programs as a user writes them, run on a real exchange in this process.

A program is told as a story: ``Timed`` records, and ``Mark`` watermarks where they stand. Functions
are shared by all tasks, so that a sink can be a list.
"""

from collections.abc import Callable
from typing import Any

from headgate.api.program import build_graph
from headgate.common import Watermark, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from headgate.datastream import DataStream, KeyedStream, ProcessFunction, StreamExecutionEnvironment
from headgate.host.net.exchange import Exchange
from tests.host.local_job import Job, Run
from tests.host.rig import eventually
from tests.windows.reference import MAX, Mark, Story, Timed


class Marks(WatermarkGenerator):
    """A watermark for each mark of the story."""

    def on_event(self, event: Any, timestamp: int, output: WatermarkOutput) -> None:
        if isinstance(event, Mark) and event.time < MAX:
            output.emit_watermark(Watermark(event.time))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """All is said."""


def time_of(element: Any, before: int) -> int:
    return int(element.time)


def story_stream(env: StreamExecutionEnvironment, story: Story) -> DataStream:
    """The records of a story, with the watermarks where they stand."""
    strategy = WatermarkStrategy.for_generator(Marks).with_timestamp_assigner(time_of)
    elements = env.from_collection(story).assign_timestamps_and_watermarks(strategy)
    records = elements.set_parallelism(1).filter(lambda element: isinstance(element, Timed))
    return records.set_parallelism(1)  # in one task, so that all stay in line


def keyed(env: StreamExecutionEnvironment, *story: "Timed | Mark") -> KeyedStream:
    return story_stream(env, list(story)).key_by(lambda record: record.key)


def at(*times: int, key: str = "a") -> list[Timed]:
    """Records at these times; the values are their numbers."""
    return [Timed(key, number, time) for number, time in enumerate(times)]


class Program:
    """Runs what a program has written; results are gathered in one task, in order of arrival."""

    def __init__(self, env: StreamExecutionEnvironment, make_exchange: Callable[..., Exchange]):
        self.env = env
        self._make_exchange = make_exchange

    def run(self, *streams: DataStream) -> list[Any]:
        """What comes out of the streams, in one list for each if there are several."""
        kept: list[list[Any]] = [[] for _ in streams]
        for stream, records in zip(streams, kept, strict=True):
            stream.add_sink(records.append).set_parallelism(1)
        job = Job()
        job.graph = build_graph(self.env._draft, "windows", self.env._draft.pending)
        self.env._draft.pending.clear()
        run = Run(job, self._make_exchange(local_only=True))
        try:
            run.deploy()
            eventually(lambda: run.errors or ended(run), "the end of the job, or an error")
            for error in run.errors.values():
                raise error
            run.finish()
        finally:
            run.close()
        return kept[0] if len(kept) == 1 else kept


def ended(run: Run) -> bool:
    return all(deployment.ends_within(0.01) for deployment in run.deployments)


class WithTime(ProcessFunction[Any, Any]):
    """Each record with its timestamp."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield value, ctx.timestamp()
