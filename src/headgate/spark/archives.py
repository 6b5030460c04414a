"""Archives of the jobs of this driver, written when they end, if a setting names a folder.

Each is written on a thread of its own. Law: no trouble here fails a job or keeps it waiting, and
it is reported in one warning; a program that ends waits a moment for those that are being written.
"""

import atexit
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from headgate.base.errors import HeadgateError
from headgate.base.extras import install_command
from headgate.core.chain.log_facts import log_always_with
from headgate.host.checkpoints.folder import open_folder
from headgate.host.net.loop import wall_ms
from headgate.observe.history.archive import encode_archive, write_archive
from headgate.observe.observed import ObservedJob
from headgate.observe.web.shown_jobs import ShownJobs

log = logging.getLogger(__name__)

EXIT_S: Final = 5.0
"""How long a program that ends waits for its archives."""

_writing: Final[dict[threading.Thread, None]] = {}


class EndingJob(ObservedJob, Protocol):
    """A job that can be shown and archived."""

    @property
    def name(self) -> str: ...

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call back at its end, at once if it has ended; on any thread."""


def archive_at_end(
    job: EndingJob,
    where: str,
    page: ShownJobs | None,
    settle: Callable[[], object] = lambda: None,
) -> None:
    """Write an archive of the job into this folder when it has ended.

    ``page``: the jobs of the web page, whose figures over time are kept; None: there is no page.
    ``settle``: returns, or raises HeadgateError or TimeoutError, when its last lines have come.
    """

    def start() -> None:
        thread = threading.Thread(
            target=_archive, name=f"headgate-archive-{job.job_id}", args=(job, where, page, settle)
        )
        thread.daemon = True  # a storage that does not answer keeps no process alive
        _writing[thread] = None
        thread.start()

    job.when_ended(start)


def await_archives(timeout_s: float = EXIT_S) -> None:
    """Wait for those that are being written, but not for long."""
    deadline = time.monotonic() + timeout_s
    for thread in list(_writing):
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            log.warning("the program ends before an archive is complete (%s)", thread.name)


atexit.register(await_archives)  # before the jobs' own: it is called after they have ended


def _archive(
    job: ObservedJob, where: str, page: ShownJobs | None, settle: Callable[[], object]
) -> None:
    log_always_with({"job": job.graph.name, "job_id": job.job_id})
    try:
        with suppress(HeadgateError, TimeoutError):  # why it has failed is in its records
            settle()
        log.info("the archive of job %s is %s", job.graph.name, write(job, where, page))
    except ImportError as error:
        _warn(job, f"{error.name} is not installed; {install_command('ui')} adds it")
    except Exception as error:
        _warn(job, str(error) or type(error).__name__)
    finally:
        _writing.pop(threading.current_thread(), None)


def write(job: ObservedJob, where: str, page: ShownJobs | None) -> str:
    """Write it now; returns its path. Raises whatever stands against it."""
    from headgate.observe.history.recorder import record_job

    if page is not None and (shown := page.find(job.job_id)) is not None and shown.job is job:
        summary, answers = record_job(page, job.job_id)
    else:
        own = ShownJobs()
        try:
            own.watch(job)
            summary, answers = record_job(own, job.job_id)
        finally:
            own.close()
    written_at_ms = wall_ms()
    folder = open_folder(where)
    data = encode_archive(summary, written_at_ms, answers)
    return folder.at(write_archive(folder, job.job_id, written_at_ms, data))


def _warn(job: ObservedJob, problem: str) -> None:
    log.warning("job %s has no archive: %s", job.graph.name, problem)
