"""Where streams end: sinks, results in the driver, DataFrames."""

from collections.abc import Sequence

import pytest

from headgate.api.program import Program
from headgate.api.types.types import Types
from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.core.operators.sinks import SinkFunctionOperator, SinkOperator, TwoPhaseSinkOperator
from headgate.datastream import CloseableIterator, DataStream, SinkFunction
from headgate.datastream import StreamExecutionEnvironment as Environment
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import Committer, CommittingSinkWriter, TwoPhaseCommittingSink
from headgate.plan.stream_graph import Chaining, NodeKind
from tests.api.kit import ListSink, ListSource, OneTaskRuntime


class Append(SinkFunction[int]):
    def __init__(self, into: list[tuple[int, int]]) -> None:
        self.into = into

    def invoke(self, value: int, context: SinkFunction.Context) -> None:
        self.into.append((value, context.current_processing_time()))


@pytest.fixture
def numbers(env: Environment) -> DataStream:
    return env.set_parallelism(2).from_collection([1, 2, 3])


def test_sink_functions_and_callables_get_each_record(
    env: Environment, numbers: DataStream
) -> None:
    with_context: list[tuple[int, int]] = []
    alone: list[int] = []
    numbers.add_sink(Append(with_context))
    numbers.add_sink(alone.append)
    node = env.get_stream_graph().nodes[2]
    assert (node.kind, node.title, node.parallelism) == (NodeKind.SINK, "Sink: Append", 2)
    assert type(node.make()) is SinkFunctionOperator
    env.execute()
    assert (with_context, alone) == ([(1, 0), (2, 0), (3, 0)], [1, 2, 3])


def test_sinks_get_lists(env: Environment, numbers: DataStream) -> None:
    sink = ListSink()
    numbers.sink_to(sink).name("list")
    node = env.get_stream_graph().nodes[2]
    assert (node.title, node.functions) == ("Sink: list", (("sink", sink),))
    assert type(node.make()) is SinkOperator
    env.execute()
    assert sink.records == [1, 2, 3]


def test_print_is_a_sink_of_the_runtime(
    env: Environment, numbers: DataStream, local_runtime: OneTaskRuntime
) -> None:
    assert numbers.print("numbers").get_name() == "Print to Std. Out"
    env.execute()
    assert local_runtime.printed == [1, 2, 3]


def test_sink_is_described_like_an_operator(env: Environment, numbers: DataStream) -> None:
    sink = numbers.sink_to(ListSink())
    assert sink.uid("end").set_parallelism(5).set_description("the end") is sink
    sink.disable_chaining().slot_sharing_group("out")
    node = env.get_stream_graph().nodes[2]
    assert (node.uid, node.parallelism, node.description) == ("end", 5, "the end")
    assert (node.chaining, node.group) == (Chaining.NEVER, "out")
    assert sink.set_uid_hash("a" * 32).get_name() == "ListSink"
    with pytest.raises(PlanInvalid, match="ListSink: the parallelism is 0"):
        sink.set_parallelism(0)


def test_what_is_no_sink_is_refused(numbers: DataStream) -> None:
    with pytest.raises(PlanInvalid, match="Sink, which has create_writer"):
        numbers.sink_to(print)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="a callable or a SinkFunction"):
        numbers.add_sink(5)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="the class Append"):
        numbers.add_sink(Append)


def test_results_come_one_by_one(numbers: DataStream, local_runtime: OneTaskRuntime) -> None:
    with numbers.map(lambda x: x + 1).execute_and_collect("collected") as results:
        assert isinstance(results, CloseableIterator)
        assert results.next() == 2
        assert list(results) == [3, 4]
    assert local_runtime.closed == 1
    graph = local_runtime.programs[0].graph
    assert graph.job_name == "collected"
    assert graph.nodes[3].parallelism == 1  # so that they arrive in one order


def test_limit_gives_a_list_and_closes(numbers: DataStream, local_runtime: OneTaskRuntime) -> None:
    assert numbers.execute_and_collect(limit=2) == [1, 2]
    assert local_runtime.closed == 1
    for limit in (0, -1, "2", True):
        with pytest.raises(PlanInvalid, match="whole number above 0"):
            numbers.execute_and_collect(limit=limit)  # type: ignore[arg-type]


def test_collecting_runs_and_forgets_the_rest_of_the_program_too(
    env: Environment, numbers: DataStream, local_runtime: OneTaskRuntime
) -> None:
    numbers.print()
    assert numbers.execute_and_collect(limit=9) == [1, 2, 3]
    assert local_runtime.printed == [1, 2, 3]
    with pytest.raises(PlanInvalid, match="nothing to execute"):
        env.execute()


def test_dataframe_holds_what_leads_to_its_stream_and_forgets_nothing(
    env: Environment, numbers: DataStream, local_runtime: OneTaskRuntime
) -> None:
    numbers.print()
    doubled = numbers.map(lambda x: x * 2).set_parallelism(4)
    found = doubled.to_dataframe("n int")
    assert isinstance(found, tuple)
    program, node, schema = found
    assert isinstance(program, Program)
    names = [(n.name, n.parallelism) for n in program.graph.nodes.values()]
    assert names == [("Collection Source", 1), ("Map", 4), ("DataFrame", 4)]
    assert (program.graph.nodes[node].kind, schema) == (NodeKind.SINK, "n int")
    assert local_runtime.programs == []
    assert [n.name for n in env.get_stream_graph().nodes.values()] == [
        "Collection Source",
        "Print to Std. Out",
        "Map",
    ]


class Shouted(TwoPhaseCommittingSink):
    """A user's own sink: what it prepares appears in ``said`` when it is committed."""

    def __init__(self, said: list[str]) -> None:
        self.said = said
        self.kind: object = "unknown"

    def for_type(self, type_info: object) -> "Shouted":
        self.kind = type_info
        return self

    def create_writer(self, context: ConnectorContext) -> "Whisper":
        return Whisper()

    def create_committer(self, context: ConnectorContext) -> "Shouter":
        return Shouter(self.said)


class Whisper(CommittingSinkWriter):
    def __init__(self) -> None:
        self.kept: list[str] = []

    def write(self, records: list[Record]) -> None:
        self.kept += records

    def prepare_commit(self, moment: SnapshotMoment | None) -> list[str]:
        kept, self.kept = self.kept, []
        return kept


class Shouter(Committer):
    def __init__(self, said: list[str]) -> None:
        self.said = said

    def commit(self, committables: Sequence[str]) -> None:
        self.said += [text.upper() for text in committables]


def test_a_users_sink_may_commit_in_two_phases(
    env: Environment, local_runtime: OneTaskRuntime
) -> None:
    said: list[str] = []
    sink = Shouted(said)
    stream = env.from_collection(["a", "b"], type_info=Types.STRING())
    stream.sink_to(sink).name("Shout")
    (node,) = [n for n in env.get_stream_graph().nodes.values() if n.name == "Shout"]
    operator = node.make()
    assert type(operator) is TwoPhaseSinkOperator
    assert sink.kind == Types.STRING()
    env.execute()
    assert said == ["A", "B"]


def test_a_dataframe_of_a_source_that_never_ends_is_refused_before_anything_runs(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(self: ListSource, parallelism: int) -> list[Record]:
        raise AssertionError("sources are not asked for their splits")

    monkeypatch.setattr(ListSource, "splits", ask)
    ticks = env.from_source(ListSource([1], bounded=False), source_name="ticks")
    both = env.from_collection([1]).union(ticks.map(lambda n: n))
    with pytest.raises(PlanInvalid, match="'ticks' is a source that never ends, so that to_data"):
        both.to_dataframe("n long")
