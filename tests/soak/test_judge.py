"""What grows is found, what swings is not."""

import random

import pytest

from tests.soak.judge import Watched, judge, slope
from tests.soak.samples import Sample

MEMORY = Watched("memory", floor=10)
RATE = Watched("rate", floor=10, falls=True)


def samples(values: list[float], name: str = "memory", steady: bool = True) -> list[Sample]:
    return [Sample(3.0 * turn, steady, {name: value}) for turn, value in enumerate(values)]


def test_the_slope_is_not_moved_by_a_third_of_outliers() -> None:
    points = [(float(x), 2.0 * x) for x in range(30)]
    points[::4] = [(x, 1000.0) for x, _ in points[::4]]
    assert slope(points) == pytest.approx(2.0)


def test_a_leak_in_a_noisy_figure_is_found() -> None:
    chance = random.Random(1)
    (verdict,) = judge(samples([100 + turn + chance.gauss(0, 15) for turn in range(80)]), [MEMORY])
    assert verdict.grows
    assert verdict.gain == pytest.approx(40, abs=12)


def test_a_figure_that_swings_around_a_level_does_not_grow() -> None:
    chance = random.Random(2)
    (verdict,) = judge(samples([100 + chance.gauss(0, 15) for _ in range(80)]), [MEMORY])
    assert not verdict.grows


def test_warming_up_in_the_first_half_is_no_growth() -> None:
    (verdict,) = judge(samples([min(turn * 10.0, 300.0) for turn in range(80)]), [MEMORY])
    assert (verdict.gain, verdict.grows) == (0, False)


def test_throughput_must_not_fall_and_may_rise() -> None:
    falling = judge(samples([500.0 - 5 * turn for turn in range(80)], "rate"), [RATE])
    rising = judge(samples([500.0 + 5 * turn for turn in range(80)], "rate"), [RATE])
    assert [verdict.grows for verdict in (*falling, *rising)] == [True, False]


def test_samples_of_a_job_that_recovers_do_not_count() -> None:
    found = [
        Sample(float(turn), turn % 2 == 0, {"memory": 100.0 + turn % 2 * 10 * turn})
        for turn in range(80)
    ]
    (verdict,) = judge(found, [MEMORY])
    assert (verdict.median, verdict.gain) == (100, 0)
    assert judge(samples([100.0] * 80, steady=False), [MEMORY]) == []


def test_few_samples_are_no_verdict() -> None:
    assert judge(samples([1.0] * 5), [MEMORY]) == []
    assert judge([], [MEMORY]) == []
