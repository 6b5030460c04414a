"""Shows all running jobs of this process: live in a terminal or a notebook, else as log lines.

In a terminal they are on standard error, in a notebook below the cell that started them. A thread
looks at the jobs while there are any. Law: every job that was watched has its closing line, told
before ``close`` returns; nothing that goes wrong here disturbs a job.
"""

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final

from rich.console import Console, Group
from rich.live import Live

from headgate.observe.job_view import JobView, describe_end, describe_job
from headgate.observe.logs import PROGRESS_LOGGER, set_up_logs
from headgate.observe.notebook import NotebookShell, kernel_shell
from headgate.observe.observed import WatchedJob
from headgate.observe.observer import JobObserver
from headgate.observe.pictures import draw_html, draw_job
from headgate.observe.web.job_answers import vertex_details

_numbers = count()
log = logging.getLogger(PROGRESS_LOGGER)

DRAW_S: Final = 0.25
CELL_S: Final = 0.5
"""Between two pictures in a notebook, whose front end may be far away."""
LOOK_S: Final = 0.01
LOG_S: Final = 5.0
CLOSE_S: Final = 5.0
WINDOW_S: Final = 5.0


class Display:
    """Every method may be called from any thread."""

    def __init__(
        self,
        console: Console | None = None,
        log_s: float = LOG_S,
        shell: NotebookShell | None = None,
    ) -> None:
        self._console = console or Console(stderr=True)
        self._log_s = log_s
        self._shell = shell
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # one picture at a time: the last may just be going
        self._watches: list[_Watch] = []
        self._thread: threading.Thread | None = None
        self._nudge = threading.Event()
        if shell is not None:
            shell.events.register("post_run_cell", self.cell_ended)

    def watch(self, job: WatchedJob, page: str = "") -> None:
        """Show it until it ends; ``page``: the address of its web page."""
        watch = _Watch(job, page)
        if self._shell is not None:
            watch.begin_output(self._shell)
        with self._lock:
            self._watches.append(watch)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headgate-progress")
                self._thread.daemon = True
                self._thread.start()

    def html(self, job: WatchedJob, page: str = "") -> str:
        """The job as it is now, for a notebook; one that nobody watches, over its whole life."""
        with self._lock:
            found = [watch for watch in self._watches if watch.job is job]
        if found and not job.has_ended():
            return draw_html(found[0].view())
        watch = _Watch(job, page)
        watch.look()
        return draw_html(watch.view())

    def cell_ended(self, *result: object) -> None:
        """A cell of the notebook has run: what it waited for is to be shown in it."""
        deadline = time.monotonic() + CLOSE_S
        self._nudge.set()
        while time.monotonic() < deadline:
            with self._lock:
                if not any(watch.job.has_ended() for watch in self._watches):
                    return
            time.sleep(LOOK_S)

    def close(self) -> None:
        """Tell the ends of jobs that have ended, then be silent."""
        with self._lock:
            thread = self._thread
            for watch in self._watches:
                watch.is_last = True
        self._nudge.set()
        if thread is not None:
            thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            with self._turn:
                if self._shell is not None:
                    self._draw_cells()
                elif self._console.is_terminal:
                    self._draw()
                else:
                    self._log_progress()
        except Exception:
            log.exception("the display of progress has failed; the jobs go on")
            with self._lock:
                self._watches.clear()
                self._thread = None

    def _draw(self) -> None:
        # A standard output that is no terminal belongs to whoever reads it, not to the picture.
        with Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
        ) as live:
            for watches in self._looks(DRAW_S):
                live.update(Group(*(draw_job(watch.view()) for watch in watches)), refresh=True)

    def _draw_cells(self) -> None:
        for watches in self._looks(CELL_S):
            for watch in watches:
                watch.output(watch.view())

    def _log_progress(self) -> None:
        # A handler of the log of jobs may exist that passes lines on and shows none.
        has_handlers = log.handlers or logging.getLogger().handlers
        if not has_handlers or not log.isEnabledFor(logging.INFO):
            set_up_logs()
        logged_at = time.monotonic()
        for watches in self._looks(min(DRAW_S, self._log_s)):
            if time.monotonic() - logged_at >= self._log_s:
                logged_at = time.monotonic()
                for watch in watches:
                    for line in describe_job(watch.view()):
                        log.info(line, extra=watch.log_facts)

    def _looks(self, pause_s: float) -> "Iterator[Sequence[_Watch]]":
        """The jobs that still run, again and again, until there are none."""
        while watches := self._look():
            yield watches
            self._nudge.wait(pause_s)
            self._nudge.clear()

    def _look(self) -> "Sequence[_Watch]":
        """Take the figures of all jobs, tell the ends of some; what is left still runs."""
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.look()
        ended = [watch for watch in watches if watch.has_ended or watch.is_last]
        for watch in ended:
            self._show_end(watch)
        with self._lock:
            self._watches = [watch for watch in self._watches if watch not in ended]
            if not self._watches:
                self._thread = None
            return list(self._watches)

    def _show_end(self, watch: "_Watch") -> None:
        view = watch.view()
        if self._shell is not None:
            watch.output(view)
        elif self._console.is_terminal:
            self._console.print(describe_end(view), highlight=False, markup=False)
        else:
            log.info(describe_end(view), extra=watch.log_facts)


class CellOutput:
    """One output, below the cell that runs when it is first shown; it can be replaced later."""

    def __init__(self, shell: NotebookShell) -> None:
        self._publish = shell.display_pub.publish
        self._id = f"headgate-{os.getpid()}-{next(_numbers)}"
        self._html = ""

    def show(self, view: JobView) -> None:
        """Replace what is shown, if it has changed."""
        html = draw_html(view)
        if html == self._html:
            return
        texts = [describe_end(view)] if view.has_ended else describe_job(view)
        self._publish(
            {"text/html": html, "text/plain": "\n".join(texts) or describe_end(view)},
            transient={"display_id": self._id},
            update=bool(self._html),
        )
        self._html = html


class _Watch:
    """One job and what was seen of it."""

    def __init__(self, job: WatchedJob, page: str = "") -> None:
        self.is_last = False
        self.has_ended = False
        self.job = job
        self.output: Callable[[JobView], None] = lambda view: None
        self.log_facts = {"job": job.graph.name}
        self._page = page
        self._observer = JobObserver(job, WINDOW_S, WINDOW_S)

    def begin_output(self, shell: NotebookShell) -> None:
        """Below the cell that runs; on its thread, which the first output has to come from."""
        try:
            output = CellOutput(shell).show
            output(self.view())
            self.output = output
        except Exception:
            log.exception("the notebook cannot show the job, which goes on")

    def look(self) -> None:
        self.has_ended = self.job.has_ended()  # before the look, which is then the last one
        self._observer.look()

    def view(self) -> JobView:
        job, status, now_ms = self.job, self.job.status(), time.time() * 1000
        until_ms = now_ms if job.ended_at_ms is None else job.ended_at_ms
        vertices = self._observer.window().vertices
        return JobView(
            job.graph.name,
            status.name.lower(),
            max(0.0, until_ms - job.started_at_ms) / 1000,
            [vertex_details(vertex, status, now_ms) for vertex in vertices],
            self._observer.quick_diagnosis(),
            self.has_ended,
            self._page,
            "" if self.has_ended else job.waits_for(),
        )


_display: list[Display] = []


def display() -> Display:
    """The one of this process."""
    if not _display:
        _display.append(Display(shell=kernel_shell()))
        atexit.register(_display[0].close)  # the last closing line is not to be lost
    return _display[0]
