"""How both ends of a control connection prove that they know the job's secret.

Task manager: Hello(job, nonce) → driver: Challenge(nonce, proof) → Proof → Welcome. A proof is an
HMAC over the role, the job and both nonces, so it fits one connection and one direction. The two
tables are the whole order of it; any other message is an error. Nothing is unpickled before. When
it is done, ``keys`` are those that seal everything that follows.
"""

import hmac
from collections.abc import Callable
from typing import Final

from headgate.base.errors import BeforeHandshake, PeerUnproven, WrongVersion
from headgate.base.ids import PeerName
from headgate.base.messages import (
    CONTROL_VERSION,
    Challenge,
    Greeting,
    Hello,
    Proof,
    Welcome,
)
from headgate.control.frames import SealKeys, driver_keys, worker_keys


class WorkerProof:
    """The task manager's side. ``nonce`` must be fresh and random; the host brings it."""

    def __init__(self, job: str, secret: bytes, nonce: bytes, peer: PeerName) -> None:
        self.peer = peer
        self.is_done = False
        self._secret = secret
        self._hello = Hello(CONTROL_VERSION, job, nonce)
        self._awaits: type[Greeting] = Challenge
        self._agreed = b""

    @property
    def keys(self) -> SealKeys:
        """The keys that seal this connection, once it is proven."""
        assert self.is_done, "the driver is not proven yet"
        return worker_keys(self._secret, self._agreed)

    def first_word(self) -> Hello:
        """What is sent as soon as the connection stands."""
        return self._hello

    def received(self, message: Greeting) -> Greeting | None:
        """Check the driver's next message; returns the answer, raises if it is not proven."""
        _expect_kind(self.peer, message, self._awaits)
        if isinstance(message, Challenge):
            return self._prove(message)
        self.is_done = True
        return None

    def _prove(self, challenge: Challenge) -> Proof:
        if challenge.nonce == self._hello.nonce:
            raise PeerUnproven(self.peer, "it sent this side's own nonce back")
        self._agreed = _agreed(self._hello, challenge.nonce)
        _expect(self.peer, challenge.proof, self._secret, _DRIVER + self._agreed)
        self._awaits = Welcome
        return Proof(hmac.digest(self._secret, _WORKER + self._agreed, "sha256"))


class DriverProof:
    """The driver's side; ``find_secret`` knows the secret of each job that is open."""

    def __init__(
        self, find_secret: Callable[[str], bytes | None], nonce: bytes, peer: PeerName
    ) -> None:
        self.peer = peer
        self.is_done = False
        self.job = ""
        self._find_secret = find_secret
        self._nonce = nonce
        self._awaits: type[Greeting] = Hello
        self._secret = self._agreed = b""

    @property
    def keys(self) -> SealKeys:
        """The keys that seal this connection, once it is proven."""
        assert self.is_done, "the task manager is not proven yet"
        return driver_keys(self._secret, self._agreed)

    def received(self, message: Greeting) -> Greeting:
        """Check the task manager's next message; returns the answer, raises if not proven."""
        _expect_kind(self.peer, message, self._awaits)
        if isinstance(message, Hello):
            return self._challenge(message)
        assert isinstance(message, Proof)
        _expect(self.peer, message.proof, self._secret, _WORKER + self._agreed)
        self.is_done = True
        return Welcome()

    def _challenge(self, hello: Hello) -> Challenge:
        if hello.version != CONTROL_VERSION:
            raise WrongVersion(self.peer, hello.version, CONTROL_VERSION)
        secret = self._find_secret(hello.job)
        if secret is None:
            raise PeerUnproven(self.peer, f"it belongs to job {hello.job!r}, which is not open")
        self.job = hello.job
        self._secret = secret
        self._agreed = _agreed(hello, self._nonce)
        self._awaits = Proof
        return Challenge(self._nonce, hmac.digest(secret, _DRIVER + self._agreed, "sha256"))


_DRIVER: Final = b"driver"
_WORKER: Final = b"worker"


def _agreed(hello: Hello, server_nonce: bytes) -> bytes:
    job = hello.job.encode()
    words = b" headgate control %d %d " % (hello.version, len(job))
    return words + job + hello.nonce + server_nonce


def _expect(peer: PeerName, proof: bytes, secret: bytes, text: bytes) -> None:
    if not hmac.compare_digest(proof, hmac.digest(secret, text, "sha256")):
        raise PeerUnproven(
            peer,
            "it does not know this job's secret; is it a worker of another job, or a stranger?",
        )


def _expect_kind(peer: PeerName, message: Greeting, kind: type[Greeting]) -> None:
    if not isinstance(message, kind):
        raise BeforeHandshake(peer, f"{type(message).__name__} instead of {kind.__name__}")
