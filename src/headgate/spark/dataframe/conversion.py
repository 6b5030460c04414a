"""DataFrames in and out of programs: the driver's side.

A program that reads DataFrames has them as the input of its barrier stage. One that ends in a
DataFrame is a transformation: nothing runs before an action, and each action is a run of its own.
A run that fails by a task's own fault ends the action at once, with JobFailed; if a process is
lost, Spark tries the stage again. The coordinator keeps such a job as long as its session lives,
because nobody knows what was derived from the DataFrame.

The driver knows why a run has failed; Spark only knows that a stage has. PySpark turns errors of
Java into its own in one function, ``convert_exception``, whatever the action and however the
DataFrame was derived; here it first asks whether the failed stage was one of ours. Law: an error
that names no stage of ours goes PySpark's way, untouched.
"""

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from headgate.api.program import Program
from headgate.base.errors import FrameInvalid, JobCancelled, JobFailed
from headgate.base.settings import JobSettings, RestSettings
from headgate.connectors.dataframe.sink import DataFrameSink
from headgate.connectors.dataframe.source import DataFrameSource
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.host.driver.driver_run import RunKey
from headgate.observe.web.server import page_server, print_link
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.placement import place
from headgate.spark.archives import archive_at_end
from headgate.spark.dataframe.frame_job import FrameJob
from headgate.spark.dataframe.plan import FrameInput, input_plan, is_orderable, output_plan
from headgate.spark.dataframe.schema import TypeUnknown, check_types, read_schema, row_shape
from headgate.spark.dataframe.worker import FrameProcess
from headgate.spark.failures import failure_error
from headgate.spark.job import PreparedJob
from headgate.spark.session import find_session
from headgate.spark.submission import prepare

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

NOTHING: Final = "nothing boolean"
"""The schema of a barrier stage whose records go elsewhere."""

MOST_KEPT: Final = 256
"""How many failures are remembered; an action asks right after its stage has failed."""
MOST_CAUSES: Final = 10
_STAGE: Final = re.compile(r"\b(?:[Ss]tage |(?:Result|ShuffleMap)Task\()(\d+)")
"""How Spark names a stage; the reason that we give for its end names it, too."""
_failures: "OrderedDict[tuple[str, int], tuple[str, Outcome]]" = OrderedDict()
"""Of a Spark application and a stage: the job's name, and how its run has ended."""
_failures_lock = threading.Lock()
_open_jobs: list[PreparedJob] = []
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
    install_error_conversion()
    show = _shown_actions(program)
    prepared = prepare(
        program,
        lazy=True,
        on_begun=lambda run: show(FrameJob(prepared, run)),
        on_ended=_end_action(session, program.name),
    )
    with _lock:
        _open_jobs[:] = [job for job in _open_jobs if _lives(job)]
        _open_jobs.append(prepared)
    rows = barrier_plan(prepared, program, schema, sink.token)
    return output_plan(rows, prepared.slots)


def barrier_plan(
    prepared: PreparedJob, program: Program, schema: Any, outlet: str | None, stage: str = ""
) -> "DataFrame":
    """The barrier stage with the task managers of a job, and its DataFrames as input."""
    inputs = list(_inputs(program, prepared.graph))
    tokens = tuple(source.token for source, _ in inputs)
    process = FrameProcess(prepared.public_contact(stage), tokens, outlet, prepared.job_files)
    frames = [frame for _, frame in inputs]
    session = frames[0].dataframe.sparkSession if frames else prepared.session

    def headgate(batches: Iterable[Any]) -> Iterator[Any]:  # its name stands in Spark's plan
        return process(batches)

    plan = input_plan(session, frames, prepared.slots)
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


def _shown_actions(program: Program) -> Callable[[FrameJob], None]:
    """What shows the actions on a DataFrame on the page, says once where it is, and keeps them."""
    rest = RestSettings.parse(program.configuration)
    archives = JobSettings.parse(program.configuration).archive_folder
    announced: list[str] = []

    def show(job: FrameJob) -> None:
        page = page_server(rest)
        if archives:
            archive_at_end(job, archives, None if page is None else page.jobs)
        if page is None:
            return
        address = page.show(job)
        if not announced:
            print_link(job.name, address)
            announced.append(address)

    return show


def _end_action(session: "SparkSession", name: str) -> Callable[[RunKey, Outcome], None]:
    """Spark would repeat the stage three times, although a task's own fault is there again.

    It would do the same with one that was cancelled.
    """
    application = str(session.sparkContext.applicationId)

    def ended(key: RunKey, outcome: Outcome) -> None:
        note_failure(application, int(key.stage), name, outcome)
        if outcome.is_own_failure or outcome.state is JobState.CANCELLED:
            try:
                spark: Any = session.sparkContext._jsc
                # error_of looks for the stage.
                reason = f"{outcome.problem}\n\n(in stage {key.stage})"
                spark.sc().cancelStage(int(key.stage), reason)
            except Exception as error:
                log.info("stage %s could not be ended: %s", key.stage, error)

    return ended


def _lives(job: PreparedJob) -> bool:
    context: Any = job.session.sparkContext
    if context._jsc is not None and not context._jsc.sc().isStopped():
        return True
    job.close()
    return False


def note_failure(application: str, stage: int, job: str, outcome: Outcome) -> None:
    """A run of a lazy job has failed or was cancelled; the action on the DataFrame is about to."""
    if outcome.state is JobState.FINISHED:
        return
    with _failures_lock:
        _failures[application, stage] = (job, outcome)
        while len(_failures) > MOST_KEPT:
            _failures.popitem(last=False)


def error_of(application: str, text: str) -> JobFailed | JobCancelled | None:
    """What to raise for an error of Spark's with this text; None: it is not about a job of ours."""
    with _failures_lock:
        for stage in _STAGE.findall(text):
            if (application, int(stage)) in _failures:
                job, outcome = _failures[application, int(stage)]
                if outcome.state is JobState.CANCELLED:
                    return JobCancelled(job, outcome.reason)
                return failure_error(job, outcome.failure)
    return None


def install_error_conversion() -> None:
    """Ask us before PySpark makes an error of its own; idempotent."""
    from pyspark.errors.exceptions import captured

    module: Any = captured
    usual: Callable[[Any], Any] | None = getattr(module, "convert_exception", None)
    if usual is None or hasattr(usual, "is_headgate"):  # none: a PySpark that we do not know
        return

    def convert_exception(error: Any) -> Any:
        failed = _error_of_java(error)
        if failed is None:
            return usual(error)
        failed.__suppress_context__ = True
        raise failed  # PySpark would raise it without its cause

    convert_exception.is_headgate = True  # type: ignore[attr-defined] # that is what it is for
    module.convert_exception = convert_exception


def _error_of_java(error: Any) -> JobFailed | JobCancelled | None:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or not _failures:
        return None
    try:
        application = str(context.applicationId)
        texts: list[str] = []
        while error is not None and len(texts) < MOST_CAUSES:  # toPandas() has it in a cause
            texts.append(str(error.toString()))
            error = error.getCause()
        return error_of(application, "\n".join(texts))
    except Exception:  # Java cannot be asked: let PySpark say so
        return None
