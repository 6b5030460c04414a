"""What runs in a harness, in run_local and on Spark comes to the same."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from headgate import DataStream, StreamExecutionEnvironment
from headgate.base.errors import JobFailed

pytest.importorskip("greenlet")

from headgate.testing import FunctionHarness, OperatorHarness, run_local
from headgate.testing.canonical import counted
from tests.testing import jobs_kit
from tests.testing.jobs_kit import EVENTS, RIGHT, Env, key_of

pytestmark = pytest.mark.usefixtures("spark")

WITHOUT_STREAM = ("sink_that_upserts", "sink_that_commits", "nothing_but_a_print", "runs_itself")
"""They write to what is outside of the job, or run by themselves."""
SAME = [build for build in RIGHT if build.__name__ not in WITHOUT_STREAM]


def on_spark(build: Callable[[Env], Any]) -> dict[str, "Counter[str]"]:
    """The records of all streams that it returns, by name."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    built = build(env)
    streams = {"output": built} if isinstance(built, DataStream) else built
    return {name: counted(stream.execute_and_collect()) for name, stream in streams.items()}


@pytest.mark.parametrize("build", SAME, ids=lambda build: build.__name__)
def test_a_program_comes_to_the_same_here_and_on_spark(build: Callable[[Env], Any]) -> None:
    here = {name: counted(found) for name, found in run_local(build).outputs.items()}
    assert here == on_spark(build)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_so_does_a_function_in_a_harness(parallelism: int) -> None:
    with FunctionHarness(jobs_kit.Count(), key_of, parallelism=parallelism) as harness:
        for event in EVENTS:
            harness.send(event)
        assert {"output": counted(harness.output)} == on_spark(jobs_kit.state_by_key)


def test_so_does_an_operator_with_event_time() -> None:
    gap = jobs_kit.EventTimeSessionWindows.with_gap(jobs_kit.Time.seconds(8))
    with OperatorHarness(
        lambda stream: stream.key_by(key_of).window(gap).aggregate(jobs_kit.Mean())
    ) as harness:
        for event in EVENTS:
            harness.send(event, timestamp=event[1] * 1000)
            harness.advance_watermark(event[1] * 1000 - 5001)
        harness.finish()
        assert {"output": counted(harness.output)} == on_spark(jobs_kit.sessions)


def test_so_does_a_program_that_fails() -> None:
    def build(env: Env) -> Any:
        return env.from_collection([1, 0]).map(lambda n: 1 // n).name("ratio")

    errors = []
    for run in (run_local, on_spark):
        with pytest.raises(JobFailed) as raised:
            run(build)
        errors.append((raised.value.operator, raised.value.summary))
    assert errors[0] == errors[1]
