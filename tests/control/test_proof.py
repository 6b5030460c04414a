"""The proof of both sides: who does not know the secret, or replays, gets nowhere."""

import pytest

from headgate.base.errors import BeforeHandshake, PeerUnproven, WrongVersion
from headgate.base.ids import PeerName
from headgate.base.messages import CONTROL_VERSION, Challenge, Hello, Proof, Welcome
from headgate.control.proof import DriverProof, WorkerProof

SECRETS = {"orders": b"s" * 32, "clicks": b"c" * 32}
PEER = PeerName("peer")
ONE, TWO = b"1" * 32, b"2" * 32


def driver(nonce: bytes = TWO) -> DriverProof:
    return DriverProof(SECRETS.get, nonce, PEER)


def worker(job: str = "orders", secret: bytes | None = None, nonce: bytes = ONE) -> WorkerProof:
    return WorkerProof(job, secret or SECRETS[job], nonce, PEER)


def test_two_that_know_the_secret_prove_it_to_each_other() -> None:
    here, there = driver(), worker()
    challenge = here.received(there.first_word())
    proof = there.received(challenge)
    assert proof is not None
    assert there.received(here.received(proof)) is None
    assert here.is_done and there.is_done
    assert here.job == "orders"


def test_a_driver_that_does_not_know_the_secret_is_found_out() -> None:
    here, there = DriverProof({"orders": b"x" * 32}.get, TWO, PEER), worker()
    with pytest.raises(PeerUnproven):
        there.received(here.received(there.first_word()))
    assert not there.is_done


def test_a_worker_that_does_not_know_the_secret_is_found_out() -> None:
    here = driver()
    here.received(Hello(CONTROL_VERSION, "orders", ONE))
    with pytest.raises(PeerUnproven, match="does not know this job's secret"):
        here.received(Proof(bytes(32)))
    assert not here.is_done


def test_a_worker_cannot_use_the_secret_of_another_job() -> None:
    here, there = driver(), worker("orders", SECRETS["clicks"])
    with pytest.raises(PeerUnproven):
        there.received(here.received(there.first_word()))


def test_a_proof_does_not_fit_a_second_connection() -> None:
    first, there = driver(), worker()
    proof = there.received(first.received(there.first_word()))
    assert proof is not None
    second = driver(nonce=b"3" * 32)
    second.received(there.first_word())
    with pytest.raises(PeerUnproven):
        second.received(proof)


def test_the_proof_of_the_driver_cannot_be_sent_back_to_it() -> None:
    here, there = driver(), worker()
    challenge = here.received(there.first_word())
    assert isinstance(challenge, Challenge)
    with pytest.raises(PeerUnproven):
        here.received(Proof(challenge.proof))


@pytest.mark.parametrize("length", [0, 1, 31])
def test_a_proof_that_is_cut_short_is_refused(length: int) -> None:
    here, there = driver(), worker()
    challenge = here.received(there.first_word())
    assert isinstance(challenge, Challenge)
    with pytest.raises(PeerUnproven):
        worker().received(Challenge(challenge.nonce, challenge.proof[:length]))
    proof = there.received(challenge)
    assert isinstance(proof, Proof)
    with pytest.raises(PeerUnproven):
        here.received(Proof(proof.proof[:length]))
    assert not here.is_done


def test_a_nonce_that_comes_back_is_refused() -> None:
    there = worker()
    with pytest.raises(PeerUnproven, match="own nonce"):
        there.received(Challenge(ONE, bytes(32)))


def test_a_job_that_is_not_open_is_refused() -> None:
    with pytest.raises(PeerUnproven, match="job 'old', which is not open"):
        driver().received(Hello(CONTROL_VERSION, "old", ONE))


def test_another_version_is_refused() -> None:
    with pytest.raises(WrongVersion):
        driver().received(Hello(CONTROL_VERSION + 1, "orders", ONE))


def test_any_other_order_is_an_error() -> None:
    with pytest.raises(BeforeHandshake, match="Proof instead of Hello"):
        driver().received(Proof(bytes(32)))
    with pytest.raises(BeforeHandshake, match="Welcome instead of Challenge"):
        worker().received(Welcome())
    here = driver()
    here.received(worker().first_word())
    with pytest.raises(BeforeHandshake, match="Hello instead of Proof"):
        here.received(worker().first_word())
