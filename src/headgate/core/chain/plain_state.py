"""State of an operator without keys: what its parts leave at a checkpoint, each under its name.

An operator may hold several functions, records that wait, and a note of how far event time was.
Law: a part gets back what was left under its name, by old task; names of parts that are gone are
passed over.
"""

from collections.abc import Mapping

import msgspec

from headgate.base.errors import StateBroken
from headgate.core.chain.snapshots import OperatorRestored


def packed(parts: Mapping[str, bytes]) -> bytes | None:
    """All parts in one; None: there are none."""
    return _ENCODER.encode(dict(parts)) if parts else None


def left_by(restored: OperatorRestored | None, name: str) -> tuple[bytes | None, ...]:
    """What the part of this name has left in each old task; raises StateBroken."""
    if restored is None:
        return ()
    return tuple(None if one is None else _unpacked(one).get(name) for one in restored.plain)


def _unpacked(data: bytes) -> dict[str, bytes]:
    try:
        return _DECODER.decode(data)
    except Exception as error:
        raise StateBroken(f"an operator's state without keys cannot be read: {error}") from error


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(dict[str, bytes])
