"""Draws a job as its REST API describes it: for ``headgate status``, and each frame of ``top``.

All functions are pure. Law: what a colour says, a shape, a word or a number says, too; a frame
never has more lines or columns than it was given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate.cli.seen_jobs import (
    SeenActivity,
    SeenCheckpoints,
    SeenFailure,
    SeenJob,
    SeenSubtask,
    SeenVertex,
    known,
)
from headgate.host.driver.job_client import ENDED
from headgate.observe.display import DOTTED, EMPTY, FULL, LEGEND
from headgate.observe.job_view import short_number
from headgate.plan.table import clean

WIDE: Final = 100
"""Columns from which on shares are shown as numbers, too."""
NARROW: Final = 64
"""Columns below which only the most important ones are shown."""
BAR: Final = 16
STATES: Final = {
    "RUNNING": "green",
    "FINISHED": "green",
    "FAILED": "red",
    "FAILING": "red",
    "RESTARTING": "yellow",
}
UNKNOWN: Final = "-"
WHY: Final = "why: "
LEFT_OUT: Final = "left out: "


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is shown of a job."""

    job: SeenJob
    page: str
    checkpoints: SeenCheckpoints | None = None
    """None: the driver says nothing about them."""


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


def describe_age(state: str, seconds: float) -> str:
    """How long ago the job was started, in words that go with its state."""
    if state in ("CREATED", "INITIALIZING", "RUNNING"):
        return f" for {short_time(seconds)}"
    if state in ENDED:
        return f" after {short_time(seconds)}"
    return f", started {short_time(seconds)} ago"  # nobody knows since when it has this state


def draw_vertices(vertices: Sequence[SeenVertex], width: int, selected: str | None = None) -> Table:
    """A line for each vertex."""
    table = _table()
    widest = max((len(vertex.id) for vertex in vertices), default=0)
    table.add_column(
        "", justify="right", no_wrap=True, min_width=widest + 2 * (selected is not None)
    )
    table.add_column("vertex", no_wrap=True, overflow="ellipsis", ratio=1, min_width=6)
    _add_activity_columns(table, width)
    for vertex in vertices:
        times = "" if vertex.parallelism == 1 else f"{vertex.parallelism} x "
        table.add_row(
            f"> {vertex.id}" if vertex.id == selected else vertex.id,
            Text(times + clean(vertex.name)),
            *_activity_cells(vertex, width, vertex.max_busy),
            style="reverse" if vertex.id == selected else "",
        )
    return table


def draw_subtasks(
    subtasks: Sequence[SeenSubtask], width: int, selected: int | None = None
) -> Table:
    """A line for each task of a vertex."""
    table = _table()
    table.add_column("", justify="right", no_wrap=True, min_width=3)
    table.add_column("task manager", no_wrap=True, overflow="ellipsis", ratio=1, min_width=6)
    _add_activity_columns(table, width)
    table.add_column("queued", justify="right", no_wrap=True, min_width=6)
    for task in subtasks:
        queued = sum(gate.queued_buffers + gate.backlog for gate in task.gates)
        table.add_row(
            f"> {task.subtask}" if task.subtask == selected else str(task.subtask),
            Text(clean(task.host)),
            *_activity_cells(task, width, task.busy),
            short_number(queued),
            style="reverse" if task.subtask == selected else "",
        )
    return table


def draw_bar(seen: SeenActivity) -> Text:
    """Parts as long as their shares; a task that does not run has a word instead."""
    if seen.busy + seen.backpressured + seen.idle <= 0:
        return Text((seen.status or "no figures yet").lower(), "dim")
    busy = min(BAR, round(seen.busy * BAR))
    held_up = min(BAR, round((seen.busy + seen.backpressured) * BAR)) - busy
    return Text.assemble(
        (FULL * busy, "red"),
        (DOTTED * held_up, "yellow"),
        (EMPTY * (BAR - busy - held_up), "blue"),
    )


def describe_checkpoints(seen: SeenCheckpoints, now_ms: int) -> Text:
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


def describe_failure(failure: SeenFailure, now_ms: int) -> Text:
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


def fields_of(facts: Facts) -> dict[str, object]:
    """The same for a program."""
    job = facts.job
    history = facts.checkpoints.history if facts.checkpoints else []
    last = history[0] if history else None
    failure = job.latest_failure
    return {
        "job": job.jid,
        "name": job.name,
        "state": job.state.lower(),
        "since_ms": job.start_time,
        "seconds": job.seconds,
        "restarts": job.restarts,
        "page": facts.page,
        "why": job.why.summary if job.why else "",
        "left_out": [
            {
                "operator": each.operator,
                "late": each.late,
                "most_late_ms": each.most_late_ms,
                "skipped": each.skipped,
                "dead_letters": each.dead_letters,
            }
            for each in (job.why.left_out if job.why else [])
        ],
        "checkpoint": last
        and {
            "checkpoint": last.checkpoint,
            "kind": last.kind,
            "status": last.status,
            "triggered_at_ms": last.triggered_at_ms,
            "took_ms": last.took_ms,
            "state_bytes": last.state_bytes,
        },
        "failure": failure
        and {"at_ms": failure.at_ms, "kind": failure.kind, "message": failure.message},
        "vertices": [_vertex_fields(vertex) for vertex in job.vertices],
    }


def _vertex_fields(vertex: SeenVertex) -> dict[str, object]:
    return {
        "vertex": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "status": vertex.status.lower(),
        "in_per_s": vertex.rates.in_per_s,
        "out_per_s": vertex.rates.out_per_s,
        "busy": vertex.busy,
        "max_busy": vertex.max_busy,
        "backpressured": vertex.backpressured,
        "idle": vertex.idle,
        "watermark_lag_ms": known(vertex.watermark_lag_ms),
        "latency_p50_ms": known(vertex.latency_p50_ms),
        "latency_p99_ms": known(vertex.latency_p99_ms),
        "state_bytes": known(vertex.state_bytes),
    }


def _table() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=True, header_style="dim")


def _add_activity_columns(table: Table, width: int) -> None:
    heads = ["in/s", "out/s"] if width >= NARROW else ["in/s"]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True, min_width=6)
    table.add_column("", no_wrap=True, min_width=BAR)
    heads = ["lag", "p99"] if width >= NARROW else []
    if width >= WIDE:
        heads = ["busy", "bp", "idle", "cpu", *heads, "state"]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True, min_width=5)


def _activity_cells(seen: SeenActivity, width: int, most_busy: float) -> list[str | Text]:
    rate_in, rate_out = short_number(seen.rates.in_per_s), short_number(seen.rates.out_per_s)
    if width < NARROW:
        return [rate_in, draw_bar(seen)]
    lag, latency = known(seen.watermark_lag_ms), known(seen.latency_p99_ms)
    times = [UNKNOWN if lag is None else short_ms(lag), short_ms(latency) if latency else UNKNOWN]
    if width < WIDE:
        return [rate_in, rate_out, draw_bar(seen), *times]
    hot = most_busy > 1.5 * seen.busy and most_busy > 0.5  # one subtask has more to do than others
    cpu, state = known(seen.cpu), known(seen.state_bytes)
    return [
        rate_in,
        rate_out,
        draw_bar(seen),
        f"{seen.busy:.0%}" + (f" !{most_busy:.0%}" if hot else ""),
        f"{seen.backpressured:.0%}",
        f"{seen.idle:.0%}",
        UNKNOWN if cpu is None else f"{cpu:.0%}",
        *times,
        UNKNOWN if state is None else short_bytes(state),
    ]


def short_time(seconds: float) -> str:
    """12 s, 3 min 4 s, 2 h 5 min, 3 d 4 h."""
    whole = max(0, round(seconds))
    for unit, size, smaller, part in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def short_ms(milliseconds: float) -> str:
    """At most five characters, up to a day: 3ms, 999ms, 1.2s, 99s, 17min, 12h."""
    for unit, size, most in (("ms", 1, 1_000), ("s", 1_000, 100), ("min", 60_000, 100)):
        if milliseconds < size * most:
            value = milliseconds / size
            return f"{value:.1f}{unit}" if unit == "s" and value < 10 else f"{value:.0f}{unit}"
    hours = milliseconds / 3_600_000
    return f"{hours:.0f}h" if hours < 100 else f"{hours / 24:.0f}d"


def describe_ms(milliseconds: float) -> str:
    """In a sentence: 120 ms, 3.9 s, 3 min 4 s."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    return (
        f"{milliseconds / 1000:.1f} s" if milliseconds < 10_000 else short_time(milliseconds / 1000)
    )


def short_bytes(size: float) -> str:
    """1 B, 12 kB, 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
