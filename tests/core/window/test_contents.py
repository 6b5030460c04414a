"""What a window holds: at the cursor, and after windows have merged."""

from typing import Any

import pytest

from headgate.core.chain.context import OperatorContext
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.window.contents import open_contents
from headgate.core.window.spec import Aggregated, Reduced
from headgate.core.window.user_code import WindowTools
from headgate.functions.assigners import TumblingEventTimeWindows
from headgate.functions.context import TaskInfo
from headgate.functions.evictors import CountEvictor
from headgate.functions.window import TimeWindow
from tests.core.window.kit import LISTED, CollectingAggregate, plan

CONTEXT = OperatorContext("windows", TaskInfo("job", "vertex", 0, 1), lambda: 0)
TEN = TumblingEventTimeWindows(10)
WINDOW = TimeWindow(0, 10)
PLUS = Reduced(lambda value, other: f"{value}+{other}")


class Bench:
    """Contents of a plan, with a cursor to move."""

    def __init__(self, contents: Any, **more: Any) -> None:
        self.keyed = KeyedContext(CONTEXT)
        self.keyed.cursor.key = "k"
        self.contents = open_contents(
            plan(TEN, contents, **more), self.keyed, WindowTools(self.keyed, CONTEXT)
        )

    def put(self, window: str, *records: Any) -> None:
        self.keyed.cursor.namespace = window
        for record in records:
            self.contents.add(record, 1)

    def held(self, window: str) -> list[Any]:
        found: list[Any] = []
        self.keyed.cursor.namespace = window
        self.contents.fire(WINDOW, lambda _, value: found.append(value))
        return found


@pytest.mark.parametrize(
    ("contents", "more", "first_held", "merged"),
    [
        (PLUS, {}, "a+b", "a+b+c+d"),
        (Aggregated(CollectingAggregate()), {}, ["a", "b"], ["a", "b", "c", "d"]),
        (LISTED, {}, ["a", "b"], ["a", "b", "c", "d"]),
        (LISTED, {"evictor": CountEvictor(9)}, ["a", "b"], ["a", "b", "c", "d"]),
        (PLUS, {"evictor": CountEvictor(9)}, "a+b", "a+b+c+d"),
    ],
)
def test_contents_are_kept_by_window_and_merged(
    contents: Any, more: Any, first_held: Any, merged: Any
) -> None:
    bench = Bench(contents, **more)
    bench.put("first", "a", "b")
    bench.put("second", "c")
    bench.put("third", "d")
    assert bench.held("first") == [first_held]
    assert bench.held("nobody") == []
    bench.contents.merge("first", ["second", "nobody", "third"])
    assert bench.held("first") == [merged]
    assert bench.held("second") == bench.held("third") == []
    bench.keyed.cursor.namespace = "first"
    bench.contents.clear()
    assert bench.held("first") == []
    bench.keyed.close()


def test_folded_windows_keep_no_records() -> None:
    bench = Bench(PLUS)
    bench.put("first", *"abcdef")
    backend: Any = bench.keyed.backend
    tables = [table for spaces in backend._spaces.values() for table in spaces.view.values()]
    assert [value for table in tables for value in table.values()] == ["a+b+c+d+e+f"]
    bench.keyed.close()


def test_what_an_evictor_leaves_stays_in_the_window() -> None:
    bench = Bench(LISTED, evictor=CountEvictor(2, do_evict_after=True))
    bench.put("first", "a", "b", "c")
    assert bench.held("first") == [["a", "b", "c"]]
    assert bench.held("first") == [["b", "c"]]
    bench.keyed.close()


def evicted(contents: Any, *records: Any, keeps: int = 9) -> list[Any]:
    bench = Bench(contents, evictor=CountEvictor(keeps))
    bench.put("w", *records)
    try:
        return bench.held("w")
    finally:
        bench.keyed.close()


def test_records_behind_an_evictor_are_folded_when_the_window_fires() -> None:
    kinds = (PLUS, Aggregated(CollectingAggregate()), LISTED)
    assert [evicted(kind, "a", "b") for kind in kinds] == [["a+b"], [["a", "b"]], [["a", "b"]]]
    assert [evicted(kind, "a", keeps=0) for kind in kinds] == [[], [], [[]]]


def test_a_fold_that_returns_nothing_is_refused_also_behind_an_evictor() -> None:
    class Forgetful(CollectingAggregate):
        def add(self, value: Any, accumulator: list[Any]) -> Any:
            accumulator.append(value)

    for contents in (Reduced(lambda value, other: None), Aggregated(Forgetful())):
        with pytest.raises(TypeError, match="returned None; return the"):
            evicted(contents, "a", "b")


def test_a_reduce_function_may_be_an_object() -> None:
    class Longest:
        def reduce(self, value1: str, value2: str) -> str:
            return max(value1, value2, key=len)

    for function, expected in ((Longest(), ["abc"]), (max, ["abc"])):
        bench = Bench(Reduced(function))
        bench.put("w", "ab", "abc")
        assert bench.held("w") == expected
        bench.keyed.close()
