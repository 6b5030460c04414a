"""The plugin for pytest: fixtures for ``headgate.testing``, and the number of seeds as an option.

It is loaded with every run of pytest where Headgate is installed, and so imports nothing of it
before a fixture is used.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headgate.testing.harness import FunctionHarness
    from headgate.testing.local_run import LocalRun
    from headgate.testing.simulation import SimulationResult

_INTERNAL = ("headgate.testing.", "headgate.sim.", "headgate.core.")
"""Frames between a test and its program; the last two are hidden only below the first."""
_OPTIONS = {"headgate_seeds": "HEADGATE_SEEDS", "headgate_seed": "HEADGATE_SEED"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("headgate", "simulated runs of Headgate programs")
    group.addoption(
        "--headgate-seeds", type=int, metavar="N", help="runs of each simulate() that sets none"
    )
    group.addoption(
        "--headgate-seed", type=int, metavar="SEED", help="repeat this run of each simulate()"
    )


def pytest_configure(config: pytest.Config) -> None:
    """The options hold for calls of ``simulate`` anywhere, not only through the fixture."""
    for option, variable in _OPTIONS.items():
        chosen = config.getoption(option)
        if chosen is not None:
            before = os.environ.get(variable)
            os.environ[variable] = str(chosen)
            config.add_cleanup(partial(_put_back, variable, before))


def _put_back(variable: str, text: str | None) -> None:
    if text is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = text


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Hide what stands between the test and its program, unless pytest shows the full trace."""
    error = None if call.excinfo is None else call.excinfo.value
    chain: list[BaseException] = []
    while error is not None and not any(error is each for each in chain):
        chain.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    internal = [
        (str(frame.f_globals["__name__"]), frame)
        for each in chain
        for frame, _ in walk_tb(each.__traceback__)
        if str(frame.f_globals.get("__name__")).startswith(_INTERNAL)
    ]
    if any(name.startswith(_INTERNAL[0]) for name, _ in internal):
        for _, frame in internal:
            frame.f_locals["__tracebackhide__"] = True


class HarnessMaker:
    """Makes harnesses, and closes them after the test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __call__(self, function: Any, *args: Any, **named: Any) -> "FunctionHarness":
        """A harness around a function, with the arguments of ``FunctionHarness``."""
        kind: type[FunctionHarness] = import_module("headgate.testing").FunctionHarness
        return self._stack.enter_context(kind(function, *args, **named))

    def restore(self, snapshot: Any, function: Any, *args: Any, **named: Any) -> "FunctionHarness":
        """A harness that begins with a snapshot, as ``FunctionHarness.restore`` makes it."""
        kind: type[FunctionHarness] = import_module("headgate.testing").FunctionHarness
        return self._stack.enter_context(kind.restore(snapshot, function, *args, **named))


@pytest.fixture
def headgate_harness() -> Iterator[HarnessMaker]:
    """``headgate_harness(MyFunction(), key_selector=…)``: closed after the test."""
    with ExitStack() as stack:
        yield HarnessMaker(stack)


@pytest.fixture
def headgate_run_local() -> Iterator[Any]:
    """``headgate_run_local(build)``: closed after the test."""
    with ExitStack() as stack:

        def run(build: Any, **named: Any) -> "LocalRun":
            found: LocalRun = import_module("headgate.testing").run_local(build, **named)
            return stack.enter_context(found)

        yield run


@pytest.fixture
def headgate_simulate() -> Any:
    """``headgate_simulate(build)``: as many runs as ``--headgate-seeds`` says."""

    def run(build: Any, **named: Any) -> "SimulationResult":
        found: SimulationResult = import_module("headgate.testing").simulate(build, **named)
        return found

    return run
