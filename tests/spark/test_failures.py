"""What a failure looks like: who, where and why, at once, and the next job runs."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.base.errors import (
    CodeUnloadable,
    FunctionUnpicklable,
    JobCancelled,
    JobExceedsMemory,
    JobFailed,
    PathUnusable,
    PlanInvalid,
    SlotsShort,
)
from headgate.common import Configuration, Types
from headgate.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from headgate.datastream.connectors import NumberSequenceSource, SocketTextSource
from headgate.datastream.state import ValueStateDescriptor
from headgate.spark import submission
from headgate.spark.session import slots
from tests.spark.cluster import free_port, is_running, until
from tests.spark.programs import CountTo, collected, environment, fail_at, sleep_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


def failure_of(env: StreamExecutionEnvironment, name: str = "failing") -> JobFailed:
    with pytest.raises(JobFailed) as caught:
        env.execute(name)
    return caught.value


@pytest.mark.spark_smoke
def test_the_user_s_traceback_comes_first_and_the_operator_is_named() -> None:
    env = environment()
    numbers = env.from_collection(range(10)).rebalance()
    numbers.map(fail_at(7)).name("careful").add_sink(lambda value: None)
    error = failure_of(env)
    text = str(error)
    assert text.startswith("Traceback (most recent call last):\n")
    first = text.splitlines()[1]
    assert first.startswith("  File ") and first.endswith("in check")
    assert "headgate/core" not in text and "direct cause" not in text
    summary = "job 'failing' failed in operator 'careful': ValueError: 7 is bad"
    assert text.endswith(f"ValueError: 7 is bad\nthe record: 7\n\n{summary}")
    assert (error.job, error.operator, error.summary) == ("failing", "careful", summary)
    assert isinstance(error.__cause__, ValueError)
    assert collected(environment().from_collection([1])) == [1]


class RunningRatio(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterator[tuple[str, int, int]]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total, 60 // value[1]


PAIRS = [("a", 1), ("b", 2), ("a", 3), ("a", 0), ("b", 4)]


@pytest.mark.parametrize("inlined", ["true", "false"])
def test_inlined_functions_give_and_fail_like_called_ones(inlined: str) -> None:
    def configured() -> StreamExecutionEnvironment:
        setting = Configuration().set_string("pipeline.inline-functions", inlined)
        return environment(1).configure(setting)

    env = configured()
    good = env.from_collection([pair for pair in PAIRS if pair[1]]).map(lambda p: (p[0], p[1] + 1))
    ratios = good.filter(lambda p: p[1] < 5).key_by(lambda p: p[0]).process(RunningRatio())
    assert collected(ratios) == [("a", 2, 30), ("a", 6, 15), ("b", 3, 20)]
    lines = []
    env = configured()
    env.from_collection(PAIRS).map(lambda p: 60 // p[1]).add_sink(lambda value: None)
    lines.append((str(failure_of(env)), "in <lambda>", "60 // p[1]"))
    env = configured()
    ratios = env.from_collection(PAIRS).key_by(lambda p: p[0]).process(RunningRatio())
    ratios.add_sink(lambda value: None)
    lines.append((str(failure_of(env)), "in process_element", "yield value[0], total, 60 //"))
    for text, name, line in lines:
        header, frame, source, *_ = text.splitlines()
        assert header.startswith("Traceback") and frame.endswith(name) and line in source
        assert __file__ in frame and "headgate/core" not in text
        assert "the record: ('a', 0)" in text


class Picky(Exception):
    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.hint = hint


def test_an_exception_of_the_user_s_own_class_is_the_cause() -> None:
    def fail(value: int) -> None:
        raise Picky(value, hint="smaller")

    env = environment()
    env.from_collection([5]).add_sink(fail)
    cause = failure_of(env).__cause__
    assert isinstance(cause, Picky)
    assert (cause.code, cause.hint) == (5, "smaller")


def test_the_user_s_own_chain_of_causes_is_kept() -> None:
    def parse(text: str) -> int:
        try:
            return int(text)
        except ValueError as error:
            raise LookupError(f"no number: {text}") from error

    env = environment()
    env.from_collection(["x"]).map(parse).name("parse").add_sink(lambda value: None)
    text = str(failure_of(env))
    assert text.index("invalid literal") < text.index("LookupError: no number: x")
    assert text.count("in parse") == 2


@pytest.mark.parametrize("when", ["open", "close"])
def test_a_failure_in_open_or_close_says_so(when: str) -> None:
    class Stumbling(MapFunction[int, int]):
        def open(self, runtime_context: RuntimeContext) -> None:
            if when == "open":
                raise OSError("no model")

        def map(self, value: int) -> int:
            return value

        def close(self) -> None:
            if when == "close":
                raise OSError("no model")

    env = environment()
    env.from_collection([1]).map(Stumbling()).name("model").add_sink(lambda value: None)
    error = failure_of(env)
    assert error.operator == "model"
    assert f"operator 'model' failed in {when}(): OSError: no model" in error.summary


def test_a_flat_map_that_returns_nothing_is_told_without_our_frames() -> None:
    env = environment()
    env.from_collection([1]).flat_map(lambda value: None).name("lost").add_sink(print)  # type: ignore[arg-type,return-value]
    error = failure_of(env)
    assert error.operator == "lost"
    assert str(error).startswith("TypeError: a flat_map function must return an iterable")


def test_a_failing_source_is_named() -> None:
    env = environment()
    env.from_source(SocketTextSource("127.0.0.1", free_port()), None, "ticker").add_sink(print)
    assert "no connection to 127.0.0.1:" in failure_of(env).summary

    class Broken(CountTo):
        def run(self, ctx: Any) -> None:
            ctx.collect(1)
            raise RuntimeError("sensor gone")

    env.add_source(Broken(None), "sensor").add_sink(lambda value: None)
    error = failure_of(env)
    assert error.operator == "sensor" or "sensor" in error.operator
    assert "RuntimeError: sensor gone" in error.summary


def test_a_user_s_exit_is_a_failure_of_its_operator() -> None:
    env = environment()
    env.from_collection([1]).map(lambda value: sys.exit(3)).name("leaver").add_sink(print)
    error = failure_of(env)
    assert error.summary == "job 'failing' failed in operator 'leaver': SystemExit: 3"


def test_a_job_in_batch_fails_with_its_first_stage() -> None:
    env = environment()
    env.get_configuration().set_string("execution.runtime-mode", "BATCH")
    numbers = env.from_collection(range(10)).map(fail_at(3)).name("careful")
    numbers.key_by(lambda n: n).reduce(lambda a, b: a).add_sink(print)
    assert failure_of(env).operator == "careful"


def test_records_that_cannot_be_pickled_are_a_failure_of_their_operator() -> None:
    env = environment()
    locks = env.from_collection([1]).map(lambda n: threading.Lock()).name("locks")
    locks.rebalance().add_sink(lambda value: None)
    error = failure_of(env)
    assert error.operator == "locks"
    assert "cannot pickle" in error.summary


def test_a_function_that_cannot_travel_is_named_with_what_it_holds() -> None:
    lock = threading.Lock()
    env = environment()
    env.from_collection([1]).map(lambda value: (lock, value)).name("locker").print()
    with pytest.raises(FunctionUnpicklable, match="operator 'locker': its map function") as caught:
        env.execute()
    assert caught.value.operator == "locker"
    assert "'lock'" in caught.value.culprit


def test_a_module_that_workers_do_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    module = types.ModuleType("only_here")
    exec("def double(x): return 2 * x", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    env = environment()
    env.from_collection([1]).map(module.double).print()
    error = failure_of(env)
    assert isinstance(error.__cause__, CodeUnloadable)
    assert "module 'only_here' is not there: ship it with env.add_python_file" in error.summary
    assert str(error).count("ship it with") == 1, "once is enough"


@pytest.mark.spark_smoke
def test_too_few_slots_are_told_at_once(spark: "SparkSession") -> None:
    env = environment(9)
    env.configure(Configuration().set_string("worker.slots", "1"))
    env.from_collection(range(9)).rebalance().map(lambda n: n).print()
    assert until(lambda: slots(spark).busy == 0, 20.0), "a task of an earlier test has not ended"
    with pytest.raises(SlotsShort, match="the job needs 9 slots and Spark has 4 free") as caught:
        env.execute()
    assert (caught.value.needed, caught.value.free) == (9, 4)
    assert slots(spark).busy == 0


def test_waiting_for_executors_ends_when_no_more_come(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "LAST_EXECUTOR_S", 0.2)
    assert submission.await_executors(spark, 99).total == 4


def test_slots_of_running_jobs_are_not_free() -> None:
    env = environment(3)
    env.add_source(CountTo(None, 0.01)).rebalance().map(lambda n: n).add_sink(lambda value: None)
    client = env.execute_async("holder")
    try:
        # At once: Spark has perhaps not started a single task of it.
        env.from_source(NumberSequenceSource(1, 2)).print()
        with pytest.raises(SlotsShort, match="needs 3 slots and Spark has 1 free"):
            env.execute("too many")
        env.set_parallelism(1)
        env.from_source(NumberSequenceSource(1, 2)).add_sink(lambda value: None)
        env.execute("fits")
    finally:
        client.cancel().result()
    with pytest.raises(JobCancelled):
        client.get_job_execution_result().result()
    assert collected(environment(4).from_source(NumberSequenceSource(1, 4))) == [1, 2, 3, 4]


def test_a_job_waits_for_tasks_that_are_about_to_end(
    spark: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    numbers = spark.sparkContext.parallelize(range(4), 4)
    holder = threading.Thread(target=numbers.foreach, args=[lambda number: time.sleep(5)])
    holder.start()
    assert until(lambda: slots(spark).busy == 4, 30)
    assert collected(environment(4).from_source(NumberSequenceSource(1, 4))) == [1, 2, 3, 4]
    holder.join()
    assert "the job is waiting for 4 slots; 4 of 4 are taken by other jobs" in caplog.text


def test_a_killed_worker_is_named() -> None:
    def die(value: int) -> int:
        if value == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    env = environment()
    env.from_collection(range(10)).rebalance().map(die).add_sink(lambda value: None)
    error = failure_of(env)
    assert "the task manager of slot" in error.summary
    assert "(process " in error.summary
    assert collected(environment().from_collection([1])) == [1]


def test_a_function_that_never_comes_back_ends_with_its_process() -> None:
    configuration = Configuration()
    configuration.set_integer("task.cancellation.timeout", 300)
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    env.from_collection(range(2)).rebalance().map(sleep_long).add_sink(print)
    client = env.execute_async("sleeper")
    until(lambda: client.get_job_status().result().name == "RUNNING", 30)
    client.cancel().result()
    assert client.get_job_status().result().name == "CANCELED"
    assert collected(environment(4).from_source(NumberSequenceSource(1, 4))) == [1, 2, 3, 4]


def test_a_source_function_that_runs_on_ends_with_its_process() -> None:
    class Deaf(CountTo):
        def run(self, ctx: Any) -> None:
            ctx.collect(os.getpid())
            sleep_long(None)

    (process,) = environment().add_source(Deaf(None)).execute_and_collect(limit=1)
    assert until(lambda: not is_running(process), 30)


def test_a_job_that_fails_does_not_wait_for_a_slow_reader() -> None:
    def fail_late(value: int) -> bytes:
        if value == 3000:
            raise ValueError("late")
        return bytes(10_000)

    numbers = environment(1).from_source(NumberSequenceSource(1, 10**9)).map(fail_late)
    with numbers.rebalance().execute_and_collect() as results:
        next(results)
        with pytest.raises(JobFailed, match="ValueError: late"):
            _ = [time.sleep(0.001) for _ in results]  # type: ignore[func-returns-value]


def test_a_reader_that_goes_away_ends_the_job(spark: "SparkSession") -> None:
    assert next(environment().add_source(CountTo(None)).execute_and_collect("left")) == 0
    assert until(lambda: slots(spark).busy == 0, 20)


def test_a_program_that_cannot_be_run_is_refused_before_anything_starts(tmp_path: Path) -> None:
    env = environment()
    with pytest.raises(PlanInvalid):
        env.execute()
    env.add_python_file(str(tmp_path / "missing.py"))
    env.from_collection([1]).print()
    with pytest.raises(PathUnusable, match=r"missing\.py"):
        env.execute()


def test_a_job_that_does_not_fit_into_its_memory_is_refused_before_spark_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submission, "find_session", lambda configuration: pytest.fail("too late"))
    env = environment()
    env.configure(
        Configuration()
        .set_string("taskmanager.memory.network.min", "32768")
        .set_string("taskmanager.memory.network.max", "65536")
    )
    env.set_parallelism(2)
    env.from_collection([1]).key_by(lambda value: value).reduce(max).print()
    with pytest.raises(JobExceedsMemory, match="needs 3 network buffers of 32768 bytes") as caught:
        env.execute()
    assert (caught.value.required, caught.value.allocated) == (3, 2)
