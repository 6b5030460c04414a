"""Whatever a storage holds, under checksums that are right: typed errors, and nothing else."""

import pickle
import struct
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from headgate.base.checkpoints import (
    ChannelState,
    EdgeShape,
    Metadata,
    OperatorState,
    Piece,
    SubtaskState,
)
from headgate.base.errors import CheckpointCorrupt, CheckpointError, RestoreRefused, StateBroken
from headgate.control.effects import StoreCheckpoint
from headgate.core.chain import snapshots as plain_state
from headgate.core.operators import async_wait as async_state
from headgate.core.operators import sinks as two_phase
from headgate.core.operators import source_splits as source_state
from headgate.core.state import operator_state, snapshot
from headgate.host.checkpoints.checkpoint_store import complete, open_store
from headgate.host.checkpoints.job_checkpoints import find_stop
from headgate.host.checkpoints.metadata import decode_metadata, encode_metadata
from headgate.host.checkpoints.pieces import PieceReader, verify
from headgate.host.driver.checkpoint_setup import CheckpointSetup
from headgate.host.rocksdb.snapshots import CATALOG_FILE, DatabaseCatalog, read_catalog
from tests.host.checkpoint_kit import JOB, metadata_of, take, task_of
from tests.host.jobs import job_of
from tests.host.setup_kit import metadata as metadata_of_graph

QUIET = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
NUMBERS = st.one_of(st.integers(-3, 5), st.integers(-(1 << 63), (1 << 63) - 1))
TEXTS = st.one_of(
    st.sampled_from(["", "chk-1/t", "shared/x", "chk-1/\0", "../x"]), st.text(max_size=300)
)
PIECES = st.builds(Piece, TEXTS, NUMBERS, NUMBERS, NUMBERS, st.binary(max_size=8))
OPTIONAL = st.none() | PIECES


class Exits:
    """Ends whoever unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return sys.exit, (3,)


BOMBS = [
    pickle.dumps(Exits(), 5),
    pickle.dumps(17, 5),
    pickle.dumps([17], 5),
    pickle.dumps({}, 5),
    pickle.dumps((1, 2), 5)[:-3],
    b"\x80\x05\x8e" + struct.pack("<Q", 1 << 62) + b".",
    b"cno_such_module\nthing\n.",
    b"\xff",
    b"",
]


def under_checksum(body: bytes) -> bytes:
    header = struct.pack("<4sHQ", b"HgCk", 1, len(body))
    return header + struct.pack("<I", zlib.crc32(body, zlib.crc32(header))) + body


# Metadata.


@QUIET
@given(st.data())
def test_any_body_under_a_right_checksum_is_metadata_or_damage(data: st.DataObject) -> None:
    body = bytearray(
        encode_metadata(metadata_of(7, (task_of(0, {0: Piece("chk-7/t", 0, 4, 9)}),)))[18:]
    )
    for _ in range(data.draw(st.integers(1, 4))):
        location = data.draw(st.integers(0, len(body) - 1))
        body[location] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for part in (bytes(body), bytes(body[:cut]), data.draw(st.binary(max_size=50))):
        try:
            decode_metadata("m", under_checksum(part))
        except CheckpointCorrupt:
            continue


def test_text_that_is_none_is_damage() -> None:
    body = encode_metadata(metadata_of(7))[18:].replace(
        b"count orders", b"count \xff\xfe\xfd\xfcrs"
    )
    with pytest.raises(CheckpointCorrupt, match="is no metadata of this Headgate"):
        decode_metadata("m", under_checksum(body))


@st.composite
def unsound(draw: st.DrawFn, whole: Metadata) -> Metadata:
    """Metadata of a program, with numbers and names that cannot be."""
    tasks = []
    for task in whole.tasks:
        operators = tuple(
            OperatorState(
                operator.uid,
                operator.name,
                keyed=draw(st.dictionaries(NUMBERS, PIECES, max_size=2)),
                plain=draw(OPTIONAL),
                source=draw(OPTIONAL),
                sink=draw(OPTIONAL),
                files=draw(st.dictionaries(TEXTS, PIECES, max_size=1)),
            )
            for operator in task.operators
        )
        channels = draw(
            st.lists(
                st.builds(ChannelState, st.booleans(), NUMBERS, NUMBERS, st.tuples(PIECES)),
                max_size=1,
            )
        )
        keeps = draw(st.booleans())
        made = SubtaskState(
            task.task,
            task.vertex if keeps else draw(NUMBERS),
            task.subtask if keeps else draw(NUMBERS),
            task.parallelism if keeps else draw(NUMBERS),
            task.max_parallelism if draw(st.booleans()) else draw(NUMBERS),
            operators,
            tuple(channels),
            draw(st.booleans()),
        )
        tasks += [made] * draw(st.sampled_from([1, 1, 1, 0, 2]))
    edge = st.builds(EdgeShape, NUMBERS, NUMBERS, NUMBERS, NUMBERS, TEXTS, st.booleans(), st.none())
    edges = tuple(draw(st.lists(edge, max_size=2)))
    return structs.replace(whole, tasks=tuple(tasks), edges=edges)


@QUIET
@given(st.data())
def test_metadata_that_cannot_be_is_refused_with_a_reason(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    graph = job_of(tmp_path_factory.getbasetemp())
    broken = data.draw(unsound(metadata_of_graph(graph, 4)))
    assert decode_metadata("m", encode_metadata(broken)) == broken
    with suppress(RestoreRefused):
        CheckpointSetup({}, graph).restores(StoreCheckpoint(broken))


@QUIET
@given(PIECES)
def test_any_piece_is_read_or_damage(
    tmp_path_factory: pytest.TempPathFactory, piece: Piece
) -> None:
    location = open_store(str(tmp_path_factory.mktemp("pieces"))).location(JOB, 1)
    location.own.make()
    location.own.put("t", b"state")
    with PieceReader(location) as reader:
        for act in (reader.read, reader.check):
            try:
                act(piece)
            except CheckpointError:
                continue
    verify(location, metadata_of(1, (task_of(0, {0: piece}),)))


def test_a_number_beyond_all_memory_is_damage(tmp_path: Path) -> None:
    location = open_store(str(tmp_path)).location(JOB, 1)
    metadata = take(location, 1)
    piece = next(piece for piece in metadata.tasks[0].operators[0].keyed.values() if piece.path)
    for changed in ({"length": 1 << 62}, {"offset": 1 << 62}, {"offset": -1}, {"length": -1}):
        with PieceReader(location) as reader, pytest.raises(CheckpointCorrupt):
            reader.read(structs.replace(piece, **changed))


def test_a_name_that_cannot_be_one_is_damage(tmp_path: Path) -> None:
    location = open_store(str(tmp_path)).location(JOB, 1)
    complete(location, metadata_of(1))
    for name in ("a\0b", "a" * 300, "a\udcff", "a\nb"):
        with pytest.raises(CheckpointCorrupt, match="cannot be its own"):
            location.locate(f"chk-1/{name}")


def test_a_note_of_a_stop_that_is_no_text_is_damage(tmp_path: Path) -> None:
    (tmp_path / "stopped-with-4").write_bytes(b"/\xff\xfe")
    with pytest.raises(CheckpointCorrupt, match="stopped-with-4"):
        find_stop(open_store(str(tmp_path)).folder)


# State, as tasks unpickle it.


def grouped(body: bytes) -> bytes:
    data = struct.pack("<I", len(body)) + body
    written = snapshot.write_group(3, 128, [])
    head = bytearray(written[: snapshot._HEADER.size])
    struct.pack_into("<I", head, snapshot._HEADER.size - 4, zlib.crc32(data))
    return bytes(head) + data


def operator_part(body: bytes) -> bytes:
    head = operator_state._HEADER.pack(
        operator_state._MAGIC, operator_state._VERSION, zlib.crc32(body)
    )
    return head + body


def tables_with(folder: Path, classes: bytes) -> None:
    packed = msgspec.msgpack.decode(DatabaseCatalog(128, {}, {}, (), 1).pack())
    (folder / CATALOG_FILE).write_bytes(msgspec.msgpack.encode({**packed, "classes": classes}))


READERS: dict[str, Callable[[bytes], Any]] = {
    "key groups": lambda body: list(snapshot.read_group(3, 128, grouped(body))),
    "operator state": lambda body: operator_state.read_states(operator_part(body)),
    "asynchronous calls": lambda body: async_state.read_calls([body], 0, 1),
    "prepared by a sink": two_phase._read,
    "splits": lambda body: source_state.unpickled(body, "a split"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("bomb", range(len(BOMBS)))
def test_a_pickle_in_state_raises_nothing_of_its_own(reader: str, bomb: int) -> None:
    with suppress(StateBroken):  # some are values like any other
        READERS[reader](BOMBS[bomb])


@pytest.mark.parametrize("reader", READERS)
def test_a_pickle_that_exits_is_broken_state(reader: str) -> None:
    with pytest.raises(StateBroken, match="SystemExit"):
        READERS[reader](BOMBS[0])


@pytest.mark.parametrize("bomb", range(len(BOMBS)))
def test_classes_of_namespaces_raise_nothing_of_their_own(tmp_path: Path, bomb: int) -> None:
    tables_with(tmp_path, BOMBS[bomb])
    with pytest.raises(StateBroken):
        read_catalog(tmp_path)


@QUIET
@given(st.binary(max_size=60))
def test_any_bytes_of_state_are_state_or_broken(body: bytes) -> None:
    for read in (*READERS.values(), source_state._read, plain_state.unpack_parts):
        try:
            read(body)
        except StateBroken:
            continue
