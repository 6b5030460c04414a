"""Whole programs in one process, without Spark, in virtual time."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from headgate import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    CoMapFunction,
    Configuration,
    KeyedProcessFunction,
    MapStateDescriptor,
    ProcessFunction,
    RuntimeExecutionMode,
    SourceFunction,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from headgate.base.errors import FunctionUnpicklable, JobFailed
from headgate.connectors.files.sink import TextFileSink
from headgate.testing import HarnessMisused, ManualSource, run_local
from tests.testing.jobs_kit import RIGHT, Count, Env, key_of, side_outputs, word_count

HOUR_MS = 3_600_000


def test_a_word_count_runs_here() -> None:
    found = run_local(word_count).output
    assert Counter(found)["to", 3] == 1
    assert len(found) == 12


@pytest.mark.parametrize("build", RIGHT, ids=lambda build: build.__name__)
def test_the_parallelism_changes_nothing(build: Callable[[Env], Any]) -> None:
    runs = [run_local(build, parallelism=parallelism) for parallelism in (1, 3)]
    first, second = (
        {name: Counter(map(repr, records)) for name, records in run.outputs.items()} for run in runs
    )
    assert first == second


def test_streams_are_returned_by_name() -> None:
    outputs = run_local(side_outputs).outputs
    assert (len(outputs["odd"]), len(outputs["even"])) == (20, 20)
    with pytest.raises(HarnessMisused, match="2 outputs \\('odd', 'even'\\)"):
        _ = run_local(side_outputs).output
    assert list(run_local(lambda env: [env.from_collection([1])] * 2).outputs) == [
        "output 1",
        "output 2",
    ]


def is_in_a_loop() -> bool:
    """Whether the caller's statements stand in a loop of the engine."""
    return "_hg_source" in sys._getframe(1).f_code.co_varnames


def where(value: int) -> tuple[str, bool]:
    place = is_in_a_loop()
    return "where", place


class Where(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value[1], is_in_a_loop()


@pytest.mark.parametrize("inlines", [True, False])
def test_functions_run_in_the_loops_that_they_have_in_production(inlines: bool) -> None:
    def build(env: Env) -> Any:
        configuration = Configuration()
        configuration.set_boolean("pipeline.inline-functions", inlines)
        env.configure(configuration)
        return env.from_collection([1, 2]).map(where).key_by(key_of).process(Where())

    assert run_local(build).output == [(inlines, inlines)] * 2


def test_what_is_printed_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    def build(env: Env) -> None:
        env.from_collection([1]).print()
        env.execute("prints")

    assert run_local(build).printed == ["1> 1"]
    assert capsys.readouterr().out == "1> 1\n"


def test_a_program_may_collect_by_itself() -> None:
    seen: list[int] = []

    def build(env: Env) -> None:
        seen.extend(env.from_collection([1, 2]).map(lambda n: n + 1).execute_and_collect())

    assert run_local(build).output == seen == [2, 3]


def test_hand_filled_sources_are_read_at_once() -> None:
    clicks = ManualSource("clicks")
    with run_local(lambda env: env.from_source(clicks).key_by(key_of).process(Count())) as run:
        clicks.send(("a", 1))
        assert run.output == [("a", 1)]
        clicks.send_all([("b", 1), ("a", 1)])
        assert run.output == [("a", 1), ("b", 1), ("a", 2)]
        assert run.state("count", "a") == 2
        assert run.state("count", "c") is None
        run.finish()
    with pytest.raises(HarnessMisused, match="has ended"):
        clicks.send(("a", 1))
    assert run.output == [("a", 1), ("b", 1), ("a", 2)]


class Alarm(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + HOUR_MS)
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, datetime.fromtimestamp(time.time()).minute


def test_an_hour_takes_no_time() -> None:
    source = ManualSource()
    run = run_local(
        lambda env: env.from_source(source).key_by(str).process(Alarm()), start_ms=60_000
    )
    source.send("a")
    assert [timer.time_ms for timer in run.timers()] == [HOUR_MS + 60_000]
    run.advance_clock(HOUR_MS - 1)
    assert run.output == []
    run.advance_clock(1)
    assert run.output == [("a", HOUR_MS + 60_000, 1)]
    assert run.now_ms == HOUR_MS + 60_000
    run.close()


class Ticks(SourceFunction):
    def run(self, ctx: Any) -> None:
        number = 0
        while True:
            time.sleep(60)
            ctx.collect((number, int(time.time())))
            number += 1

    def cancel(self) -> None:
        pass


def test_a_source_function_sleeps_in_virtual_time() -> None:
    run = run_local(lambda env: env.add_source(Ticks()), duration_ms=HOUR_MS)
    run.close()
    assert run.output == [(number, 60 * (number + 1)) for number in range(60)]


def test_watermarks_of_a_strategy_come_with_the_clock() -> None:
    source = ManualSource()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, before: value
    )

    class Watermarks(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield ctx.timer_service().current_watermark()

    run = run_local(lambda env: env.from_source(source, strategy).process(Watermarks()))
    source.send(1000)
    run.advance_clock(200)
    source.send(2000)
    assert run.output[1] == 999
    run.close()


def test_a_snapshot_is_restored_with_another_parallelism() -> None:
    source = ManualSource()

    def build(env: Env) -> Any:
        return env.from_source(source).key_by(key_of).process(Count())

    run = run_local(build)
    for key in "abcabc":
        source.send((key, 1))
    snapshot = run.snapshot()
    source.send(("a", 1))
    run.close()
    again = run_local(build, parallelism=4, restore=snapshot)
    assert again.output == [("a", 3)], "what came after the snapshot is read again"
    source.send(("c", 1))
    assert again.output[1:] == [("c", 3)]
    again.close()


def test_splits_have_event_time_of_their_own() -> None:
    source = ManualSource(splits=2)

    class Late(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            ctx.timer_service().register_event_time_timer(10)
            yield from ()

        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
            yield timestamp

    run = run_local(lambda env: env.from_source(source).key_by(lambda v: v).process(Late()))
    source.send("a", timestamp=1)
    source.advance_watermark(20, split=0)
    assert run.output == []
    source.mark_idle(split=1)
    assert run.output == [10]
    with pytest.raises(HarnessMisused, match="has no split 2"):
        source.send("a", split=2)
    with pytest.raises(HarnessMisused, match="would go back from 20 to 3"):
        source.advance_watermark(3, split=0)
    run.close()


def test_an_error_names_the_operator_as_on_spark() -> None:
    def build(env: Env) -> Any:
        return env.from_collection([1, 0]).map(lambda n: 1 // n).name("ratio")

    with pytest.raises(JobFailed, match="in operator 'ratio': ZeroDivisionError") as raised:
        run_local(build)
    assert raised.value.operator == "ratio"


def test_functions_travel_as_on_spark() -> None:
    lock = Lock()

    def held(value: int) -> int:
        with lock:
            return value

    with pytest.raises(FunctionUnpicklable, match="'lock' of"):
        run_local(lambda env: env.from_collection([1]).map(held))


def test_a_batch_and_asynchronous_calls_run_too() -> None:
    class Doubled(AsyncFunction):
        async def async_invoke(self, value: Any) -> list[Any]:
            return [value * 2]

    def build(env: Env) -> Any:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        doubled = AsyncDataStream.unordered_wait(
            env.from_collection([1, 2, 3]), Doubled(), Time.seconds(1)
        )
        return doubled.key_by(lambda n: n % 4).reduce(lambda a, b: a + b)

    assert sorted(run_local(build).output) == [4, 8]


def test_files_are_written_and_committed(tmp_path: Path) -> None:
    def build(env: Env) -> None:
        env.from_collection(["a", "b"]).sink_to(TextFileSink(str(tmp_path)))

    run_local(build)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted("".join(path.read_text() for path in files).split()) == ["a", "b"]


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda env: env.from_dataframe(None), "from_dataframe\\(\\) needs Spark"),
        (lambda env: env.from_collection([1]).to_dataframe("n long"), "to_dataframe\\(\\) needs"),
        (lambda env: 7, "returned a int; return a stream"),
        (7, "cannot be called"),
    ],
    ids=["from_dataframe", "to_dataframe", "no stream", "no function"],
)
def test_what_cannot_run_here_is_refused(build: Any, problem: str) -> None:
    with pytest.raises(HarnessMisused, match=problem):
        run_local(build)


def test_other_programs_of_the_process_keep_their_runtime() -> None:
    from headgate.api.runtime import _Hook

    before = _Hook.opened
    run_local(lambda env: env.from_collection([1]))
    assert _Hook.opened is before


def test_bad_use_is_told_in_a_sentence() -> None:
    source = ManualSource()
    run = run_local(lambda env: env.from_source(source).key_by(key_of).process(Count()))
    with pytest.raises(HarnessMisused, match="it has no state 'sum'; it has 'count'"):
        run.state(ValueStateDescriptor("sum", Types.INT()), "a")
    with pytest.raises(HarnessMisused, match="there is no operator 'x'; there are"):
        run.state("count", "a", operator="x")
    with pytest.raises(HarnessMisused, match="clock cannot go back"):
        run.advance_clock(-1)
    run.close()
    with pytest.raises(HarnessMisused, match="the program has ended"):
        run.advance_clock(1)


def test_the_environment_is_one_of_its_own() -> None:
    def build(env: StreamExecutionEnvironment) -> Any:
        assert env.get_parallelism() == 3
        assert env.get_configuration().get_string("pipeline.name", "") == "mine"
        return env.from_collection([1])

    run_local(build, parallelism=3, settings={"pipeline.name": "mine"})


def ended_beside_idle(env: Env, idle: ManualSource, kind: str) -> Any:
    """Windows over a bounded stream, beside one that is idle."""
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, before: record[1]
    )
    bounded = env.from_collection([("a", 1), ("a", 2), ("a", 25)])
    bounded = bounded.assign_timestamps_and_watermarks(by_time)
    other, windows = env.from_source(idle), TumblingEventTimeWindows.of(Time.milliseconds(10))
    if kind == "connect":
        both = bounded.connect(other).map(PassOn())
    elif kind == "join":
        joined = bounded.co_group(other).where(key_of).equal_to(key_of).window(windows)
        return joined.apply(lambda left, right: [len(list(left))])
    else:
        both = bounded.union(other)
    return both.key_by(key_of).window(windows).aggregate(Counting())


class PassOn(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value


class Counting(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("kind", ["union", "connect", "join"])
def test_the_end_of_an_input_fires_windows_beside_one_that_is_idle(
    kind: str, parallelism: int
) -> None:
    manual = ManualSource("idle")
    build = lambda env: ended_beside_idle(env, manual, kind)  # noqa: E731
    with run_local(build, parallelism=parallelism) as run:
        assert run.output == [], "it is waited for"
        manual.mark_idle()
        assert sorted(run.output) == [1, 2]
        manual.end()


class CountsByNumber(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: Any) -> None:
        descriptor = MapStateDescriptor("counts", Types.DOUBLE(), Types.LONG())
        self.counts = runtime_context.get_map_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
        count = (self.counts.get(value) or 0) + 1
        self.counts.put(value, count)
        yield len(list(self.counts.keys())), count


@pytest.mark.parametrize("inlined", ["true", "false"])
def test_all_nan_are_one_key_of_a_map(inlined: str) -> None:
    def build(env: Env) -> Any:
        numbers = env.from_collection([float("nan"), float("nan"), 1.0, float("nan")])
        return numbers.key_by(lambda number: "all").process(CountsByNumber())

    run = run_local(build, settings={"pipeline.inline-functions": inlined})
    assert run.output == [(1, 1), (1, 2), (2, 1), (2, 3)]
