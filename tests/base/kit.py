"""Tuples that are taken apart, of all kinds."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from headgate.base.elements import Bundle
from headgate.base.fields import RecordFields, Same

ITEMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=["L", "N", "Cs"]), max_size=3)
    | st.binary(max_size=2)
    | st.lists(st.integers(), max_size=2)
)


def apart(tuples: Sequence[tuple[Any, ...]]) -> RecordFields:
    """These tuples, taken apart, with a list for each place."""
    return RecordFields([list(items) for items in zip(*tuples, strict=True)], len(tuples))


@st.composite
def bundles_apart(draw: st.DrawFn, timed: bool | None = None) -> Bundle:
    """Some tuples; places that are the same in all of them among the others."""
    count = draw(st.integers(1, 6))
    listed = st.lists(ITEMS, min_size=count, max_size=count)
    places = [draw(listed), *draw(st.lists(st.builds(Same, ITEMS) | listed, max_size=2))]
    stamps = st.lists(st.none() | st.integers(0, 99), min_size=count, max_size=count)
    has_times = draw(st.booleans()) if timed is None else timed
    return Bundle.of_fields(RecordFields(places, count), draw(stamps) if has_times else None)
