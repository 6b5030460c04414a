"""Whole jobs with several tasks against the reference: windows, sessions, joins and co-groups."""

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.datastream import OutputTag, StreamExecutionEnvironment
from headgate.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.host.conftest import MakeExchange
from tests.windows.jobs import Program, keyed, story_stream
from tests.windows.lab import TellAll, stories
from tests.windows.reference import (
    Account,
    Firing,
    Story,
    Timed,
    aligned,
    sessions,
    sliding,
    tumbling,
)

LATE = OutputTag("late")

few = settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
"""Each example is a whole job."""

kinds = st.sampled_from(["tumbling", "sliding", "sessions"])
parallelisms = st.integers(1, 3)


@few
@given(kinds, stories(60), parallelisms, st.sampled_from([0, 9]))
def test_a_job_tells_what_the_reference_tells(
    make_exchange: MakeExchange, kind: str, story: Story, parallelism: int, lateness: int
) -> None:
    program = fresh(make_exchange, parallelism)
    assigner, expected = both(kind, story, lateness)
    windows = keyed(program.env, *story).window(assigner).allowed_lateness(lateness)
    results = windows.side_output_late_data(LATE).process(TellTimed())
    found, late = program.run(results, results.get_side_output(LATE))
    wanted = [firing for firings in expected.firings for firing in firings]
    assert Counter(map(unordered, found)) == Counter(map(unordered, wanted))
    assert Counter(late) == Counter(expected.late)


@few
@given(stories(60), parallelisms)
def test_a_job_that_reduces_tells_what_the_reference_tells(
    make_exchange: MakeExchange, story: Story, parallelism: int
) -> None:
    program = fresh(make_exchange, parallelism)
    records = keyed(program.env, *story)
    windows = records.window(TumblingEventTimeWindows(10)).allowed_lateness(5)
    found = program.run(windows.reduce(lambda a, b: Timed(a.key, a.value + b.value, 0)))
    expected = aligned(story, tumbling(10), 5)
    wanted = [
        (firing.key, sum(firing.values)) for firings in expected.firings for firing in firings
    ]
    assert Counter((result.key, result.value) for result in found) == Counter(wanted)


@few
@given(stories(30), stories(30), parallelisms)
def test_a_job_that_joins_gives_what_two_loops_give(
    make_exchange: MakeExchange, left: Story, right: Story, parallelism: int
) -> None:
    program = fresh(make_exchange, parallelism)
    firsts, seconds = only_records(left), only_records(right)
    both_keyed = (
        story_stream(program.env, [*firsts])
        .join(story_stream(program.env, [*seconds]))
        .where(lambda record: record.key)
        .equal_to(lambda record: record.key)
    )
    found = program.run(
        both_keyed.window(SlidingEventTimeWindows(10, 5)).apply(lambda a, b: (a, b))
    )
    assign = sliding(10, 5)
    wanted = [
        (a, b)
        for a in firsts
        for b in seconds
        if a.key == b.key
        for window in assign(a.time)
        if window in assign(b.time)
    ]
    assert Counter(found) == Counter(wanted)


@few
@given(stories(30), stories(30), parallelisms)
def test_a_job_that_groups_shows_both_sides_of_each_window(
    make_exchange: MakeExchange, left: Story, right: Story, parallelism: int
) -> None:
    program = fresh(make_exchange, parallelism)
    firsts, seconds = only_records(left), only_records(right)
    both_keyed = (
        story_stream(program.env, [*firsts])
        .co_group(story_stream(program.env, [*seconds]))
        .where(lambda record: record.key)
        .equal_to(lambda record: record.key)
    )
    windows = both_keyed.window(TumblingEventTimeWindows(10))
    found = program.run(windows.apply(lambda a, b: [(tuple(sorted(a)), tuple(sorted(b)))]))
    groups: dict[tuple[str, int], tuple[list[Timed], list[Timed]]] = {}
    for side, records in enumerate((firsts, seconds)):
        for record in records:
            groups.setdefault((record.key, record.time // 10), ([], []))[side].append(record)
    wanted = [(tuple(sorted(a)), tuple(sorted(b))) for a, b in groups.values()]
    assert Counter(found) == Counter(wanted)


class TellTimed(TellAll):
    """Of records of the story as they are."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        return [Firing(key, window.start, window.end, tuple(element.value for element in elements))]


def fresh(make_exchange: MakeExchange, parallelism: int) -> Program:
    env = StreamExecutionEnvironment.get_execution_environment()
    return Program(env.set_parallelism(parallelism), make_exchange)


def both(kind: str, story: Story, lateness: int) -> tuple[Any, Account]:
    if kind == "tumbling":
        return TumblingEventTimeWindows(10, 3), aligned(story, tumbling(10, 3), lateness)
    if kind == "sliding":
        return SlidingEventTimeWindows(10, 4), aligned(story, sliding(10, 4), lateness)
    return EventTimeSessionWindows(6), sessions(story, lambda record: 6, lateness)


def unordered(firing: Firing) -> Firing:
    return firing._replace(values=tuple(sorted(firing.values)))


def only_records(story: Story) -> list[Timed]:
    return [element for element in story if isinstance(element, Timed)]
