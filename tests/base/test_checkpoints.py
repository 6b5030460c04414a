"""The words of checkpoints travel as they are, and know what they hold."""

import msgspec

from headgate.base.checkpoints import (
    METADATA_VERSION,
    ChannelState,
    CheckpointKind,
    CheckpointOptions,
    DatabaseRestore,
    EdgeShape,
    Metadata,
    OperatorRestore,
    OperatorState,
    Piece,
    ReassignedStream,
    Stop,
    SubtaskState,
    TaskRestore,
    pieces_of,
)


def piece(length: int) -> Piece:
    return Piece(f"file {length}", 3, length, 9)


OPERATOR = OperatorState(
    "uid",
    "sum",
    {5: piece(1)},
    piece(2),
    piece(4),
    piece(8),
    {"1.sst": piece(16)},
    plain_is_own=True,
)
TASK = SubtaskState("1.0", 1, 0, 2, 128, (OPERATOR,), (ChannelState(True, 0, 1, (piece(32),)),))
EDGE = EdgeShape(0, 0, 1, 0, "HASH", False, "late")
METADATA = Metadata(
    METADATA_VERSION, 7, CheckpointKind.SAVEPOINT, "job", "words", 1, 2, (TASK, TASK), True, (EDGE,)
)


def test_a_task_knows_all_its_pieces() -> None:
    assert sorted(piece.length for piece in pieces_of(TASK)) == [1, 2, 4, 8, 16, 32]
    assert METADATA.state_bytes == 2 * 63


def test_what_is_written_is_read() -> None:
    for value in (
        METADATA,
        CheckpointOptions(5, CheckpointKind.SAVEPOINT, Stop.DRAIN, False, 0, "folder"),
        TaskRestore(
            "1.0",
            7,
            (
                OperatorRestore(
                    "uid",
                    {5: piece(1)},
                    (DatabaseRestore(0, 9, {"1.sst": piece(2)}),),
                    (None, piece(1)),
                    (piece(1), None),
                    (piece(3),),
                ),
            ),
            (ChannelState(False, 0, 1, (piece(1),)),),
            (ReassignedStream(0, 1, 2, True, (piece(1),)),),
            True,
        ),
    ):
        data = msgspec.msgpack.encode(value)
        assert msgspec.msgpack.decode(data, type=type(value)) == value


def test_only_a_stop_ends_the_job() -> None:
    assert [stop for stop in Stop if stop.ends] == [Stop.SUSPEND, Stop.DRAIN]
