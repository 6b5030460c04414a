"""Which errors another attempt could end without."""

import errno

import pytest

from headgate.base.errors import (
    BackendMissing,
    CheckpointCorrupt,
    CheckpointMissing,
    CodeUnloadable,
    DatabaseUnready,
    ElementBroken,
    FunctionUnpicklable,
    HttpRejected,
    InsufficientBuffers,
    PartLost,
    PathUnusable,
    PeerLost,
    ProducerFailed,
    RecordsLost,
    RestoreRefused,
    ServerUnfit,
    SettingsInvalid,
    SlotsShort,
    StorageUnusable,
    TableUnfit,
    UserFunctionFailed,
    WrongVersion,
)
from headgate.base.ids import PartitionId, PeerName
from headgate.control.error_classes import is_consequence, is_damage, is_final, is_outside

PEER = PeerName("worker 2")


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def of_user(cause: BaseException) -> BaseException:
    return caused(UserFunctionFailed("map", cause), cause)


@pytest.mark.parametrize(
    "error",
    [
        CodeUnloadable("ModuleNotFoundError: No module named 'shop'", "shop"),
        FunctionUnpicklable("map", "function", "a lock", "TypeError"),
        InsufficientBuffers("gate of map", 24, 3, 2048),
        RestoreRefused(3, "no"),
        SettingsInvalid("a.b", "no"),
        BackendMissing(),
        HttpRejected("status 422", 422),
        PartLost("out/part-0", "is gone with its folder"),
        RecordsLost("the slot is gone"),
        ServerUnfit("a cluster"),
        TableUnfit("the table was dropped"),
        WrongVersion(PEER, 1, 2),
        of_user(ModuleNotFoundError("No module named 'shop'")),
        of_user(RestoreRefused(3, "no")),
        caused(ElementBroken("a record"), ModuleNotFoundError("No module named 'shop'")),
    ],
)
def test_what_every_attempt_would_meet_is_final(error: BaseException) -> None:
    assert is_final(error) and not is_consequence(error)


@pytest.mark.parametrize(
    "error",
    [of_user(ValueError("boom")), of_user(OSError("disk full")), PeerLost(PEER, "gone")],
)
def test_what_may_get_better_is_not_final(error: BaseException) -> None:
    assert not is_final(error)


def test_trouble_elsewhere_and_outside_and_of_a_checkpoint() -> None:
    assert is_consequence(PeerLost(PEER, "gone"))
    assert is_consequence(ProducerFailed(PartitionId("p"), "boom"))
    assert not is_consequence(of_user(ValueError()))
    assert is_outside(of_user(ConnectionRefusedError("port 5432")))
    assert is_outside(StorageUnusable("s3://x", "is away", "wait"))
    assert is_outside(SlotsShort(4, 2, 0)), "executors may come back"
    assert not is_outside(of_user(FileNotFoundError("a.csv")))
    assert is_damage(CheckpointCorrupt("chk-1", "was cut"))


@pytest.mark.parametrize(
    "error",
    [
        DatabaseUnready("no connection to the database"),
        caused(PathUnusable("out", "is full"), OSError(errno.ENOSPC, "no space left on device")),
        of_user(OSError(errno.EIO, "input/output error")),
    ],
)
def test_a_full_disk_and_a_database_that_is_away_may_be_well_again(error: BaseException) -> None:
    assert is_outside(error) and not is_final(error)


def test_a_checkpoint_that_a_task_does_not_find_is_no_damage() -> None:
    gone = CheckpointMissing("chk-5/state", "is not there", "check the path")
    assert is_outside(gone) and not is_damage(gone), "the storage may be away from its host"


def test_errors_that_cause_each_other_end_somewhere() -> None:
    first, two = ValueError(), ValueError()
    caused(first, two)
    caused(two, first)
    assert not is_final(first)
