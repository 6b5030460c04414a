"""Plays a story to a window operator and writes down what it tells, as the reference does.

Records are ``(key, (value,))`` and are folded by putting their values in a row, so that a result
shows which records went into it and in which order.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from hypothesis import strategies as st

from headgate.base.elements import Bundle, Watermark
from headgate.core.chain.operator import Operator
from headgate.core.window.spec import Aggregated, Contents, Listed, Reduced, WindowCall
from headgate.functions.triggers import EventTimeTrigger
from headgate.functions.window_functions import (
    AggregateFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from tests.core.chain.kit import KeptOutput, open_operator
from tests.windows.reference import MAX, Account, Firing, Mark, Story, Timed

LATE: Final = "late"


@st.composite
def stories(draw: st.DrawFn, most: int = 30) -> Story:
    """Records in no order with watermarks that never go back, and the end of the input."""
    story: Story = []
    watermark = -80
    for number in range(draw(st.integers(0, most))):
        if draw(st.integers(0, 3)) == 0:
            watermark += draw(st.integers(1, 30))
            story.append(Mark(watermark))
        else:
            key = draw(st.sampled_from(["a", "b", "c"]))
            story.append(Timed(key, number, draw(st.integers(-60, 60))))
    return [*story, Mark(MAX)]


cuts = st.lists(st.integers(1, 8), max_size=10)
"""Sizes of the bundles that records between watermarks are cut into; single ones after these."""


def play(operator: Operator, story: Story, sizes: list[int]) -> Account:
    """What is sent for each part of the story, as firings."""
    output, account = open_operator(operator), Account()
    try:
        for part in parts(story, sizes):
            before = len(output.bundles)
            _give(operator, part)
            account.firings.append(list(sent(output.bundles[before:])))
        before = len(output.bundles)
        operator.end_input(0)
        operator.finish()
        assert len(output.bundles) == before, "after the last watermark there is nothing to send"
    finally:
        operator.close()
    account.late = list(late_of(output))
    return account


def feed(operator: Operator, story: Story) -> None:
    """The story, each record in a bundle of its own."""
    for part in parts(story, []):
        _give(operator, part)


def _give(operator: Operator, part: Mark | list[Timed]) -> None:
    if isinstance(part, Mark):
        operator.watermark_advanced(Watermark(part.time))
    else:
        records = [(record.key, (record.value,)) for record in part]
        operator.process(Bundle(records, [record.time for record in part]), 0)


def parts(story: Story, sizes: list[int]) -> Iterator[Mark | list[Timed]]:
    """Watermarks, and the records between them in lists of these sizes."""
    sizes_left, waiting = iter(sizes), list[Timed]()
    size = next(sizes_left, 1)
    for element in story:
        if waiting and (isinstance(element, Mark) or len(waiting) == size):
            yield waiting
            waiting, size = [], next(sizes_left, 1)
        if isinstance(element, Mark):
            yield element
        else:
            waiting.append(element)
    if waiting:
        yield waiting


def in_parts(account: Account, story: Story, sizes: list[int]) -> list[list[Firing]]:
    """Firings of the reference, gathered as the story is cut."""
    firings = iter(account.firings)
    return [
        [
            firing
            for _ in range(1 if isinstance(part, Mark) else len(part))
            for firing in next(firings)
        ]
        for part in parts(story, sizes)
    ]


def sent(bundles: list[Bundle]) -> Iterator[Firing]:
    """What bundles tell, as firings."""
    for bundle in bundles:
        assert bundle.timestamps is not None
        for result, time in zip(bundle.records, bundle.timestamps, strict=True):
            assert time is not None
            if len(result) == 2:  # a folded value: only its time tells the window
                yield Firing(result[0], None, time + 1, result[1])
            else:
                assert time == result[2] - 1, "a result has the last time of its window"
                yield Firing(*result)


def late_of(output: KeptOutput) -> Iterator[Timed]:
    """The records at the side."""
    for tag, bundle in output.side:
        assert tag == LATE and bundle.timestamps is not None
        for (key, (value,)), time in zip(bundle.records, bundle.timestamps, strict=True):
            assert time is not None
            yield Timed(key, value, time)


def put_together(total: Any, added: Any) -> Any:
    return total[0], total[1] + added[1]


class Gather(AggregateFunction[Any, Any, Any]):
    """With an accumulator that it changes in place."""

    def create_accumulator(self) -> Any:
        return [None, []]

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator[0] = value[0]
        accumulator[1].extend(value[1])
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0], tuple(accumulator[1])

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        acc_a[0] = acc_a[0] or acc_b[0]
        acc_a[1].extend(acc_b[1])
        return acc_a


class TellAll(ProcessWindowFunction[Any, Any, Any, Any]):
    """Key, window, and the values of all elements."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        return told_of(key, context.window(), elements)


class ApplyAll(WindowFunction[Any, Any, Any, Any]):
    """The same."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return told_of(key, window, inputs)


def told_of(key: Any, window: Any, elements: Iterable[Any]) -> list[Any]:
    values = tuple(value for _, values in elements for value in values)
    return [(key, window.start, window.end, values)]


class OwnTrigger(EventTimeTrigger[Any, Any]):
    """Does what its parent does, but no operator can know that."""


CONTENTS: Final[dict[str, Callable[[], tuple[Contents, WindowCall | None]]]] = {
    "reduce": lambda: (Reduced(put_together), None),
    "reduce and process": lambda: (Reduced(put_together), WindowCall("process", TellAll())),
    "aggregate": lambda: (Aggregated(Gather()), None),
    "aggregate and apply": lambda: (Aggregated(Gather()), WindowCall("apply", ApplyAll())),
    "process": lambda: (Listed(), WindowCall("process", TellAll())),
    "apply": lambda: (Listed(), WindowCall("apply", ApplyAll())),
}
"""All ways to hold the contents of a window and to tell them."""
