"""Snapshots on their way to real files: written, acknowledged, declined, given up."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.checkpoints import CheckpointKind, Piece, pieces_of
from headgate.base.events import CheckpointBarrier
from headgate.base.messages import (
    CheckpointAcked,
    CheckpointDeclined,
    CheckpointOrder,
)
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.checkpoint.snapshot import ChannelData, NamedSnapshot, SnapshotTask, TaskSnapshot
from headgate.core.state.backend import SnapshotFiles
from headgate.host.checkpoints.checkpoint_store import open_store
from headgate.host.checkpoints.folder import open_folder
from headgate.host.checkpoints.location import CheckpointLocation, savepoint_location
from headgate.host.checkpoints.pieces import PieceReader
from headgate.host.checkpoints.snapshot_writer import WRITERS, SnapshotWriters, WriterPool
from tests.host.checkpoint_kit import LARGE, names
from tests.host.log_kit import kept_lines
from tests.host.rig import eventually

SOON_S = 20.0
AUTHOR = SnapshotTask("3.1", 3, 1, 2, 128, "count -> Sink")


class Groups:
    """Keyed state of an operator that a test holds up, or lets fail."""

    def __init__(self, *groups: tuple[int, bytes]) -> None:
        self.given = groups
        self.go_on = threading.Event()
        self.go_on.set()
        self.reached = threading.Event()
        self.error: BaseException | None = None
        self.closed = False

    def groups(self) -> Iterator[tuple[int, bytes]]:
        for group in self.given:
            yield group
            self.reached.set()
            assert self.go_on.wait(SOON_S)
        if self.error is not None:
            raise self.error

    def files(self, store: SnapshotFiles) -> dict[str, Piece]:
        return {}

    def close(self) -> None:
        self.closed = True


class Desk:
    """A run with its threads; keeps what is said to the driver and to the task, in order."""

    def __init__(self, folder: Path | str, **order: Any) -> None:
        self.threads = WriterPool()
        self.said: list[CheckpointAcked | CheckpointDeclined | str] = []
        made = CheckpointOrder(str(folder), "orders", **order)
        self.run = SnapshotWriters("r/1", 7, made, self.threads, self.said.append, self._post)

    def start(
        self,
        *operators: tuple[str, OperatorSnapshot],
        checkpoint: int = 5,
        author: SnapshotTask = AUTHOR,
        finished: bool = False,
        **barrier: Any,
    ) -> Any:
        taken = tuple(
            NamedSnapshot(uid, uid.title(), operator_snapshot)
            for uid, operator_snapshot in operators
        )
        made = CheckpointBarrier(checkpoint, 1000, **barrier)
        snapshot = TaskSnapshot(made, taken, 1.5, finished)
        done = f"done {checkpoint}"
        return self.run.start(author, snapshot, lambda: self.said.append(done))

    def await_said(self, count: int) -> list[Any]:
        eventually(lambda: len(self.said) >= count, f"{count} words, not {self.said}")
        return self.said

    def close(self) -> None:
        assert self.run.close(SOON_S)
        assert self.threads.close(SOON_S)

    def _post(self, call: Callable[[], None]) -> None:
        call()


@pytest.fixture
def make_desk() -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(folder: Path | str, **order: Any) -> Desk:
        made.append(Desk(folder, **order))
        return made[-1]

    yield make
    for desk in made:
        desk.close()


@pytest.fixture
def desk(tmp_path: Path, make_desk: Callable[..., Desk]) -> Desk:
    return make_desk(tmp_path / "chk")


def read(location: CheckpointLocation, piece: Piece | None) -> bytes | None:
    if piece is None:
        return None
    with PieceReader(location) as reader:
        return reader.read(piece)


def keyed(*groups: tuple[int, bytes]) -> tuple[OperatorSnapshot, Groups]:
    held = Groups(*groups)
    return OperatorSnapshot(keyed=held), held


def test_a_driver_that_signs_is_told_the_digest_of_all_that_stands_in_files(
    make_desk: Callable[..., Desk], tmp_path: Path
) -> None:
    desk = make_desk(tmp_path / "chk", digests=True)
    writing = desk.start(("count", OperatorSnapshot(keyed=Groups((3, LARGE), (70, b"small")))))
    writing.complete([ChannelData(True, 0, 1, (LARGE, b"in flight"))], 2.0)
    ack = desk.await_said(2)[0]
    assert isinstance(ack, CheckpointAcked)
    keyed = ack.state.operators[0].keyed
    assert keyed[3].digest == sha256(LARGE).digest()
    assert keyed[70].inline and not keyed[70].digest, "the signature is over that itself"
    assert ack.state.channels[0].pieces[0].digest == sha256(LARGE + b"in flight").digest()


def test_all_that_operators_and_channels_hold_is_written_and_acknowledged(
    desk: Desk, tmp_path: Path
) -> None:
    count = OperatorSnapshot(
        keyed=Groups((3, LARGE), (70, b"small")), plain=b"lists", plain_is_own=True
    )
    writing = desk.start(
        ("source", OperatorSnapshot(source=b"at 17")),
        ("count", count),
        ("map", OperatorSnapshot()),
        ("sink", OperatorSnapshot(sink=b"files")),
    )
    writing.complete(
        [
            ChannelData(True, 0, 1, [b"ab", b"c"]),
            ChannelData(False, 1, 0, [LARGE]),
            ChannelData(True, 0, 0, []),
        ],
        12.0,
    )
    ack, done = desk.await_said(2)
    assert done == "done 5", "the task is told after the driver"
    assert (ack.run, ack.checkpoint) == ("r/1", 5)
    state = ack.state
    assert (state.task, state.vertex, state.subtask) == ("3.1", 3, 1)
    assert (state.parallelism, state.max_parallelism, state.finished) == (2, 128, False)
    assert [(operator.uid, operator.name) for operator in state.operators] == [
        ("source", "Source"),
        ("count", "Count"),
        ("map", "Map"),
        ("sink", "Sink"),
    ]
    location = open_store(str(tmp_path / "chk")).location("orders", 5)
    source, counted, mapped, sink = state.operators
    assert read(location, source.source) == b"at 17"
    assert {group: read(location, piece) for group, piece in counted.keyed.items()} == {
        3: LARGE,
        70: b"small",
    }
    assert read(location, counted.plain) == b"lists" and counted.plain_is_own
    assert (mapped.keyed, mapped.plain, mapped.source, mapped.sink) == ({}, None, None, None)
    assert read(location, sink.sink) == b"files"
    found = {
        (channel.is_input, channel.index, channel.channel): [
            read(location, piece) for piece in channel.pieces
        ]
        for channel in state.channels
    }
    assert found == {(True, 0, 1): [b"abc"], (False, 1, 0): [LARGE]}
    figures = ack.figures
    assert figures.state_bytes == len(LARGE) + len(b"small" + b"lists" + b"at 17" + b"files")
    assert figures.in_flight_bytes == 3 + len(LARGE)
    assert (figures.align_ms, figures.sync_ms, figures.unaligned) == (12.0, 1.5, True)
    assert figures.async_ms > 0


def test_small_tasks_make_no_file_and_the_order_says_what_is_small(
    make_desk: Callable[..., Desk], tmp_path: Path
) -> None:
    desk = make_desk(tmp_path / "a", inline_bytes=4)
    desk.start(("op", OperatorSnapshot(plain=b"four")), checkpoint=1).complete([], 0)
    desk.await_said(2)
    assert not (tmp_path / "a").exists()
    desk.start(("op", OperatorSnapshot(plain=b"fives")), checkpoint=2).complete([], 0)
    desk.await_said(4)
    assert len(names(tmp_path / "a" / "orders" / "chk-2")) == 1
    figures = desk.said[2].figures  # type: ignore[union-attr]
    assert (figures.unaligned, figures.in_flight_bytes) == (False, 0)


def test_a_task_that_has_finished_says_so(desk: Desk) -> None:
    desk.start(("sink", OperatorSnapshot(sink=b"files")), finished=True).complete([], 0)
    ack, _ = desk.await_said(2)
    assert ack.state.finished


def test_a_savepoint_stands_in_a_folder_of_its_own(desk: Desk, tmp_path: Path) -> None:
    directory = str(tmp_path / "mine" / "savepoint-1")
    writing = desk.start(
        ("op", OperatorSnapshot(plain=LARGE)), kind=CheckpointKind.SAVEPOINT, directory=directory
    )
    writing.complete([], 0)
    ack, _ = desk.await_said(2)
    location = savepoint_location(open_folder(directory))
    assert read(location, ack.state.operators[0].plain) == LARGE
    assert not (tmp_path / "chk").exists()


def test_no_thread_waits_for_what_is_on_its_way(desk: Desk) -> None:
    waiting = [desk.start(("op", OperatorSnapshot(plain=LARGE)), checkpoint=n) for n in range(20)]
    eventually(lambda: desk.threads._idle == len(desk.threads._threads) > 0, "all are written")
    assert not desk.said
    for writing in waiting:
        writing.complete([ChannelData(True, 0, 0, [b"late"])], 0)
    said = desk.await_said(40)
    assert sum(isinstance(word, CheckpointAcked) for word in said) == 20


def test_a_given_up_one_leaves_nothing_wherever_it_was(desk: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "chk"
    waiting = desk.start(("op", OperatorSnapshot(plain=LARGE)), checkpoint=1)
    eventually(lambda: names(folder) and desk.threads._idle, "the operators are written")
    waiting.abort()
    waiting.abort()
    assert desk.await_said(1) == ["done 1"]
    eventually(lambda: not names(folder), "the file is gone")

    taken, held = keyed((1, LARGE), (2, LARGE))
    held.go_on.clear()
    writing = desk.start(("op", taken), checkpoint=2)
    assert held.reached.wait(SOON_S)
    writing.abort()
    writing.complete([], 0)
    assert desk.said == ["done 1"], "a thread is still at it"
    held.go_on.set()
    assert desk.await_said(2) == ["done 1", "done 2"]
    assert not names(folder)
    desk.close()
    assert desk.said == ["done 1", "done 2"], "the driver knows already, and nobody is told twice"


def test_one_that_waits_for_a_thread_is_given_up_at_once(desk: Desk) -> None:
    held = [keyed((1, b"x"))[1] for _ in range(WRITERS)]
    for number, pending in enumerate(held):
        pending.go_on.clear()
        desk.start(("op", OperatorSnapshot(keyed=pending)), checkpoint=number)
        assert pending.reached.wait(SOON_S)
    late = desk.start(("op", OperatorSnapshot(plain=b"x")), checkpoint=99)
    late.abort()
    assert desk.said == ["done 99"], "although all threads hang"
    for pending in held:
        pending.go_on.set()


def test_after_its_acknowledgement_it_is_the_driver_s_to_give_up(
    desk: Desk, tmp_path: Path
) -> None:
    writing = desk.start(("op", OperatorSnapshot(plain=LARGE)))
    writing.complete([], 0)
    desk.await_said(2)
    writing.abort()
    desk.close()
    assert len(names(tmp_path / "chk")) == 1
    assert len(desk.said) == 2


def test_state_that_cannot_be_written_declines_and_names_the_operator(
    desk: Desk, tmp_path: Path
) -> None:
    taken, held = keyed((1, LARGE))
    held.error = TypeError("cannot pickle '_thread.lock' object")
    with kept_lines("headgate.host.checkpoints") as lines:
        writing = desk.start(("counts", taken))
        declined, done = desk.await_said(2)
    line = lines.of("does not write its part of checkpoint 5")
    assert (line.task, line.subtask, line.attempt) == ("count -> Sink", 1, 7)
    assert (declined.run, declined.checkpoint, declined.task) == ("r/1", 5, "3.1")
    assert "operator 'Counts' cannot be written: TypeError: cannot pickle" in declined.reason
    assert done == "done 5" and not declined.subsumed
    writing.complete([], 0)
    writing.abort()
    desk.close()
    assert len(desk.said) == 2
    assert not names(tmp_path / "chk")


def test_a_user_s_exit_while_state_is_pickled_ends_no_thread(desk: Desk) -> None:
    taken, held = keyed((1, LARGE))
    held.error = SystemExit(3)
    desk.start(("counts", taken), checkpoint=1)
    declined, _ = desk.await_said(2)
    assert "SystemExit" in declined.reason
    desk.start(("counts", OperatorSnapshot()), checkpoint=2).complete([], 0)
    assert isinstance(desk.await_said(4)[2], CheckpointAcked)


def test_a_file_in_the_way_declines_with_its_path_and_later_ones_go_well(
    desk: Desk, tmp_path: Path
) -> None:
    folder = tmp_path / "chk"
    folder.write_text("not a folder")
    desk.start(("op", OperatorSnapshot(plain=LARGE)), checkpoint=1)
    declined, _ = desk.await_said(2)
    assert str(folder) in declined.reason
    assert "a file stands where a folder must be" in declined.reason
    folder.unlink()
    desk.start(("op", OperatorSnapshot(plain=LARGE)), checkpoint=2).complete([], 0)
    assert isinstance(desk.await_said(4)[2], CheckpointAcked)


def test_a_folder_that_vanishes_between_the_stages_declines(desk: Desk, tmp_path: Path) -> None:
    writing = desk.start(("op", OperatorSnapshot(plain=LARGE)))
    folder = tmp_path / "chk" / "orders" / "chk-5"
    eventually(lambda: desk.threads._idle and folder.is_dir(), "the operators are written")
    for path in folder.iterdir():
        path.unlink()
    os.rmdir(folder)
    writing.complete([], 0)
    declined, done = desk.await_said(2)
    assert str(folder) in declined.reason
    assert (done, names(tmp_path / "chk")) == ("done 5", [])


@pytest.mark.parametrize("folder", ["", "nonsense://there"])
def test_a_storage_that_is_none_declines(make_desk: Callable[..., Desk], folder: str) -> None:
    desk = make_desk(folder)
    desk.start(("op", OperatorSnapshot(plain=LARGE)))
    declined, _ = desk.await_said(2)
    assert isinstance(declined, CheckpointDeclined)
    assert "give a path of this machine" in declined.reason


def test_the_end_of_a_run_gives_up_everything_and_takes_nothing_more(
    desk: Desk, tmp_path: Path
) -> None:
    desk.start(("op", OperatorSnapshot(plain=LARGE)), checkpoint=1)
    taken, held = keyed((1, LARGE))
    held.go_on.clear()
    desk.start(("op", taken), checkpoint=2)
    assert held.reached.wait(SOON_S)
    assert not desk.run.close(0.05), "one is held up"
    held.go_on.set()
    assert desk.run.close(SOON_S)
    assert sorted(map(str, desk.said)) == ["done 1", "done 2"]
    assert not names(tmp_path / "chk")
    late = desk.start(("op", OperatorSnapshot(plain=LARGE)), checkpoint=3)
    assert desk.said[-1] == "done 3"
    late.complete([], 0)
    late.abort()
    assert len(desk.said) == 3


@given(
    st.lists(
        st.tuples(st.sampled_from(["complete", "abort", "late abort"]), st.booleans()), max_size=6
    )
)
def test_each_snapshot_ends_once_and_only_acknowledged_ones_leave_files(
    tmp_path_factory: pytest.TempPathFactory, fates: Sequence[tuple[str, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("chk")
    desk = Desk(folder)
    try:
        for number, (fate, fails) in enumerate(fates):
            taken, held = keyed((1, LARGE))
            held.error = ValueError("no") if fails else None
            writing = desk.start(("op", taken), checkpoint=number)
            if fate != "abort":
                writing.complete([ChannelData(True, 0, 0, [b"x"])], 0)
            if fate != "complete":
                writing.abort()
        dones = {f"done {number}" for number in range(len(fates))}
        eventually(lambda: dones <= {word for word in desk.said if type(word) is str}, "all ends")
    finally:
        desk.close()
    for number, (fate, fails) in enumerate(fates):
        words = [word for word in desk.said if _number(word) == number]
        assert words[-1] == f"done {number}"
        assert len(words) <= 2
        if fate == "complete":
            assert isinstance(words[0], CheckpointDeclined if fails else CheckpointAcked)
    acked = [word for word in desk.said if isinstance(word, CheckpointAcked)]
    files = {piece.path for word in acked for piece in pieces_of(word.state) if piece.path}
    assert set(names(folder)) == {f"orders/{path}" for path in files}


def _number(word: Any) -> int:
    return int(word.split()[1]) if isinstance(word, str) else word.checkpoint
