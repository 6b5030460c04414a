"""How every test runs: Hypothesis profiles and the seeds of simulated runs.

`pytest --hypothesis-profile thorough` looks harder; `--sim-seeds n` simulates more.
"""

import pytest
from hypothesis import HealthCheck, settings

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
