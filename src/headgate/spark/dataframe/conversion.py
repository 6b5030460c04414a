"""DataFrames in and out of programs: the driver's side.

A program that reads DataFrames has them as the input of its barrier stage. One that ends in a
DataFrame is a transformation: nothing runs before an action, and each action is a run of its own.
A run that fails by a task's own fault ends the action at once, with JobFailed; if a process is
lost, Spark tries the stage again. The coordinator keeps such a job as long as its session lives,
because nobody knows what was derived from the DataFrame.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from headgate.api.program import Program
from headgate.base.errors import FrameInvalid
from headgate.connectors.dataframe.sink import DataFrameSink
from headgate.connectors.dataframe.source import DataFrameSource
from headgate.control.run_effects import Outcome
from headgate.host.driver.driver_run import RunKey
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.placement import place
from headgate.spark.dataframe.plan import FrameInput, input_plan, is_orderable, output_plan
from headgate.spark.dataframe.schema import TypeUnknown, check_types, read_schema, row_shape
from headgate.spark.dataframe.worker import FrameProcess
from headgate.spark.frame_failures import install, note_failure
from headgate.spark.prepared import Prepared
from headgate.spark.session import find_session
from headgate.spark.submission import prepare

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

NOTHING: Final = "nothing boolean"
"""The schema of a barrier stage whose records go elsewhere."""

_open_jobs: list[Prepared] = []
_lock = threading.Lock()


def dataframe_source(
    dataframe: object, order_by: Sequence[str] = (), partition_by: Sequence[str] = ()
) -> DataFrameSource:
    """The rows of a DataFrame as a source; raises FrameInvalid."""
    from pyspark.sql import DataFrame

    if not isinstance(dataframe, DataFrame):
        raise FrameInvalid(
            f"was given a {type(dataframe).__module__}.{type(dataframe).__name__}; "
            f"give a Spark DataFrame, for instance spark.createDataFrame(…)"
        )
    if not hasattr(dataframe, "_jdf"):
        raise FrameInvalid("was given a DataFrame of Spark Connect, which does not work yet")
    if dataframe.isStreaming:
        raise FrameInvalid("was given a streaming DataFrame; give one that ends")
    if not dataframe.columns:
        raise FrameInvalid("was given a DataFrame without columns")
    try:
        check_types(dataframe.schema)
    except TypeUnknown as unknown:
        raise FrameInvalid(
            f"was given a DataFrame whose column {unknown.path!r} {unknown.problem}"
        ) from None
    if partition_by and not order_by:
        raise FrameInvalid("was given partition_by without order_by; say in which order, too")
    places = _places(dataframe, order_by, "order_by")
    parts = _places(dataframe, partition_by, "partition_by")
    return DataFrameSource(dataframe, dataframe.columns, places, parts)


def _places(dataframe: "DataFrame", names: Sequence[str], what: str) -> list[int]:
    """Where these columns are; refuses those that Spark cannot compare."""
    columns = list(dataframe.columns)
    for name in names:
        if columns.count(name) != 1:
            problem = "which is there more than once" if name in columns else "which is not there"
            raise FrameInvalid(
                f"was given {what}={name!r}, {problem}; the columns are {', '.join(columns)}"
            )
        if not is_orderable(dataframe.schema[columns.index(name)].dataType):
            kind = dataframe.schema[columns.index(name)].dataType.simpleString()
            raise FrameInvalid(f"was given {what}={name!r}, a {kind}, which has no order")
    return [columns.index(name) for name in names]


def to_dataframe(program: Program, node: int) -> "DataFrame":
    """The lazy DataFrame of what comes to the sink of this node."""
    (sink,) = [sink for _, sink in program.graph.nodes[node].functions]
    assert isinstance(sink, DataFrameSink)
    needed = place(build_job_graph(program.graph)).slots
    session = find_session(program.configuration, needed=needed)
    schema = read_schema(sink.schema)
    sink.shape = row_shape(session, schema)
    install()
    ready = prepare(program, lazy=True, on_ended=_end_action(session, program.name))
    with _lock:
        _open_jobs[:] = [job for job in _open_jobs if _lives(job)]
        _open_jobs.append(ready)
    rows = barrier_plan(ready, program, schema, sink.token)
    return output_plan(rows, ready.slots)


def barrier_plan(
    ready: Prepared, program: Program, schema: Any, outlet: str | None, stage: str = ""
) -> "DataFrame":
    """The barrier stage with the task managers of a job, and its DataFrames as input."""
    inputs = list(_inputs(program, ready.graph))
    tokens = tuple(source.token for source, _ in inputs)
    process = FrameProcess(ready.public_contact(stage), tokens, outlet, ready.job_files)
    frames = [frame for _, frame in inputs]
    session = frames[0].dataframe.sparkSession if frames else ready.session

    def headgate(batches: Iterable[Any]) -> Iterator[Any]:  # its name stands in Spark's plan
        return process(batches)

    plan = input_plan(session, frames, ready.slots)
    return plan.mapInArrow(headgate, schema, barrier=True)


def _inputs(program: Program, graph: JobGraph) -> Iterator[tuple[DataFrameSource, FrameInput]]:
    placement = place(graph)
    vertices = {op.id: vertex for vertex in graph.vertices for op in vertex.chain.operators}
    for node in program.graph.nodes.values():
        for _, source in node.functions:
            if isinstance(source, DataFrameSource):
                vertex = vertices[node.id]
                first = placement.first_slot(vertex.group)
                slots = range(first, first + vertex.parallelism)
                order = (source.order_by, source.partition_by)
                yield source, FrameInput(source.dataframe, slots, *order)


def _end_action(session: "SparkSession", name: str) -> Callable[[RunKey, Outcome], None]:
    """Spark would repeat the stage three times, although a task's own fault is there again."""
    application = str(session.sparkContext.applicationId)

    def ended(key: RunKey, outcome: Outcome) -> None:
        note_failure(application, int(key.stage), name, outcome)
        if outcome.is_own_failure:
            try:
                spark: Any = session.sparkContext._jsc
                # frame_failures looks for the stage.
                reason = f"{outcome.problem}\n\n(in stage {key.stage})"
                spark.sc().cancelStage(int(key.stage), reason)
            except Exception as error:
                log.info("stage %s could not be ended: %s", key.stage, error)

    return ended


def _lives(job: Prepared) -> bool:
    context: Any = job.session.sparkContext
    if context._jsc is not None and not context._jsc.sc().isStopped():
        return True
    job.close()
    return False
