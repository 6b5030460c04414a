"""A program that is refused is forgotten, whatever was wrong; its streams can be used again."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.api.draft import Unexecuted, unexecuted
from headgate.base.errors import (
    FunctionUnpicklable,
    JavaMissing,
    PlanInvalid,
    ProgramDiffers,
    SessionFailed,
    SettingsInvalid,
    SlotsShort,
    SparkMissing,
    StorageUnusable,
    UserFunctionFailed,
)
from headgate.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from tests.api.kit import ListSource, OneTaskRuntime

WAYS: dict[str, Callable[[StreamExecutionEnvironment, DataStream], object]] = {
    "execute": lambda env, stream: env.execute(),
    "execute_async": lambda env, stream: env.execute_async(),
    "execute_and_collect": lambda env, stream: stream.execute_and_collect(),
    "collect with a limit": lambda env, stream: stream.execute_and_collect(limit=1),
}
REFUSALS_BY_SPARK = [
    SlotsShort(5, 4, 0),
    SessionFailed("no master answers"),
    SparkMissing(None),
    JavaMissing(("PATH: no java on the path",)),
    FunctionUnpicklable("Map", "map function", "a lock", "TypeError"),
    StorageUnusable("/x", "Permission denied", "give rights"),
    ProgramDiffers("/x", "other operators"),
    SettingsInvalid("jobmanager.rpc.port", "port 1 cannot be opened"),
    OSError("disk full"),
    KeyboardInterrupt(),
]


class BadSplits(ListSource):
    def splits(self, parallelism: int) -> list[Any]:
        raise OSError("no such folder")


def bad_mode(env: StreamExecutionEnvironment) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.from_source(ListSource([1], bounded=False), source_name="ticks")


def bad_setting(env: StreamExecutionEnvironment) -> None:
    env.get_configuration().set_string("execution.buffer-timeout.interval", "soon")


def bad_splits(env: StreamExecutionEnvironment) -> None:
    env.from_source(BadSplits([]), source_name="files")


def missing_uid(env: StreamExecutionEnvironment) -> None:
    env.get_config().disable_auto_generated_uids()


def bad_checkpoints(env: StreamExecutionEnvironment) -> None:
    env.get_configuration().set_string("execution.checkpointing.interval", "often")


def mend(env: StreamExecutionEnvironment) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
    env.get_config().enable_auto_generated_uids()
    for key in ("execution.buffer-timeout.interval", "execution.checkpointing.interval"):
        env.get_configuration().remove_config(key)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (bad_mode, PlanInvalid),
        (missing_uid, PlanInvalid),
        (bad_setting, SettingsInvalid),
        (bad_checkpoints, SettingsInvalid),
        (bad_splits, UserFunctionFailed),
    ],
)
def test_a_program_that_cannot_be_built_is_forgotten(
    env: StreamExecutionEnvironment,
    local_runtime: OneTaskRuntime,
    spoil: Callable[[StreamExecutionEnvironment], None],
    error: type[Exception],
    way: str,
) -> None:
    stream = env.from_collection([1, 2]).map(lambda n: n + 1)
    stream.print()
    spoil(env)
    with pytest.raises(error):
        WAYS[way](env, stream)
    mend(env)
    assert_only_streams_are_left(env, stream, local_runtime)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", REFUSALS_BY_SPARK, ids=lambda error: type(error).__name__)
def test_a_program_that_spark_refuses_is_forgotten(
    env: StreamExecutionEnvironment,
    local_runtime: OneTaskRuntime,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    way: str,
) -> None:
    stream = env.from_collection([1, 2]).map(lambda n: n + 1)
    stream.print()

    def refuse(*program: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(local_runtime, "launch", refuse)
        with pytest.raises(type(error)):
            WAYS[way](env, stream)
    assert_only_streams_are_left(env, stream, local_runtime)


def assert_only_streams_are_left(
    env: StreamExecutionEnvironment, stream: DataStream, local_runtime: OneTaskRuntime
) -> None:
    with pytest.raises(PlanInvalid, match="nothing to execute"):
        env.execute()
    stream.print()
    env.execute()
    assert local_runtime.printed == [2, 3]
    assert list(stream.execute_and_collect()) == [2, 3]


def test_looking_at_a_plan_forgets_nothing_even_if_it_is_refused(
    env: StreamExecutionEnvironment, local_runtime: OneTaskRuntime
) -> None:
    env.from_collection([1]).print()
    env.get_config().disable_auto_generated_uids()
    for look in (env.get_execution_plan, env.get_stream_graph, env.get_job_graph):
        with pytest.raises(PlanInvalid):
            look()
    mend(env)
    env.execute()
    assert local_runtime.printed == [1]


# A forgotten execute().


@pytest.fixture
def fresh() -> Unexecuted:
    unexecuted.clear()
    return unexecuted


def test_what_was_written_and_not_executed_is_told(
    fresh: Unexecuted, env: StreamExecutionEnvironment
) -> None:
    assert fresh.problem() == ""
    env.from_collection([1]).map(str).name("text")
    assert "but nothing was executed; call env.execute()" in fresh.problem()
    env.execute()
    assert fresh.problem() == ""
    env.from_collection([1]).map(str)  # no sink, so that nobody misses anything
    assert fresh.problem() == ""
    env.from_collection([1]).print()
    assert "after the last execution, and never ran" in fresh.problem()
    env.close()
    assert fresh.problem() == ""


def test_a_program_that_ends_in_a_dataframe_has_executed(
    fresh: Unexecuted, env: StreamExecutionEnvironment
) -> None:
    env.from_collection([1]).to_dataframe("n long")
    assert fresh.problem() == ""
