"""Draws jobs: in a terminal, as HTML for a notebook, and on the whole screen of ``headgate top``.

A vertex or a task is what the REST API answers about it, whoever asks. All functions are pure. Law:
what a colour says, a shape, a word or a number says, too; a frame never has more lines or columns
than it was given; in HTML everything that a user has named is escaped, and no style, script or
picture comes from outside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate.base.job_records import FailureRecord
from headgate.observe.job_view import (
    HasShares,
    JobView,
    describe_age,
    describe_end,
    describe_left_out,
    describe_ms,
    describe_shares,
    short_bytes,
    short_ms,
    short_number,
    short_time,
    stands_still,
    title_of,
)
from headgate.observe.web.answers import (
    CheckpointOverview,
    JobDetails,
    SubtaskDetails,
    TasksActivity,
    VertexDetails,
)
from headgate.plan.table import clean

FULL, DOTTED, EMPTY = "█", "▒", "·"
LEGEND: Final = f"{FULL} busy  {DOTTED} back-pressured  {EMPTY} idle"
COUNTS: Final = ("in", "out", "in/s")
PROGRESS_BAR: Final = 20
BAR: Final = 16
HTML_BAR: Final = 120
NAME: Final = 33
WIDE: Final = 100
"""Columns from which on shares are shown as numbers, too."""
NARROW: Final = 64
"""Columns below which only the most important ones are shown."""
STATES: Final = {
    "RUNNING": "green",
    "FINISHED": "green",
    "FAILED": "red",
    "FAILING": "red",
    "RESTARTING": "yellow",
}
HTML_COLOURS: Final = "#dc2626", "#525b6b", "#60a5fa"
"""Colours of busy, back-pressured and idle."""
UNKNOWN: Final = "-"
WHY: Final = "why: "
LEFT_OUT: Final = "left out: "
_CELL: Final = "padding:1px 10px 1px 0;text-align:right;white-space:nowrap"
_NAME: Final = "padding:1px 10px 1px 0;text-align:left"

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is shown of a job by those who ask its driver."""

    job: JobDetails
    page: str
    checkpoints: CheckpointOverview | None = None
    """None: the driver says nothing about them."""


def known(number: _Number | None) -> _Number | None:
    """None instead of what the driver says if it does not know."""
    return None if number is None or number < 0 else number


# The progress of a job in this process: in a terminal, and below the cell of a notebook.


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
    for head in COUNTS:
        table.add_column(head, justify="right", width=6, no_wrap=True)
    table.add_column("", width=PROGRESS_BAR, no_wrap=True)
    for vertex in view.vertices:
        style, colour = ("bold", "red") if vertex.id == view.blamed else ("", "green")
        word = stands_still(vertex)
        bar = Text(word, "dim") if word else draw_bar(vertex, PROGRESS_BAR, colour, "")
        table.add_row(Text(title_of(vertex), style), *_counts(vertex), bar)
    below = [f"bottleneck: {view.diagnosis.headline}"] if view.blamed else []
    below = [view.waits_for] if view.waits_for else below
    below += describe_left_out(view)
    if below:
        table.caption = Text("\n".join(below))
        table.caption_style = ""
        table.caption_justify = "left"
    return table


def draw_html(view: JobView) -> str:
    """The table of ``draw_job`` for a notebook, with shares as numbers and a link to the page."""
    page = ""
    if view.page:
        page = f' · <a href="{escape(view.page)}" target="_blank" rel="noopener">web page</a>'
    lines = [
        '<div style="line-height:1.5">',
        f"<div><b>{escape(view.name)}</b> {escape(view.status)} · {view.seconds:.0f} s{page}</div>",
        '<table style="border-collapse:collapse;border:none;margin:2px 0"><thead><tr>',
        f'<th scope="col" style="{_NAME}">vertex</th>',
        *(f'<th scope="col" style="{_CELL}">{head}</th>' for head in COUNTS),
        f'<th scope="col" style="{_NAME}" colspan="2">busy, back-pressured, idle</th>',
        "</tr></thead><tbody>",
    ]
    for vertex in view.vertices:
        name, bar, words = escape(title_of(vertex)), "", stands_still(vertex)
        if vertex.busy + vertex.backpressured + vertex.idle > 0:
            bar, words = _draw_svg(vertex), describe_shares(vertex)
        title = f"<b>{name}</b>" if vertex.id == view.blamed else name
        lines += [
            f'<tr><td style="{_NAME}">{title}</td>',
            *(f'<td style="{_CELL}">{number}</td>' for number in _counts(vertex)),
            f'<td style="{_NAME}">{bar}</td><td style="{_NAME}">{words}</td></tr>',
        ]
    lines.append("</tbody></table>")
    below = [view.waits_for] if view.waits_for else []
    if view.blamed and not view.has_ended:
        below.append(f"bottleneck: {view.diagnosis.headline}")
    below += describe_left_out(view)
    if view.has_ended:
        below.append(describe_end(view))
    return "\n".join([*lines, *(f"<div>{escape(text)}</div>" for text in below), "</div>"])


def _counts(vertex: VertexDetails) -> list[str]:
    counts = vertex.metrics.read_records, vertex.metrics.write_records, vertex.rates.in_per_s
    return [short_number(count) for count in counts]


def _draw_svg(vertex: VertexDetails) -> str:
    """Parts as long as their shares."""
    x, parts = 0.0, []
    shares = vertex.busy, vertex.backpressured, vertex.idle
    for share, colour in zip(shares, HTML_COLOURS, strict=True):
        width = HTML_BAR * share
        parts.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="12" fill="{colour}"/>')
        x += width
    return (
        f'<svg width="{HTML_BAR}" height="12" role="img" '
        f'aria-label="{describe_shares(vertex)}">{"".join(parts)}</svg>'
    )


def draw_bar(seen: HasShares, cells: int, busy_style: str, idle_style: str) -> Text:
    """Parts as long as their shares; all of them together always fill the bar."""
    busy = min(cells, round(seen.busy * cells))
    held_up = min(cells, round((seen.busy + seen.backpressured) * cells)) - busy
    idle = EMPTY * (cells - busy - held_up)
    return Text.assemble(
        (FULL * busy, busy_style), (DOTTED * held_up, "yellow"), (idle, idle_style)
    )


# A job as its driver describes it: for ``headgate status``, and each frame of ``headgate top``.


def draw_status(facts: Facts, width: int) -> RenderableType:
    """The whole job on one screen."""
    parts: list[RenderableType] = [*draw_head(facts), Text()]
    parts.append(draw_vertices(facts.job.vertices, width))
    parts.append(Text(LEGEND, "dim"))
    return Group(*parts)


def draw_head(facts: Facts) -> list[Text]:
    """State, page, what limits the job and what it leaves out, checkpoints, the latest failure."""
    job = facts.job
    restarts = f", restarted {job.restarts} times" if job.restarts > 1 else ""
    if job.restarts == 1:
        restarts = ", restarted once"
    lines = [
        Text.assemble(
            (clean(job.name), "bold"),
            "  ",
            (job.state.lower(), STATES.get(job.state, "yellow")),
            f"{describe_age(job.state, job.seconds)}{restarts}  ",
            (f"{job.jid}  {facts.page}", "dim"),
        )
    ]
    if job.why is not None and job.why.summary:
        lines.append(Text.assemble((WHY, "bold"), clean(job.why.summary)))
    if job.why is not None:
        lines += [
            Text.assemble((LEFT_OUT, "yellow"), clean(each.summary)) for each in job.why.left_out
        ]
    if facts.checkpoints is not None:
        lines.append(describe_checkpoints(facts.checkpoints, job.now))
    if job.latest_failure is not None:
        lines.append(describe_failure(job.latest_failure, job.now))
    return lines


def draw_vertices(
    vertices: Sequence[VertexDetails], width: int, selected: str | None = None
) -> Table:
    """A line for each vertex."""
    widest = max((len(vertex.id) for vertex in vertices), default=0)
    table = _activity_table("vertex", widest + 2 * (selected is not None), width)
    for vertex in vertices:
        cells = _activity_cells(vertex, width, vertex.max_busy)
        _add_line(table, vertex.id, vertex.id == selected, title_of(vertex), cells)
    return table


def draw_subtasks(
    subtasks: Sequence[SubtaskDetails], width: int, selected: int | None = None
) -> Table:
    """A line for each task of a vertex."""
    table = _activity_table("task manager", 3, width)
    table.add_column("queued", justify="right", no_wrap=True, min_width=6)
    for task in subtasks:
        queued = sum(gate.queued_buffers + gate.backlog for gate in task.gates)
        cells = [*_activity_cells(task, width, task.busy), short_number(queued)]
        _add_line(table, str(task.subtask), task.subtask == selected, task.host, cells)
    return table


def describe_checkpoints(seen: CheckpointOverview, now_ms: int) -> Text:
    """The newest, and how many there were."""
    counts = seen.counts
    if not counts.triggered and not seen.history:
        return Text("no checkpoints", "dim")
    line = Text(f"checkpoints: {counts.completed} completed, {counts.failed} failed")
    if seen.history:
        last = seen.history[0]
        line.append(f"; {last.kind} {last.checkpoint} ")
        line.append(last.status.replace("_", " "), "red" if last.status == "failed" else "")
        since_ms = now_ms - last.triggered_at_ms
        if last.status == "in_progress":
            line.append(f" for {short_time(since_ms / 1000)}")
        else:
            line.append(f" {short_time((since_ms - last.took_ms) / 1000)} ago")
            line.append(f", took {describe_ms(last.took_ms)}, {short_bytes(last.state_bytes)}")
        if last.problem:
            line.append(f": {clean(last.problem)}")
    return line


def describe_failure(failure: FailureRecord, now_ms: int) -> Text:
    """The latest failure, its cause first."""
    ago = short_time((now_ms - failure.at_ms) / 1000)
    kind, message = failure.kind.rpartition(".")[2], failure.message
    where = f" in {failure.operator}" if failure.operator else ""
    whose = f"operator {failure.operator!r} failed"
    if failure.operator and message.startswith(whose):  # a function of the user's has raised
        doing, _, cause = message.removeprefix(whose).partition(": ")
        where, message = where + doing, cause
    elif not message.startswith(kind):
        message = f"{kind}: {message}"
    return Text.assemble((f"failed {ago} ago: ", "red"), clean(message), clean(where))


def plain_table(gap: int = 2, *, expand: bool = False) -> Table:
    """Columns without lines, so far apart."""
    return Table(
        box=None, padding=(0, gap, 0, 0), pad_edge=False, expand=expand, header_style="dim"
    )


def _activity_table(head: str, key_width: int, width: int) -> Table:
    """Columns for a key, for what has it, and for ``_activity_cells``."""
    table = plain_table(1, expand=True)
    table.add_column("", justify="right", no_wrap=True, min_width=key_width)
    table.add_column(head, no_wrap=True, overflow="ellipsis", ratio=1, min_width=6)
    heads = ["in/s", "out/s"] if width >= NARROW else ["in/s"]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True, min_width=6)
    table.add_column("", no_wrap=True, min_width=BAR)
    heads = ["lag", "p99"] if width >= NARROW else []
    if width >= WIDE:
        heads = ["busy", "bp", "idle", "cpu", *heads, "state"]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True, min_width=5)
    return table


def _add_line(
    table: Table, key: str, is_selected: bool, name: str, cells: Sequence[str | Text]
) -> None:
    mark, style = ("> ", "reverse") if is_selected else ("", "")
    table.add_row(mark + key, Text(clean(name)), *cells, style=style)


def _activity_cells(seen: TasksActivity, width: int, most_busy: float) -> list[str | Text]:
    if seen.busy + seen.backpressured + seen.idle > 0:
        bar = draw_bar(seen, BAR, "red", "blue")
    else:  # a task that does not run has a word instead
        bar = Text((seen.status or "no figures yet").lower(), "dim")
    rate_in, rate_out = short_number(seen.rates.in_per_s), short_number(seen.rates.out_per_s)
    if width < NARROW:
        return [rate_in, bar]
    lag, latency = known(seen.watermark_lag_ms), known(seen.latency_p99_ms)
    times = [UNKNOWN if lag is None else short_ms(lag), short_ms(latency) if latency else UNKNOWN]
    if width < WIDE:
        return [rate_in, rate_out, bar, *times]
    hot = most_busy > 1.5 * seen.busy and most_busy > 0.5  # one subtask has more to do than others
    cpu, state = known(seen.cpu), known(seen.state_bytes)
    return [
        rate_in,
        rate_out,
        bar,
        f"{seen.busy:.0%}" + (f" !{most_busy:.0%}" if hot else ""),
        f"{seen.backpressured:.0%}",
        f"{seen.idle:.0%}",
        UNKNOWN if cpu is None else f"{cpu:.0%}",
        *times,
        UNKNOWN if state is None else short_bytes(state),
    ]
