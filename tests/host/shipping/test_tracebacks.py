"""Tracebacks as users read them."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

from headgate.base.errors import PathUnusable, UserFunctionFailed
from headgate.connectors.files.sink import JsonLinesSink
from headgate.core.chain.outputs import run_user_code
from headgate.host.shipping.failures import describe, readable_traceback, root_of, where_is
from tests.connectors.kit import task_context


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


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    writer = JsonLinesSink(tmp_path).create_writer(task_context())
    soft, hard = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (0, hard))  # no file can grow
    try:
        error = caught(partial(run_user_code, "files", partial(writer.write, ["x" * 1_000_000])))
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))
        writer.close()
    assert isinstance(error, PathUnusable) and error.__traceback__ is not None
    error = error.with_traceback(error.__traceback__.tb_next)  # without that of this file
    (line,) = readable_traceback(error).splitlines()
    assert "cannot be written: File too large" in line
    assert describe(error).frames == ""


def test_frames_of_the_user_s_stay_with_an_error_of_headgate() -> None:
    def look_up() -> None:
        try:
            parse()
        except LookupError as error:
            raise PathUnusable("a", "gone") from error

    text = readable_traceback(caught(partial(run_user_code, "look up", look_up)))
    assert "in look_up" in text and "in parse" in text
    assert "run_user_code" not in text


def test_secrets_in_causes_of_an_error_of_headgate_are_hidden() -> None:
    def connect() -> None:
        raise ConnectionError("refused by redis://:hUnter2@store")

    try:
        try:
            connect()
        except ConnectionError as error:
            raise PathUnusable("out", "it is gone") from error
    except PathUnusable as error:
        text = describe(error).traceback
    assert "refused by redis://" in text
    assert "hUnter2" not in text


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
