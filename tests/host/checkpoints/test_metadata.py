"""The metadata file: what is written is read, and any damage is found."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headgate.base.checkpoints import CheckpointKind, Metadata, Piece, SourceState, SplitData
from headgate.base.errors import CheckpointCorrupt
from headgate.host.checkpoints.metadata import CheckpointKey, decode_metadata, encode_metadata
from tests.host.checkpoint_kit import metadata_of, task_of

PIECES = st.builds(
    Piece,
    st.text(max_size=10),
    st.integers(0, 2**60),
    st.integers(0, 2**60),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=20),
)
TASKS = st.builds(
    task_of,
    st.integers(0, 1000),
    st.dictionaries(st.integers(0, 127), PIECES, max_size=4),
    st.lists(PIECES, max_size=3).map(tuple),
    st.lists(PIECES, max_size=3).map(tuple),
)
METADATA = st.builds(
    metadata_of,
    st.integers(1, 2**40),
    st.lists(TASKS, max_size=4).map(tuple),
    st.sampled_from(CheckpointKind),
    st.text(max_size=10),
)
WHOLE = encode_metadata(metadata_of(7, (task_of(0, {3: Piece("chk-7/t", 0, 5, 9, b"")}),)))


@given(METADATA)
def test_what_was_encoded_is_decoded(metadata: Metadata) -> None:
    assert decode_metadata("m", encode_metadata(metadata)) == metadata


@given(METADATA, st.data())
def test_a_changed_byte_anywhere_is_found(metadata: Metadata, data: st.DataObject) -> None:
    whole = bytearray(encode_metadata(metadata))
    position = data.draw(st.integers(0, len(whole) - 1))
    whole[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CheckpointCorrupt, match="somewhere/_metadata"):
        decode_metadata("somewhere/_metadata", bytes(whole))


def test_every_bit_of_a_small_file_counts() -> None:
    for bit in range(8 * len(WHOLE)):
        whole = bytearray(WHOLE)
        whole[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CheckpointCorrupt):
            decode_metadata("m", bytes(whole))


def test_a_file_that_is_cut_or_longer_is_refused_at_every_length() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(CheckpointCorrupt):
            decode_metadata("m", WHOLE[:length])
    with pytest.raises(CheckpointCorrupt, match="instead of"):
        decode_metadata("m", WHOLE + b"\0")


def test_another_version_is_told_as_such() -> None:
    body = WHOLE[18:]
    header = struct.pack("<4sHQ", b"HgCk", 5, len(body))
    checksum = struct.pack("<I", zlib.crc32(body, zlib.crc32(header)))
    with pytest.raises(CheckpointCorrupt, match=r"version 5.*with the Headgate that wrote it"):
        decode_metadata("m", header + checksum + body)


@pytest.mark.parametrize("key", [None, CheckpointKey(b"k" * 32)])
def test_splits_that_the_driver_holds_have_a_version_that_others_refuse(
    key: CheckpointKey | None,
) -> None:
    held = SourceState("uid", "shelf", b"position", (SplitData(b"mark", b"split"),))
    metadata = structs.replace(metadata_of(7), sources=(held,))
    data = encode_metadata(metadata, key)
    assert struct.unpack_from("<4sH", data)[1] == (3 if key is None else 4)
    assert decode_metadata("m", data, key) == metadata
    assert struct.unpack_from("<4sH", encode_metadata(metadata_of(7), key))[1] in (1, 2)


def test_something_else_under_a_right_checksum_is_refused() -> None:
    body = b"\xc3"
    header = struct.pack("<4sHQ", b"HgCk", 1, len(body))
    checksum = struct.pack("<I", zlib.crc32(body, zlib.crc32(header)))
    with pytest.raises(CheckpointCorrupt, match="no metadata of this Headgate"):
        decode_metadata("m", header + checksum + body)
    with pytest.raises(CheckpointCorrupt, match="begins with b'PAR1'"):
        decode_metadata("m", b"PAR1" + bytes(100))
