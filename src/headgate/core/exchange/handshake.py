"""The handshake: both sides prove that they know the job's secret before anything else is read.

Client: Hello(nonce) → server: Challenge(nonce, proof) → client: Proof → server: Welcome. A proof is
an HMAC over the role, both nonces and what was agreed, so it fits one connection and one direction.
The table LIFE is the whole order of it; any other message is an error.
"""

import hmac
from collections.abc import Sequence
from enum import Enum
from typing import Final

from headgate.base.errors import BeforeHandshake, PeerBrokeProtocol, PeerUnproven
from headgate.base.ids import PeerName
from headgate.base.settings import Compression, FlowControl
from headgate.core.exchange.frames import (
    VERSION,
    Challenge,
    Hello,
    Message,
    Proof,
    Welcome,
)

_MODES: Final = (FlowControl.CREDIT, FlowControl.TCP)
_COMPRESSIONS: Final = (Compression.NONE, Compression.LZ4, Compression.ZSTD)


class Step(Enum):
    """Where a side stands in the handshake."""

    SERVER_WAITS = "server waits for hello"
    CLIENT_ASKED = "client waits for the challenge"
    SERVER_ASKED = "server waits for the proof"
    CLIENT_PROVED = "client waits for the welcome"
    DONE = "both are proven"


LIFE: Final = {
    (Step.SERVER_WAITS, Hello): Step.SERVER_ASKED,
    (Step.CLIENT_ASKED, Challenge): Step.CLIENT_PROVED,
    (Step.SERVER_ASKED, Proof): Step.DONE,
    (Step.CLIENT_PROVED, Welcome): Step.DONE,
}


class Handshake:
    """One side of it. ``nonce`` must be fresh and random; the driver brings it."""

    def __init__(
        self,
        *,
        is_client: bool,
        secret: bytes,
        nonce: bytes,
        flow_control: FlowControl,
        compression: Compression,
        segment_bytes: int,
        peer: PeerName,
    ) -> None:
        self.peer = peer
        self.step = Step.CLIENT_ASKED if is_client else Step.SERVER_WAITS
        self._secret = secret
        self._nonce = nonce
        self._hello = Hello(
            _MODES.index(flow_control), segment_bytes, nonce, _COMPRESSIONS.index(compression)
        )

    @property
    def is_done(self) -> bool:
        return self.step is Step.DONE

    def first_word(self) -> Hello:
        """What the client sends as soon as it is connected."""
        return self._hello

    def received(self, message: Message) -> Message | None:
        """Check the peer's next message; returns the answer, raises if it is not proven."""
        step = LIFE.get((self.step, type(message)))
        if step is None:
            raise BeforeHandshake(
                self.peer, f"{type(message).__name__} while the {self.step.value}"
            )
        answer: Message | None
        match message:
            case Hello():
                answer = self._challenge(message)
            case Challenge():
                answer = self._prove(message)
            case Proof():
                self._expect(message.proof, b"client")
                answer = Welcome()
            case _:
                answer = None
        self.step = step
        return answer

    def _challenge(self, hello: Hello) -> Message:
        ours = self._hello
        if _agreement(hello) != _agreement(ours):
            raise PeerBrokeProtocol(
                self.peer,
                f"exchange settings differ: it has {_describe(hello)}, this side "
                f"{_describe(ours)}; give all task managers the same settings",
            )
        self._agree(client=hello.nonce, server=self._nonce)
        return Challenge(self._nonce, self._proof(b"server"))

    def _prove(self, challenge: Challenge) -> Message:
        if challenge.nonce == self._nonce:
            raise PeerUnproven(self.peer, "it sent this side's own nonce back")
        self._agree(client=self._nonce, server=challenge.nonce)
        self._expect(challenge.proof, b"server")
        return Proof(self._proof(b"client"))

    def _agree(self, client: bytes, server: bytes) -> None:
        words = b"headgate %d %d %d %d " % (VERSION, *_agreement(self._hello))
        self._agreed = words + client + server

    def _proof(self, role: bytes) -> bytes:
        return hmac.digest(self._secret, role + self._agreed, "sha256")

    def _expect(self, proof: bytes, role: bytes) -> None:
        if not hmac.compare_digest(proof, self._proof(role)):
            raise PeerUnproven(
                self.peer,
                "it does not know this job's secret; is it a worker of another job, or a stranger?",
            )


def _agreement(hello: Hello) -> tuple[int, int, int]:
    return hello.flow_control, hello.segment_bytes, hello.compression


def _describe(hello: Hello) -> str:
    mode = _name(_MODES, hello.flow_control)
    compression = _name(_COMPRESSIONS, hello.compression)
    size = hello.segment_bytes
    return f"{mode} flow control, {compression} compression and segments of {size} bytes"


def _name(choices: Sequence[Enum], number: int) -> str:
    return str(choices[number].value) if number < len(choices) else f"unknown {number}"
