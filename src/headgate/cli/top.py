"""``headgate top``: a job, its vertices and subtasks on the whole screen, drawn anew each second.

With several jobs it begins with a list of them. Law: a job that ends, or whose driver is gone,
stays on the screen as it was last seen, with a line that says so.
"""

import sys
import time
from dataclasses import replace
from typing import Final

import click
from rich.console import Console

from headgate.api.job import ENDED
from headgate.base.errors import HeadgateError
from headgate.cli.full_screen import FullScreen
from headgate.cli.jobs import quick_why
from headgate.cli.rest_client import RestClient
from headgate.cli.status import ANY_JOB, facts_of
from headgate.cli.top_view import ListedJob, ShownLevel, TopView, draw_frame
from headgate.host.driver.job_client import JobGone, find_job, running_jobs
from headgate.host.driver.job_directory import JobEntry
from headgate.observe.web.answers import SubtaskDetails, VertexSubtasks

LEAST_S: Final = 0.1


@click.command()
@ANY_JOB
@click.option(
    "--interval",
    type=click.FloatRange(LEAST_S, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks at the job.",
)
@click.option("--once", is_flag=True, help="Print one frame and end, as without a terminal.")
def top(job: str | None, interval: float, once: bool) -> int:
    """Watch JOB live, on the whole screen.

    What limits it, its vertices, and the subtasks of each. Without JOB the only one that runs, or
    a list of those that do. Keys: up and down select, enter
    opens a vertex, esc goes back, s sorts, q quits. Red (█) is busy, yellow (▒) back-pressured,
    blue (·) idle.
    """
    jobs = JobsOnScreen()
    view = jobs.look(jobs.begin(job))
    console = Console(highlight=False)
    is_screen = console.is_terminal and not console.is_dumb_terminal and sys.stdin.isatty()
    if once or not is_screen:
        if jobs.problem is not None:
            raise jobs.problem
        console.print(draw_frame(view, console.width, None, with_keys=False))
        return 0
    with FullScreen(console, sys.stdin.fileno()) as screen:
        view = watch(screen, console, jobs, view, interval)
    if view.notice:
        click.echo(view.notice)
    return 0


def watch(
    screen: FullScreen, console: Console, jobs: "JobsOnScreen", view: TopView, interval_s: float
) -> TopView:
    """Until somebody quits; answers what was shown last."""
    look_at = time.monotonic() + interval_s
    while not view.quits:
        screen.draw(draw_frame(view, console.width, console.height))
        before = view
        try:
            for key in screen.keys(look_at):
                view = view.pressed(key)
        except EOFError:  # the terminal is gone
            break
        opens = (view.level, view.job) != (before.level, before.job)
        if opens or time.monotonic() >= look_at:
            view = jobs.look(view)
            look_at = time.monotonic() + interval_s
    return view


class JobsOnScreen:
    """Asks the drivers for what a view shows."""

    def __init__(self) -> None:
        self.problem: HeadgateError | None = None
        """Why the last look has shown nothing new."""
        self._entries: dict[str, JobEntry] = {}
        self._ended: dict[str, str] = {}
        """Jobs that will not change any more, and what is said about them."""
        self._seen_at = time.monotonic()

    def begin(self, called: str | None) -> TopView:
        """The first view; raises JobNotFound."""
        if called is None:
            running = running_jobs()
            if len(running) > 1:
                return TopView(ShownLevel.JOBS, has_list=True)
        entry = find_job(called)
        self._entries[entry.job] = entry
        return TopView(ShownLevel.VERTICES, job=entry.job)

    def look(self, view: TopView) -> TopView:
        """The view with new figures, or with a notice that says why there are none."""
        self.problem = None
        try:
            if view.level is ShownLevel.JOBS:
                return self._list(view)
            if view.job in self._ended:
                return replace(view, notice=self._ended[view.job])
            return self._ask(view)
        except JobGone as gone:
            self.problem = gone
            notice = f"{gone}, and its driver is gone"
            if view.facts is not None:
                ago_s = time.monotonic() - self._seen_at
                notice += f"; this is what was seen of it {ago_s:.0f} s ago"
            self._ended[view.job] = notice
            return replace(view, notice=notice)
        except HeadgateError as error:
            self.problem = error
            return replace(view, notice=str(error))

    def _list(self, view: TopView) -> TopView:
        listed = []
        for running in running_jobs():
            entry = running.entry
            self._entries[entry.job] = entry
            listed.append(ListedJob(entry.job, entry.name, running.state, quick_why(entry)))
        return view.listed(listed)

    def _ask(self, view: TopView) -> TopView:
        page = RestClient(self._entries[view.job])
        facts = facts_of(page)
        subtasks: list[SubtaskDetails] = []
        if view.level is ShownLevel.SUBTASKS:
            subtasks = page.get(f"/vertices/{view.vertex}", VertexSubtasks).subtasks
        self._seen_at = time.monotonic()
        answered = view.answered(facts, subtasks)
        job = facts.job
        if job.state in ENDED:
            notice = f"job {job.jid} ({job.name}) is {job.state.lower()}; this is how it has ended"
            if view.level is ShownLevel.VERTICES:
                self._ended[view.job] = notice
            return replace(answered, notice=notice)
        return answered
