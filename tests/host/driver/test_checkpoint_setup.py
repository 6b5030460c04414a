"""What a program says about checkpoints, and what its job finds of earlier drivers."""

import logging
import os
import shutil
from pathlib import Path

import pytest
from msgspec import structs

from headgate.base.checkpoints import CheckpointKind, OperatorState, Piece, SubtaskState
from headgate.base.errors import (
    CheckpointError,
    CheckpointMissing,
    CheckpointsDamaged,
    JobTakenOver,
    PlanInvalid,
    ProgramDiffers,
    SettingsInvalid,
    StorageUnusable,
)
from headgate.base.messages import Failure
from headgate.base.settings import ExchangeSettings, FlowControl
from headgate.cli.entry import CONFIGURATION
from headgate.cli.user_program import exit_code_of
from headgate.control.effects import StoreCheckpoint
from headgate.control.life_cycle import JobState
from headgate.core.chain.operator import Operator
from headgate.functions.source import Source, SplitReader
from headgate.host.checkpoints.checkpoint_store import CheckpointStore, complete, open_store
from headgate.host.checkpoints.job_checkpoints import JobCheckpoints
from headgate.host.checkpoints.location import savepoint_location
from headgate.host.checkpoints.pieces import PartWriter
from headgate.host.driver.checkpoint_setup import CheckpointSetup, plan_run
from headgate.host.shipping.failures import describe
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamGraph, StreamNode
from tests.host.checkpoint_kit import flip, metadata_of, names
from tests.host.jobs import job_of
from tests.host.setup_kit import EVERY, metadata, restored, settings_of

BOOM = Failure("ValueError", "boom")


@pytest.fixture
def graph(tmp_path: Path) -> JobGraph:
    return job_of(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def leave(folder: Path, graph: JobGraph, *numbers: int, job: str = "x") -> None:
    """What an earlier driver has left."""
    for number in numbers:
        location = open_store(str(folder)).location(job, number)
        complete(location, metadata(graph, number, job))


def savepoint(folder: Path, graph: JobGraph, number: int, job: str = "x") -> str:
    location = savepoint_location(open_store(str(folder)).folder)
    complete(location, metadata(graph, number, job))
    return str(folder)


def test_the_plan_says_how_checkpoints_are_taken(graph: JobGraph, folder: Path) -> None:
    setup = CheckpointSetup(settings_of(folder, **{"pipeline.job-id": "x"}), graph)
    keeper = setup.open(is_local=False)
    plan = setup.plan(keeper, "x//0", b"code", {"k": "v"})
    order = plan.checkpoints
    assert order is not None and plan.checkpointed is not None
    assert (order.folder, order.job, order.restored_from) == (str(folder), "x", "")
    assert (order.exactly_once, order.overtake_after_ms) == (True, 5_000)
    assert (plan.run, plan.attempt, plan.code, plan.parameters) == ("x//0", 0, b"code", {"k": "v"})
    assert plan.checkpointed.job == "x", "not the name of the run"
    assert [member.task for member in plan.checkpointed.members] == [task.id for task in plan.tasks]
    keeper.close(JobState.FINISHED)


def test_every_restart_is_an_attempt_of_its_own(graph: JobGraph, folder: Path) -> None:
    setup = CheckpointSetup(settings_of(folder), graph)
    keeper = setup.open(is_local=True)
    assert keeper.recovery.failed(BOOM, None, 0) is not None, "with checkpoints it is restarted"
    assert setup.plan(keeper, "run", b"", {}).attempt == 1
    keeper.close(JobState.FAILED)


def test_without_checkpoints_a_job_is_not_restarted_and_still_has_savepoints(
    graph: JobGraph, folder: Path
) -> None:
    setup = CheckpointSetup({}, graph)
    keeper = setup.open(is_local=False)
    plan = setup.plan(keeper, "run", b"", {})
    assert plan.checkpoints is not None and plan.checkpoints.folder == ""
    with_folder = CheckpointSetup({"execution.checkpointing.dir": str(folder)}, graph)
    other = with_folder.open(is_local=False)
    order = with_folder.plan(other, "run", b"", {}).checkpoints
    assert order is not None and order.folder == "", "or tasks would wait for checkpoints"
    other.close(JobState.FINISHED)
    assert keeper.recovery.failed(BOOM, None, 0) is None
    keeper.close(JobState.FAILED)


def test_a_batch_job_takes_none(tmp_path: Path, folder: Path) -> None:
    setup = CheckpointSetup(settings_of(folder), job_of(tmp_path, batch=True))
    keeper = setup.open(is_local=False)
    assert setup.plan(keeper, "run", b"", {}) == plan_run("run", setup.graph, b"")
    assert not keeper.recovery.in_place
    assert not folder.exists()
    keeper.close(JobState.FINISHED)
    with pytest.raises(
        SettingsInvalid, match=r"state-recovery\.path.*has no state to restore; remove"
    ):
        CheckpointSetup({"execution.state-recovery.path": "/there"}, setup.graph)


def test_jobs_without_an_id_of_their_own_get_one_each(graph: JobGraph) -> None:
    first, second = CheckpointSetup({}, graph), CheckpointSetup({}, graph)
    assert first.job_id != second.job_id
    assert not first.is_known


# The folder.


def test_without_a_folder_a_local_job_has_a_temporary_one(graph: JobGraph) -> None:
    keeper = CheckpointSetup(EVERY, graph).open(is_local=True)
    made = Path(keeper.storage.uri)
    assert made.exists()
    keeper.close(JobState.FAILED)
    assert not made.exists()


def test_without_a_folder_a_cluster_has_no_checkpoints(graph: JobGraph) -> None:
    with pytest.raises(SettingsInvalid, match=r"execution\.checkpointing\.dir.*all workers share"):
        CheckpointSetup(EVERY, graph).open(is_local=False)


def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(
    graph: JobGraph, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("here")
    with pytest.raises(StorageUnusable, match="a file stands where a folder must be"):
        CheckpointSetup(settings_of(file), graph)


# What is refused.


class Once(Source):
    rewinds = False
    rewind_advice = "read it from a file"

    def open(self, split: object, position: object, context: object) -> SplitReader:
        raise AssertionError("nothing is read")


def test_a_source_that_cannot_be_read_again_is_named(graph: JobGraph) -> None:
    with pytest.raises(PlanInvalid, match="source 'ticker' cannot be read again.*from a file"):
        CheckpointSetup(EVERY, graph, [("numbers", object()), ("ticker", Once())])
    CheckpointSetup({}, graph, [("ticker", Once())])


def test_exactly_once_needs_credit(graph: JobGraph) -> None:
    tcp = ExchangeSettings(flow_control=FlowControl.TCP)
    with pytest.raises(SettingsInvalid, match=r"exchange\.flow-control: is tcp.*at_least_once"):
        CheckpointSetup(EVERY, graph, exchange=tcp)
    weaker = {**EVERY, "execution.checkpointing.mode": "at_least_once"}
    assert CheckpointSetup(weaker, graph, exchange=tcp).takes_any
    assert not CheckpointSetup({}, graph, exchange=tcp).takes_any


# What there is of earlier drivers.


def test_a_driver_with_the_same_id_and_folder_goes_on(
    graph: JobGraph, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leave(folder, graph, 3, 4)
    (folder / "x" / "chk-6").mkdir()  # the old driver died while it was taken
    setup = CheckpointSetup(settings_of(folder, **{"pipeline.job-id": "x"}), graph)
    with caplog.at_level(logging.INFO):
        assert restored(setup) == (4, str(folder / "x" / "chk-4"))
    assert "job x goes on from checkpoint 4" in caplog.text
    keeper = setup.open(is_local=True)
    assert keeper.recovery.history.next_id == 5, "what came to nothing is gone"
    keeper.close(JobState.FAILED)
    assert names(folder) == ["x/chk-3/_metadata", "x/chk-4/_metadata"]


def test_numbers_are_never_used_again(graph: JobGraph, folder: Path) -> None:
    leave(folder, graph, 4)
    (folder / "x" / "chk-6").mkdir()
    setup = CheckpointSetup(settings_of(folder, **{"pipeline.job-id": "x"}), graph)
    keeper = setup.open(is_local=True)
    assert keeper.recovery.history.next_id == 7
    keeper.close(JobState.FAILED)


def test_a_damaged_checkpoint_of_an_earlier_driver_is_passed_over(
    graph: JobGraph, folder: Path
) -> None:
    leave(folder, graph, 3, 4)
    flip(folder / "x" / "chk-4" / "_metadata", 40, 1)
    setup = CheckpointSetup(settings_of(folder, **{"pipeline.job-id": "x"}), graph)
    assert restored(setup)[0] == 3


def leave_with_file(folder: Path, graph: JobGraph, number: int) -> Path:
    """One whose state stands in a file; returns that."""
    location = open_store(str(folder)).location("x", number)
    with PartWriter(location, "t-0-0-0", 0) as writer:
        piece = writer.append(b"state of a task")
    whole = metadata(graph, number)
    first, *others = whole.tasks
    operators = (structs.replace(first.operators[0], plain=piece), *first.operators[1:])
    tasks = (structs.replace(first, operators=operators), *others)
    complete(location, structs.replace(whole, tasks=tasks))
    (file,) = (folder / "x" / f"chk-{number}").glob("t-*")
    return file


DAMAGES = {
    "metadata changed": lambda file: flip(file.with_name("_metadata"), 40, 1),
    "metadata cut": lambda file: os.truncate(file.with_name("_metadata"), 10),
    "metadata empty": lambda file: os.truncate(file.with_name("_metadata"), 0),
    "metadata appended to": lambda file: append(file.with_name("_metadata")),
    "file cut": lambda file: os.truncate(file, 3),
    "file gone": lambda file: file.unlink(),
    "file appended to": lambda file: append(file),
}


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_driver_that_finds_only_damaged_checkpoints_does_not_begin_anew(
    graph: JobGraph, folder: Path, damage: str
) -> None:
    file = leave_with_file(folder, graph, 4)
    given = settings_of(folder, **{"pipeline.job-id": "x"})
    assert restored(CheckpointSetup(given, graph))[0] == 4
    DAMAGES[damage](file)
    with pytest.raises(CheckpointsDamaged) as caught:
        CheckpointSetup(given, graph)
    message = str(caught.value)
    culprit = "_metadata" if "metadata" in damage else file.name
    assert message.startswith(f"{folder}/x: job 'x' has no checkpoint here that is whole"), message
    assert f"{folder}/x/chk-4/{culprit}: " in message, message
    assert "--ignore-damaged-checkpoints" in message
    assert exit_code_of(caught.value) == CONFIGURATION


def test_a_job_begins_anew_if_it_may_and_leaves_what_is_damaged(
    graph: JobGraph, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leave(folder, graph, 4)
    flip(folder / "x" / "chk-4" / "_metadata", 40, 1)
    may = {"pipeline.job-id": "x", "execution.state-recovery.ignore-damaged-checkpoints": "true"}
    setup = CheckpointSetup(settings_of(folder, **may), graph)
    keeper = setup.open(is_local=True)
    assert setup.plan(keeper, "run", b"", {}).restored is None
    assert keeper.recovery.history.next_id == 5
    keeper.close(JobState.FAILED)
    assert "the job goes on without them" in caplog.text
    assert names(folder) == ["x/chk-4/_metadata"]
    leave(folder, graph, 5)
    given = settings_of(folder, **{"pipeline.job-id": "x"})
    assert restored(CheckpointSetup(given, graph))[0] == 5


def test_where_a_job_was_started_from_does_not_come_in_place_of_damaged_checkpoints(
    graph: JobGraph, folder: Path, tmp_path: Path
) -> None:
    """A supervisor gives the same ``--from`` each time."""
    leave(folder, graph, 4)
    flip(folder / "x" / "chk-4" / "_metadata", 40, 1)
    paths = {
        "older": savepoint(tmp_path / "older", graph, 2),
        "strange": savepoint(tmp_path / "strange", graph, 9, job="y"),
        "newer": savepoint(tmp_path / "newer", graph, 6),
    }
    given = {
        name: settings_of(
            folder, **{"pipeline.job-id": "x", "execution.state-recovery.path": where}
        )
        for name, where in paths.items()
    }
    for name in ("older", "strange"):
        with pytest.raises(CheckpointsDamaged):
            CheckpointSetup(given[name], graph)
    may = {"execution.state-recovery.ignore-damaged-checkpoints": "true"}
    assert restored(CheckpointSetup(given["older"] | may, graph)) == (2, paths["older"])
    assert restored(CheckpointSetup(given["newer"], graph)) == (6, paths["newer"])


@pytest.mark.parametrize("damage", ["file cut", "file gone", "file appended to", "all gone"])
def test_a_restart_finds_damage_too(graph: JobGraph, folder: Path, damage: str) -> None:
    leave(folder, graph, 3)
    file = leave_with_file(folder, graph, 4)
    retained = {"pipeline.job-id": "x", "execution.checkpointing.num-retained": "2"}
    setup = CheckpointSetup(settings_of(folder, **retained), graph)
    keeper = setup.open(is_local=True)
    if damage == "all gone":
        shutil.rmtree(file.parent)
    else:
        DAMAGES[damage](file)
    assert keeper.recovery.failed(BOOM, 4, 0) is not None
    assert setup.plan(keeper, "run", b"", {}).restored == 3
    shutil.rmtree(folder / "x" / "chk-3")
    with pytest.raises(CheckpointsDamaged, match="chk-3: is not there") as caught:
        setup.plan(keeper, "run", b"", {})
    assert describe(caught.value).is_final
    keeper.close(JobState.FAILED)


def test_a_storage_that_is_away_during_the_look_at_a_checkpoint_costs_nothing(
    graph: JobGraph, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(folder, graph, 3)
    setup = CheckpointSetup(settings_of(folder, **{"pipeline.job-id": "x"}), graph)
    keeper = setup.open(is_local=True)
    look, away, looks = keeper.storage.damage_of, folder.with_name("away"), []

    def away_for_the_first(found: StoreCheckpoint) -> CheckpointError | None:
        looks.append(found)
        if len(looks) > 1:
            return look(found)
        folder.rename(away)
        try:
            return look(found)
        finally:
            away.rename(folder)  # before anybody looks at the claim

    monkeypatch.setattr(keeper.storage, "damage_of", away_for_the_first)
    assert setup.plan(keeper, "run", b"", {}).restored == 3
    assert len(looks) == 2
    keeper.close(JobState.FAILED)


def test_a_restart_from_a_storage_that_is_away_waits_for_it(graph: JobGraph, folder: Path) -> None:
    leave(folder, graph, 3)
    setup = CheckpointSetup(settings_of(folder, **{"pipeline.job-id": "x"}), graph)
    keeper = setup.open(is_local=True)
    folder.rename(folder.with_name("away"))
    with pytest.raises(StorageUnusable) as caught:
        setup.plan(keeper, "run", b"", {})
    assert not describe(caught.value).is_final
    folder.with_name("away").rename(folder)
    assert setup.plan(keeper, "run", b"", {}).restored == 3
    keeper.close(JobState.FAILED)


def test_a_job_with_another_id_finds_nothing(graph: JobGraph, folder: Path) -> None:
    leave(folder, graph, 3)
    assert restored(CheckpointSetup(settings_of(folder), graph)) == (None, "")
    other = settings_of(folder, **{"pipeline.job-id": "y"})
    assert restored(CheckpointSetup(other, graph)) == (None, "")


def test_a_job_can_be_told_where_to_begin(graph: JobGraph, folder: Path, tmp_path: Path) -> None:
    where = savepoint(tmp_path / "savepoint", graph, 41, job="older")
    setup = CheckpointSetup(settings_of(folder, **{"execution.state-recovery.path": where}), graph)
    assert restored(setup) == (41, where)
    keeper = setup.open(is_local=True)
    assert keeper.recovery.history.next_id == 42
    keeper.close(JobState.FINISHED)
    assert names(Path(where)) == ["_metadata"], "it is its owner's"


def test_a_driver_that_is_started_again_the_same_way_goes_on_and_not_back(
    graph: JobGraph, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = savepoint(tmp_path / "savepoint", graph, 2)
    given = {"pipeline.job-id": "x", "execution.state-recovery.path": where}
    assert restored(CheckpointSetup(settings_of(folder, **given), graph))[0] == 2
    leave(folder, graph, 3)
    assert restored(CheckpointSetup(settings_of(folder, **given), graph))[0] == 3
    assert "goes on from its checkpoint 3 and not from" in caplog.text


def test_a_newer_savepoint_of_the_job_itself_comes_first(
    graph: JobGraph, folder: Path, tmp_path: Path
) -> None:
    leave(folder, graph, 3)
    where = savepoint(tmp_path / "savepoint", graph, 4)
    given = {"pipeline.job-id": "x", "execution.state-recovery.path": where}
    assert restored(CheckpointSetup(settings_of(folder, **given), graph)) == (4, where)


# Drivers that were lost, or seemed to be, at a bad moment.


def lost_while_it_stopped(folder: Path, graph: JobGraph, where: Path, number: int) -> None:
    """A driver has told its sinks to commit, and was killed before it dropped its checkpoints."""
    last = structs.replace(metadata(graph, number), kind=CheckpointKind.SAVEPOINT)
    JobCheckpoints("x", str(folder)).store(StoreCheckpoint(last, str(where), ends_job=True))


def test_a_job_that_was_stopped_goes_on_from_its_savepoint_and_not_from_before(
    graph: JobGraph, folder: Path, tmp_path: Path
) -> None:
    leave(folder, graph, 3)
    where = tmp_path / "savepoint"
    lost_while_it_stopped(folder, graph, where, 4)
    setup = CheckpointSetup(settings_of(folder, **{"pipeline.job-id": "x"}), graph)
    assert restored(setup) == (4, str(where))
    keeper = setup.open(is_local=True)
    assert keeper.recovery.history.next_id == 5
    keeper.close(JobState.FAILED)
    assert restored(setup) == (4, str(where)), "until one more is complete"
    leave(folder, graph, 5)
    assert restored(setup) == (5, str(folder / "x" / "chk-5"))
    setup.open(is_local=True).close(JobState.FINISHED)
    assert not (folder / "x").exists()
    assert names(where) == ["_metadata"]
    assert restored(setup) == (None, "")


def test_a_savepoint_that_was_moved_can_be_named(
    graph: JobGraph, folder: Path, tmp_path: Path
) -> None:
    leave(folder, graph, 3)
    lost_while_it_stopped(folder, graph, tmp_path / "savepoint", 4)
    moved = (tmp_path / "savepoint").rename(tmp_path / "moved")
    given = settings_of(folder, **{"pipeline.job-id": "x"})
    with pytest.raises(CheckpointMissing, match="job 'x' was stopped with this savepoint"):
        CheckpointSetup(given, graph)
    given["execution.state-recovery.path"] = str(moved)
    assert restored(CheckpointSetup(given, graph)) == (4, str(moved))


def test_an_older_start_does_not_come_before_the_savepoint(
    graph: JobGraph, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = savepoint(tmp_path / "first", graph, 2)
    lost_while_it_stopped(folder, graph, tmp_path / "second", 4)
    given = {"pipeline.job-id": "x", "execution.state-recovery.path": where}
    setup = CheckpointSetup(settings_of(folder, **given), graph)
    assert restored(setup) == (4, str(tmp_path / "second"))
    assert "goes on from its checkpoint 4 and not from" in caplog.text


def test_what_was_completed_before_the_job_was_claimed_is_not_missed(
    graph: JobGraph, folder: Path
) -> None:
    leave(folder, graph, 3)
    setup = CheckpointSetup(settings_of(folder, **{"pipeline.job-id": "x"}), graph)
    leave(folder, graph, 4)  # by a driver that was thought to be dead
    assert restored(setup)[0] == 4


def test_a_driver_whose_job_was_taken_over_plans_nothing(graph: JobGraph, folder: Path) -> None:
    given = settings_of(folder, **{"pipeline.job-id": "x"})
    old = CheckpointSetup(given, graph)
    frozen = old.open(is_local=True)
    leave(folder, graph, 3)
    new = CheckpointSetup(given, graph)
    keeper = new.open(is_local=True)
    with pytest.raises(JobTakenOver, match="taken over job 'x'") as refused:
        old.plan(frozen, "run", b"", {})
    assert describe(refused.value).is_final
    frozen.close(JobState.FINISHED)
    assert new.plan(keeper, "run", b"", {}).restored == 3
    keeper.close(JobState.FAILED)
    assert names(folder) == ["x/chk-3/_metadata"]


def test_a_job_that_cannot_start_leaves_no_claim(
    graph: JobGraph, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = CheckpointSetup(settings_of(folder), graph)

    def refuse(*given: object) -> int:
        raise StorageUnusable("there", "Input/output error", "look")

    monkeypatch.setattr(CheckpointStore, "next_id", refuse)
    with pytest.raises(StorageUnusable):
        setup.open(is_local=True)
    assert names(folder) == []


def test_key_groups_that_nobody_has_named_are_those_of_the_checkpoint(
    graph: JobGraph, folder: Path
) -> None:
    def program(groups: int, default: bool) -> StreamGraph:
        node = StreamNode(1, "read", NodeKind.SOURCE, Operator, 2, groups, default_groups=default)
        return StreamGraph(nodes={1: node})

    leave(folder, build_job_graph(program(256, True)), 3)
    given, old = settings_of(folder, **{"pipeline.job-id": "x"}), {}
    for default in (True, False):
        now = program(128, default)
        setup = CheckpointSetup(given, build_job_graph(now), program=now)
        old[default] = setup.graph.vertices[0].max_parallelism
    assert old == {True: 256, False: 128}


def test_what_does_not_fit_is_told_before_anything_runs(
    graph: JobGraph, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointMissing):
        CheckpointSetup({"execution.state-recovery.path": str(tmp_path / "no")}, graph)
    location = open_store(str(folder)).location("x", 1)
    other = OperatorState("another", "Another", plain=Piece("", 0, 1, 0, b"x"))
    task = SubtaskState("0.0", 0, 0, 1, 128, (other,))
    complete(location, metadata_of(1, (task,), job="x"))
    with pytest.raises(ProgramDiffers):
        CheckpointSetup(settings_of(folder, **{"pipeline.job-id": "x"}), graph)
    assert names(folder) == ["x/chk-1/_metadata"]
