"""Seals: what follows the handshake of a driver's connection is authenticated, frame by frame.

Both sides derive two keys from the job's secret and what the handshake agreed upon, one for each
direction. A frame has two codes: one for its number and length, so that a false length is found
before anybody waits for the body, one for the whole. Law: a frame opens only as the next one of the
direction that it was sealed for, on its own connection; what was changed, repeated, reordered, left
out or sent back does not.
"""

import hmac
import struct
from dataclasses import dataclass, field
from typing import Final

from headgate.base.elements import ByteLike

LENGTH: Final = struct.Struct("<I")
HEAD_CODE_BYTES: Final = 16
BODY_CODE_BYTES: Final = 32
HEAD_BYTES: Final = LENGTH.size + HEAD_CODE_BYTES
"""The length and its code."""
SEALED_BYTES: Final = HEAD_BYTES + BODY_CODE_BYTES
"""What stands in front of the body."""
_PLACE: Final = struct.Struct("<QI")
_AT_ONCE: Final = 64 * 1024
"""Shorter bodies are joined with their number, which is quicker than a second call."""


@dataclass(frozen=True, slots=True)
class SealKeys:
    """The keys of one connection, as one of its sides sees them."""

    sending: bytes = field(repr=False)
    receiving: bytes = field(repr=False)


def driver_keys(secret: bytes, agreed: bytes) -> SealKeys:
    """The driver's view; ``agreed`` is what the proofs cover, both fresh nonces among it."""
    return SealKeys(_derive(secret, _TO_WORKER, agreed), _derive(secret, _TO_DRIVER, agreed))


def worker_keys(secret: bytes, agreed: bytes) -> SealKeys:
    """The other side's view of the same."""
    keys = driver_keys(secret, agreed)
    return SealKeys(keys.receiving, keys.sending)


class Seal:
    """One direction of a connection; it counts the frames."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.number = 0
        """Of the frame that is made or read next."""

    def make(self, body: ByteLike) -> bytes:
        """What stands in front of the next body to be sent."""
        length = LENGTH.pack(len(body))
        sealed = length + self._head_code(len(body)) + self._body_code(body)
        self.number += 1
        return sealed

    def fits_head(self, head: ByteLike) -> bool:
        """Whether the next frame begins so; the other side then means its length."""
        (length,) = LENGTH.unpack_from(head)
        return hmac.compare_digest(head[LENGTH.size : HEAD_BYTES], self._head_code(length))

    def opens(self, code: ByteLike, body: ByteLike) -> bool:
        """Whether this is the next body that the other side has sealed; then it is counted."""
        if not hmac.compare_digest(code, self._body_code(body)):
            return False
        self.number += 1
        return True

    def _head_code(self, length: int) -> bytes:
        place = _PLACE.pack(self.number, length)
        return hmac.digest(self._key, _HEAD + place, "sha256")[:HEAD_CODE_BYTES]

    def _body_code(self, body: ByteLike) -> bytes:
        place = _PLACE.pack(self.number, len(body))
        if len(body) <= _AT_ONCE:
            return hmac.digest(self._key, b"".join((_BODY, place, body)), "sha256")
        code = hmac.new(self._key, _BODY + place, "sha256")
        code.update(body)
        return code.digest()


_HEAD: Final = b"head"
_BODY: Final = b"body"
_TO_DRIVER: Final = b"seal to driver"
_TO_WORKER: Final = b"seal to worker"


def _derive(secret: bytes, purpose: bytes, agreed: bytes) -> bytes:
    return hmac.digest(secret, purpose + agreed, "sha256")
