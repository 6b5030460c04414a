"""Programs as PyFlink's users write them, after their imports were changed."""

from headgate.common import Row, Types
from headgate.common.configuration import Configuration
from headgate.common.typeinfo import Types as TypesOfTypeinfo
from headgate.datastream import OutputTag, RuntimeExecutionMode, StreamExecutionEnvironment
from headgate.datastream.functions import (
    FlatMapFunction,
    MapFunction,
    ProcessFunction,
    RuntimeContext,
    SinkFunction,
)
from tests.api.kit import OneTaskRuntime


def test_word_count(local_runtime: OneTaskRuntime) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(1)
    lines = env.from_collection(["to be or", "not to be"], type_info=Types.STRING())

    def split(line):  # type: ignore[no-untyped-def]
        yield from line.split()

    counts = (
        lines.flat_map(split)
        .map(lambda i: (i, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
        .key_by(lambda i: i[0])
        .reduce(lambda i, j: (i[0], i[1] + j[1]))
    )
    counts.print()
    env.execute()
    assert local_runtime.printed == [("to", 2), ("be", 2), ("or", 1), ("not", 1)]


def test_side_outputs() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    output_tag = OutputTag("side", Types.STRING())

    class Sides(ProcessFunction):  # type: ignore[type-arg]
        def process_element(self, value, ctx: "ProcessFunction.Context"):  # type: ignore[no-untyped-def]
            yield value
            yield output_tag, f"side-{value}"

    main = env.from_collection([1, 2]).process(Sides(), Types.LONG())
    side = main.get_side_output(OutputTag("side"))
    assert main.execute_and_collect(limit=9) == [1, 2]
    with side.execute_and_collect() as found:
        assert list(found) == ["side-1", "side-2"]


def test_functions_with_a_life(local_runtime: OneTaskRuntime) -> None:
    happened: list[str] = []

    class Prefix(MapFunction[int, str]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.prefix = runtime_context.get_job_parameter("prefix", "-")
            happened.append(f"open {runtime_context.get_index_of_this_subtask()}")

        def map(self, value: int) -> str:
            return self.prefix + str(value)

        def close(self) -> None:
            happened.append("close")

    class Keep(SinkFunction[str]):
        def invoke(self, value: str, context: SinkFunction.Context) -> None:
            happened.append(value)

    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration().set_string("pipeline.global-job-parameters", "prefix:#")
    )
    env.from_collection([1, 2]).map(Prefix()).add_sink(Keep())
    env.execute("life")
    assert happened == ["open 0", "close", "#1", "#2"]


def test_rows_by_name() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    people = env.from_collection(
        [("Ada", 36), ("Bea", 20), ("Ada", 4)],
        TypesOfTypeinfo.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()]),
    )

    class Initials(FlatMapFunction):  # type: ignore[type-arg]
        def flat_map(self, value):  # type: ignore[no-untyped-def]
            return [value.name[0]]

    totals = people.key_by(lambda row: row["name"]).sum("age")
    person = Row("name", "age")
    assert totals.execute_and_collect(limit=9) == [
        person("Ada", 36),
        person("Bea", 20),
        person("Ada", 40),
    ]
    assert people.flat_map(Initials()).execute_and_collect(limit=9) == ["A", "B", "A"]


def test_names_in_a_plan_show_no_secret() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([1]).map(abs).name("to redis://:hUnter2@h")
    stream.set_description("with password=hUnter2").print()
    plan = env.get_execution_plan() + env.get_stream_graph().describe()
    assert "hUnter2" not in plan
    assert "to redis://******@h" in plan
