"""A Python collection as a source: one split, read in order by one task."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.api.types.types import TypeInformation
from headgate.base.elements import Bundle, Record
from headgate.base.errors import PlanInvalid
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitLag, SplitReader
from headgate.functions.type_variables import V


@dataclass(frozen=True)
class CollectionSource(Source[V]):
    """Holds the records themselves; they travel with the job."""

    untimed = True
    finds_more = False

    records: list[V]

    def splits(self, parallelism: int) -> Sequence[int]:
        return [0]

    def open(self, split: object, position: object, context: ConnectorContext) -> SplitReader[V]:
        assert position is None or isinstance(position, int), position
        return CollectionReader(self.records, position or 0, lambda records: records)


class CollectionReader(SplitReader[V]):
    """Reads a list; the position is the index of the next record."""

    def __init__(
        self, records: list[Any], first: int, made: Callable[[list[Any]], list[V] | Bundle]
    ) -> None:
        """``made``: makes records of the items of the list."""
        self._records = records
        self._next = first
        self._made = made

    def poll(self, limit: int) -> list[V] | Bundle | None:
        if self._next >= len(self._records):
            return None
        items = self._records[self._next : self._next + limit]
        self._next += len(items)
        return self._made(items)

    def position(self) -> int:
        return self._next

    def lag(self) -> SplitLag:
        return SplitLag(records=len(self._records) - self._next)


def collection_source(
    collection: Iterable[Record], type_info: TypeInformation | None
) -> CollectionSource:
    """Takes the records now, coerced to the type."""
    if not isinstance(collection, Iterable):
        raise PlanInvalid(
            f"from_collection() was given {collection!r}; give a list or another iterable"
        )
    if type_info is not None and not isinstance(type_info, TypeInformation):
        raise PlanInvalid(
            f"from_collection(): the type is {type_info!r}; give one such as Types.INT()"
        )
    records = list(collection)
    if type_info is not None:
        records = _coerced(records, type_info)
    return CollectionSource(records)


def _coerced(records: list[Record], type_info: TypeInformation) -> list[Record]:
    try:
        return type_info.coercer()(records)
    except TypeError:
        for index, record in enumerate(records):
            try:
                type_info.coerced(record)
            except TypeError as error:
                raise PlanInvalid(f"from_collection(): element {index}: {error}") from None
        raise
