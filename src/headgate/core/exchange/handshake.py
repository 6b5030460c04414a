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
    LinkChallenge,
    LinkHello,
    LinkProof,
    LinkWelcome,
    Message,
)

_MODES: Final = (FlowControl.CREDIT, FlowControl.TCP)
_COMPRESSIONS: Final = (Compression.NONE, Compression.LZ4, Compression.ZSTD)


class HandshakeStep(Enum):
    """Where a side stands in the handshake."""

    SERVER_WAITS = "server waits for hello"
    CLIENT_ASKED = "client waits for the challenge"
    SERVER_ASKED = "server waits for the proof"
    CLIENT_PROVED = "client waits for the welcome"
    DONE = "both are proven"


LIFE: Final = {
    (HandshakeStep.SERVER_WAITS, LinkHello): HandshakeStep.SERVER_ASKED,
    (HandshakeStep.CLIENT_ASKED, LinkChallenge): HandshakeStep.CLIENT_PROVED,
    (HandshakeStep.SERVER_ASKED, LinkProof): HandshakeStep.DONE,
    (HandshakeStep.CLIENT_PROVED, LinkWelcome): HandshakeStep.DONE,
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
        self.step = HandshakeStep.CLIENT_ASKED if is_client else HandshakeStep.SERVER_WAITS
        self._secret = secret
        self._nonce = nonce
        self._hello = LinkHello(
            _MODES.index(flow_control), segment_bytes, nonce, _COMPRESSIONS.index(compression)
        )

    @property
    def is_done(self) -> bool:
        return self.step is HandshakeStep.DONE

    def first_word(self) -> LinkHello:
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
            case LinkHello():
                answer = self._challenge(message)
            case LinkChallenge():
                answer = self._prove(message)
            case LinkProof():
                self._expect(message.proof, b"client")
                answer = LinkWelcome()
            case _:
                answer = None
        self.step = step
        return answer

    def _challenge(self, hello: LinkHello) -> Message:
        ours = self._hello
        if _agreement(hello) != _agreement(ours):
            raise PeerBrokeProtocol(
                self.peer,
                f"exchange settings differ: it has {_describe(hello)}, this side "
                f"{_describe(ours)}; give all task managers the same settings",
            )
        self._agree(client=hello.nonce, server=self._nonce)
        return LinkChallenge(self._nonce, self._proof(b"server"))

    def _prove(self, challenge: LinkChallenge) -> Message:
        if challenge.nonce == self._nonce:
            raise PeerUnproven(self.peer, "it sent this side's own nonce back")
        self._agree(client=self._nonce, server=challenge.nonce)
        self._expect(challenge.proof, b"server")
        return LinkProof(self._proof(b"client"))

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


def _agreement(hello: LinkHello) -> tuple[int, int, int]:
    return hello.flow_control, hello.segment_bytes, hello.compression


def _describe(hello: LinkHello) -> str:
    mode = _name(_MODES, hello.flow_control)
    compression = _name(_COMPRESSIONS, hello.compression)
    size = hello.segment_bytes
    return f"{mode} flow control, {compression} compression and segments of {size} bytes"


def _name(choices: Sequence[Enum], number: int) -> str:
    return str(choices[number].value) if number < len(choices) else f"unknown {number}"
