"""The life of a run: the table is whole where it must be, and its ends are for good."""

import pytest

from headgate.control.life_cycle import TRANSITIONS, JobState, RunTransition


@pytest.mark.parametrize("state", [state for state in JobState if not state.has_ended])
@pytest.mark.parametrize(
    "what", [RunTransition.CANCEL, RunTransition.FAILURE, RunTransition.GIVEN_UP]
)
def test_a_run_can_be_ended_at_any_time(state: JobState, what: RunTransition) -> None:
    assert TRANSITIONS[state, what].is_ending or TRANSITIONS[state, what].has_ended


def test_an_end_is_for_good() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0].has_ended]


def test_a_run_that_is_failing_has_failed_or_begins_anew() -> None:
    ends = {TRANSITIONS[pair] for pair in TRANSITIONS if pair[0] is JobState.FAILING}
    assert ends == {JobState.FAILING, JobState.FAILED, JobState.RESTARTING}


def test_a_run_that_restarts_is_neither_ending_nor_has_it_ended() -> None:
    assert not JobState.RESTARTING.is_ending and not JobState.RESTARTING.has_ended


def test_every_state_can_be_reached() -> None:
    reached = {JobState.CREATED}
    for _ in JobState:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == set(JobState)
