"""The environment: sources, settings, executing and forgetting."""

import json

import pytest

from headgate.api.collection import CollectionSource
from headgate.api.job import JobClient
from headgate.base.errors import PlanInvalid, UserFunctionFailed
from headgate.common import JobStatus, Row, Types
from headgate.datastream import (
    MemorySize,
    RuntimeExecutionMode,
    SlotSharingGroup,
    SourceFunction,
    StreamExecutionEnvironment,
)
from headgate.plan.stream_graph import NodeKind
from tests.api.kit import DEFAULT_PARALLELISM, ListSource, OneTaskRuntime


def nodes(env: StreamExecutionEnvironment) -> list[tuple[str, int]]:
    return [(node.name, node.parallelism) for node in env.get_stream_graph().nodes.values()]


def test_each_environment_is_new_and_has_defaults() -> None:
    first = StreamExecutionEnvironment.get_execution_environment()
    first.set_parallelism(7)
    second = StreamExecutionEnvironment.get_execution_environment()
    assert first is not second
    assert second.get_parallelism() == DEFAULT_PARALLELISM
    assert second.get_max_parallelism() == -1
    assert second.get_buffer_timeout() == 100
    assert second.is_chaining_enabled()


def test_parallelism_is_that_of_the_time_of_writing(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).map(str).name("before")
    env.set_parallelism(2)
    stream.map(str).name("after").map(str).name("own").set_parallelism(5)
    assert nodes(env) == [
        ("Collection Source", 1),
        ("before", DEFAULT_PARALLELISM),
        ("after", 2),
        ("own", 5),
    ]


def test_collection_is_read_by_one_task_whatever_the_environment_says(
    env: StreamExecutionEnvironment,
) -> None:
    stream = env.set_parallelism(4).from_collection([1, 2]).set_parallelism(1)
    assert nodes(env) == [("Collection Source", 1)]
    with pytest.raises(PlanInvalid, match="one task only.*cannot be 2"):
        stream.set_parallelism(2)


def test_collection_takes_any_iterable_at_once(env: StreamExecutionEnvironment) -> None:
    records = [1, 2]
    found = env.from_collection(x for x in records).execute_and_collect()
    records.append(3)
    assert list(found) == [1, 2]


def test_collection_gets_the_shape_of_its_type(env: StreamExecutionEnvironment) -> None:
    rows = env.from_collection([(1, "hi")], Types.ROW([Types.INT(), Types.STRING()]))
    tuples = env.from_collection([[1, "hi"]], Types.TUPLE([Types.INT(), Types.STRING()]))
    plain = env.from_collection([[1, "hi"]])
    assert rows.execute_and_collect(limit=9) == [Row(f0=1, f1="hi")]
    assert tuples.execute_and_collect(limit=9) == [(1, "hi")]
    assert plain.execute_and_collect(limit=9) == [[1, "hi"]]
    assert repr(tuples.get_type()) == "Types.TUPLE([Types.INT(), Types.STRING()])"
    assert plain.get_type() == Types.PICKLED_BYTE_ARRAY()


@pytest.mark.parametrize(
    ("collection", "type_info", "problem"),
    [
        (5, None, "give a list"),
        ([1, None], Types.INT(), "element 1: None does not fit the declared type"),
        ([1], int, "such as Types.INT"),
        ([(1, 2)], Types.ROW([Types.INT()]), "2 fields"),
        ([1, 2, "x"], Types.INT(), "element 2: 'x' does not fit the declared type Types.INT"),
    ],
)
def test_collection_refuses(
    env: StreamExecutionEnvironment, collection: object, type_info: object, problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        env.from_collection(collection, type_info)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="no operators"):
        env.execute()


def test_collection_reader_goes_on_at_its_position() -> None:
    source = CollectionSource([1, 2, 3])
    reader = source.open(0, None, None)  # type: ignore[arg-type]
    assert reader.poll(2) == [1, 2]
    later = source.open(0, reader.position(), None)  # type: ignore[arg-type]
    assert (later.poll(9), later.poll(9), reader.wait_ms() > 0) == ([3], None, True)
    assert source.bounded and source.splits(8) == [0]


def test_splits_are_asked_for_with_the_parallelism_in_the_end(
    env: StreamExecutionEnvironment,
) -> None:
    class Asked(ListSource):
        def splits(self, parallelism: int) -> list[object]:
            asked.append(parallelism)
            return [1]

    asked: list[int] = []
    stream = env.from_source(Asked([]), None, "numbers", Types.INT())
    stream.set_parallelism(6)
    assert json.loads(env.get_execution_plan())["nodes"][0]["parallelism"] == 6
    assert asked == []  # a picture of the plan needs none
    env.execute()
    assert asked == [6]
    assert stream.get_type() == Types.INT()


def test_source_that_fails_to_split_is_told_by_name(env: StreamExecutionEnvironment) -> None:
    class Broken(ListSource):
        def splits(self, parallelism: int) -> list[object]:
            raise OSError("no disk")

    env.from_source(Broken([]), source_name="logs")
    with pytest.raises(UserFunctionFailed, match=r"'logs' failed in splits\(\): OSError: no disk"):
        env.execute()


def test_source_function_is_read_by_one_task(env: StreamExecutionEnvironment) -> None:
    class Two(SourceFunction[int]):
        def run(self, ctx: SourceFunction.SourceContext) -> None:
            ctx.collect(1)
            ctx.collect_with_timestamp(2, 0)

        def cancel(self) -> None:
            pass

    env.set_parallelism(4)
    stream = env.add_source(Two(), "two", Types.INT())
    assert nodes(env) == [("two", 1)]
    assert stream.execute_and_collect(limit=5) == [1, 2]
    with pytest.raises(PlanInvalid, match="SourceFunction, which has run and cancel"):
        env.add_source(lambda: 1)  # type: ignore[arg-type]


def test_dataframe_is_a_source_of_the_runtime(env: StreamExecutionEnvironment) -> None:
    stream = env.from_dataframe([1, 2], "rows")
    node = env.get_stream_graph().nodes[1]
    assert (node.name, node.kind, node.functions[0][0]) == ("rows", NodeKind.SOURCE, "source")
    assert stream.execute_and_collect(limit=5) == [1, 2]


class Underived:
    """Has what a source has, and is derived from nothing."""

    def splits(self, parallelism: int) -> list[object]:
        return []

    def open(self, split: object, position: object, context: object) -> object:
        return iter(())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((5,), "give a Source"),
        ((Underived(),), "given a Underived, which is no Source; derive its class from Source"),
        ((ListSource([]), object()), "give one such as WatermarkStrategy"),
        ((ListSource([]), None, ""), "not empty"),
        ((ListSource([]), None, "name", int), "such as Types.INT"),
        ((ListSource,), r"the class ListSource; give an object of it"),
    ],
)
def test_from_source_refuses(
    env: StreamExecutionEnvironment, arguments: tuple[object, ...], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        env.from_source(*arguments)  # type: ignore[arg-type]


def test_executing_forgets_what_was_written(
    env: StreamExecutionEnvironment, local_runtime: OneTaskRuntime
) -> None:
    stream = env.from_collection([1])
    stream.print()
    result = env.execute("first")
    assert (result.get_job_id(), result.get_net_runtime()) == ("job-1", 7)
    assert local_runtime.programs[0].name == local_runtime.programs[0].graph.job_name == "first"
    with pytest.raises(PlanInvalid, match="nothing to execute"):
        env.execute()
    with pytest.raises(PlanInvalid, match="nothing to execute"):
        env.get_execution_plan()


def test_stream_can_be_built_upon_after_it_was_executed(
    env: StreamExecutionEnvironment, local_runtime: OneTaskRuntime
) -> None:
    stream = env.from_collection([1, 2])
    stream.print()
    env.execute()
    assert stream.map(str).execute_and_collect(limit=5) == ["1", "2"]
    assert [node.name for node in local_runtime.programs[1].graph.nodes.values()] == [
        "Collection Source",
        "Map",
        "Collect Stream Sink",
    ]
    assert local_runtime.printed == [1, 2]


def test_plan_does_not_forget_and_a_branch_without_sink_runs(
    env: StreamExecutionEnvironment,
) -> None:
    seen: list[int] = []
    env.from_collection([1, 2]).map(lambda x: seen.append(x) or x)  # type: ignore[func-returns-value]
    env.get_execution_plan()
    env.get_job_graph()
    env.execute()
    assert seen == [1, 2]


@pytest.mark.parametrize(("bounded", "batch"), [(True, True), (False, False)])
def test_automatic_mode_is_batch_if_all_sources_end(
    env: StreamExecutionEnvironment, bounded: bool, batch: bool
) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    env.from_collection([1]).union(env.from_source(ListSource([], bounded)))
    assert env.get_stream_graph().batch is batch


def test_program_carries_files_parameters_and_settings(
    env: StreamExecutionEnvironment, local_runtime: OneTaskRuntime
) -> None:
    env.add_python_file("lib.py")
    env.get_config().set_global_job_parameters({"city": "Ulm"})
    env.get_configuration().set_string("my.key", "x")
    env.from_collection([1])
    env.execute()
    program = local_runtime.programs[0]
    assert program.python_files == ("lib.py",)
    assert program.parameters == {"city": "Ulm"}
    assert program.configuration == {"my.key": "x"}


def test_job_can_be_started_without_waiting(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1])
    client = env.execute_async("later")
    assert isinstance(client, JobClient)
    assert client.get_job_id() == "job-1"
    assert client.get_job_status().result() is JobStatus.FINISHED
    with pytest.raises(PlanInvalid, match="nothing to execute"):
        env.execute()


def test_close_forgets(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1])
    env.close()
    with pytest.raises(PlanInvalid, match="nothing to execute"):
        env.execute()


@pytest.mark.parametrize("parallelism", [0, -1, 1 << 15 | 1, 1.5, "2", True])
def test_parallelism_that_cannot_be_is_refused(
    env: StreamExecutionEnvironment, parallelism: int
) -> None:
    for setter in (env.set_parallelism, env.set_max_parallelism):
        with pytest.raises(PlanInvalid, match="whole number from 1 to 32768"):
            setter(parallelism)


def test_parallelism_above_its_bound_is_refused(env: StreamExecutionEnvironment) -> None:
    env.set_max_parallelism(4)
    with pytest.raises(PlanInvalid, match="parallelism 5 is above the maximum parallelism 4"):
        env.set_parallelism(5)
    env.set_parallelism(4)
    with pytest.raises(PlanInvalid, match="parallelism 4 is above the maximum parallelism 3"):
        env.set_max_parallelism(3)


def test_other_settings_that_cannot_be_are_refused(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(PlanInvalid, match="RuntimeExecutionMode.STREAMING"):
        env.set_runtime_mode("BATCH")  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="buffer timeout is -2"):
        env.set_buffer_timeout(-2)
    with pytest.raises(PlanInvalid, match="give a SlotSharingGroup"):
        env.register_slot_sharing_group("a")  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="add_python_file"):
        env.add_python_file("")


def test_slot_sharing_groups_are_registered(env: StreamExecutionEnvironment) -> None:
    group = SlotSharingGroup.builder("models").set_cpu_cores(2).set_task_heap_memory_mb(64).build()
    assert env.register_slot_sharing_group(group) is env
    assert group.get_name() == "models"
    assert (group.get_cpu_cores(), group.get_task_heap_memory()) == (2.0, MemorySize(64 << 20))
