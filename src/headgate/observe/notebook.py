"""Notebooks: whether this process runs the cells of one.

IPython is never imported here: where it is not loaded already, nobody reads a notebook.
"""

import sys
from typing import Any, Protocol

from headgate.base.settings import ProgressShown


class NotebookShell(Protocol):
    """What is needed of IPython's shell in a kernel."""

    display_pub: Any
    events: Any


def kernel_shell() -> NotebookShell | None:
    """The shell of the notebook whose cells this process runs; None: there is none."""
    python = sys.modules.get("IPython")
    find = getattr(python, "get_ipython", None)
    shell: Any = None if find is None else find()
    return shell if getattr(shell, "kernel", None) is not None else None


def shows_progress(setting: ProgressShown) -> bool:
    """Whether to show how jobs get on: if asked for, and in a notebook unless it is off."""
    if setting is ProgressShown.AUTO:
        return kernel_shell() is not None
    return setting is ProgressShown.ON
