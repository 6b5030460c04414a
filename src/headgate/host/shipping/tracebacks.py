"""The traceback of a failure as the user wants to read it: the own function first, not our loops.

What runs operators (the rooms core, host and spark) stands above the user's frames in every
traceback; those frames are left out. Law: nothing of the user's is ever cut, and an error that has
no frame of the user's keeps all of ours, because then it may be us.
"""

import os
import sys
import threading
from itertools import dropwhile
from traceback import StackSummary, TracebackException, extract_stack
from typing import Final

from headgate.base.errors import HeadgateError, UserFunctionFailed

_PACKAGE: Final = os.path.dirname(os.path.dirname(__file__))
_MACHINERY: Final = tuple(os.path.join(_PACKAGE, room, "") for room in ("core", "host", "spark"))


def root_of(error: BaseException) -> BaseException:
    """The user's own exception, if this one only says whose it is."""
    if isinstance(error, UserFunctionFailed) and error.__cause__ is not None:
        return error.__cause__
    return error


def is_ours(filename: str) -> bool:
    """Whether a frame of this file is what runs operators, not what a user has written."""
    return filename.startswith(_MACHINERY)


def readable_traceback(error: BaseException) -> str:
    """From the user's function to where it was raised, with the user's own chain of causes."""
    root = root_of(error)
    told = TracebackException.from_exception(root, compact=True)
    ours_may_go = root is not error or isinstance(error, HeadgateError)
    one: TracebackException | None = told
    while one is not None:
        rest = _without_machinery(one.stack)
        if rest or ours_may_go:
            one.stack = rest
        one = one.__cause__ or one.__context__
    return "".join(_with_header(told))


def where_is(thread: threading.Thread) -> str:
    """What a thread is doing now, from the user's function on."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return "it has ended\n"
    stack = extract_stack(frame)
    above = (_PACKAGE, threading.__file__)
    rest = list(dropwhile(lambda one: one.filename.startswith(above), stack))
    return "".join(StackSummary.from_list(rest or list(stack)).format())


def _without_machinery(stack: StackSummary) -> StackSummary:
    first = 0
    while first < len(stack) and is_ours(stack[first].filename):
        first += 1
    return StackSummary.from_list(list(stack[first:]))


def _with_header(told: TracebackException) -> list[str]:
    lines = list(told.format())
    header = "Traceback (most recent call last):\n"
    # An empty stack has a header with nothing below it.
    return [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if line != header or following.startswith("  File ")
    ]
