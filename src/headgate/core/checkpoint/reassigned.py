"""Strays: records that were on their way in channels that there are not any more.

The bytes of such a channel are one stream of elements; watermarks and markers in it have lost their
meaning, only records count. If several tasks get the same stream, each keeps what the router of the
edge sends to it now. Law: every record comes out of exactly one of these tasks, in order.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeAlias

from headgate.base.elements import Bundle, Record
from headgate.base.errors import ElementBroken
from headgate.core.buffers.buffer import Buffer
from headgate.core.ingress.deserializer import Deserializer, Got

Keep: TypeAlias = Callable[[Bundle], Bundle]
"""What of a bundle belongs to the task that reads it; perhaps no record."""


class Splits(Protocol):
    """The half of a router that is needed here; it was told how many consumers there are."""

    def split(
        self, records: list[Record], timestamps: list[int | None] | None
    ) -> list[tuple[int, list[Record], list[int | None] | None]]: ...


def kept_by(router: Splits, subtask: int) -> Keep:
    """Keep what the router sends to the consumer with this index."""

    def keep(bundle: Bundle) -> Bundle:
        for channel, records, timestamps in router.split(bundle.records, bundle.timestamps):
            if channel == subtask:
                return Bundle(records, timestamps)
        return Bundle([])

    return keep


def reassigned_bundles(
    pieces: Iterable[bytes], deserializer: Deserializer, keep: Keep | None = None
) -> Iterator[Bundle]:
    """The records of one stream. The deserializer is its own, and closed at the end."""
    try:
        for piece in pieces:
            for bundle in _bundles_of(piece, deserializer):
                kept = bundle if keep is None else keep(bundle)
                if kept.records:
                    yield kept
        if not deserializer.is_between_elements:
            raise ElementBroken("restored records on their way end in the middle of an element")
    finally:
        deserializer.close()


def _bundles_of(piece: bytes, deserializer: Deserializer) -> Iterator[Bundle]:
    if not piece:
        return
    deserializer.feed(Buffer(piece))
    got = Got.MIDDLE
    while got is Got.MIDDLE:
        got, element = deserializer.next()
        if isinstance(element, Bundle):
            yield element
