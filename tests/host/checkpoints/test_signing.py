"""Checkpoints that are signed: nothing that anybody else has written is ever unpickled."""

import os
import pickle
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from headgate.api.program import Program
from headgate.api.settings.configuration import Configuration
from headgate.base.checkpoints import METADATA_VERSION, Metadata, Piece
from headgate.base.errors import CheckpointCorrupt, CheckpointsDamaged, SettingsInvalid
from headgate.base.recovery_settings import CheckpointSettings
from headgate.control.life_cycle import JobState
from headgate.host.checkpoints import metadata as checkpoint_metadata
from headgate.host.checkpoints.checkpoint_store import complete, find_checkpoints, open_store
from headgate.host.checkpoints.metadata import (
    CheckpointKey,
    checkpoint_key,
    decode_metadata,
    encode_metadata,
)
from headgate.host.checkpoints.pieces import PartWriter, PieceReader, verify
from headgate.host.checkpoints.restoring import StoredDatabaseFiles
from headgate.host.driver.checkpoint_setup import CheckpointSetup
from headgate.plan.job_graph import JobGraph
from headgate.plan.stream_graph import StreamGraph
from tests.host.checkpoint_kit import JOB, LARGE, metadata_of, task_of
from tests.host.jobs import job_of
from tests.host.setup_kit import metadata as metadata_of_graph
from tests.host.setup_kit import restored, settings_of

KEY = "0123456789abcdef-the-key"
SECRET = "execution.checkpointing.hmac.secret"
FILE = "execution.checkpointing.hmac.secret-file"
UNSIGNED = "execution.checkpointing.hmac.allow-unsigned"
SIGNING = CheckpointKey(KEY.encode())


def take_signed(folder: Path, number: int, data: bytes = LARGE) -> Metadata:
    location = open_store(str(folder), SIGNING).location(JOB, number)
    with PartWriter(location, "t-0-0-0", 10, digests=True) as writer:
        pieces = {0: writer.append(data), 1: writer.append(b"small"), 2: writer.append(data[1:])}
    metadata = metadata_of(number, (task_of(0, pieces),))
    complete(location, metadata)
    return metadata


def forged(data: bytes, change: Callable[[Metadata], Metadata]) -> bytes:
    """By somebody who knows all but the key: every length and checksum is right."""
    signed = decode_metadata("m", data)
    whole = encode_metadata(change(signed), CheckpointKey(b"another key than that"))
    assert decode_metadata("m", whole) == change(signed)
    return whole


# The key.


def test_a_key_comes_from_a_setting_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    for given in ({SECRET: KEY}, {FILE: str(file)}):
        assert checkpoint_key(CheckpointSettings.parse(given)) == SIGNING
    assert checkpoint_key(CheckpointSettings()) is None


@pytest.mark.parametrize(
    ("content", "mode", "complaint"),
    [
        (KEY, 0o640, "can be used by others"),
        ("short", 0o600, "less than 16 bytes"),
        (None, 0, "No such"),
    ],
)
def test_a_file_that_keeps_no_secret_is_refused(
    tmp_path: Path, content: str | None, mode: int, complaint: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    with pytest.raises(SettingsInvalid, match=complaint):
        checkpoint_key(CheckpointSettings(hmac_secret_file=str(file)))


def test_one_key_is_enough_and_a_folder_is_none(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="set one of them"):
        checkpoint_key(CheckpointSettings(hmac_secret=KEY, hmac_secret_file="x"))
    for path in (str(tmp_path), "a\0b"):
        with pytest.raises(SettingsInvalid, match="secret-file"):
            checkpoint_key(CheckpointSettings(hmac_secret_file=path))


def test_the_key_is_neither_shown_nor_pickled(tmp_path: Path) -> None:
    configuration = Configuration().set_string(SECRET, KEY).set_string("parallelism.default", "2")
    program = Program(StreamGraph(), "p", configuration.to_dict())
    folder = open_store(str(tmp_path / "c"), SIGNING).folder
    held = (configuration, program, CheckpointSettings(hmac_secret=KEY), SIGNING, folder)
    for shown in map(repr, held):
        assert KEY not in shown, shown
    assert "parallelism.default" in repr(configuration)
    with pytest.raises(TypeError, match="stays in the driver"):
        pickle.dumps(folder)


def test_the_key_is_in_nothing_that_goes_to_workers(tmp_path: Path) -> None:
    graph = job_of(tmp_path)
    setup = CheckpointSetup(settings_of(tmp_path / "c", **{SECRET: KEY}), graph)
    keeper = setup.open(is_local=True)
    plan = setup.plan(keeper, "run", b"", {})
    assert plan.checkpoints is not None and plan.checkpoints.digests
    assert KEY not in repr(plan)
    assert KEY.encode() not in msgspec.msgpack.encode(plan.checkpoints)
    keeper.close(JobState.FINISHED)


# What is signed.


def test_what_was_signed_is_read(tmp_path: Path) -> None:
    metadata = take_signed(tmp_path, 1)
    location = open_store(str(tmp_path), SIGNING).location(JOB, 1)
    assert location.read_metadata() == metadata
    assert verify(location, metadata).is_whole
    (found,) = find_checkpoints(str(tmp_path), SIGNING)
    assert found.metadata == metadata
    without_key = open_store(str(tmp_path)).location(JOB, 1)
    assert without_key.read_metadata() == metadata, "who has no key checks none"


def test_every_changed_byte_of_signed_metadata_is_found(tmp_path: Path) -> None:
    take_signed(tmp_path, 1)
    whole = (tmp_path / JOB / "chk-1" / "_metadata").read_bytes()
    for location in range(len(whole)):
        changed = bytearray(whole)
        changed[location] ^= 1
        for signing in (SIGNING, None):
            with pytest.raises(CheckpointCorrupt):
                decode_metadata("m", bytes(changed), signing)


@pytest.mark.parametrize(
    "change",
    [
        lambda metadata: metadata,
        lambda metadata: structs.replace(metadata, job="another"),
        lambda metadata: structs.replace(metadata, checkpoint=9),
        lambda metadata: structs.replace(metadata, tasks=()),
    ],
)
def test_metadata_that_somebody_else_has_written_is_not_even_decoded(
    tmp_path: Path, change: Callable[[Metadata], Metadata], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_signed(tmp_path, 1)
    path = tmp_path / JOB / "chk-1" / "_metadata"
    data = forged(path.read_bytes(), change)
    monkeypatch.setattr(checkpoint_metadata, "_decode", lambda *given: pytest.fail("decoded"))
    with pytest.raises(CheckpointCorrupt, match="signed with another key: its HMAC is wrong"):
        decode_metadata("m", data, SIGNING)
    unsigned = encode_metadata(metadata_of(1))
    with pytest.raises(CheckpointCorrupt, match=r"has no HMAC.*hmac\.allow-unsigned"):
        decode_metadata("m", unsigned, SIGNING)


def test_signed_metadata_that_leaves_a_file_open_is_refused() -> None:
    piece = Piece("chk-1/t", 0, 4, 0)
    data = encode_metadata(metadata_of(1, (task_of(0, {0: piece}),)), SIGNING)
    with pytest.raises(CheckpointCorrupt, match="says no digest of 'chk-1/t'"):
        decode_metadata("m", data, SIGNING)


def test_a_state_file_that_was_changed_with_its_checksum_is_not_handed_over(
    tmp_path: Path,
) -> None:
    metadata = take_signed(tmp_path, 1)
    location = open_store(str(tmp_path)).location(JOB, 1)
    piece = metadata.tasks[0].operators[0].keyed[0]
    path = tmp_path / JOB / piece.path
    evil = b"x" * piece.length
    path.write_bytes(evil + path.read_bytes()[piece.length :])
    collided = structs.replace(piece, crc=zlib.crc32(evil))  # crc32 can be made to fit
    with PieceReader(location) as reader:
        with pytest.raises(CheckpointCorrupt, match="not those that were signed"):
            reader.read(collided)
        with pytest.raises(CheckpointCorrupt, match="not those that were signed"):
            reader.fetch(collided, str(tmp_path / "fetched"))


def test_files_of_two_checkpoints_cannot_be_swapped(tmp_path: Path) -> None:
    first, second = take_signed(tmp_path, 1), take_signed(tmp_path, 2, LARGE[::-1])
    paths = [
        tmp_path / JOB / metadata.tasks[0].operators[0].keyed[0].path
        for metadata in (first, second)
    ]
    swapped = [path.read_bytes() for path in reversed(paths)]
    for path, data in zip(paths, swapped, strict=True):
        path.write_bytes(data)
    storage = open_store(str(tmp_path), SIGNING)
    for number, metadata in ((1, first), (2, second)):
        assert not verify(storage.location(JOB, number), metadata).is_whole
    shutil.copy(tmp_path / JOB / "chk-1" / "_metadata", tmp_path / JOB / "chk-2" / "_metadata")
    assert "out of place" in storage.restore_candidates(JOB).damaged[0].problem


def test_shared_files_have_digests_and_those_without_are_not_named_again(tmp_path: Path) -> None:
    table = tmp_path / "table.sst"
    table.write_bytes(LARGE)
    location = open_store(str(tmp_path / "c")).location(JOB, 1)
    with PartWriter(location, "t", 0, digests=True) as writer:
        known = writer.share(str(table))
    with PartWriter(location, "t", 0) as writer:
        unknown = writer.share(str(table))
    assert len(known.digest) == 32 and not unknown.digest
    files = {"1.sst": known, "2.sst": unknown}
    assert StoredDatabaseFiles(location, range(1), files, True, needs_digests=True).shared == {
        "1.sst": known
    }
    assert StoredDatabaseFiles(location, range(1), files, True).shared == files


# Jobs.


@pytest.fixture
def graph(tmp_path: Path) -> JobGraph:
    return job_of(tmp_path)


def leave(folder: Path, graph: JobGraph, signing: CheckpointKey | None) -> None:
    location = open_store(str(folder), signing).location("x", 4)
    complete(location, metadata_of_graph(graph, 4))


def test_a_job_with_a_key_goes_on_from_what_was_signed_with_it(
    graph: JobGraph, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    leave(folder, graph, SIGNING)
    given = settings_of(folder, **{"pipeline.job-id": "x"})
    assert restored(CheckpointSetup({**given, SECRET: KEY}, graph))[0] == 4
    with pytest.raises(CheckpointsDamaged, match="its HMAC is wrong"):
        CheckpointSetup({**given, SECRET: "fedcba9876543210-another"}, graph)
    where = {"execution.state-recovery.path": str(folder / "x" / "chk-4")}
    other = settings_of(tmp_path / "d", **where)
    assert restored(CheckpointSetup({**other, SECRET: KEY}, graph))[0] == 4
    with pytest.raises(CheckpointCorrupt, match="its HMAC is wrong"):
        CheckpointSetup({**other, SECRET: "fedcba9876543210-another"}, graph)


def test_a_job_begins_with_signing_once_it_is_told_to_trust_what_is_there(
    graph: JobGraph, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    leave(folder, graph, None)
    given = settings_of(folder, **{"pipeline.job-id": "x", SECRET: KEY})
    with pytest.raises(CheckpointsDamaged, match="has no HMAC"):
        CheckpointSetup(given, graph)
    assert restored(CheckpointSetup({**given, UNSIGNED: "true"}, graph))[0] == 4


def test_what_older_versions_wrote_is_read(tmp_path: Path) -> None:
    """Pieces had five fields, and the header the version 1."""
    path = Path(__file__).with_name("metadata-v1.bin")
    found = decode_metadata(str(path), path.read_bytes())
    assert found.checkpoint == 7 and found.version == METADATA_VERSION
    (operator,) = found.tasks[0].operators
    assert operator.keyed[0] == Piece("chk-7/t-0", 0, 4, 99)
    assert operator.keyed[1] == Piece("", 0, 5, zlib.crc32(b"state"), b"state")


def test_nobody_can_read_what_a_key_protects(tmp_path: Path) -> None:
    """The signature is no cipher; the modes are what keeps others out."""
    take_signed(tmp_path / "c", 1)
    assert os.stat(tmp_path / "c" / JOB / "chk-1").st_mode & 0o077 == 0
