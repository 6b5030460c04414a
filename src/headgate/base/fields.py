"""Records of one shape, taken apart: a list for each of their fields instead of an object for each.

Most records of a stream live from one function to the next. To make them, write them, read them and
free them takes longer than what is done with their fields. Law: ``records()`` are the records; the
lists belong to the fields from then on; at least one place has a list, all lists are equally long.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias


class Same(NamedTuple):
    """What all records have in a place."""

    value: Any


Place: TypeAlias = list[Any] | Same


@dataclass(frozen=True, slots=True)
class FieldShape:
    """What records of one shape have in common: tuples, dicts with these keys, or instances.

    A field is read as ``record[place]`` of a tuple, ``record["name"]`` of a dict, ``record.name``
    of an instance, by place or attribute of a named tuple, in each of these ways of a row; none of
    them runs code of the user's.
    """

    kind: type
    names: tuple[str, ...] = ()
    """In order; tuples have none."""
    make: Callable[[Sequence[Any]], list[Any]] = field(
        default=lambda columns: list(zip(*columns)),  # noqa: B905 - what is repeated has no end
        compare=False,
    )
    """The records of columns."""
    written_kind: bytes | None = field(default=None, compare=False)
    """The class as pickle names it, if it is neither tuple nor dict."""
    is_row: bool = False

    def place(self, name: object, is_attribute: bool, count: int) -> int | None:
        """Where records with so many fields have ``record[name]``, or ``record.name``."""
        if type(name) is int and (issubclass(self.kind, tuple) or self.is_row):
            return name % count if not is_attribute and -count <= name < count else None
        is_way = self.is_row or is_attribute == (self.kind is not dict)
        if self.kind is tuple or not is_way or type(name) is not str:
            return None
        return self.names.index(name) if name in self.names else None


TUPLES: Final = FieldShape(tuple)
"""The shape of tuples, however long they are."""


class RecordFields:
    """What ``count`` records of one shape have in each of their places."""

    __slots__ = ("count", "known_plain", "places", "shape")

    def __init__(
        self,
        places: list[Place],
        count: int,
        known_plain: bool | None = None,
        shape: FieldShape = TUPLES,
    ) -> None:
        self.places = places
        self.count = count
        self.known_plain = known_plain
        """See ``are_plain``; None: nobody has looked."""
        self.shape = shape

    def records(self) -> list[Any]:
        """The records, made anew."""
        return self.shape.make(
            [place if type(place) is list else repeat(place[0]) for place in self.places]
        )

    def columns(self) -> list[list[Any]]:
        """A list for each place."""
        return [place if type(place) is list else [place[0]] * self.count for place in self.places]

    def with_places(self, places: list[Place], count: int) -> "RecordFields":
        """Others of the same shape, of which nobody knows more."""
        return RecordFields(places, count, None, self.shape)

    def part(self, start: int, end: int) -> "RecordFields":
        """The records from one place to another."""
        count = max(0, min(end, self.count) - start)
        places = [place[start:end] if type(place) is list else place for place in self.places]
        return RecordFields(places, count, self.known_plain or None, self.shape)

    def copy(self) -> "RecordFields":
        """A copy with lists of its own."""
        return self.part(0, self.count)

    def add(self, others: "RecordFields") -> bool:
        """Add records at the end; False: they have another shape, and nothing was added."""
        if len(others.places) != len(self.places) or others.shape != self.shape:
            return False
        for number, (place, other) in enumerate(zip(self.places, others.places, strict=True)):
            if type(place) is not list:
                if type(other) is not list and other[0] is place[0]:
                    continue
                place = self.places[number] = [place[0]] * self.count
            place += other if type(other) is list else [other[0]] * others.count
        self.count += others.count
        self.known_plain = (self.known_plain and others.known_plain) or None
        return True

    def are_plain(self) -> bool:
        """Whether all they hold is of plain kinds, of which MessagePack gives back the same."""
        if self.known_plain is None:
            plain = PLAIN_KINDS.issuperset  # what is the same for all is a list of one here
            self.known_plain = all(plain(map(type, place)) for place in self.places)
        return self.known_plain


PLAIN_KINDS: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""MessagePack has them, and nothing else turns into one of them."""
