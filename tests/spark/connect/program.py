"""A program in a session of Spark Connect: asked for checks, it prints their answers as JSON.

It has a process of its own, because one with a classic session can have no other kind.
"""

import json
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import headgate
from headgate import (
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    state,
)
from headgate.base.errors import HeadgateError
from headgate.base.settings import JobSettings
from headgate.common import Configuration
from headgate.spark.cluster import cluster_of
from headgate.spark.driver_services import driver_services
from headgate.spark.session import find_session
from headgate.spark.submission import on_action_begun

FOLDER = Path(tempfile.mkdtemp(prefix="connect-"))


def environment(**settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, text in settings.items():
        configuration.set_string(key.replace("__", "-").replace("_", "."), text)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(2)


def refused(call: Callable[[], Any]) -> list[str]:
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error), type(error.__cause__).__name__]
    return ["nothing"]


def no_server() -> Any:
    def find(remote: str) -> Any:
        return find_session({"spark.remote": remote})

    remotes = ("sc://127.0.0.1:1", "http://127.0.0.1", "sc://127.0.0.1:x")
    end = os.environ["SPARK_REMOTE"].partition(";")[2]
    return [refused(partial(find, f"{remote}/;{end}")) for remote in remotes]


def wrong_token() -> Any:
    """The server's own words, and those of PySpark, end in a message, and in a traceback."""
    given = os.environ["SPARK_REMOTE"]
    found = []
    for remote in (f"{given}-not", f"{given};token", f"{given};a=b=c", given.partition(";")[0]):
        try:
            find_session({"spark.remote": remote})
        except HeadgateError as error:
            found.append([str(error), "".join(traceback.format_exception(error))])
    return found


def records() -> Any:
    env = environment()
    stream = env.from_collection(list(range(10))).key_by(lambda value: value % 3)
    return sorted(stream.map(lambda value: value * 2).execute_and_collect())


def session() -> Any:
    cluster = cluster_of(find_session())
    return {
        "total": cluster.slots().total,
        "is_local": cluster.is_local,
        "is_own": cluster.is_own,
        "hosts": cluster.driver_hosts(),
        "channel": cluster.open_channel,
        "is_stopped": cluster.is_stopped(),
    }


def fail_at_seven(value: int) -> int:
    if value == 7:
        raise ValueError("seven")
    return value


def failing_job() -> Any:
    env = environment()
    env.from_collection(list(range(10))).map(fail_at_seven).print()
    return refused(lambda: env.execute("seventh"))


def slots() -> Any:
    env = environment()
    env.from_collection([1]).map(abs).set_parallelism(9).print()
    return refused(lambda: env.execute("wide"))


def cancelled_job() -> Any:
    """A job that holds two of four slots: another one does not fit, and then it does."""
    env = environment()
    seen = FOLDER / "seen"

    def slow(value: int) -> int:
        seen.touch()
        time.sleep(0.05)
        return value

    env.from_collection(list(range(100_000))).map(slow).print()
    job = env.execute_async("endless")
    while not seen.exists():
        time.sleep(0.05)
    other = environment()
    other.from_collection([1]).map(abs).set_parallelism(3).print()
    too_many = refused(lambda: other.execute("too many"))
    job.cancel().result()
    status = job.get_job_status().result().name
    third = environment()
    after = list(third.from_collection([1]).map(abs).set_parallelism(3).execute_and_collect())
    return [too_many, status, after]


def killed_worker() -> Any:
    """Once; the checkpoint before that makes every record come out once."""
    env = environment(
        execution_checkpointing_interval="200",
        execution_checkpointing_dir=str(FOLDER / "checkpoints"),
        restart__strategy_type="fixed-delay",
        restart__strategy_fixed__delay_attempts="3",
        restart__strategy_fixed__delay_delay="100",
    )
    killed = FOLDER / "killed"

    def kill(value: int) -> int:
        time.sleep(0.001)
        if value == 900 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), 9)
        return value

    found = list(env.from_collection(list(range(1000))).map(kill).execute_and_collect())
    return [killed.exists(), sorted(found) == list(range(1000))]


def frames() -> Any:
    spark = find_session()
    rows = spark.range(100).selectExpr("id", "id % 3 as part")
    env = environment()
    doubled = env.from_dataframe(rows).map(lambda row: (row.id * 2,)).to_dataframe("x long")
    total = doubled.groupBy().sum("x").collect()[0][0]
    env = environment()
    ordered = env.from_dataframe(rows, order_by=["id"]).map(lambda row: row.id)
    return [total, len(doubled.limit(3).collect()), list(ordered.execute_and_collect())[:4]]


def few_rows() -> Any:
    """Actions that want some rows only, of a job that would take minutes; and a cached one."""
    spark, begun = find_session(), list[Any]()

    def slow(row: Any) -> tuple[int]:
        time.sleep(0.005)
        return (row.id,)

    def job(count: int) -> Any:
        return environment().from_dataframe(spark.range(count)).map(slow).to_dataframe("n long")

    on_action_begun.append(begun.append)
    many = job(100_000)
    found = [len(many.take(5)), many.selectExpr("n + 1 AS m").isEmpty()]
    many.limit(7).write.parquet(str(FOLDER / "seven"))
    many.createOrReplaceTempView("rows_of_a_job")
    found += [len(spark.sql("SELECT n FROM rows_of_a_job LIMIT 3").collect())]
    on_action_begun.remove(begun.append)
    while not all(action.has_ended() for action in begun):
        time.sleep(0.05)
    read = [sum(figures.records_made for figures in action.figures()) for action in begun]
    few = job(200).cache()
    few.limit(2).collect()
    return [found, [count < 50_000 for count in read], few.count()]


def waiting_action() -> Any:
    """An action that other jobs leave no slots for: it says so, and can be cancelled."""
    begun = list[Any]()
    seen = FOLDER / "taken"

    def stay(value: int) -> int:
        seen.touch()
        time.sleep(0.05)
        return value

    env = environment()
    stream = env.from_collection(range(100_000)).rebalance().map(stay).set_parallelism(3)
    stream.add_sink(lambda value: None)
    holds = env.execute_async("holds")
    while not seen.exists():
        time.sleep(0.05)
    rows = environment().from_dataframe(find_session().range(5)).to_dataframe("id long", "rows")
    on_action_begun.append(begun.append)
    errors = list[Any]()
    thread = threading.Thread(target=lambda: errors.append(refused(rows.collect)))
    thread.start()
    while not begun:
        time.sleep(0.05)
    on_action_begun.remove(begun.append)
    reason = begun[0].waits_for()
    begun[0].cancel("nobody waits")
    thread.join()
    holds.cancel().result()
    return [reason, errors, begun[0].status().name, len(rows.collect())]


class RunningSum(KeyedProcessFunction[int, int, str]):
    """Takes its time."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value)
        time.sleep(0.05)
        yield value


def other_calls() -> Any:
    """What else a program may call: it works, or is refused."""
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    doubled: Any = headgate.transform(
        find_session().range(5), lambda rows: rows.map(lambda row: row.id * 2), "x long"
    )
    env = environment()
    requests = TaskResourceRequests().cpus(1)
    env.set_resource_profile(ResourceProfileBuilder().require(requests).build)
    env.from_collection([1]).print()
    profile = refused(lambda: env.execute("profile"))
    env = environment()
    keyed = env.from_collection(range(100_000)).key_by(lambda value: "all")
    keyed.process(RunningSum()).uid("sums").add_sink(lambda value: None)
    job = env.execute_async("sums")
    total, deadline = None, time.monotonic() + 120
    while not total and time.monotonic() < deadline:
        try:
            total = job.get_state("sums", "total", "all").result()
        except HeadgateError:
            time.sleep(0.1)
    job.cancel().result()
    return [sorted(row.x for row in doubled.collect()), profile, bool(total)]


def failing_action() -> Any:
    """One of ours, an action on what was derived from it, and one of Spark's own."""
    spark = find_session()
    env = environment()
    rows = env.from_dataframe(spark.range(10)).map(lambda row: (fail_at_seven(row.id),))
    result = rows.to_dataframe("x long")
    return [
        refused(lambda: result.collect()),
        refused(lambda: result.groupBy("x").count().toPandas()),
        refused(lambda: spark.sql("SELECT raise_error('theirs')").collect()),
    ]


def files() -> Any:
    """A module, and an archive whose content is in the working directory of functions."""
    module = FOLDER / "own" / "shipped_module.py"
    module.parent.mkdir()
    module.write_text("def place():\n    return __file__\n")
    (FOLDER / "words").mkdir()
    (FOLDER / "words" / "word.txt").write_text("gate")
    env = environment()
    env.add_python_file(str(module))
    env.add_python_archive(str(zipped(FOLDER / "words")), "words")
    sys.path.append(str(module.parent))

    def look(value: int) -> tuple[str, str]:
        import shipped_module  # type: ignore[import-not-found]

        return shipped_module.place(), Path("words/word.txt").read_text()

    (found,) = env.from_collection([1]).map(look).execute_and_collect()
    module.write_text("def place():\n    return 'another place'\n")
    again = environment()
    again.add_python_file(str(module))
    changed = refused(lambda: list(again.from_collection([1]).execute_and_collect()))
    return [found[0] != str(module), found[1], changed]


def zipped(folder: Path) -> str:
    import shutil

    return shutil.make_archive(str(folder), "zip", folder)


def other_python() -> Any:
    env = environment(python_executable="/usr/bin/python3")
    return refused(lambda: list(env.from_collection([1]).execute_and_collect()))


def missing_module() -> Any:
    """As a server without Headgate says it, of a module that no worker has."""
    env = environment()
    folder = FOLDER / "elsewhere"
    folder.mkdir()
    (folder / "of_this_machine.py").write_text("def double(value):\n    return 2 * value\n")
    sys.path.insert(0, str(folder))
    import of_this_machine  # type: ignore[import-not-found]

    sys.path.remove(str(folder))
    stream = env.from_collection([1]).map(of_this_machine.double)
    return refused(lambda: list(stream.execute_and_collect()))


def addresses() -> Any:
    """Where workers would connect to: an address of the settings, or none that is known."""
    job = JobSettings(driver_address="192.0.2.7", driver_bind_host="127.0.0.1")
    unknown = JobSettings(driver_address="no-such-host.invalid")
    driver = driver_services(find_session(), job)
    return [driver.control.address[0], refused(lambda: driver_services(find_session(), unknown))]


def state_table() -> Any:
    total = ValueStateDescriptor("total", Types.LONG())
    changes = state.operator("sums", key_type=Types.STRING()).put(total, {"a": 1, "b": 2})
    path = state.write(str(FOLDER / "state"), changes)
    frame = find_session().read.format("headgate-state").option("state", "total").load(path)
    return sorted(map(list, frame.collect()))


def streams() -> Any:
    """From a streaming query of the server into a job, and from a job into such a query."""
    spark = find_session()
    env = environment()
    rates = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    rows = env.from_streaming_dataframe(rates, name="rates").map(lambda row: row.value)
    with rows.execute_and_collect() as found:
        seen = [next(found) for _ in range(5)]
    env = environment()
    squares = env.from_collection(list(range(10))).map(lambda value: (value * value,))
    frame = squares.to_streaming_dataframe("x long", name="squares")
    query = frame.writeStream.format("memory").queryName("squares").start()
    env.execute("squares")
    query.processAllAvailable()
    query.stop()
    return [len(set(seen)), spark.sql("SELECT count(*), sum(x) FROM squares").collect()[0]]


def uri() -> Any:
    def look() -> None:
        cluster_of(find_session()).add_file("hdfs://host/file")

    return refused(look)


def hold(folder: str) -> None:
    """Run until somebody kills this process; the workers leave their numbers in the folder."""

    def stay(value: int) -> int:
        (Path(folder) / str(os.getpid())).touch()
        time.sleep(0.05)
        return value

    env = environment()
    env.from_collection(list(range(100_000))).map(stay).print()
    env.execute("held")


def wait_in_vain() -> None:
    """A job and an action without slots; say so, and how they end."""
    env = environment()
    env.from_collection([1]).rebalance().map(abs).set_parallelism(3).print()
    job = env.execute_async("never")
    rows = environment().set_parallelism(3).from_dataframe(find_session().range(5))
    frame = rows.to_dataframe("id long", "rows")
    on_action_begun.append(lambda action: print("waits", flush=True))
    print(json.dumps(refused(frame.collect)), flush=True)
    print(json.dumps(refused(job.get_job_execution_result().result)), flush=True)


def main(words: list[str]) -> None:
    if words[0] == "hold":
        hold(words[1])
        return
    if words[0] == "wait_in_vain":
        wait_in_vain()
        return
    for name in words:
        try:
            answer = globals()[name]()
        except HeadgateError as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps({name: answer}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
