"""Routes: the routers of a run, each with a plain model of where a record must go.

The model is written without the router, so that a wrong router does not make its own wrong
expectation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import count

from headgate.base.elements import Record
from headgate.core.egress.router import (
    Broadcast,
    CustomPartitioner,
    Forward,
    KeyGroupPartitioner,
    Rescale,
    RoundRobin,
    Router,
)
from headgate.core.state.keys import key_group

MAX_PARALLELISM = 128


class RouteKind(Enum):
    """How the records of an output are spread."""

    ROUND_ROBIN = "round robin"
    KEYED = "keyed"
    BROADCAST = "broadcast"
    CUSTOM = "custom"
    RESCALE = "rescale"
    FORWARD = "forward"


@dataclass(frozen=True, slots=True)
class Route:
    """A router, and the channels that its model gives a record."""

    router: Router
    channels_of: Callable[[Record], list[int]]


def key_of(record: Record) -> Record:
    """Records of a run are (writer, number, key, payload)."""
    return record[2]


def make_route(kind: RouteKind, channels: int, first: int) -> Route:
    """A fresh router for one writer; ``first`` is where a round robin starts."""
    turn = count(first)
    match kind:
        case RouteKind.ROUND_ROBIN:
            return Route(RoundRobin(first), lambda record: [next(turn) % channels])
        case RouteKind.RESCALE:
            return Route(Rescale(first), lambda record: [next(turn) % channels])
        case RouteKind.KEYED:
            return Route(
                KeyGroupPartitioner(key_of, MAX_PARALLELISM),
                lambda record: [
                    key_group(key_of(record), MAX_PARALLELISM) * channels // MAX_PARALLELISM
                ],
            )
        case RouteKind.CUSTOM:
            return Route(
                CustomPartitioner(_lean, key_of), lambda record: [_lean(key_of(record), channels)]
            )
        case RouteKind.BROADCAST:
            return Route(Broadcast(), lambda record: list(range(channels)))
        case RouteKind.FORWARD:
            return Route(Forward(), lambda record: [0])


def _lean(key: int, channels: int) -> int:
    """Most records to the first channel."""
    return key % channels if key % 4 == 0 else 0
