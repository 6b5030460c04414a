"""Runs a user's script as ``python script.py`` would: it is ``__main__`` as long as it runs.

That matters for more than looks: functions and classes of ``__main__`` travel to the workers by
value, and are looked up there again.
"""

import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType

import click

import headgate

PACKAGE = Path(headgate.__file__).parent


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Run it to its end; what it raises comes out here. It stays ``__main__`` afterwards."""
    try:
        code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        told = "".join(traceback.format_exception_only(error)).rstrip()
        raise click.ClickException(f"{path} is no Python\n{told}") from error
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __cached__=None, __builtins__=__builtins__)
    sys.argv = [path, *arguments]
    folder = str(Path(path).resolve().parent)
    # As Python does it: the script's folder instead of the command's own.
    sys.path[0] = folder
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def user_traceback(error: BaseException, script: str) -> str:
    """From the script to where Headgate begins: what the user wrote, not how we go on."""
    frames = traceback.extract_tb(error.__traceback__)
    starts = [at for at, frame in enumerate(frames) if frame.filename == script]
    if not starts:
        return ""
    mine: list[traceback.FrameSummary] = []
    for frame in frames[starts[0] :]:
        if PACKAGE in Path(frame.filename).parents:
            break
        mine.append(frame)
    return "Traceback (most recent call last):\n" + "".join(traceback.format_list(mine))


def without_our_frames(error: BaseException, script: str) -> TracebackType | None:
    """The traceback of an exception that is the user's own, from the script on."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename != script:
        found = found.tb_next
    return found or error.__traceback__


_LINK = "\nThe above exception was the direct cause of the following exception:\n\n"
_OURS = "headgate.base.errors.UserFunctionFailed: "
_PLACE = rf"(?:{re.escape(str(PACKAGE))}|[^\"\n]*site-packages/headgate)"
_FRAME = re.compile(rf'  File "{_PLACE}/[^\n]*\n(?:    [^\n]*\n)*')


def user_part(text: str) -> str:
    """A worker's traceback without Headgate's frames, and without our own words about it."""
    theirs, _, ours = text.rpartition(_LINK)
    return _FRAME.sub("", theirs if theirs and _OURS in ours else text)
