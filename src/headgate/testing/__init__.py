"""Tests of users' functions and programs: in this process, in virtual time, without Spark.

``FunctionHarness`` is for one function, ``run_local`` for a whole program, and ``simulate`` runs a
program many times, with crashes and in every order. Names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.base.errors import HarnessMisused
    from headgate.testing.harness import FunctionHarness, OperatorHarness
    from headgate.testing.local_run import LocalRun, PendingTimer, ProgramSnapshot, run_local
    from headgate.testing.outside import External
    from headgate.testing.simulation import (
        MergeUnsound,
        SimulationFailed,
        SimulationResult,
        simulate,
    )
    from headgate.testing.sources import ManualSource
    from headgate.testing.watching import InputMutated

_HOMES = {
    "External": "headgate.testing.outside",
    "FunctionHarness": "headgate.testing.harness",
    "HarnessMisused": "headgate.base.errors",
    "InputMutated": "headgate.testing.watching",
    "LocalRun": "headgate.testing.local_run",
    "ManualSource": "headgate.testing.sources",
    "MergeUnsound": "headgate.testing.simulation",
    "OperatorHarness": "headgate.testing.harness",
    "PendingTimer": "headgate.testing.local_run",
    "SimulationFailed": "headgate.testing.simulation",
    "SimulationResult": "headgate.testing.simulation",
    "ProgramSnapshot": "headgate.testing.local_run",
    "run_local": "headgate.testing.local_run",
    "simulate": "headgate.testing.simulation",
}

__all__ = [
    "External",
    "FunctionHarness",
    "HarnessMisused",
    "InputMutated",
    "LocalRun",
    "ManualSource",
    "MergeUnsound",
    "OperatorHarness",
    "PendingTimer",
    "ProgramSnapshot",
    "SimulationFailed",
    "SimulationResult",
    "run_local",
    "simulate",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_HOMES[name]), name)
    return found
