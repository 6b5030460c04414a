"""Nothing lost, nothing twice: whole jobs that fail at any moment and go on from a checkpoint."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.checkpoints import Stop
from tests.core.task.checkpoint_lab import END, Plan, Town, stop

PLACES = (((0, 0), 0), ((0, 0), 1), ((0, 1), 1), ((1, 1), 1))
LONG = 30_000


@st.composite
def plans(draw: st.DrawFn, exactly_once: bool = True) -> Plan:
    counters_in, sink_in = draw(st.sampled_from(PLACES))
    timeout_ms = draw(st.sampled_from((None, 0, 3, 20)))
    return Plan(
        records=draw(st.integers(0, 60)),
        keys=draw(st.integers(1, 6)),
        counters_in=counters_in,
        sink_in=sink_in,
        shape=draw(st.sampled_from(("one", "union", "two"))),
        exactly_once=exactly_once,
        timeout_ms=timeout_ms,
        interval_ms=draw(st.sampled_from((10, 40))),
        concurrent=draw(st.integers(1, 3)),
        size=draw(st.sampled_from((1, 30, 150))),
        packed=draw(st.booleans()),
        troubles=draw(st.sampled_from((0.0, 0.0, 0.1))),
    )


def run_with_failures(plan: Plan, seed: int, failures: list[int]) -> Town:
    """The job, ended by failures after so many happenings, then to its end."""
    town = Town(plan, seed)
    for happenings in [*failures, LONG]:
        if town.live(town.start(), happenings):
            return town
    raise AssertionError("the job does not come to its end")


@settings(max_examples=60)
@given(
    plan=plans(),
    seed=st.integers(0, 2**32),
    failures=st.lists(st.integers(1, 1500), max_size=3),
)
def test_what_is_committed_is_what_a_run_without_faults_commits(
    plan: Plan, seed: int, failures: list[int]
) -> None:
    assert run_with_failures(plan, seed, failures).output == plan.expected


def stopped(plan: Plan, seed: int, happenings: int, how: Stop) -> tuple[Town, bool]:
    """A job that somebody stops with a savepoint; says whether it has failed instead."""
    town = Town(plan, seed)
    run = town.start()
    for _ in range(happenings):
        if not all(seat.ended for seat in run.seats.values()):
            town.chance(run)
    stop(run, how)
    return town, town.live(run, LONG)


def to_the_end(town: Town) -> None:
    while not town.live(town.start(), LONG):
        pass


@settings(max_examples=40)
@given(plan=plans(), seed=st.integers(0, 2**32), happenings=st.integers(0, 1000))
def test_a_job_that_was_stopped_goes_on_as_if_it_had_not_been(
    plan: Plan, seed: int, happenings: int
) -> None:
    town, ended = stopped(plan, seed, happenings, Stop.SUSPEND)
    assert ended
    before = town.output
    assert (END in before) == (before == plan.expected), "only what is over is finished"
    to_the_end(town)
    assert town.output == plan.expected


@settings(max_examples=40)
@given(plan=plans(), seed=st.integers(0, 2**32), happenings=st.integers(0, 1000))
def test_a_job_that_was_drained_has_finished_and_committed_all_it_had_read(
    plan: Plan, seed: int, happenings: int
) -> None:
    town, ended = stopped(plan, seed, happenings, Stop.DRAIN)
    if not ended:  # the savepoint has failed, and with it the run, which goes on from before
        to_the_end(town)
        assert town.output == plan.expected
        return
    before = town.output
    assert before.count(END) == 1
    counts = [record for record in before if record[0] >= 0]
    for key in range(plan.keys):
        reached = [count for counted, count in counts if counted == key]
        assert reached == list(range(1, len(reached) + 1))
    assert sum(count for key, count in before if key < 0) == len(counts)
    if before != plan.expected:
        to_the_end(town)
        assert [record for record in town.output if record[0] >= 0] == plan.expected[3:]


@settings(max_examples=20)
@given(
    plan=plans(exactly_once=False),
    seed=st.integers(0, 2**32),
    failures=st.lists(st.integers(1, 800), max_size=3),
)
def test_at_least_once_loses_nothing(plan: Plan, seed: int, failures: list[int]) -> None:
    output = run_with_failures(plan, seed, failures).output
    assert {record for record in plan.expected if record[0] >= 0} <= set(output)


def test_the_jobs_of_these_tests_reach_what_they_are_for() -> None:
    """Records on their way in both directions, restores, checkpoints after the end, declines."""
    seen = dict.fromkeys(("input", "output", "unaligned", "finished", "aborted", "restored"), 0)
    for seed in range(12):
        plan = Plan(timeout_ms=(0, 3)[seed % 2], troubles=0.1)
        town = run_with_failures(plan, seed, [250, 250])
        parts = town.parts.values()
        for data in (data for part in parts for data in part.in_flight):
            seen["input" if data.is_input else "output"] += 1
        seen["unaligned"] += sum(part.snapshot.barrier.unaligned for part in parts)
        seen["finished"] += sum(part.snapshot.finished for part in parts)
        seen["aborted"] += len(town.aborted)
        seen["restored"] += town.restored
    assert all(seen.values()), seen
