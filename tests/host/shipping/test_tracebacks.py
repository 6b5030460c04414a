"""Tracebacks as users read them."""

import threading
from collections.abc import Callable

from headgate.base.errors import PathUnusable, UserFunctionFailed
from headgate.core.chain.outputs import run_user_code
from headgate.host.shipping.failures import readable_traceback, root_of, where_is


def caught(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def parse() -> None:
    try:
        int("x")
    except ValueError as error:
        raise LookupError("no number") from error


def test_the_user_s_frames_come_alone_with_the_user_s_own_causes() -> None:
    error = caught(lambda: run_user_code("parse", parse))
    text = readable_traceback(error)
    assert isinstance(root_of(error), LookupError)
    assert text.count("in parse") == 2
    assert text.index("invalid literal") < text.index("direct cause") < text.index("no number")
    assert "run_user_code" not in text and "UserFunctionFailed" not in text


def test_a_complaint_of_headgate_about_the_user_has_no_frames() -> None:
    error = UserFunctionFailed("map", TypeError("None"))
    error.__cause__ = TypeError("None is refused")
    assert readable_traceback(error) == "TypeError: None is refused\n"


def test_trouble_with_a_name_keeps_its_message_only() -> None:
    assert readable_traceback(PathUnusable("a", "gone")).endswith("PathUnusable: a: gone\n")


def test_an_error_of_ours_keeps_all_frames() -> None:
    def fail() -> None:
        raise AssertionError("a bug")

    # Not wrapped: SystemExit and the like, or a bug; the frames begin in this file.
    assert "in fail" in readable_traceback(caught(fail))
    bug = caught(lambda: run_user_code("x", None))  # type: ignore[arg-type]
    assert "TypeError" in readable_traceback(bug)


def test_where_a_thread_is_begins_with_the_user_s_function() -> None:
    reached, go = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        go.wait()

    thread = threading.Thread(target=lambda: run_user_code("waits", wait))
    thread.start()
    assert reached.wait(30)
    text = where_is(thread)
    go.set()
    thread.join()
    assert text.startswith("  File ") and "in wait" in text
    assert "_bootstrap" not in text
    assert where_is(thread) == "it has ended\n"
