"""Shows all running jobs of this process on standard error: live in a terminal, else as log lines.

A thread looks at the jobs while there are any. Law: every job that was watched has its closing
line, told before ``close`` returns; nothing that goes wrong here disturbs a job.
"""

import atexit
import logging
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.observe.analysis.diagnosis import Diagnosis
from headgate.observe.logs import PROGRESS_LOGGER, set_up_logs
from headgate.observe.observer import DiagnosedJob, JobObserver
from headgate.observe.progress import Shares, VertexRow

BAR: Final = 20
NAME: Final = 33
FULL, DOTTED, EMPTY = "█", "▒", "·"
LEGEND: Final = f"{FULL} busy  {DOTTED} back-pressured  {EMPTY} idle"


@dataclass(frozen=True, slots=True)
class JobView:
    """One job at one moment, ready to be drawn."""

    name: str
    status: str
    seconds: float
    rows: Sequence[VertexRow]
    diagnosis: Diagnosis

    @property
    def blamed(self) -> int:
        """The vertex that limits the job; -1: none does."""
        return self.diagnosis.vertex


log = logging.getLogger(PROGRESS_LOGGER)

DRAW_S: Final = 0.25
TELL_S: Final = 5.0
CLOSE_S: Final = 5.0
WINDOW_S: Final = 5.0
LEAST_S: Final = 2.0
"""Who watches is shown a first cause soon; it may be another one later."""


class Display:
    """Every method may be called from any thread."""

    def __init__(self, console: Console | None = None, tell_s: float = TELL_S) -> None:
        self._console = console or Console(stderr=True)
        self._tell_s = tell_s
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # one picture at a time: the last may just be going
        self._watches: list[_Watch] = []
        self._thread: threading.Thread | None = None
        self._nudge = threading.Event()

    def watch(self, job: DiagnosedJob) -> None:
        """Show it until it ends."""
        with self._lock:
            self._watches.append(_Watch(job))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headgate-progress")
                self._thread.daemon = True
                self._thread.start()

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
                if self._console.is_terminal:
                    self._draw()
                else:
                    self._tell()
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
            while watches := self._look():
                live.update(Group(*(draw_job(watch.view()) for watch in watches)), refresh=True)
                self._nudge.wait(DRAW_S)
                self._nudge.clear()

    def _tell(self) -> None:
        # What is between the two hands lines to the logs of jobs, and shows none.
        has_handlers = log.handlers or logging.getLogger().handlers
        if not has_handlers or not log.isEnabledFor(logging.INFO):
            set_up_logs()
        logged_at = time.monotonic()
        while watches := self._look():
            if time.monotonic() - logged_at >= self._tell_s:
                logged_at = time.monotonic()
                for line in (line for watch in watches for line in describe_job(watch.view())):
                    log.info(line)
            self._nudge.wait(min(DRAW_S, self._tell_s))
            self._nudge.clear()

    def _look(self) -> "Sequence[_Watch]":
        """Take the figures of all jobs, tell the ends of some; what is left still runs."""
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.look()
        ended = [watch for watch in watches if watch.has_ended or watch.is_last]
        for watch in ended:
            self._say(describe_end(watch.view()))
        with self._lock:
            self._watches = [watch for watch in self._watches if watch not in ended]
            if not self._watches:
                self._thread = None
            return list(self._watches)

    def _say(self, line: str) -> None:
        if self._console.is_terminal:
            self._console.print(line, highlight=False, markup=False)
        else:
            log.info(line)


class _Watch:
    """One job and what was seen of it."""

    def __init__(self, job: DiagnosedJob) -> None:
        self.is_last = False
        self.has_ended = False
        self._job = job
        self._observer = JobObserver(job, WINDOW_S, LEAST_S)
        self._began = time.monotonic()

    def look(self) -> None:
        self.has_ended = self._job.has_ended()  # before the look, which is then the last one
        self._observer.look()

    def view(self) -> JobView:
        status = self._job.status().name.lower()
        seconds = time.monotonic() - self._began
        name, rows = self._job.graph.name, self._observer.rows()
        return JobView(name, status, seconds, rows, self._observer.quick_diagnosis())


_display: list[Display] = []


def display() -> Display:
    """The one of this process."""
    if not _display:
        _display.append(Display())
        atexit.register(_display[0].close)  # the last closing line is not to be lost
    return _display[0]


def draw_job(view: JobView) -> RenderableType:
    """A table with a line for each vertex, and what holds it up below."""
    table = Table(
        title=Text.assemble(
            (view.name, "bold"), f"  {view.status}  {view.seconds:.0f} s", ("   " + LEGEND, "dim")
        ),
        title_justify="left",
        title_style="",
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    table.add_column("vertex", width=NAME, no_wrap=True, overflow="ellipsis")
    for head in ("in", "out", "in/s"):
        table.add_column(head, justify="right", width=6, no_wrap=True)
    table.add_column("", width=BAR, no_wrap=True)
    for row in view.rows:
        table.add_row(
            Text(_title(row), "bold" if row.vertex == view.blamed else ""),
            short_number(row.records_in),
            short_number(row.records_out),
            short_number(row.in_per_s),
            draw_bar(row, row.vertex == view.blamed),
        )
    if view.blamed >= 0:
        table.caption = Text(f"bottleneck: {view.diagnosis.headline}")
        table.caption_style = ""
        table.caption_justify = "left"
    return table


def draw_bar(row: VertexRow, blamed: bool) -> Text:
    """Parts as long as their shares; all of them together always fill the bar."""
    if not row.running and row.ended == row.tasks:
        return Text("ended", "dim")
    if not row.running:
        return Text("starting", "dim")
    busy, held_up, idle = _cells(row.shares)
    return Text.assemble(
        (FULL * busy, "red" if blamed else "green"), (DOTTED * held_up, "yellow"), EMPTY * idle
    )


def describe_job(view: JobView) -> list[str]:
    """The same for a log: a line for each vertex."""
    lines = [
        f"{view.name}: {_title(row)}: {row.records_in:,} in, {row.records_out:,} out, "
        f"{row.in_per_s:,.0f} in/s, {row.shares.describe()}"
        for row in view.rows
        if row.running
    ]
    if view.blamed >= 0:
        lines.append(f"{view.name}: bottleneck: {view.diagnosis.headline}")
    return lines


def describe_end(view: JobView) -> str:
    """One line when the job has ended; the rows are those of its whole life."""
    source = sum(row.records_in for row in view.rows if row.is_source)
    blamed = f"; bottleneck: {view.diagnosis.headline}" if view.blamed >= 0 else ""
    return f"{view.name}: {view.status} after {view.seconds:.1f} s, {source:,} records{blamed}"


def short_number(number: float) -> str:
    """At most six characters: 999, 9,999, 99.9k, 1.23M."""
    if number < 10_000:
        return f"{number:,.0f}"
    for unit in "kMGT":
        number /= 1000
        if number < 9.995:
            return f"{number:.2f}{unit}"
        if number < 99.95:
            return f"{number:.1f}{unit}"
        if number < 999.5:
            return f"{number:.0f}{unit}"
    return f"{number:.0f}T"


def _title(row: VertexRow) -> str:
    return row.name if row.tasks == 1 else f"{row.tasks} x {row.name}"


def _cells(shares: Shares) -> tuple[int, int, int]:
    """Whole characters; the rounding goes to the last part, so that the sum is right."""
    if shares == Shares():
        return 0, 0, BAR
    busy = round(shares.busy * BAR)
    held_up = round((shares.busy + shares.backpressured) * BAR) - busy
    return busy, held_up, BAR - busy - held_up
