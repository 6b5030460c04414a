"""Tracebacks of errors that a user can put right: from the program to where it calls Headgate.

What such an error says is in its sentence; how Headgate came to say it is not the user's matter.
Law: an error without a frame of the user's keeps all of its frames, because then the bug may be
ours.
"""

from itertools import dropwhile, takewhile
from traceback import FrameSummary, StackSummary, TracebackException, extract_tb, walk_tb
from typing import Final

_BELOW: Final = {"headgate", "py4j", "pyspark"}
"""Packages whose frames do not tell the user where in the program it was."""
_ABOVE: Final = _BELOW | {"IPython", "ipykernel", "runpy"}
"""Packages below, and those that run programs."""


def user_frames(error: BaseException) -> list[FrameSummary]:
    """From the program down to its call of Headgate; empty: the program is not in the traceback."""
    packages = [
        str(frame.f_globals.get("__name__")).partition(".")[0]
        for frame, _ in walk_tb(error.__traceback__)
    ]
    found = zip(packages, extract_tb(error.__traceback__), strict=True)
    program = dropwhile(lambda pair: pair[0] in _ABOVE, found)
    return [frame for _, frame in takewhile(lambda pair: pair[0] not in _BELOW, program)]


def user_traceback(error: BaseException) -> str:
    """The traceback without the frames below the program, and without the causes found there.

    An exception of the program's own that was being handled is shown before, as ever.
    """
    shown = TracebackException(type(error), error, error.__traceback__)
    if frames := user_frames(error):
        shown.stack = StackSummary.from_list(frames)
        shown.__cause__ = None
    return "".join(shown.format())
