"""The window operators against the reference: every story must be told alike."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.window.operator import WindowOperator
from headgate.core.window.spec import Listed, WindowCall, WindowPlan
from headgate.functions.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from headgate.functions.triggers import CountTrigger, EventTimeTrigger, PurgingTrigger, Trigger
from tests.core.chain.kit import cut, run
from tests.windows.lab import CONTENTS, LATE, OwnTrigger, cuts, in_parts, parts, play, stories
from tests.windows.reference import (
    Account,
    Firing,
    Mark,
    Story,
    aligned,
    counted,
    hoarded,
    sessions,
    sliding,
    tumbling,
)

TRIGGERS = {"default trigger": EventTimeTrigger, "own trigger": OwnTrigger}

triggers = st.sampled_from(list(TRIGGERS))
contents = st.sampled_from(list(CONTENTS))
latenesses = st.sampled_from([0, 1, 7, 40])


@given(st.data(), stories(), cuts, triggers, contents, latenesses, st.integers(1, 25))
def test_tumbling_windows_tell_what_the_reference_tells(
    data: st.DataObject,
    story: Story,
    sizes: list[int],
    trigger: str,
    held: str,
    late: int,
    size: int,
) -> None:
    offset = data.draw(st.integers(1 - size, size - 1))
    account = play_plan(TumblingEventTimeWindows(size, offset), trigger, held, story, sizes, late)
    compare(account, aligned(story, tumbling(size, offset), late), story, sizes)


@given(
    st.data(),
    stories(),
    cuts,
    triggers,
    contents,
    latenesses,
    st.tuples(st.integers(1, 25), st.integers(1, 30)),
)
def test_sliding_windows_tell_what_the_reference_tells(
    data: st.DataObject,
    story: Story,
    sizes: list[int],
    trigger: str,
    held: str,
    late: int,
    size_and_slide: tuple[int, int],
) -> None:
    size, slide = size_and_slide
    offset = data.draw(st.integers(1 - slide, slide - 1))
    assigner: Any = SlidingEventTimeWindows(size, slide, offset)
    account = play_plan(assigner, trigger, held, story, sizes, late)
    compare(account, aligned(story, sliding(size, slide, offset), late), story, sizes)


@given(stories(), cuts, triggers, contents, latenesses, st.integers(1, 25))
def test_sessions_tell_what_the_reference_tells(
    story: Story, sizes: list[int], trigger: str, held: str, late: int, gap: int
) -> None:
    account = play_plan(EventTimeSessionWindows(gap), trigger, held, story, sizes, late)
    compare(account, sessions(story, lambda record: gap, late), story, sizes, in_order=False)


@given(stories(), cuts, contents, latenesses)
def test_sessions_with_a_gap_of_each_record_tell_what_the_reference_tells(
    story: Story, sizes: list[int], held: str, late: int
) -> None:
    assigner: Any = DynamicEventTimeSessionWindows(lambda record: 1 + record[1][0] % 9)
    account = play_plan(assigner, "default trigger", held, story, sizes, late)
    expected = sessions(story, lambda record: 1 + record.value % 9, late)
    compare(account, expected, story, sizes, in_order=False)


keyed_values = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 99)), max_size=40)


@given(keyed_values, cuts, st.integers(1, 5), st.integers(1, 5))
def test_count_windows_hold_full_numbers_only(
    values: list[tuple[str, int]], sizes: list[int], size: int, slide: int
) -> None:
    found = play_counts(CountSlidingWindowAssigner(size, slide), None, values, sizes)
    assert found == counted(values, size, slide)


@given(keyed_values, cuts, st.integers(1, 5))
def test_count_windows_side_by_side_share_no_record(
    values: list[tuple[str, int]], sizes: list[int], size: int
) -> None:
    found = play_counts(CountTumblingWindowAssigner(size), None, values, sizes)
    assert found == counted(values, size, size)


@given(keyed_values, cuts, st.integers(1, 5), st.booleans())
def test_a_global_window_keeps_all_unless_its_trigger_purges(
    values: list[tuple[str, int]], sizes: list[int], every: int, purging: bool
) -> None:
    trigger: Trigger[Any, Any] = CountTrigger(every)
    found = play_counts(
        GlobalWindows(), PurgingTrigger(trigger) if purging else trigger, values, sizes
    )
    assert found == hoarded(values, every, purging)


def play_plan(
    assigner: WindowAssigner[Any, Any],
    trigger: str,
    held: str,
    story: Story,
    sizes: list[int],
    late: int,
) -> Account:
    kept, call = CONTENTS[held]()
    plan = WindowPlan(
        key_of, assigner, TRIGGERS[trigger](), kept, call, lateness_ms=late, late_tag=LATE
    )
    return play(WindowOperator(plan), story, sizes)


def play_counts(
    assigner: WindowAssigner[Any, Any],
    trigger: Trigger[Any, Any] | None,
    values: list[tuple[str, int]],
    sizes: list[int],
) -> list[tuple[str, list[int]]]:
    plan = WindowPlan(
        key_of,
        assigner,
        trigger or assigner.get_default_trigger(None),
        Listed(),
        WindowCall("apply", ValuesOf()),
    )
    return run(WindowOperator(plan), cut(values, sizes)).records


class ValuesOf:
    def apply(self, key: str, window: object, inputs: list[tuple[str, int]]) -> list[Any]:
        return [(key, [value for _, value in inputs])]


def compare(
    account: Account, expected: Account, story: Story, sizes: list[int], in_order: bool = True
) -> None:
    """The firings of each part, which come in the order of time when a watermark causes them."""
    wanted = in_parts(expected, story, sizes)
    for part, found, want in zip(parts(story, sizes), account.firings, wanted, strict=True):
        if isinstance(part, Mark):
            ends = [firing.end for firing in found]
            assert ends == sorted(ends)
        blind = any(firing.start is None for firing in found)
        assert settled(found, blind, in_order) == settled(want, blind, in_order)
    assert account.late == expected.late


def settled(firings: list[Firing], blind: bool, in_order: bool) -> list[tuple[Any, ...]]:
    """In one order; windows that merge hold their records in no given order."""
    return sorted(
        (
            firing.end,
            firing.key,
            0 if blind else firing.start,
            firing.values if in_order else tuple(sorted(firing.values)),
        )
        for firing in firings
    )


def key_of(record: tuple[str, Any]) -> str:
    return record[0]
