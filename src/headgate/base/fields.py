"""Tuples of one length, taken apart: a list for each of their places instead of a tuple for each.

Most tuples of a stream live from one function to the next. To make them, write them, read them and
free them takes longer than what is done with their items. Law: ``records()`` are the records; the
lists belong to the fields from then on; at least one place has a list, all lists are equally long.
"""

from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias


class Same(NamedTuple):
    """What all records have in a place."""

    value: Any


Place: TypeAlias = list[Any] | Same


class RecordFields:
    """What ``count`` records have in each of their places."""

    __slots__ = ("count", "known_plain", "places")

    def __init__(self, places: list[Place], count: int, known_plain: bool | None = None) -> None:
        self.places = places
        self.count = count
        self.known_plain = known_plain
        """See ``are_plain``; None: nobody has looked."""

    def records(self) -> list[tuple[Any, ...]]:
        """The records, made anew."""
        every = [place if type(place) is list else repeat(place[0]) for place in self.places]
        return list(zip(*every))  # noqa: B905 - what is repeated has no end

    def part(self, start: int, end: int) -> "RecordFields":
        """The records from one place to another."""
        count = max(0, min(end, self.count) - start)
        places = [place[start:end] if type(place) is list else place for place in self.places]
        return RecordFields(places, count, self.known_plain or None)

    def copy(self) -> "RecordFields":
        """The same in lists of its own."""
        return self.part(0, self.count)

    def add(self, others: "RecordFields") -> bool:
        """Add records at the end; False: they have another length, and nothing was added."""
        if len(others.places) != len(self.places):
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
