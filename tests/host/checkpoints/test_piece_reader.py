"""Pieces with damaged offsets, lengths or names are corrupt, whatever the file system says."""

import contextlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.checkpoints import Piece
from headgate.base.errors import CheckpointCorrupt, CheckpointError, StorageUnusable
from headgate.host.checkpoints.checkpoint_store import open_store
from headgate.host.checkpoints.folder import open_folder
from headgate.host.checkpoints.pieces import PartWriter, PieceReader
from tests.host.checkpoint_kit import JOB

DATA = bytes(range(256)) * 40


@pytest.fixture
def piece(tmp_path: Path) -> tuple[PieceReader, Piece]:
    location = open_store(str(tmp_path)).location(JOB, 1)
    with PartWriter(location, "t-0-0-0", 0) as writer:
        written = writer.append(DATA)
    reader = PieceReader(location)
    assert reader.read(written) == DATA
    return reader, written


DAMAGE = [
    {"offset": -1},
    {"length": -1},
    {"offset": 2**62},
    {"offset": 2**64},
    {"offset": -(2**63) - 1},
    {"length": 2**40},
    {"length": 2**63},
    {"length": 2**64},
    {"length": -(2**64)},
    {"offset": 1},
    {"length": len(DATA) - 1},
    {"crc": -1},
    {"path": "chk-1/t\0"},
    {"path": "../t"},
]


@pytest.mark.parametrize("changes", DAMAGE, ids=str)
def test_a_damaged_piece_is_corrupt(
    piece: tuple[PieceReader, Piece], changes: dict[str, object], tmp_path: Path
) -> None:
    reader, written = piece
    damaged = msgspec.structs.replace(written, **changes)
    with reader:
        for read in (
            reader.read,
            reader.check,
            lambda piece: reader.fetch(piece, str(tmp_path / "copy")),
        ):
            with pytest.raises(CheckpointCorrupt):
                read(damaged)


def test_no_numbers_raise_anything_else(piece: tuple[PieceReader, Piece]) -> None:
    reader, written = piece
    integers = st.integers(-(2**64), 2**64) | st.integers(-5, len(DATA) + 5)

    @given(integers, integers)
    def try_them(offset: int, length: int) -> None:
        damaged = msgspec.structs.replace(written, offset=offset, length=length)
        with contextlib.suppress(CheckpointError):
            assert reader.read(damaged) == DATA

    with reader:
        try_them()


def test_a_folder_with_a_nul_in_its_name_is_unusable(tmp_path: Path) -> None:
    with pytest.raises(StorageUnusable, match="holds a NUL character"):
        open_folder(f"{tmp_path}/a\0b")
    with pytest.raises(StorageUnusable, match="name another path"):
        open_folder(str(tmp_path)).read("a\0b")
