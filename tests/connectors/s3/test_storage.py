"""Checkpoints in S3: what the store does wrong is waited out, or told in a sentence."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headgate.base import object_store
from headgate.base.errors import CheckpointAbandoned, StorageUnusable
from headgate.host.checkpoints import conditional_puts
from headgate.host.checkpoints.checkpoint_store import open_store
from headgate.host.checkpoints.job_checkpoints import JobCheckpoints
from headgate.host.checkpoints.location import prepare_savepoint
from headgate.host.checkpoints.pieces import PartWriter, verify
from tests.cli.kit import in_process
from tests.host.checkpoint_kit import JOB, LARGE, take_next
from tests.s3_kit import Fault, FaultProxy, Store

pytest.importorskip("moto.server")
pytest.importorskip("obstore")


@pytest.fixture
def few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a test that waits for the end of all attempts is short."""
    monkeypatch.setattr(object_store, "ATTEMPTS", 1)
    monkeypatch.setattr(conditional_puts, "ATTEMPTS", 1)
    monkeypatch.setattr(object_store, "ANSWER_S", 1.0)
    monkeypatch.setattr(conditional_puts, "ANSWER_S", 1.0)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(503, "SlowDown"),
        Fault(500, "InternalError"),
        Fault(resets=True),
        Fault(waits_s=0.2),
    ],
    ids=["slow down", "internal error", "reset", "slow answer"],
)
def test_trouble_that_passes_costs_no_checkpoint(
    store: Store, proxy: FaultProxy, tmp_path: Path, fault: Fault
) -> None:
    path = f"passing/{fault.status}-{fault.resets}"
    storage = open_store(store.at(path, proxy.port))
    shared = tmp_path / "000001.sst"
    shared.write_bytes(LARGE)
    turns = [0]

    def every_fourth(method: str, path: str) -> Fault | None:
        turns[0] += 1
        return fault if turns[0] % 4 == 1 else None

    proxy.choose = every_fourth
    take_next(storage, shared=(shared,))
    proxy.choose = lambda method, path: None
    (found,) = storage.list_checkpoints(JOB)
    assert found.metadata is not None
    assert verify(found.location, found.metadata).problems == ()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(503, "SlowDown"), "the store throttles requests"),
        (Fault(500, "InternalError"), "INTERNAL_FAILURE: as the test wants"),
        (Fault(resets=True), "."),
        (Fault(waits_s=4), "."),
    ],
    ids=["slow down", "internal error", "reset", "no answer"],
)
@pytest.mark.usefixtures("few_attempts")
def test_trouble_that_stays_fails_the_checkpoint_with_bucket_key_and_reason(
    store: Store, proxy: FaultProxy, fault: Fault, reason: str
) -> None:
    storage = open_store(store.at("staying", proxy.port))
    writer = PartWriter(storage.location(JOB, 1), "t-0-0-0", 0)
    proxy.first(1000, fault)
    with pytest.raises(StorageUnusable, match=reason) as failed, writer:
        writer.append(LARGE)
    text = str(failed.value)
    assert "shop/staying/orders/chk-1/t-0-0-0-" in text
    assert "secret" not in text and "\n" not in text
    with pytest.raises(StorageUnusable, match=r"shop/staying/orders/chk-1/_metadata.*"):
        storage.location(JOB, 1).own.puts.create(  # type: ignore[union-attr]
            "staying/orders/chk-1/_metadata", b"x", storage.location(JOB, 1).own.at("_metadata")
        )
    proxy.choose = lambda method, path: None
    assert store.names("staying") == []


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (Fault(403, "InvalidAccessKeyId"), "the access key is unknown to the store; check AWS_ACC"),
        (Fault(403, "SignatureDoesNotMatch"), "the secret key does not fit the access key; check"),
        (Fault(403, "AccessDenied"), "access is denied"),
    ],
)
@pytest.mark.parametrize("opens", ["checkpoints", "savepoint"])
def test_a_store_that_refuses_is_told_in_one_sentence_at_the_start(
    store: Store, proxy: FaultProxy, fault: Fault, sentence: str, opens: str
) -> None:
    proxy.first(1000, fault)
    where = store.at("refused", proxy.port)
    open_it: Callable[[], object] = (
        partial(JobCheckpoints, JOB, where)
        if opens == "checkpoints"
        else partial(prepare_savepoint, where, "", JOB)
    )
    with pytest.raises(StorageUnusable, match=sentence) as refused:
        open_it()
    assert "secret@" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_bucket_that_is_missing_is_told_at_the_start(store: Store) -> None:
    with pytest.raises(StorageUnusable, match="nowhere/chk.*there is no such bucket; make the"):
        JobCheckpoints(JOB, store.at("chk", bucket="nowhere"))


def test_a_large_state_goes_in_pieces_and_an_aborted_one_is_never_seen(
    store: Store, proxy: FaultProxy
) -> None:
    location = open_store(store.at("state", proxy.port)).location(JOB, 1)
    writer = PartWriter(location, "t-0-0-0", 0)
    block = bytes(range(256)) * 4096  # 1 MB
    for _ in range(13):
        writer.append(block)
    assert store.names("state") == []
    writer.close()
    (name,) = store.names("state")
    assert len(store.read(f"state/{name}")) == 13 * len(block)
    assert sum("partNumber=" in path for _, path in proxy.seen) >= 2
    writer.abort()
    assert store.names("state") == []
    aborted = PartWriter(location, "t-0-0-1", 0)
    for _ in range(12):
        aborted.append(block)
    aborted.abort()
    with pytest.raises(CheckpointAbandoned):
        aborted.append(block)
    assert store.names("state") == []


def test_the_command_lists_checkpoints_and_drops_none(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = open_store(store.at("listed"))
    take_next(storage)
    take_next(storage)
    done = in_process(monkeypatch, capsys, "checkpoints", store.at("listed"))
    assert done.returncode == 0, done
    assert "chk-1" in done.stdout and "chk-2" in done.stdout
    assert "secret" not in done.stdout + done.stderr
