"""Barrier stages in a session whose executors come and go (``spark.dynamicAllocation.enabled``).

Spark refuses such stages there, because nobody asks for executors on behalf of a stage that waits
for its slots. So we ask: a plain Spark job holds as many slots as ours needs, until all of its
tasks run at the same time, and is cancelled then. The refusal itself reads a setting of the running
context, which stands at false from the submission of our job to its first task; what allocates
executors has read it when the session started. Executors with tasks are never taken away, and those
of a job that has ended are given back as ever. Law: the setting is as it was when no job starts.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

log = logging.getLogger(__name__)

DYNAMIC: Final = "spark.dynamicAllocation.enabled"
MOST: Final = "spark.dynamicAllocation.maxExecutors"
FIRST_S: Final = 120.0
"""How long the first executor may take: a cluster may have to start a machine for it."""
NEXT_S: Final = 30.0
CANCEL_S: Final = 10.0
LOOK_S: Final = 0.1
HOLD_S: Final = 3600.0

_lock: Final = threading.Lock()
_starting: Final[dict[str, int]] = {}
"""How many jobs start at the moment, by application; those have the setting at false."""


def is_dynamic(context: Any) -> bool:
    """Whether Spark adds and removes executors while stages run."""
    with _lock:
        return context.applicationId in _starting or _setting(context).lower() == "true"


@contextmanager
def barriers_allowed(context: Any) -> Iterator[None]:
    """Within it, Spark creates barrier stages. Any thread may have submitted them."""
    application = str(context.applicationId)
    with _lock:
        is_needed = application in _starting or _setting(context).lower() == "true"
        if is_needed:
            context._jsc.sc().conf().set(DYNAMIC, "false")
            _starting[application] = _starting.get(application, 0) + 1
    try:
        yield
    finally:
        if is_needed:
            with _lock:
                _starting[application] -= 1
                if not _starting[application]:
                    del _starting[application]
                    with suppress(Exception):  # Spark has stopped, or Java is gone
                        context._jsc.sc().conf().set(DYNAMIC, "true")


def allocate(
    context: Any,
    needed: int,
    running: Callable[[str], int],
    is_over: Callable[[], bool] = lambda: False,
) -> int:
    """Let Spark start executors until so many tasks fit; returns how many have fitted.

    ``running``: how many tasks of a job group run now.
    """
    group = f"headgate-executors-{secrets.token_hex(8)}"
    log.info("asking Spark for executors with %d slots", needed)
    thread = _held(context, needed, group)
    thread.start()
    most, deadline = 0, time.monotonic() + FIRST_S
    try:
        while most < needed and thread.is_alive() and not is_over():
            if (found := running(group)) > most:
                most, deadline = found, time.monotonic() + NEXT_S
            elif time.monotonic() > deadline:
                break
            time.sleep(LOOK_S)
        return most
    finally:
        with suppress(Exception):  # as above
            _release(context, group, thread, running)


def _release(
    context: Any, group: str, thread: threading.Thread, running: Callable[[str], int]
) -> None:
    """Cancel the job, also one that Spark gets only now, and wait until its slots are free."""
    deadline = time.monotonic() + CANCEL_S
    while (thread.is_alive() or running(group)) and time.monotonic() < deadline:
        context.cancelJobGroup(group)
        thread.join(LOOK_S)
        if not thread.is_alive() and running(group):
            time.sleep(LOOK_S)


def _held(context: Any, needed: int, group: str) -> threading.Thread:
    """A thread that runs a Spark job of so many tasks, which wait until they are cancelled."""
    from pyspark import InheritableThread

    seconds = HOLD_S

    def wait(_: Any) -> list[Any]:  # nested: it travels by value, and needs no Headgate there
        import time

        time.sleep(seconds)
        return []

    def hold() -> None:
        try:
            context.setJobGroup(group, "Headgate asks for executors", interruptOnCancel=True)
            context.setLocalProperty("callSite.short", "Headgate: asking for executors")
            tasks = context.parallelize(range(needed), needed).mapPartitions(wait)
            context.runJob(tasks, list, list(range(needed)))
        except Exception as error:  # it was cancelled; or the job itself will meet the same
            log.debug("the job that asks for executors has ended: %s", error)

    thread = InheritableThread(target=hold, name="headgate-executors")
    thread.daemon = True
    return thread


def _setting(context: Any) -> str:
    return str(context._jsc.sc().conf().get(DYNAMIC, "false"))
