"""User's code that does not come back: who hangs, where, and the end of the process.

Law: a process is ended only if it is ours to end; where its threads stand is written down before.
"""

import logging
import os
import threading
from typing import Final

from headgate.host.checkpoints.snapshot_writer import WRITER_NAMES
from headgate.host.shipping.failures import where_is
from headgate.host.worker.stack_sampler import SAMPLER_THREAD

log = logging.getLogger(__name__)

STUCK_EXIT: Final = 70
"""The exit code of a process that ends because a user's function does not come back."""

TASK_THREADS: Final = "headgate-"
SOURCE_THREADS: Final = "headgate-source "
"""How the name of a thread begins in which a user's source function runs."""

_SERVANTS: Final = (
    "headgate-control",
    "headgate-standby",
    "headgate-watchdog",
    SAMPLER_THREAD,
    *WRITER_NAMES,
)


def threads_of(prefix: str) -> list[threading.Thread]:
    """Those of tasks and sources, not those that serve them."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith(prefix) and thread.name not in _SERVANTS
    ]


def abandon(what: str, threads: list[threading.Thread], may_exit: bool) -> None:
    """Tell where the threads are, and end the process if that is allowed."""
    places = "\n".join(f"{thread.name}:\n{where_is(thread)}" for thread in threads)
    log.critical("%s does not come back after its cancellation; it is here:\n%s", what, places)
    if may_exit:
        logging.shutdown()
        os._exit(STUCK_EXIT)
