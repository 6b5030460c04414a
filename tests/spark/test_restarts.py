"""Jobs on Spark that fail and go on: in place, in new processes, and with a later driver."""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.base.errors import (
    JobCancelled,
    JobFailed,
    PlanInvalid,
    RestoreRefused,
    SettingsInvalid,
)
from headgate.common import Configuration, Types
from headgate.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    SinkFunction,
    StreamExecutionEnvironment,
)
from headgate.datastream.connectors import NumberSequenceSource
from headgate.datastream.state import ValueStateDescriptor
from headgate.spark.job import SparkJob
from headgate.spark.submission import on_launched
from tests.spark.cluster import until
from tests.spark.programs import CountTo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")

KEYS = 5
COUNT = 1_500
"""Far below 20 ms of work for each checkpoint, and far above a step."""


class Total(KeyedProcessFunction[Any, Any, Any]):
    """The sum of each key so far, with the process and the attempt that have made it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.attempt = runtime_context.get_attempt_number()
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        total = (self.total.value() or 0) + value
        self.total.update(total)
        yield ctx.get_current_key(), total, os.getpid(), self.attempt


class Lines(SinkFunction[Any]):
    """Appends to a file for each task: what comes again after a failure is there twice."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        name = str(runtime_context.get_index_of_this_subtask())
        self.file = (self.folder / name).open("a")

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        self.file.write(f"{value!r}\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


class Trouble:
    """What a function does once, when there is a checkpoint to go on from."""

    def __init__(self, folder: Path, how: str) -> None:
        self.mark, self.checkpoints, self.how = folder / "mark", folder / "checkpoints", how

    def __call__(self, number: int) -> int:
        time.sleep(0.001)
        if self.how and not self.mark.exists() and any(self.checkpoints.glob("*/chk-*/_metadata")):
            self.mark.write_text(str(os.getpid()))
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("once")
        return number


def environment(folder: Path, **settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    usual = {
        "execution.checkpointing.interval": "20 ms",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "10 ms",
        "restart-strategy.fixed-delay.attempts": "3",
    }
    for key, value in {**usual, **settings}.items():
        configuration.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)


def totals(env: StreamExecutionEnvironment, folder: Path, how: str = "", count: int = COUNT) -> Any:
    """Sums by key, into files; returns the lines that were written."""
    lines = folder / "lines"
    lines.mkdir(exist_ok=True)
    numbers = env.from_source(NumberSequenceSource(1, count), None, "numbers")
    numbers.map(Trouble(folder, how)).key_by(lambda n: n % KEYS).process(Total()).add_sink(
        Lines(lines)
    )
    return partial(written_in, lines)


def written_in(lines: Path) -> list[tuple[int, int, int, int]]:
    texts = [text for part in sorted(lines.iterdir()) for text in part.read_text().splitlines()]
    return [eval(text) for text in texts]


def check(found: list[tuple[int, int, int, int]], count: int = COUNT) -> None:
    """The last sum of each key is right: nothing was lost, and nothing counted twice."""
    best = {key: max(total for k, total, _, _ in found if k == key) for key in range(KEYS)}
    numbers = range(1, count + 1)
    assert best == {key: sum(n for n in numbers if n % KEYS == key) for key in range(KEYS)}


def test_a_failing_function_is_restarted_in_the_same_processes(tmp_path: Path) -> None:
    env = environment(tmp_path)
    written = totals(env, tmp_path, "fail")
    client = env.execute_async("fails once")
    client.get_job_execution_result().result()
    found = written()
    check(found)
    assert {attempt for _, _, _, attempt in found} == {0, 1}
    processes = [{pid for _, _, pid, attempt in found if attempt == a} for a in (0, 1)]
    assert processes[0] == processes[1]
    metrics = client.get_metrics()
    assert metrics["job.restarts"] == 1
    made = [value for name, value in metrics.items() if name.endswith(".records_made")]
    assert sum(made) >= COUNT, "counts go on"  # type: ignore[arg-type]
    completed = metrics["job.checkpoints.completed"]
    assert isinstance(completed, int) and completed >= 1
    assert metrics["job.checkpoints.last.kind"] == "checkpoint"
    assert not list((tmp_path / "checkpoints").iterdir()), "it has finished: nothing stays"


def test_a_killed_worker_is_replaced_and_the_job_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = environment(tmp_path)
    written = totals(env, tmp_path, "kill")
    client = env.execute_async("killed once")
    client.get_job_execution_result().result()
    (restart,) = [record.message for record in caplog.records if "(restart 1)" in record.message]
    assert "it was killed by SIGKILL, perhaps by the kernel" in restart
    found = written()
    check(found)
    killed = int((tmp_path / "mark").read_text())
    assert killed not in {pid for _, _, pid, attempt in found if attempt == 1}
    assert {attempt for _, _, _, attempt in found} == {0, 1}


@pytest.mark.parametrize(("how", "unaligned"), [("fail", "true"), ("kill", "false")])
def test_workers_with_several_slots_go_on(tmp_path: Path, how: str, unaligned: str) -> None:
    shared = {"worker.slots": "3", "execution.checkpointing.unaligned.enabled": unaligned}
    env = environment(tmp_path, **shared).set_parallelism(6)
    written = totals(env, tmp_path, how)
    env.execute("shared")
    found = written()
    check(found)
    assert {attempt for _, _, _, attempt in found} == {0, 1}
    assert len({pid for _, _, pid, attempt in found if not attempt}) <= 2


def test_restarts_have_an_end_and_the_failure_says_so(tmp_path: Path) -> None:
    def never(value: int) -> int:
        raise ValueError("always")

    env = environment(tmp_path)
    env.from_source(NumberSequenceSource(1, 10)).map(never).name("never").add_sink(print)
    with pytest.raises(JobFailed) as caught:
        env.execute("fails always")
    assert "ValueError: always" in caught.value.summary
    assert "restart-strategy.fixed-delay.attempts is 3" in caught.value.summary
    assert caught.value.operator == "never"


def test_a_job_between_two_runs_can_be_cancelled(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"restart-strategy.fixed-delay.delay": "10 min"})
    totals(env, tmp_path, "kill")
    client = env.execute_async("waits")
    assert until(lambda: client.get_job_status().result().name == "RESTARTING", 60)
    client.cancel().result()
    assert client.get_job_status().result().name == "CANCELED"
    with pytest.raises(JobCancelled):
        client.get_job_execution_result().result()


def test_a_later_driver_with_the_same_id_goes_on(tmp_path: Path) -> None:
    """The end of a program keeps the checkpoints of a job that can be found again."""
    started: list[SparkJob] = []
    on_launched.append(started.append)
    try:
        env = environment(tmp_path, **{"pipeline.job-id": "totals"})
        totals(env, tmp_path)
        client = env.execute_async("first driver")
        totals(env, tmp_path)
        with pytest.raises(SettingsInvalid, match="'totals' is the id of a job that runs"):
            env.execute("at the same time")
        assert until(lambda: client.get_metrics()["job.checkpoints.completed"] != 0, 60)
        started[0].cancel("the system ends it", suspend=True)
    finally:
        on_launched.remove(started.append)
    before = (tmp_path / "checkpoints" / "totals").iterdir()
    assert [path for path in before if path.name.startswith("chk-")]
    env = environment(tmp_path, **{"pipeline.job-id": "totals"})
    written = totals(env, tmp_path)
    seen = len(written())
    env.execute("second driver")
    found = written()
    check(found)
    assert len(found) - seen < COUNT, "it has not begun from the beginning"


def test_a_job_stops_with_a_savepoint_and_another_one_goes_on_from_it(tmp_path: Path) -> None:
    """The second one names no key groups, so that it has those of the savepoint."""
    env = environment(tmp_path, **{"pipeline.max-parallelism": "300"})
    written = totals(env, tmp_path)
    client = env.execute_async("stops")
    assert until(lambda: client.get_metrics().get("job.checkpoints.completed", 0) != 0, 60)
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    assert client.get_job_status().result().name == "FINISHED"
    assert len(written()) < COUNT
    env = environment(tmp_path, **{"execution.state-recovery.path": path})
    written = totals(env, tmp_path)
    env.execute("goes on")
    found = written()
    check(found)
    assert len(found) == COUNT, "nothing comes twice, because nothing failed"


def test_a_source_that_cannot_be_read_again_is_refused(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.add_source(CountTo(5), "counter").add_sink(print)
    with pytest.raises(PlanInvalid, match="source 'counter' cannot be read again"):
        env.execute()


@pytest.mark.parametrize("how", ["fail", "kill"])
def test_a_job_that_reads_a_dataframe_has_its_spark_job_submitted_again(
    spark: "SparkSession", tmp_path: Path, how: str
) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    env = environment(tmp_path)
    frame = spark.range(1, COUNT + 1, numPartitions=2)
    numbers = env.from_dataframe(frame).map(lambda row: row["id"])
    numbers.map(Trouble(tmp_path, how)).key_by(lambda n: n % KEYS).process(Total()).add_sink(
        Lines(lines)
    )
    client = env.execute_async("reads a DataFrame")
    client.get_job_execution_result().result()
    check(written_in(lines))
    assert client.get_metrics()["job.restarts"] == 1


class Stumbles:
    """Cannot take one record, however often it is tried."""

    def __call__(self, number: int) -> int:
        if number == 7:
            raise ValueError("no sevens")
        return number


def test_a_record_that_nobody_can_take_ends_the_job_with_the_record_and_the_frames(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = environment(
        tmp_path,
        **{
            "restart-strategy.type": "default",
            "restart-strategy.exponential-delay.initial-backoff": "10 ms",
            "restart-strategy.max-identical-failures": "3",
        },
    )
    numbers = env.from_source(NumberSequenceSource(1, 1000), None, "numbers")
    numbers.map(Stumbles()).name("stumbles").add_sink(Lines(tmp_path))
    with pytest.raises(JobFailed) as failed:
        env.execute("poisoned")
    assert "3 times in the same way at the same record" in failed.value.summary
    assert "\nthe record: 7\n" in str(failed.value)
    restarts = [record.message for record in caplog.records if "(restart " in record.message]
    assert len(restarts) == 2
    for restart in restarts:
        assert "\nthe record: 7\n" in restart and "in __call__" in restart
        assert "ValueError: no sevens" in restart and "/core/" not in restart


class Sums(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, descriptor: Any) -> None:
        self.descriptor = descriptor

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(self.descriptor)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.sum.update((self.sum.value() or 0) + value)
        yield ctx.get_current_key(), self.sum.value()


def test_a_state_of_another_type_is_refused_before_the_first_record(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()

    def run(kind: Any, **settings: str) -> Any:
        env = environment(tmp_path, **settings)
        numbers = env.from_source(NumberSequenceSource(1, 10**9), None, "numbers").uid("numbers")
        keyed = numbers.map(Trouble(tmp_path, "")).key_by(lambda n: n % KEYS)
        sums = keyed.process(Sums(ValueStateDescriptor("sum", kind)))
        sums.name("sums").uid("sums").add_sink(Lines(lines)).uid("lines")
        return env.execute_async("sums")

    client = run(Types.LONG())
    assert until(lambda: client.get_metrics()["job.checkpoints.completed"] != 0, 60)
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    before = len(written_in(lines))
    client = run(Types.STRING(), **{"execution.state-recovery.path": path})
    with pytest.raises(RestoreRefused) as refused:
        client.get_job_execution_result().result()
    message = str(refused.value)
    assert "the state 'sum' of operator 'sums' was value of Types.LONG() there" in message
    assert "is value of Types.STRING() now" in message
    assert len(written_in(lines)) == before
    assert client.get_metrics()["job.restarts"] == 0
