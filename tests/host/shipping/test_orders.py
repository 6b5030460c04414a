"""Plans and exceptions as they travel."""

import pickle
import threading
from pathlib import Path

import msgspec
import pytest

from headgate.base.checkpoints import OperatorRestore, Piece, TaskRestore
from headgate.base.errors import (
    CheckpointCorrupt,
    CheckpointMissing,
    CodeUnloadable,
    PeerLost,
    ProducerFailed,
    SettingsInvalid,
    StateUnclaimed,
    StorageUnusable,
    TaskCancelled,
    UserFunctionFailed,
)
from headgate.base.ids import PartitionId, PeerName
from headgate.base.messages import CheckpointOrder, Deploy
from headgate.control.frames import TO_TASK_MANAGER
from headgate.core.chain.outputs import run_user_code
from headgate.host.driver.checkpoint_setup import plan_run
from headgate.host.shipping.failures import describe, revive
from headgate.plan.execution_graph import (
    build_execution_graph,
)
from tests.host.jobs import job_of


def test_what_a_task_gets_back_travels_with_it(tmp_path: Path) -> None:
    graph = job_of(tmp_path)
    restore = TaskRestore(
        "0.0", 3, (OperatorRestore("numbers", source=(None, Piece("", 0, 1, 2, b"x"))),)
    )
    tasks = build_execution_graph(graph, "job//0", 0, {"0.0": restore}).tasks
    data = msgspec.msgpack.encode(Deploy("r", "j", 0, {}, list(tasks), {}, None))
    arrived = TO_TASK_MANAGER.decode(data)
    assert isinstance(arrived, Deploy)
    assert arrived.tasks == list(tasks)
    assert [task.restore for task in arrived.tasks if task.restore is not None] == [restore]


def test_the_plan_of_a_run_names_its_partitions_after_the_run(tmp_path: Path) -> None:
    plan = plan_run("job/7/1", job_of(tmp_path, batch=True), b"code", 1, {"k": "v"})
    assert (plan.job, plan.attempt, plan.slots, plan.batch) == ("numbers", 1, 2, True)
    assert len(plan.tasks) == 6
    names = [output.partition for task in plan.tasks for output in task.outputs]
    assert names and all(name.startswith("job/7/1/") for name in names)


class Stubborn(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_an_exception_travels_with_traceback_and_itself() -> None:
    failure = describe(raised(ValueError("boom")))
    assert (failure.kind, failure.message) == ("builtins.ValueError", "boom")
    assert "in raised" in failure.traceback
    revived = revive(failure)
    assert isinstance(revived, ValueError) and str(revived) == "boom"
    assert not failure.is_consequence


def test_the_operator_of_a_user_s_function_is_named() -> None:
    failure = describe(UserFunctionFailed("parse", ValueError("boom")))
    assert failure.operator == "parse"
    assert "boom" in failure.message


def test_an_exception_with_a_constructor_of_its_own_survives() -> None:
    error = Stubborn("a", "b")
    error.where = "here"  # type: ignore[attr-defined]
    revived = revive(describe(raised(error)))
    assert isinstance(revived, Stubborn)
    assert (str(revived), vars(revived)) == ("ab", {"where": "here"})


def test_an_exception_that_does_not_survive_pickling_travels_as_text() -> None:
    error = Stubborn("a", "b")
    error.held = threading.Lock()  # type: ignore[attr-defined]
    failure = describe(raised(error))
    assert failure.exception is None
    assert revive(failure) is None
    assert failure.message == "ab"


def test_the_user_s_own_exception_travels_and_its_traceback_comes_alone() -> None:
    try:
        run_user_code("parse", user_function)
    except UserFunctionFailed as error:
        failure = describe(error)
    assert failure.message == "operator 'parse' failed: ValueError: boom"
    revived = revive(failure)
    assert isinstance(revived, ValueError)
    assert failure.traceback.startswith("Traceback (most recent call last):\n  File ")
    assert failure.traceback.endswith("\nValueError: boom\n")
    assert "in user_function" in failure.traceback
    assert "run_user_code" not in failure.traceback
    assert "UserFunctionFailed" not in failure.traceback


def user_function() -> None:
    raise ValueError("boom")


def test_strange_exceptions_do_not_break_the_report() -> None:
    assert "raises ValueError" in describe(raised(Speechless())).message
    assert describe(ValueError("\ud800")).message == "\\ud800"
    huge = describe(ValueError("x" * 10_000_000))
    assert len(huge.message) < 100_000
    assert huge.exception is None


def test_what_is_no_exception_is_not_revived() -> None:
    failure = describe(ValueError("x"))
    for data in (pickle.dumps(5), b"garbage"):
        assert revive(type(failure)(failure.kind, failure.message, exception=data)) is None


@pytest.mark.parametrize(
    "error",
    [
        PeerLost(PeerName("p"), "reset"),
        ProducerFailed(PartitionId("p"), "boom"),
        TaskCancelled("x"),
    ],
)
def test_trouble_elsewhere_is_told_as_a_consequence(error: Exception) -> None:
    assert describe(error).is_consequence


@pytest.mark.parametrize(
    ("error", "final", "damage"),
    [
        (CodeUnloadable("no", "module"), True, False),
        (StateUnclaimed(3, ("x",)), True, False),
        (SettingsInvalid("key", "no"), True, False),
        (CheckpointCorrupt("/chk-3/0", "is cut"), False, True),
        (CheckpointMissing("/chk-3/0", "is not there", "look"), False, False),
        (StorageUnusable("/chk-3", "is full", "make room"), False, False),
        (ValueError("boom"), False, False),
    ],
)
def test_a_failure_says_whether_another_attempt_can_help(
    error: Exception, final: bool, damage: bool
) -> None:
    failure = describe(error)
    assert (failure.is_final, failure.is_damage) == (final, damage)


def test_the_plan_of_a_run_that_goes_on_says_what_each_task_gets(tmp_path: Path) -> None:
    order = CheckpointOrder("/checkpoints", "x", restored_from="/checkpoints/x/chk-7")
    restores = {
        f"{vertex}.{subtask}": TaskRestore(f"{vertex}.{subtask}", 7)
        for vertex in range(3)
        for subtask in range(2)
    }
    plan = plan_run("x//1", job_of(tmp_path), b"", 1, None, order, restores)
    assert plan.restored == 7
    assert {task.id: task.restore for task in plan.tasks} == restores
    assert plan.checkpointed is not None and plan.checkpointed.job == "x"
    fresh = plan_run("x//1", job_of(tmp_path), b"", 1, None, order)
    assert fresh.restored is None and all(task.restore is None for task in fresh.tasks)
