"""Nexmark's queries find what a simple computation without Headgate finds."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headgate.datastream import StreamExecutionEnvironment
from tests.spark import nexmark_reference as reference

FOLDER = Path(__file__).parent.parent.parent / "examples" / "nexmark"
EVENTS = 6_000


@pytest.fixture(scope="module")
def nexmark() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("nexmark")
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("nexmark", "events", "queries"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def events(nexmark: ModuleType) -> list[Any]:
    make = nexmark.Nexmark(events_per_second=200)
    return [make(number) for number in range(EVENTS)]


def results(nexmark: ModuleType, name: str) -> list[Any]:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    stream = nexmark.events_of(env, nexmark.Nexmark(events_per_second=200), EVENTS)
    return list(nexmark.by_name(name, stream).execute_and_collect())


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["q0", "q1", "q2", "q3", "q5", "q7", "q8"])
def test_query_finds_what_the_reference_finds(
    nexmark: ModuleType, events: list[Any], name: str
) -> None:
    expected = sorted(getattr(reference, name)(events))
    assert expected, "the events are too few to show anything"
    assert sorted(results(nexmark, name)) == expected


@pytest.mark.usefixtures("spark")
def test_q4_ends_with_the_averages_of_all_sales(nexmark: ModuleType, events: list[Any]) -> None:
    found: dict[int, tuple[int, float]] = {}
    for category, count, average in results(nexmark, "q4"):
        found[category] = max(found.get(category, (0, 0.0)), (count, average))
    expected = reference.q4(events)
    assert len(expected) == 5
    assert found == {category: pytest.approx(end) for category, end in expected.items()}


@pytest.mark.usefixtures("spark")
def test_q6_tells_the_averages_of_a_seller_in_order(nexmark: ModuleType, events: list[Any]) -> None:
    found: dict[int, list[Any]] = {}
    for result in results(nexmark, "q6"):
        found.setdefault(result[0], []).append(result)
    expected = reference.q6(events)
    assert max(map(len, expected.values())) > 10, "the window of ten sales never moves"
    assert found == expected


def test_events_come_in_nexmarks_proportions_and_in_bounded_disorder(
    nexmark: ModuleType, events: list[Any]
) -> None:
    kinds = [type(event).__name__ for event in events]
    assert [kinds.count(kind) for kind in ("Person", "Auction", "Bid")] == [120, 360, 5520]
    settings, latest = nexmark.Nexmark(), 0
    for event in events:
        latest = max(latest, event.date_time)
        assert event.date_time >= latest - settings.disorder_ms
    times = [event.date_time for event in events]
    assert times != sorted(times)
    auctions = {event.id for event in events if type(event).__name__ == "Auction"}
    assert {event.auction for event in events if type(event).__name__ == "Bid"} <= auctions
