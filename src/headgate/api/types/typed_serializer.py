"""The serializer of a stream whose type is declared: MessagePack instead of pickle.

It writes what coercion let through; a bundle that msgspec cannot write (a lone surrogate, an int of
more than 64 bits, a row that says delete) is pickled as if nothing were declared. Law: what comes
back is equal to what went, with equal Python types; bytes that were cut off or changed raise.
"""

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Optional

from msgspec.msgpack import Decoder, Encoder

from headgate.api.row import Row, RowKind
from headgate.base.elements import Record
from headgate.base.moved import loads

if TYPE_CHECKING:
    from headgate.api.types.type_infos import TypeInformation

PLAIN, TIMED, PICKLED = b"\x00", b"\x01", b"\x02"
"""How a body is to be read: its first byte."""


class TypedSerializer:
    """Of the records of one type. It has no state and travels as the type that it is for."""

    def __init__(self, kind: "TypeInformation") -> None:
        wire = kind.wire()
        assert wire is not None, f"{kind!r} has no form on the wire"
        records = list[wire.reads]  # type: ignore[name-defined]
        self.kind = kind
        self._revive = wire.revive
        self._plain: Decoder[list[Record]] = Decoder(records)
        self._timed: Decoder[tuple[list[Record], list[int | None]]] = Decoder(
            tuple[records, list[Optional[int]]]  # noqa: UP045
        )

    def dumps(self, records: Sequence[Record]) -> bytes:
        """A bundle's records, or (as a tuple) its records and timestamps."""
        try:
            if type(records) is tuple:
                return TIMED + _ENCODER.encode((_values(records[0]), records[1]))
            return PLAIN + _ENCODER.encode(_values(records))
        except (TypeError, ValueError, OverflowError):
            return PICKLED + pickle.dumps(records, 5)

    def loads(self, data: memoryview) -> Record:
        how, revive = bytes(data[:1]), self._revive
        with data[1:] as body:
            if how == PLAIN:
                records = self._plain.decode(body)
                return records if revive is None else revive(records)
            if how == TIMED:
                records, times = self._timed.decode(body)
                return records if revive is None else revive(records), times
            if how == PICKLED:
                return loads(body)
        raise ValueError(f"a body begins with {how!r}")

    def __reduce__(self) -> "tuple[type[TypedSerializer], tuple[TypeInformation]]":
        return TypedSerializer, (self.kind,)


def _values(records: Sequence[Record]) -> Sequence[Record]:
    """Rows as their values: many at once are quicker than by the hook."""
    if records and type(records[0]) is Row:
        return [row._values if row._row_kind is _INSERT else _row_values(row) for row in records]
    return records


def _row_values(row: Record) -> list[Record]:
    if type(row) is not Row or row._row_kind is not _INSERT:
        raise TypeError(f"{row!r} has no form on the wire")
    return row._values


_INSERT: Final = RowKind.INSERT
_ENCODER: Final = Encoder(enc_hook=_row_values)
