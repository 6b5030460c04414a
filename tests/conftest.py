"""How every test runs: Hypothesis profiles, the seeds of simulated runs, pools that must end full.

`pytest --hypothesis-profile thorough` looks harder; `--sim-seeds n` simulates more.
"""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from headgate.core.buffers.global_pool import GlobalPool
from tests.arena import assert_all_home, plain_pool

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,  # a red build is red for everyone, and again tomorrow
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile(
    "thorough",
    settings.get_profile("ci"),
    derandomize=False,
    max_examples=500,
    stateful_step_count=100,
)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sim-seeds", type=int, default=300, help="simulated runs per test (300)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `sim_seed` runs once per seed."""
    if "sim_seed" in metafunc.fixturenames:
        metafunc.parametrize("sim_seed", range(metafunc.config.getoption("--sim-seeds")))


@pytest.fixture
def make_pool() -> Iterator[Callable[..., GlobalPool]]:
    """`make_pool(segments, segment_bytes=64)`: a global pool on plain memory.

    After the test the local pools that are left are destroyed, and every segment must be back.
    """
    made: list[GlobalPool] = []

    def make(segments: int, segment_bytes: int = 64) -> GlobalPool:
        made.append(plain_pool(segments, segment_bytes))
        return made[-1]

    yield make
    for pool in made:
        assert_all_home(pool)
