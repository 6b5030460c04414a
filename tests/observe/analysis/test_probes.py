"""What samples of stacks and counts of keys say about a task."""

import pytest

from headgate.base.inspections import (
    KeyCount,
    KeyCounts,
    SampledActivity,
    SampledStack,
    StackSamples,
)
from headgate.observe.analysis.rules import Probes, hot_keys

RUN = "run (headgate/core/task/task.py:1)"
LOOK_UP = "look_up (job.py:12)"
RECEIVE = "readinto (socket.py:719)"


def samples(*stacks: SampledStack) -> Probes:
    return Probes(StackSamples(sum(stack.count for stack in stacks), 2_000.0, 10.0, stacks))


def test_the_line_of_the_user_is_named_and_where_it_leads() -> None:
    probes = samples(
        SampledStack((RUN, LOOK_UP, "get (client.py:4)", RECEIVE), 60, user_at=1),
        SampledStack((RUN, LOOK_UP), 20, user_at=1),
        SampledStack((RUN, "other (job.py:20)"), 20, user_at=1),
        SampledStack((RUN, "idle (job.py:1)"), 900, user_at=1, activity=SampledActivity.IDLE),
    )
    assert (probes.line, probes.innermost) == (LOOK_UP, RECEIVE)
    assert probes.line_share == pytest.approx(0.8)


def test_a_line_that_does_the_work_itself_leads_nowhere() -> None:
    probes = samples(
        SampledStack((RUN, LOOK_UP), 60, user_at=1),
        SampledStack((RUN, LOOK_UP, RECEIVE), 40, user_at=1),
    )
    assert (probes.line, probes.innermost) == (LOOK_UP, "")


def test_samples_without_code_of_the_user_name_no_line() -> None:
    assert samples(SampledStack((RUN,), 10)).line == ""
    assert Probes().line == "" and Probes().line_share == 0.0 and Probes().state_share == 0.0


@pytest.mark.parametrize(
    "frame",
    ["get (headgate/host/rocksdb/states.py:3)", "get (rocksdict/rdict.py:9)"],
)
def test_time_in_the_state_backend_counts_as_state(frame: str) -> None:
    probes = samples(SampledStack((RUN, frame), 30), SampledStack((RUN, LOOK_UP), 10, user_at=1))
    assert probes.state_share == pytest.approx(0.75)


def test_waiting_for_other_tasks_of_the_process_is_no_work() -> None:
    waiting = SampledStack((RUN, "Turn.wait (headgate/host/net/baton.py:36)"), 90)
    probes = samples(waiting, SampledStack((RUN, LOOK_UP), 10, user_at=1))
    assert probes.line_share == 1.0


def test_shares_of_keys_are_those_of_the_whole_vertex() -> None:
    counts = KeyCounts(200, 3, (KeyCount("'a'", 100), KeyCount("'b'", 20)))
    assert hot_keys(counts, 0.8) == (("'a'", 0.4), ("'b'", pytest.approx(0.08)))
    assert hot_keys(KeyCounts(0, 0, ()), 0.8) == () == hot_keys(None, 1.0)
