"""A job graph of three vertices, and figures of its tasks."""

from headgate.base.messages import TaskFigures, TaskState
from headgate.connectors.generator.source import DataGeneratorSource
from headgate.datastream import StreamExecutionEnvironment
from headgate.plan.job_graph import JobGraph

SOURCE, MIDDLE, END = 0, 1, 2


def three_vertices(parallelism: int = 2) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    numbers = env.from_source(DataGeneratorSource(abs, 10), None, "numbers")
    squares = numbers.key_by(abs).map(abs).name("squares")
    squares.rebalance().map(abs).name("slow").add_sink(abs).name("end")
    env.get_config()
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
        idle_ms=idle,
    )
