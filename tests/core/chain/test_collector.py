"""Output tags and the sorting of what process functions yield. Row 13."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.emission import Collector
from headgate.core.chain.keyed_context import KeySelection
from headgate.core.operators.record_loops import RecordLoops
from headgate.core.state.cursor import Cursor
from headgate.functions.context import TaskInfo
from headgate.functions.function import OutputTag
from tests.core.chain.kit import KeptOutput


def test_tags_with_the_same_id_are_the_same() -> None:
    assert OutputTag("late") == OutputTag("late", int)
    assert OutputTag("late") != OutputTag("early")
    assert OutputTag("late") != "late"
    assert len({OutputTag("late"), OutputTag("late")}) == 1
    assert repr(OutputTag("late")) == "OutputTag('late')"


def test_a_tag_needs_an_id() -> None:
    with pytest.raises(ValueError, match="not empty"):
        OutputTag("")


yields = st.lists(
    st.one_of(st.integers(), st.tuples(st.sampled_from("ab").map(OutputTag), st.integers())),
    max_size=6,
)
calls = st.lists(st.tuples(yields, st.none() | st.integers(0, 9)), max_size=12)


def take_each(collector: Collector, called: list[tuple[list[object], int | None]]) -> None:
    for found, timestamp in called:
        collector.take(found, timestamp)
    collector.flush()


class Moment:
    """The context that a function is passed."""

    time_ms: int | None = None


def loops_of(
    call: Callable[..., Any], collector: Collector, who: str = "it", **more: Any
) -> RecordLoops:
    """Loops that call the function."""
    context = OperatorContext("op", TaskInfo("job", "vertex", 0, 1), lambda: 0)
    return RecordLoops(call, who, context, collector, **more)


def sweep(
    collector: Collector,
    founds: list[Any],
    times: list[int | None] | None = None,
    who: str = "it",
) -> None:
    """What a function returns for one record after the other."""
    records = list(range(len(founds)))
    loops_of(lambda record: founds[record], collector, who).run(Bundle(records, times))


def sweep_all(collector: Collector, called: list[tuple[list[object], int | None]]) -> None:
    founds = [iter(found) if number % 2 else found for number, (found, _) in enumerate(called)]
    sweep(collector, founds, [timestamp for _, timestamp in called])


def sweep_calls(collector: Collector, called: list[tuple[list[object], int | None]]) -> None:
    """A function that returns a list, a tuple or a generator, and knows its key and its time."""
    cursor, moment = Cursor(), Moment()

    def call(record: int, context: object) -> object:
        found, timestamp = called[record]
        assert context is moment and moment.time_ms == timestamp and cursor.key == -record
        return [found, tuple(found), iter(found), (value for value in found)][record % 4]

    places = range(len(called))
    bundle = Bundle(list(places), [timestamp for _, timestamp in called])
    selection = KeySelection(lambda record: -record, "op")
    loops_of(call, collector, passed=moment, cursor=cursor, selection=selection).run(bundle)


@given(
    calls, st.integers(1, 5), st.booleans(), st.sampled_from([take_each, sweep_all, sweep_calls])
)
def test_every_value_goes_where_its_tag_says_in_order_with_its_time(
    called: list[tuple[list[object], int | None]],
    piece: int,
    copies: bool,
    collect: Callable[[Collector, list[tuple[list[object], int | None]]], None],
) -> None:
    output = KeptOutput()
    collect(Collector(output, copies, piece=piece), called)
    main = [(v, t) for found, t in called for v in found if not isinstance(v, tuple)]
    assert output.timed == main
    for tag in "ab":
        expected = [
            (v[1], t)
            for found, t in called
            for v in found
            if isinstance(v, tuple) and v[0] == OutputTag(tag)
        ]
        side = KeptOutput()
        side.bundles = [bundle for name, bundle in output.side if name == tag]
        assert side.timed == expected
    most = piece if collect is take_each else piece + len(called)
    assert all(len(bundle.records) <= most for bundle in output.bundles)


def test_nothing_is_nothing() -> None:
    output = KeptOutput()
    collector = Collector(output)
    collector.take(None, 1)
    collector.flush()
    assert not output.bundles


def test_a_tag_without_a_value_is_told() -> None:
    """Where a function says ``return tag, value``."""
    for copies in (True, False):
        collector = Collector(KeptOutput(), copies)
        with pytest.raises(TypeError, match=r"OutputTag\('late'\) was sent without a value; write"):
            _take_and_flush(collector, OutputTag("late"))


def test_a_plain_pair_is_no_side_output() -> None:
    output = KeptOutput()
    collector = Collector(output)
    collector.take([("late", 1)], None)
    collector.flush()
    assert output.records == [("late", 1)]
    assert not output.side


def test_what_was_yielded_is_the_receivers_own() -> None:
    kept: list[int] = []

    def growing() -> object:
        for number in range(3):
            kept.append(number)
            yield kept
            yield OutputTag("side"), kept

    output = KeptOutput()
    collector = Collector(output)
    collector.take(growing(), None)  # type: ignore[arg-type]
    collector.flush()
    assert output.records == [[0], [0, 1], [0, 1, 2]]
    assert output.side_records("side") == [[0], [0, 1], [0, 1, 2]]


def test_a_bundle_without_times_gives_bundles_without_times() -> None:
    output = KeptOutput()
    sweep(Collector(output), [[1, (OutputTag("side"), 2)], None, (3,)])
    assert [bundle.timestamps for bundle in output.bundles] == [None]
    assert output.records == [1, 3]
    assert [(tag, side.records, side.timestamps) for tag, side in output.side] == [
        ("side", [2], None)
    ]


@pytest.mark.parametrize("before", [0, 64])
@pytest.mark.parametrize("tagged", [False, True])
def test_what_can_be_changed_is_copied_whatever_came_before(before: int, tagged: bool) -> None:
    kept: list[int] = []

    def growing(count: int) -> Iterator[Any]:
        for number in range(count):
            kept.append(number)
            yield (OutputTag("side"), kept) if tagged else kept

    output = KeptOutput()
    collector = Collector(output)
    sweep(collector, [range(before)])
    sweep(collector, [growing(1)])
    kept.append(99)
    sweep(collector, [growing(2)])
    kept.clear()
    found = output.side_records("side") if tagged else output.records[before:]
    assert found == [[0], [0, 99, 0], [0, 99, 0, 1]]


def test_a_tag_without_a_value_is_refused_whatever_came_with_it() -> None:
    with pytest.raises(TypeError, match="was sent without a value"):
        sweep(Collector(KeptOutput()), [[1, OutputTag("side")]])


def test_after_a_tag_values_without_one_still_go_to_the_main_output() -> None:
    output = KeptOutput()
    collector = Collector(output)
    sweep(collector, [[1, (OutputTag("side"), 2)]])
    sweep(collector, [[3, (4, 5)]])
    assert output.records == [1, 3, (4, 5)]
    assert output.side_records("side") == [2]


def test_with_object_reuse_values_are_handed_on_as_they_are() -> None:
    output = KeptOutput()
    value = [1]
    sweep(Collector(output, copies=False), [[value, (OutputTag("side"), value)]])
    assert output.records[0] is value and output.side_records("side")[0] is value


def run_calls(output: KeptOutput, function: Callable[..., object], records: list[Any]) -> None:
    """All of them in one bundle without times."""
    loops_of(function, Collector(output), passed=Moment()).run(Bundle(records))


def test_calls_for_a_bundle_without_times_give_bundles_without_times() -> None:
    output = KeptOutput()
    side = OutputTag("side")
    found = [[1, (side, 2)], None, (3,), [], [4, 5, (side, 6)]]
    run_calls(output, lambda record, context: found[record], [0, 1, 2, 3, 4])
    assert [bundle.timestamps for bundle in output.bundles] == [None]
    assert output.records == [1, 3, 4, 5]
    assert output.side_records("side") == [2, 6]


def test_a_call_is_made_after_the_generator_of_the_one_before_has_ended() -> None:
    log: list[str] = []

    def twice(record: int, context: object) -> Iterator[int]:
        log.append(f"begin {record}")
        yield record
        yield record
        log.append(f"end {record}")

    run_calls(KeptOutput(), twice, [1, 2])
    assert log == ["begin 1", "end 1", "begin 2", "end 2"]


def test_a_call_that_never_ends_is_sent_on_in_pieces() -> None:
    output = KeptOutput()

    def endless(record: int, context: object) -> Iterator[int]:
        for number in range(1_000_000):
            if number == 50_000:
                raise ValueError("enough")
            yield number

    with pytest.raises(ValueError, match="enough"):
        run_calls(output, endless, [0])
    assert output.records == list(range(49_152))
    assert {len(bundle.records) for bundle in output.bundles} == {4096}


@pytest.mark.parametrize("first", [("a", 1), ("a", None), 7])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_pairs_of_known_kinds_do_not_let_others_pass(first: object, times: int) -> None:
    """However many immutable pairs came before, a list in a pair is copied, early or late."""
    kept: list[int] = []

    def growing(record: int, context: object) -> Iterator[Any]:
        for _ in range(times):
            yield first
        if record % 3 == 0:
            kept.append(record)
            yield "a", kept
            yield kept, 1
            yield kept
            kept.append(-1)

    output = KeptOutput()
    run_calls(output, growing, list(range(1, 10)))
    changed = [value for value in output.records if value != first]
    expected: list[Any] = []
    for so_far in ([3], [3, -1, 6], [3, -1, 6, -1, 9]):
        expected += [("a", so_far), (so_far, 1), so_far]
    assert changed == expected


def test_an_iterator_that_has_ended_is_not_asked_again() -> None:
    class Once:
        asked = 0

        def __iter__(self) -> "Once":
            return self

        def __next__(self) -> int:
            self.asked += 1
            raise StopIteration

    found = Once()
    run_calls(KeptOutput(), lambda record, context: found, [0])
    assert found.asked == 1


@pytest.mark.parametrize("found", [5, object()])
def test_what_a_call_returned_and_cannot_be_iterated_is_told(found: object) -> None:
    with pytest.raises(TypeError, match="it must return an iterable"):
        run_calls(KeptOutput(), lambda record, context: found, [0])


@pytest.mark.parametrize("found", [5, object()])
def test_what_cannot_be_iterated_is_told_with_the_method(found: object) -> None:
    with pytest.raises(TypeError, match="process_element must return an iterable"):
        sweep(Collector(KeptOutput()), [found], who="process_element")


def _take_and_flush(collector: Collector, tag: OutputTag) -> None:
    collector.take((tag, 7), None)
    collector.flush()
