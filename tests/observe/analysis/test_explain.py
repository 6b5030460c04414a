"""The paragraph: every cause in a sentence, with its evidence, its cure and what comes next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.inspections import (
    KeyCount,
    KeyCounts,
    SampledStack,
    StackSamples,
)
from headgate.base.messages import TaskFigures
from headgate.observe.analysis.explain import cannot_say, diagnose, has_ended
from headgate.observe.analysis.rules import Probes
from headgate.observe.analysis.windows import JobWindow
from tests.observe.kit import (
    END,
    MIDDLE,
    SOURCE,
    figures,
    process,
    three_vertices,
    window_of,
    windows,
)

STACKS = StackSamples(
    100,
    2_000.0,
    20.0,
    (SampledStack(("run (headgate/t.py:1)", "look_up (job.py:12)"), 90, user_at=1),),
)


def slow_end(**end: float) -> JobWindow:
    return window_of(
        three_vertices(1),
        [
            figures(SOURCE, made=1_000, busy=1_000, held_up=9_000, outputs=[1_000]),
            figures(MIDDLE, records=1_000, busy=2_000, held_up=8_000, outputs=[1_000]),
            figures(END, records=1_000, busy=10_000, **end),  # type: ignore[arg-type]
        ],
    )


def test_a_vertex_that_waits_is_named_with_line_evidence_cure_outlook_and_suggestion() -> None:
    found = diagnose(slow_end(cpu=200), Probes(STACKS))
    assert found.summary == (
        "'slow -> Sink: end' limits the job to 100 records/s: it waits for something outside of "
        "the job. It is busy 100% of the time, while 'squares' is back-pressured 80%. Its thread "
        "used a core for only 2% of it. It waits in look_up (job.py:12), 100% of its busy samples. "
        "Make the calls asynchronous (AsyncDataStream), or many records with one call; more tasks "
        "help as well, since each of them only waits. Without it the job could do about 500 "
        "records/s; then 'squares' would be the limit. Suggested parallelism: 'squares' 1 → 3, "
        "'slow -> Sink: end' 1 → 13."
    )
    assert (found.cause, found.vertex, found.subtask) == ("waits", END, -1)
    assert found.line == "look_up (job.py:12)"
    assert (found.rate, found.possible_rate) == (pytest.approx(100), pytest.approx(500))
    assert found.next_vertex == MIDDLE
    assert [advice.suggested for advice in found.advice] == [1, 3, 13]
    assert found.advised_rate == pytest.approx(1_000)
    assert found.headline + "." in found.summary


def hot_subtask(hot: int = 9_000) -> JobWindow:
    tasks: list[TaskFigures] = [
        figures(SOURCE, made=hot + 1_000, busy=1_000, held_up=9_000, outputs=[hot + 1_000]),
        figures(MIDDLE, 0, records=hot, busy=10_000, cpu=9_000, outputs=[hot]),
        figures(MIDDLE, 1, records=1_000, busy=1_000, idle=9_000, outputs=[1_000]),
        figures(END, 0, records=hot + 1_000, busy=500, idle=9_500),
    ]
    return window_of(three_vertices(2), tasks)


def test_a_hot_key_is_named_and_parallelism_is_said_not_to_help() -> None:
    counts = KeyCounts(100, 5, (KeyCount("'eve'", 80), KeyCount("'bob'", 20)))
    found = diagnose(hot_subtask(), Probes(keys=counts))
    assert (found.cause, found.vertex, found.subtask) == ("skew", MIDDLE, 0)
    assert found.keys == (("'eve'", pytest.approx(0.72)), ("'bob'", pytest.approx(0.18)))
    assert "its subtask 0 gets too many of its records" in found.headline
    assert "90% of the records of 2 subtasks" in found.summary
    assert "'eve' (72%), 'bob' (18%)" in found.summary
    assert "More parallelism will not help" in found.summary
    advice = found.advice[MIDDLE]
    assert (advice.suggested, advice.limited_by) == (2, "hot key")
    # Evenly spread, both subtasks take 900 records a second.
    assert found.possible_rate == pytest.approx(1_800)
    assert found.next_vertex == MIDDLE


def test_skew_over_many_keys_is_helped_by_more_tasks_as_far_as_the_hottest_key_allows() -> None:
    counts = KeyCounts(100, 50, (KeyCount("1", 25), KeyCount("2", 24)))
    found = diagnose(hot_subtask(), Probes(keys=counts))
    assert "More parallelism will not help" not in found.summary
    assert (found.advice[MIDDLE].suggested, found.advice[MIDDLE].limited_by) == (4, "hot key")


def test_a_full_queue_is_named_with_its_capacity() -> None:
    found = diagnose(slow_end(cpu=200, full=9_000))
    assert found.cause == "async-capacity"
    assert "for 90% of the time records wait for a place in the queue of 'enrich' with" in (
        found.summary.replace("For", "for")
    )
    assert "Raise the capacity of the queue before the parallelism." in found.summary
    assert found.advice[END].suggested == 1


def test_a_rate_limit_is_named_with_its_operator_and_what_the_server_refused() -> None:
    found = diagnose(slow_end(cpu=200, full=9_000, throttled=8_000))
    assert found.cause == "rate-limit"
    assert "its asynchronous calls have reached their rate limit" in found.summary
    assert "80% of the time a batch of 'enrich' is ready and waits for the rate limit" in (
        found.summary
    )
    assert "he server has refused 7 of 50 calls so far" in found.summary
    assert "More tasks will not help: make fewer calls" in found.summary
    assert (found.advice[END].suggested, found.advice[END].limited_by) == (1, "rate limit")


def test_cores_are_the_limit() -> None:
    window = window_of(
        three_vertices(1),
        [
            figures(SOURCE, made=1_000, busy=1_000, held_up=9_000, outputs=[1_000], cpu=1_000),
            figures(MIDDLE, records=1_000, busy=2_000, held_up=8_000, outputs=[1_000], cpu=2_000),
            figures(END, records=1_000, busy=10_000, cpu=7_000),
        ],
        [process(cpu=10_000, cores=1)],
    )
    found = diagnose(window)
    assert (found.cause, found.vertex) == ("cpu", END)
    assert "uses 1.0 of 1 cores; 'slow -> Sink: end' takes 70% of that" in found.summary
    assert "More tasks will not help" in found.summary
    assert "Suggested" not in found.summary
    # The rest costs 0.3 cores: the cores would allow 333.
    assert found.possible_rate == pytest.approx(333.3, rel=0.01)


def three_window(cpu: float) -> JobWindow:
    """The end is busy all the time, its thread uses a core for so many of ten seconds."""
    tasks = [
        figures(SOURCE, made=1_000, busy=200, held_up=9_800, outputs=[1_000], cpu=100),
        figures(MIDDLE, records=1_000, busy=500, held_up=9_500, outputs=[1_000], cpu=300),
        figures(END, records=1_000, busy=10_000, cpu=cpu),
    ]
    return window_of(three_vertices(1), tasks, [process(cpu=cpu + 400, cores=2)])


def test_work_for_a_core_is_not_given_more_tasks_than_there_are_cores() -> None:
    found = diagnose(three_window(cpu=6_000))
    assert found.cause == "busy"
    assert (found.advice[END].suggested, found.advice[END].limited_by) == (2, "cores")


def test_tasks_that_wait_may_be_more_than_the_cores_and_the_answer_says_why() -> None:
    found = diagnose(three_window(cpu=100))
    assert found.cause == "waits"
    assert found.advice[END].suggested > 2
    assert "more than the 2 cores, since its tasks mostly wait)" in found.summary


def test_the_paragraph_and_the_fields_have_the_same_rate() -> None:
    tasks = [
        figures(SOURCE, made=100, busy=100, held_up=9_900, outputs=[100]),
        figures(MIDDLE, records=1_000, busy=2_000, held_up=8_000, outputs=[1_000]),
        figures(END, records=6_500, busy=10_000, cpu=9_000),
    ]
    found = diagnose(window_of(three_vertices(1), tasks))
    assert found.headline.startswith("'slow -> Sink: end' limits the job to 650 records/s")
    assert found.rate == pytest.approx(650)


def test_a_job_that_keeps_up_says_so() -> None:
    tasks = [
        figures(SOURCE, made=1_000, busy=1_000, idle=9_000, outputs=[1_000]),
        figures(MIDDLE, records=1_000, busy=3_000, idle=7_000, outputs=[1_000]),
        figures(END, records=1_000, busy=500, idle=9_500),
    ]
    found = diagnose(window_of(three_vertices(1), tasks))
    assert found.summary == (
        "The job keeps up: it takes the 100 records/s that its sources give. No vertex is "
        "back-pressured more than 0% of the time. The busiest, 'squares', is busy 30%."
    )
    assert (found.cause, found.vertex, found.possible_rate) == ("none", -1, -1.0)


def test_a_source_that_falls_behind_says_by_how_much() -> None:
    before = [figures(SOURCE, lag=0)]
    tasks = [
        figures(SOURCE, made=1_000, busy=10_000, cpu=9_000, lag=500, outputs=[1_000]),
        figures(MIDDLE, records=1_000, busy=3_000, idle=7_000, outputs=[1_000]),
        figures(END, records=1_000, busy=500, idle=9_500),
    ]
    found = diagnose(window_of(three_vertices(1), tasks, before=before))
    assert "its lag grows by 50 records/s" in found.summary.replace("Its", "its")
    assert "Suggested parallelism: 'Source: numbers' 1 → 2." in found.summary


def test_the_end_of_a_job_is_told_with_its_life() -> None:
    found = has_ended(slow_end(cpu=200), "finished")
    assert found.summary.startswith(
        "The job has ended (finished) after 10.0 s and 1,000 records, 100 records/s. "
        "Over its whole life: 'slow -> Sink: end' limits the job"
    )
    quiet = has_ended(window_of(three_vertices(1), []), "canceled")
    assert quiet.summary == "The job has ended (canceled) after 0.0 s and 0 records."
    assert (quiet.cause, quiet.advice) == ("none", ())


def test_who_cannot_say_says_why() -> None:
    found = cannot_say("the job is restarting")
    assert (found.cause, found.summary) == ("unknown", "Cannot say yet: the job is restarting.")


@given(
    windows(),
    st.sampled_from([Probes(), Probes(STACKS, KeyCounts(10, 1, (KeyCount("'k'", 9),)))]),
)
def test_every_window_has_a_paragraph(window: JobWindow, probes: Probes) -> None:
    found = diagnose(window, probes)
    assert found.summary.endswith(".") and "\n" not in found.summary
    assert found.summary[0].isupper() or found.summary[0] == "'"
    assert len(found.advice) == len(window.vertices)
    assert "nan" not in found.summary.split() and "inf" not in found.summary.split()
    assert has_ended(window, "finished").summary.endswith(".")
