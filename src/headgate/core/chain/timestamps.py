"""Timestamps: a user's assigner takes the event time out of each record, a bundle at a time.

Law: what comes out are whole milliseconds that fit into 64 bits, or None for a record that has no
time. Nothing but the user's own function is called for a record.
"""

from collections.abc import Sequence
from operator import index

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Bundle, Record
from headgate.core.chain.user_function import UserFunction


class Stamper:
    """Gives the records of a bundle the times that an assigner says; without one they keep theirs.

    An assigner is a TimestampAssigner or a plain callable with the same two arguments.
    """

    def __init__(self, assigner: object | None) -> None:
        self._extract = (
            None if assigner is None else UserFunction(assigner, "extract_timestamp").call
        )

    def stamped(self, bundle: Bundle) -> Bundle:
        """The same records with their times."""
        extract = self._extract
        if extract is None:
            return bundle
        records, before = bundle.records, bundle.timestamps
        if before is None:
            times = [extract(record, MIN_WATERMARK_MS) for record in records]
        else:
            known = [MIN_WATERMARK_MS if time is None else time for time in before]
            times = list(map(extract, records, known))
        return Bundle(records, _checked(times))


def highest_of(times: Sequence[int | None] | None) -> int | None:
    """The latest of the times of a bundle; None: it has none."""
    if not times:
        return None
    try:
        return max(times)  # type: ignore[type-var]  # mostly there is no None among them
    except TypeError:
        return max((time for time in times if time is not None), default=None)


def _checked(times: list[Record]) -> list[int | None]:
    if set(map(type, times)) != {int}:
        times = [_whole(time) for time in times]
    if not times:
        return []
    least = min(times)
    if least <= MIN_WATERMARK_MS or max(times) > MAX_WATERMARK_MS:
        return [_fitting(time) for time in times]
    return times


def _whole(time: Record) -> int:
    """Numbers of numpy and the like are whole numbers too; parts of a millisecond are cut off."""
    try:
        return int(time) if isinstance(time, float) else index(time)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(
            f"a timestamp assigner returned {time!r}, a {type(time).__name__}; "
            f"return milliseconds since 1970 as a number"
        ) from None


def _fitting(time: int) -> int | None:
    if time == MIN_WATERMARK_MS:
        return None  # as users say that there is no time
    if not MIN_WATERMARK_MS < time <= MAX_WATERMARK_MS:
        raise ValueError(
            f"a timestamp assigner returned {time}, which does not fit into 64 bits; "
            f"return milliseconds since 1970"
        )
    return time
