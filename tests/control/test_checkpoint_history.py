"""The checkpoints of a job over all its attempts: numbers, what is kept, where it goes on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.checkpoints import METADATA_VERSION, CheckpointKind, Metadata
from headgate.base.recovery_settings import Retention
from headgate.control.checkpoint_history import CheckpointHistory, retains_checkpoints
from headgate.control.effects import DropCheckpoint, StoreCheckpoint
from headgate.control.life_cycle import JobState


def metadata_of(number: int, kind: CheckpointKind = CheckpointKind.CHECKPOINT) -> Metadata:
    return Metadata(METADATA_VERSION, number, kind, "job", "name", 0, 1, ())


def kept(history: CheckpointHistory) -> list[int]:
    return [metadata.checkpoint for metadata in history.complete]


@given(st.integers(1, 5), st.integers(0, 20))
def test_the_newest_are_kept(retained: int, count: int) -> None:
    history = CheckpointHistory(retained)
    dropped: list[int] = []
    for _ in range(count):
        dropped += [d.metadata.checkpoint for d in history.completed(metadata_of(history.new_id()))]
    assert dropped + kept(history) == [*range(1, count + 1)]
    assert len(kept(history)) == min(retained, count)


def test_a_new_driver_goes_on_behind_what_it_finds() -> None:
    history = CheckpointHistory(1, [metadata_of(8), metadata_of(5)])
    assert history.latest == StoreCheckpoint(metadata_of(8))
    assert (history.next_id, history.new_id(), history.new_id()) == (9, 9, 10)
    assert history.completed(metadata_of(11)) == [
        DropCheckpoint(metadata_of(5)),
        DropCheckpoint(metadata_of(8)),
    ]


def test_a_job_goes_on_from_where_it_was_told_to_start_until_it_has_a_checkpoint() -> None:
    origin = StoreCheckpoint(metadata_of(41, CheckpointKind.SAVEPOINT), "folder")
    history = CheckpointHistory(1, [metadata_of(3)], origin)
    assert history.latest == origin
    assert history.new_id() == 42
    history.completed(metadata_of(42))
    assert history.latest == StoreCheckpoint(metadata_of(42))


def test_what_is_stored_behind_a_newer_one_is_dropped() -> None:
    history = CheckpointHistory(2)
    history.completed(metadata_of(2))
    assert history.completed(metadata_of(1)) == [DropCheckpoint(metadata_of(1))]
    history.stopped_with(StoreCheckpoint(metadata_of(4, CheckpointKind.SAVEPOINT), "folder"))
    assert history.completed(metadata_of(3)) == [DropCheckpoint(metadata_of(3))]
    assert kept(history) == [2]
    assert history.latest is not None and history.latest.directory == "folder"


@pytest.mark.parametrize(
    ("state", "retention", "stays"),
    [
        (JobState.FINISHED, Retention.RETAIN_ON_CANCELLATION, False),
        (JobState.FINISHED, Retention.NO_EXTERNALIZED_CHECKPOINTS, False),
        (JobState.CANCELLED, Retention.RETAIN_ON_CANCELLATION, True),
        (JobState.CANCELLED, Retention.DELETE_ON_CANCELLATION, False),
        (JobState.CANCELLED, Retention.NO_EXTERNALIZED_CHECKPOINTS, False),
        (JobState.FAILED, Retention.RETAIN_ON_CANCELLATION, True),
        (JobState.FAILED, Retention.DELETE_ON_CANCELLATION, True),
        (JobState.FAILED, Retention.NO_EXTERNALIZED_CHECKPOINTS, True),
    ],
)
def test_what_stays_when_the_job_is_over(
    state: JobState, retention: Retention, stays: bool
) -> None:
    assert retains_checkpoints(state, retention) == stays
