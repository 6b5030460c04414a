"""Of drivers that claim a job in S3 at the same moment one has it, whatever the network does."""

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier, Event

import pytest

from headgate.base.errors import JobTakenOver, StorageUnusable
from headgate.control.effects import StoreCheckpoint
from headgate.host.checkpoints import driver_claim
from headgate.host.checkpoints.conditional_puts import ConditionalPuts
from headgate.host.checkpoints.driver_claim import OWNER, DriverClaim, ObjectClaim, claim_of
from headgate.host.checkpoints.folder import open_folder
from headgate.host.checkpoints.job_checkpoints import JobCheckpoints
from tests.host.checkpoint_kit import JOB, metadata_of
from tests.s3_kit import Fault, FaultProxy, Store

pytest.importorskip("moto.server")
pytest.importorskip("obstore")

DRIVERS = 4


def claim_at(uri: str) -> ObjectClaim:
    claim = claim_of(open_folder(uri), JOB)
    assert isinstance(claim, ObjectClaim)
    return claim


def attempt(act: Callable[[], None]) -> str:
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_the_last_driver_has_the_job_and_leaves_nothing(store: Store) -> None:
    first, second = claim_at(store.at("last/job")), claim_at(store.at("last/job"))
    first.take()
    first.check()
    second.take()
    second.check()
    with pytest.raises(JobTakenOver, match=r"another driver has taken over job 'orders' \(process"):
        first.check()
    first.release()
    second.check()
    second.release()
    assert store.names("last") == []
    with pytest.raises(StorageUnusable, match="the claim of this driver is gone"):
        second.check()


@pytest.mark.parametrize("dies", [True, False])
def test_a_claim_that_its_driver_gives_up_is_left_to_it_for_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """The driver would delete the claim of its successor; if it has died, nobody does."""
    monkeypatch.setattr(driver_claim, "_LEAVING_S", 0.3 if dies else 20.0)
    first, second = claim_at(store.at(f"left/{dies}")), claim_at(store.at(f"left/{dies}"))
    first.take()
    remove, given_up = ConditionalPuts.remove, Event()

    def slow(self: ConditionalPuts, key: str, shown: str) -> None:
        given_up.set()
        if dies:
            raise SystemExit
        time.sleep(0.3)
        remove(self, key, shown)

    monkeypatch.setattr(ConditionalPuts, "remove", slow)
    with ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(first.release)
        assert given_up.wait(20)
        second.take()
        assert isinstance(leaving.exception(20), SystemExit if dies else type(None))
    second.check()


@pytest.mark.parametrize("is_claimed", [False, True])
def test_of_drivers_that_see_the_same_claim_exactly_one_takes_the_job(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_claimed: bool
) -> None:
    """They all have read what is there before any of them puts its own."""
    uri = store.at(f"same/{is_claimed}")
    if is_claimed:
        claim_at(uri).take()
    claims = [claim_at(uri) for _ in range(DRIVERS)]
    put, waiting = ConditionalPuts._put, Barrier(DRIVERS)

    def together(self: ConditionalPuts, *given: object) -> object:
        waiting.wait(20)
        return put(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(ConditionalPuts, "_put", together)
    with ThreadPoolExecutor(DRIVERS) as pool:
        answers = list(pool.map(lambda claim: attempt(claim.take), claims))
    assert answers.count("") == 1, answers
    lost = [answer for answer in answers if answer]
    assert all("has claimed job 'orders' at the same moment" in answer for answer in lost), lost
    claims[answers.index("")].check()


CLAIMER = """
import sys
from headgate.host.checkpoints.folder import open_folder
from headgate.host.checkpoints.driver_claim import claim_of

def attempt(act):
    try:
        act()
    except Exception as error:
        return type(error).__name__
    return "ok"

print("ready", flush=True)
for line in sys.stdin:
    claim = claim_of(open_folder(line.strip()), "orders")
    print(attempt(claim.take), flush=True)
    sys.stdin.readline()
    print(attempt(claim.check), flush=True)
"""


def test_of_processes_that_claim_a_job_exactly_one_has_it_in_the_end(store: Store) -> None:
    command, pipe = [sys.executable, "-c", CLAIMER], subprocess.PIPE
    with ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
            for _ in range(3)
        ]

        def hear() -> list[str]:
            return [process.stdout.readline().strip() for process in processes if process.stdout]

        def tell(text: str) -> None:
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{text}\n")
                process.stdin.flush()

        assert hear() == ["ready"] * 3
        for trial in range(8):
            tell(store.at(f"processes/{trial}"))
            took = hear()
            tell("look")
            looked = hear()
            has = [pair == ("ok", "ok") for pair in zip(took, looked, strict=True)]
            assert sum(has) == 1, (trial, took, looked)
            answers = zip(took, looked, strict=True)
            assert all("JobTakenOver" in pair or pair == ("ok", "ok") for pair in answers)
        for process in processes:
            process.communicate(timeout=30)


@pytest.mark.parametrize("reaches_store", [True, False])
def test_a_connection_that_is_lost_does_not_cost_the_claim(
    store: Store, proxy: FaultProxy, reaches_store: bool
) -> None:
    claim = claim_at(store.at(f"lost/{reaches_store}", proxy.port))
    proxy.first(1, Fault(resets=True, reaches_store=reaches_store), "PUT")
    claim.take()
    claim.check()
    puts = [path for method, path in proxy.seen if method == "PUT" and path.endswith(OWNER)]
    assert len(puts) == (1 if reaches_store else 2)


def test_a_store_that_ignores_conditions_is_warned_of(
    store: Store, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    forward = proxy.forward

    def ignoring(request: object, body: bytes) -> object:
        del request.headers["If-None-Match"]  # type: ignore[attr-defined]
        del request.headers["If-Match"]  # type: ignore[attr-defined]
        return forward(request, body)  # type: ignore[arg-type]

    proxy.forward = ignoring  # type: ignore[assignment, method-assign]
    with caplog.at_level(logging.WARNING):
        claim = claim_of(open_folder(store.at("ignoring/job", proxy.port)), JOB)
    assert isinstance(claim, DriverClaim)
    assert "replaces objects that were to be created only if absent" in caplog.text
    claim.take()
    claim.check()


def test_without_obstore_one_sentence_says_what_to_install(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(StorageUnusable, match=r"needs obstore.*pip install '\.\[s3\]'"):
        JobCheckpoints(JOB, store.at("without"))


@pytest.mark.parametrize("names_endpoint", [True, False])
def test_credentials_and_endpoint_of_the_environment_reach_both_clients(
    store: Store, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, names_endpoint: bool
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    keys: list[str] = []
    forward = proxy.forward

    def looking(request: object, body: bytes) -> object:
        keys.append(request.headers["Authorization"])  # type: ignore[attr-defined]
        return forward(request, body)  # type: ignore[arg-type]

    proxy.forward = looking  # type: ignore[assignment, method-assign]
    where = f"s3://shop/environment?endpoint_override=127.0.0.1:{proxy.port}&scheme=http"
    if not names_endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        where = "s3://shop/environment?region=us-east-1"
    storage = JobCheckpoints(JOB, where)
    storage.claim()
    storage.store(StoreCheckpoint(metadata_of(3)))
    storage.close(keeps=False)
    assert len(keys) > 5
    assert all("Credential=ENVIRONMENT/" in key and "/us-east-1/" in key for key in keys), keys


def test_two_drivers_do_not_complete_the_same_checkpoint(store: Store) -> None:
    folder = open_folder(store.at("metadata/chk-1"))
    assert folder.put("_metadata", b"of the first")
    assert not folder.put("_metadata", b"of the second")
    assert folder.read("_metadata") == b"of the first"
