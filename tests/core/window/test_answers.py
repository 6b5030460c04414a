"""What a window answers: by each kind of function, with its context, and to the side."""

from collections.abc import Iterable
from typing import Any

import pytest

from headgate.base.elements import MIN_WATERMARK_MS
from headgate.core.window.spec import Aggregated, Style, WindowCall
from headgate.functions.assigners import GlobalWindows, TumblingEventTimeWindows
from headgate.functions.function import OutputTag
from headgate.functions.state import ListStateDescriptor, ValueStateDescriptor
from headgate.functions.triggers import CountTrigger
from headgate.functions.window import TimeWindow
from tests.core.window.kit import LISTED, SUMS, CollectingAggregate, Lab, plan

TEN = TumblingEventTimeWindows(10)
KINDS = pytest.mark.parametrize("sliced", [False, True], ids=["general", "sliced"])


class Process:
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        return [("process", key, context.window().start, list(elements))]


class Apply:
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Any:
        yield "apply", key, window.start, list(inputs)


class ProcessAll:
    def process(self, context: Any, elements: Iterable[Any]) -> Any:
        yield "process_all", None, context.window().start, list(elements)


class ApplyAll:
    def apply(self, window: Any, inputs: Iterable[Any]) -> Any:
        return (("apply_all", None, window.start, list(inputs)),)


STYLES: dict[Style, Any] = {
    "process": Process(),
    "apply": Apply(),
    "process_all": ProcessAll(),
    "apply_all": ApplyAll(),
}


@KINDS
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("contents", "elements"),
    [
        (LISTED, [(None, 1), (None, 2)]),
        (SUMS, [(None, 3)]),
        (Aggregated(CollectingAggregate()), [[(None, 1), (None, 2)]]),
    ],
)
def test_each_kind_of_function_gets_what_the_window_holds(
    sliced: bool, style: Style, contents: Any, elements: list[Any]
) -> None:
    lab = Lab(plan(TEN, contents, WindowCall(style, STYLES[style])), sliced)
    lab.send(((None, 1), 1), ((None, 2), 2))
    assert lab.end().taken_timed() == [((style, None, 0, elements), 9)]


class Remembers:
    """Counts firings of a window and of a key, and forgets those of the window at its end."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        of_window = context.window_state().get_state(ValueStateDescriptor("fired"))
        of_key = context.global_state().get_state(ValueStateDescriptor("fired"))
        for state in (of_window, of_key, self.total):
            state.update((state.value() or 0) + 1)
        yield key, of_window.value(), of_key.value(), self.total.value()
        self.calls.append(("fired", context.current_watermark(), context.current_processing_time()))

    def clear(self, context: Any) -> None:
        self.calls.append(("cleared", context.window()))
        context.window_state().get_state(ValueStateDescriptor("fired")).clear()

    def close(self) -> None:
        self.calls.append("closed")


@KINDS
@pytest.mark.parametrize("contents", [LISTED, SUMS])
def test_a_function_has_state_of_its_window_and_of_its_key(sliced: bool, contents: Any) -> None:
    function = Remembers()
    lab = Lab(plan(TEN, contents, WindowCall("process", function), lateness_ms=5), sliced)
    lab.send((("a", 1), 1), (("b", 1), 1), (("a", 1), 11))
    lab.watermark(9)
    lab.send((("a", 1), 2))
    lab.watermark(30)
    assert lab.taken() == [("a", 1, 1, 1), ("b", 1, 1, 1), ("a", 2, 2, 2), ("a", 1, 3, 3)]
    assert {entry[0] for entry in lab.kept()} == {"fired", "total"}
    lab.operator.close()
    cleared = [call[1] for call in function.calls if call[0] == "cleared"]
    assert cleared == [TimeWindow(0, 10), TimeWindow(0, 10), TimeWindow(10, 20)]
    assert function.calls[0] == ("fired", 9, 0)
    assert function.calls[-1] == "closed"


@KINDS
def test_without_lateness_a_window_ends_when_it_fires(sliced: bool) -> None:
    function = Remembers()
    lab = Lab(plan(TEN, SUMS, WindowCall("process", function)), sliced)
    lab.send((("a", 1), 1))
    lab.watermark(9)
    assert [call[0] for call in function.calls] == ["fired", "cleared"]


class Aside:
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        for element in elements:
            if element[1] % 2:
                yield OutputTag("odd"), element
            else:
                yield element


@KINDS
def test_a_function_may_yield_to_the_side(sliced: bool) -> None:
    lab = Lab(plan(TEN, LISTED, WindowCall("process", Aside())), sliced)
    lab.send(*[(("a", n), n) for n in range(4)])
    assert lab.end().taken() == [("a", 0), ("a", 2)]
    assert lab.output.side_records("odd") == [("a", 1), ("a", 3)]
    assert lab.output.side[0][1].timestamps == [9, 9]


@KINDS
def test_a_function_may_answer_nothing_but_not_a_plain_value(sliced: bool) -> None:
    class Answer:
        answer: Any = None

        def apply(self, key: Any, window: Any, inputs: Any) -> Any:
            return self.answer

    function = Answer()
    lab = Lab(plan(TEN, LISTED, WindowCall("apply", function)), sliced)
    lab.send((("a", 1), 1), (("a", 1), 11))
    lab.watermark(9)
    assert lab.taken() == []
    function.answer = 5
    with pytest.raises(TypeError, match=r"apply\(\) of a window function must return an iterable"):
        lab.watermark(19)


@KINDS
def test_a_function_may_keep_and_change_what_it_yields(sliced: bool) -> None:
    class Keeps:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
            self.seen.extend(elements)
            return [self.seen]

    lab = Lab(plan(TEN, LISTED, WindowCall("process", Keeps())), sliced)
    lab.send((("a", 1), 1), (("b", 2), 1))
    assert lab.end().taken() == [[("a", 1)], [("a", 1), ("b", 2)]]


def test_event_time_stands_at_its_smallest_before_the_first_watermark() -> None:
    function = Remembers()
    lab = Lab(plan(GlobalWindows(), LISTED, WindowCall("process", function), CountTrigger(1)))
    lab.send_untimed(("a", 1))
    assert function.calls == [("fired", MIN_WATERMARK_MS, 0)]


def test_an_unknown_kind_of_state_is_refused_in_windows_too() -> None:
    class Wrong:
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            context.window_state().get_state(ListStateDescriptor("x"))

    lab = Lab(plan(TEN, LISTED, WindowCall("process", Wrong())))
    lab.send((("a", 1), 1))
    with pytest.raises(TypeError, match="give a ValueStateDescriptor"):
        lab.watermark(9)
