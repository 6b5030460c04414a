"""Nexmark's events: people, the auctions that they open, and bids; made by the number of the event.

Of 50 events in a row one is a person, three are auctions and 46 are bids. An event depends on its
number and the settings alone, so any number of tasks can make them side by side, and a test can
make them again. Event times follow the numbers, each up to ``disorder_ms`` behind.
"""

from dataclasses import dataclass
from typing import NamedTuple

PERSONS, AUCTIONS, CYCLE = 1, 3, 50
FIRST_PERSON, FIRST_AUCTION, FIRST_CATEGORY = 1000, 1000, 10

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "Boise", "Portland", "Seattle", "Cheyenne", "Bend", "Kent")
FIRST_NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Leslie", "Jim", "Radia", "Ken", "Margaret")
LAST_NAMES = ("Lovelace", "Hopper", "Dijkstra", "Liskov", "Lamport", "Gray", "Perlman", "Hamilton")
CHANNELS = ("apple", "baidu", "facebook", "google")


class Person(NamedTuple):
    id: int
    name: str
    email: str
    city: str
    state: str
    date_time: int


class Auction(NamedTuple):
    id: int
    item: str
    initial_bid: int
    reserve: int
    date_time: int
    expires: int
    seller: int
    category: int


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    date_time: int


Event = Person | Auction | Bid


@dataclass(frozen=True)
class Nexmark:
    """Calling it with a number makes that event."""

    events_per_second: int = 1000
    """Of event time."""
    disorder_ms: int = 200
    categories: int = 5
    active_auctions: int = 100
    """Bids go to one of so many of the newest auctions, half of them to a hot one."""
    start_ms: int = 1_700_000_000_000
    seed: int = 0

    def __call__(self, number: int) -> Event:
        cycle, place = divmod(number, CYCLE)
        chance = Chance(self.seed * 1_000_003 + number)
        time = self._time(number, chance)
        if place < PERSONS:
            return self._person(FIRST_PERSON + cycle, time, chance)
        if place < PERSONS + AUCTIONS:
            return self._auction(FIRST_AUCTION + cycle * AUCTIONS + place - PERSONS, time, chance)
        return self._bid(cycle, time, chance)

    def _time(self, number: int, chance: "Chance") -> int:
        behind = chance.below(self.disorder_ms + 1)
        return self.start_ms + number * 1000 // self.events_per_second - behind

    def _person(self, number: int, time: int, chance: "Chance") -> Person:
        name = f"{chance.pick(FIRST_NAMES)} {chance.pick(LAST_NAMES)}"
        email = f"{name.replace(' ', '.').lower()}@example.com"
        return Person(number, name, email, chance.pick(CITIES), chance.pick(STATES), time)

    def _auction(self, number: int, time: int, chance: "Chance") -> Auction:
        seller = FIRST_PERSON + max(0, (number - FIRST_AUCTION) // AUCTIONS - chance.below(10))
        first = 1 + chance.below(1000)
        return Auction(
            id=number,
            item=f"item {number}",
            initial_bid=first,
            reserve=first + chance.below(1000),
            date_time=time,
            expires=time + 500 + chance.below(5000),
            seller=seller,
            category=FIRST_CATEGORY + chance.below(self.categories),
        )

    def _bid(self, cycle: int, time: int, chance: "Chance") -> Bid:
        newest = cycle * AUCTIONS + AUCTIONS - 1
        back = chance.below(self.active_auctions)
        if chance.below(2):
            back = newest % 40  # the auction that is hot for a while
        return Bid(
            auction=FIRST_AUCTION + max(0, newest - back),
            bidder=FIRST_PERSON + chance.below(cycle + 1),
            price=100 + chance.below(100_000),
            channel=chance.pick(CHANNELS),
            date_time=time,
        )


class Chance:
    """Numbers that look like chance; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._state = (seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) & 0xFFFFFFFFFFFFFFFF

    def below(self, bound: int) -> int:
        state = (self._state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        self._state = state
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return (state ^ (state >> 31)) % bound

    def pick(self, choices: tuple[str, ...]) -> str:
        return choices[self.below(len(choices))]
