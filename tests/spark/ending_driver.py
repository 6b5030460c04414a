"""A driver for the tests of endings. It tells in lines of JSON what happens."""

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from headgate.base.errors import HeadgateError
from headgate.common import Configuration
from headgate.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from headgate.spark.session import find_session
from tests.spark.programs import CountTo, fail_at, sleep_long

SETTINGS = {"spark.driver.memory": "512m", "spark.ui.port": "0"}


class Tells(MapFunction[Any, Any]):
    """Writes the number of its process to a file, then lets everything pass."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        name = os.path.join(self.folder, str(runtime_context.get_index_of_this_subtask()))
        with open(f"{name}.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(f"{name}.new", f"{name}.pid")

    def map(self, value: Any) -> Any:
        return value


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def environment(**settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, text in settings.items():
        configuration.set_string(key.replace("_", "."), text)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(2)


def attempt(name: str, run: Callable[[], object]) -> None:
    started = time.monotonic()
    try:
        run()
    except HeadgateError as error:
        took_s = time.monotonic() - started
        tell(what=name, error=type(error).__name__, text=str(error), took_s=took_s)
    else:
        tell(what=name, error=None, took_s=time.monotonic() - started)


def endless(folder: str) -> StreamExecutionEnvironment:
    env = environment()
    numbers = env.add_source(CountTo(None, pause_s=0.01)).rebalance().map(Tells(folder))
    numbers.add_sink(lambda value: None)
    return env


def run_until_killed(folder: str) -> None:
    """One job after another, each with an end of its own; the last is interrupted."""
    env = environment()
    env.from_collection(range(10)).map(fail_at(7)).name("careful").add_sink(lambda value: None)
    attempt("fails", lambda: env.execute("fails"))

    env = endless(folder)
    attempt("killed", lambda: env.execute("killed"))  # the test kills a worker

    env = environment(task_cancellation_timeout="500")
    env.from_collection(range(2)).rebalance().map(sleep_long).add_sink(lambda value: None)
    client = env.execute_async("stuck")
    while client.get_job_status().result().name != "RUNNING":
        time.sleep(0.05)
    time.sleep(0.5)
    attempt("stuck", client.cancel().result)

    left, last = os.path.join(folder, "left"), os.path.join(folder, "last")
    os.mkdir(left)
    os.mkdir(last)
    endless(left).execute_async("left behind")
    tell(what="interrupt me")
    endless(last).execute("interrupted")


def look_at_page(session: Any) -> None:
    """What Spark's own page says about a job."""
    env = environment()
    env.from_collection([1]).map(lambda n: n).name("same").add_sink(lambda value: None)
    env.execute("word count")
    context = session.sparkContext
    page = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/jobs"
    with urllib.request.urlopen(page, timeout=60) as answer:
        jobs = json.load(answer)
    tell(what="page", jobs=[{key: job.get(key) for key in DESCRIBED} for job in jobs])


DESCRIBED = ("name", "description", "jobGroup", "status")

if __name__ == "__main__":
    session = find_session(SETTINGS, cores=4)
    look_at_page(session)
    run_until_killed(sys.argv[1])
