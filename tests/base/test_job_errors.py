"""Errors between driver and workers: the tree is whole, they travel, they say what to do."""

import inspect
import pickle

import pytest

from headgate.base import job_errors
from headgate.base.errors import HeadgateError
from headgate.base.job_errors import (
    CodeUnloadable,
    DriverLost,
    DriverUnreachable,
    FunctionUnpicklable,
    RunRefused,
    RunSuperseded,
    TaskManagerLost,
    TaskStuck,
)

ERRORS = [
    (FunctionUnpicklable("map", "map function", "x", "TypeError: no"), "create it in open()"),
    (CodeUnloadable("No module named 'm'", "m"), "module 'm' is not there"),
    (CodeUnloadable("AttributeError: f"), "same Python and packages"),
    (DriverUnreachable("h:1", "refused"), "set spark.driver.host"),
    (DriverLost("h:1", "reset"), "the driver at h:1 is gone: reset"),
    (RunRefused("over"), "refuses this task manager: over"),
    (TaskStuck("1.0"), "with a time-out"),
    (RunSuperseded(3), "slot 3"),
    (TaskManagerLost("slot 1", "reset"), "slot 1 is lost: reset"),
]


@pytest.mark.parametrize(("error", "words"), ERRORS, ids=lambda one: type(one).__name__)
def test_an_error_says_what_to_do_and_travels(error: HeadgateError, words: str) -> None:
    assert words in str(error)
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert job_errors.__doc__
    kinds = [kind for _, kind in inspect.getmembers(job_errors, inspect.isclass)]
    assert all(issubclass(kind, HeadgateError) for kind in kinds)
    assert not [kind.__name__ for kind in kinds if kind.__name__ not in job_errors.__doc__]
