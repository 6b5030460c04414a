"""A traceback ends where the program calls Headgate, and keeps what is the program's own."""

from collections.abc import Callable

import pytest

from headgate.base.errors import HeadgateError, PlanInvalid
from headgate.base.user_traceback import user_frames, user_traceback


def function(module: str, text: str, **known: object) -> Callable[[], None]:
    """A function of another module; its file is named after it."""
    space: dict[str, object] = {"__name__": module, **known}
    name = module.rpartition(".")[2]
    exec(compile(f"def {name}():\n {text}", f"/{name}.py", "exec"), space)
    made = space[name]
    assert callable(made)
    return made


def error_of(called: Callable[[], None], *modules: str) -> HeadgateError:
    """What is raised if these modules call each other, the first one first."""
    for module in reversed(modules):
        called = function(module, "call()", call=called)
    with pytest.raises(HeadgateError) as raised:
        called()
    found = raised.value
    assert found.__traceback__ is not None
    return found.with_traceback(found.__traceback__.tb_next)  # without this test


def refuse() -> Callable[[], None]:
    return function("headgate.checks", "raise PlanInvalid('no')", PlanInvalid=PlanInvalid)


def test_frames_from_the_program_to_its_call_are_shown() -> None:
    error = error_of(refuse(), "shop.jobs", "library", "headgate.api", "cloudpickle")
    assert [frame.filename for frame in user_frames(error)] == ["/jobs.py", "/library.py"]
    assert user_traceback(error).splitlines() == [
        "Traceback (most recent call last):",
        '  File "/jobs.py", line 2, in jobs',
        '  File "/library.py", line 2, in library',
        "headgate.base.errors.PlanInvalid: no",
    ]


@pytest.mark.parametrize("runner", ["headgate.cli.run", "IPython.core", "runpy"])
def test_what_runs_the_program_is_not_shown(runner: str) -> None:
    error = error_of(refuse(), runner, "__main__", "pyspark.sql", "headgate.api")
    assert [frame.filename for frame in user_frames(error)] == ["/__main__.py"]


def test_an_error_without_a_frame_of_the_program_keeps_all_frames() -> None:
    error = error_of(refuse(), "headgate.cli", "headgate.api")
    assert user_frames(error) == []
    assert user_traceback(error).count("  File ") == 3


def test_causes_below_the_program_are_not_shown_and_its_own_errors_are() -> None:
    def explain() -> None:
        try:
            raise KeyError("below")
        except KeyError as error:
            raise PlanInvalid("a sentence") from error

    explained = function("headgate.checks", "explain()", explain=explain)
    assert "KeyError" not in user_traceback(error_of(explained, "shop"))
    text = "try: 1 / 0\n except ArithmeticError: call()"
    shown = user_traceback(error_of(function("shop", text, call=refuse())))
    assert "ZeroDivisionError" in shown
    assert "During handling of the above exception, another exception occurred" in shown


def test_a_notebook_asks_the_error_itself() -> None:
    error = error_of(refuse(), "IPython.core", "__main__", "headgate.api")
    assert error._render_traceback_() == user_traceback(error).splitlines()
