"""What ``headgate top`` shows and how keys change it; no terminal, no clock, no network.

Law: a frame fits its screen, and the selected line is always in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, TypeVar

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate.cli.full_screen import Key, SpecialKey
from headgate.observe.pictures import (
    LEGEND,
    Facts,
    draw_head,
    draw_subtasks,
    draw_vertices,
    plain_table,
)
from headgate.observe.web.answers import SubtaskDetails, TasksActivity, VertexDetails
from headgate.plan.table import clean

QUIT: Final = ("q", "Q", "\x04")
_Row = TypeVar("_Row")
_Seen = TypeVar("_Seen", bound=TasksActivity)


class SortedBy(Enum):
    """The order of the lines."""

    PLAN = "plan"
    BUSY = "busy"
    BACKPRESSURED = "back-pressured"
    RATE = "in/s"

    def following(self) -> "SortedBy":
        orders = list(SortedBy)
        return orders[(orders.index(self) + 1) % len(orders)]


class ShownLevel(Enum):
    """Whose lines are on the screen."""

    JOBS = "jobs"
    VERTICES = "vertices"
    SUBTASKS = "subtasks"


_SELECTION: Final = {
    ShownLevel.JOBS: "job",
    ShownLevel.VERTICES: "vertex",
    ShownLevel.SUBTASKS: "subtask",
}
"""The field of ``TopView`` that says which line is selected."""


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job among several."""

    job: str
    name: str
    state: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class TopView:
    """All that a frame is made of; keys and answers make the next one."""

    level: ShownLevel
    has_list: bool = False
    """It began with a list of jobs, to which Escape leads back."""
    jobs: Sequence[ListedJob] = ()
    facts: Facts | None = None
    subtasks: Sequence[SubtaskDetails] = ()
    job: str = ""
    """The selected job, vertex and subtask; vertices keep their cursor while subtasks are shown."""
    vertex: str = ""
    subtask: int = 0
    order: SortedBy = SortedBy.PLAN
    notice: str = ""
    """What went wrong, or how the job has ended."""
    quits: bool = False

    def pressed(self, key: Key) -> "TopView":
        """The view after a key."""
        match key:
            case _ if key in QUIT:
                return replace(self, quits=True)
            case "s":
                return replace(self, order=self.order.following())
            case SpecialKey.UP | "k":
                return self._moved(-1)
            case SpecialKey.DOWN | "j":
                return self._moved(1)
            case SpecialKey.HOME | "g":
                return self._moved(-len(self.keys()))
            case SpecialKey.END | "G":
                return self._moved(len(self.keys()))
            case SpecialKey.ENTER:
                return self._entered()
            case SpecialKey.ESCAPE:
                return self._left()
            case _:
                return self

    def answered(self, facts: Facts, subtasks: Sequence[SubtaskDetails] = ()) -> "TopView":
        """The driver has answered; a selection that is no more there moves to the first line."""
        view = replace(self, facts=facts, subtasks=subtasks, notice="")
        ids = [vertex.id for vertex in view.vertices]
        return view if view.vertex in ids else replace(view, vertex=ids[0] if ids else "")

    def listed(self, jobs: Sequence[ListedJob]) -> "TopView":
        """These jobs run."""
        names = [job.job for job in jobs]
        job = self.job if self.job in names else (names[0] if names else "")
        return replace(self, jobs=jobs, job=job, notice="")

    @property
    def vertices(self) -> "list[VertexDetails]":
        """The lines in the chosen order."""
        return [] if self.facts is None else _ordered(self.facts.job.vertices, self.order)

    @property
    def tasks(self) -> "list[SubtaskDetails]":
        """The lines in the chosen order."""
        return _ordered(self.subtasks, self.order)

    def keys(self) -> list[Any]:
        """What tells the lines of this level apart, in their order."""
        match self.level:
            case ShownLevel.JOBS:
                return [job.job for job in self.jobs]
            case ShownLevel.VERTICES:
                return [vertex.id for vertex in self.vertices]
            case ShownLevel.SUBTASKS:
                return [task.subtask for task in self.tasks]

    @property
    def selected(self) -> Any:
        """The key of the selected line."""
        return getattr(self, _SELECTION[self.level])

    def _moved(self, by: int) -> "TopView":
        """The selection so many lines further, without leaving the list."""
        keys = self.keys()
        if not keys:
            return self
        at = keys.index(self.selected) if self.selected in keys else 0
        chosen: dict[str, Any] = {_SELECTION[self.level]: keys[min(max(0, at + by), len(keys) - 1)]}
        return replace(self, **chosen)

    def _entered(self) -> "TopView":
        if self.level is ShownLevel.JOBS and self.job:
            cleared = replace(self, facts=None, vertex="", subtasks=(), notice="")
            return replace(cleared, level=ShownLevel.VERTICES)
        if self.level is ShownLevel.VERTICES and self.vertex:
            return replace(self, level=ShownLevel.SUBTASKS, subtasks=(), subtask=0)
        return self

    def _left(self) -> "TopView":
        if self.level is ShownLevel.SUBTASKS:
            return replace(self, level=ShownLevel.VERTICES)
        if self.level is ShownLevel.VERTICES and self.has_list:
            return replace(self, level=ShownLevel.JOBS, notice="")
        return self


def draw_frame(
    view: TopView, width: int, height: int | None, *, with_keys: bool = True
) -> RenderableType:
    """One screen; without a height, all lines."""
    head = _head(view)
    room = None
    if height is not None:
        # Drawn without colours, only to count the lines that a long `why` takes.
        console = Console(width=width, color_system=None)
        used = sum(len(console.render_lines(line)) for line in head)
        most = max(1, height // 2)
        if used > most:
            head, used = _shortened(head, console, most)
        room = max(1, height - used - 3)  # a heading, the keys, an empty line
    body = _body(view, width, room, with_keys)
    foot = _foot(view) if with_keys else LEGEND
    return Group(*head, Text(), body, Text(foot, "dim", no_wrap=True, overflow="ellipsis"))


def _head(view: TopView) -> list[Text]:
    lines: list[Text] = []
    if view.level is ShownLevel.JOBS:
        lines.append(Text(f"{len(view.jobs)} jobs", "bold"))
    elif view.facts is not None:
        lines += draw_head(view.facts)
        if view.level is ShownLevel.SUBTASKS:
            named = [v.name for v in view.facts.job.vertices if v.id == view.vertex]
            lines.append(Text(f"vertex {view.vertex}: {clean(''.join(named))}", "bold"))
    if view.notice:
        lines.append(Text(clean(view.notice), "bold yellow"))
    return lines


def _body(view: TopView, width: int, room: int | None, selects: bool) -> RenderableType:
    selected = view.selected if selects else None
    match view.level:
        case ShownLevel.JOBS:
            return _draw_jobs(_window(view, view.jobs, room), width, selected)
        case ShownLevel.VERTICES:
            return draw_vertices(_window(view, view.vertices, room), width, selected)
        case ShownLevel.SUBTASKS:
            return draw_subtasks(_window(view, view.tasks, room), width, selected)


def _draw_jobs(jobs: Sequence[ListedJob], width: int, selected: str | None) -> Table:
    table = plain_table(expand=True)
    marked = 2 * (selected is not None)
    taken = 8 + max((len(job.job) + len(job.state) for job in jobs), default=0) + marked
    table.add_column("id", no_wrap=True)
    table.add_column("name", no_wrap=True, overflow="ellipsis", max_width=max(4, width - taken))
    table.add_column("state", no_wrap=True)
    table.add_column("why", no_wrap=True, overflow="ellipsis", ratio=1, min_width=1)
    for job in jobs:
        mark, style = ("> ", "reverse") if job.job == selected else ("", "")
        cells = (mark + job.job, clean(job.name), job.state.lower(), clean(job.why))
        table.add_row(*map(Text, cells), style=style)
    return table


def _foot(view: TopView) -> str:
    keys = ["up/down select"]
    if view.level is not ShownLevel.SUBTASKS:
        keys.append("enter opens")
    if view.level is ShownLevel.SUBTASKS or (view.level is ShownLevel.VERTICES and view.has_list):
        keys.append("esc back")
    if view.level is not ShownLevel.JOBS:
        keys.append(f"s sorts ({view.order.value})")
    legend = "" if view.level is ShownLevel.JOBS else f"   {LEGEND}"
    return "  ".join([*keys, "q quits"]) + legend


def _shortened(head: list[Text], console: Console, most: int) -> tuple[list[Text], int]:
    """Without the lines beyond ``most``: a long answer to why must not push the table out."""
    kept: list[Text] = []
    for line in head:
        for text in line.wrap(console, console.width, no_wrap=bool(line.no_wrap)):
            if len(kept) < most:
                text.no_wrap, text.overflow = True, "ellipsis"
                kept.append(text)
    return kept, len(kept)


def _window(view: TopView, rows: Sequence[_Row], room: int | None) -> Sequence[_Row]:
    """As many of the rows as there is room for, the selected one among them."""
    if room is None or len(rows) <= room:
        return rows
    keys = view.keys()
    at = keys.index(view.selected) if view.selected in keys else 0
    first = min(max(0, at - room // 2), len(rows) - room)
    return rows[first : first + room]


def _ordered(rows: Sequence[_Seen], order: SortedBy) -> list[_Seen]:
    match order:
        case SortedBy.PLAN:
            return list(rows)
        case SortedBy.BUSY:
            return sorted(rows, key=lambda row: -getattr(row, "max_busy", row.busy))
        case SortedBy.BACKPRESSURED:
            return sorted(rows, key=lambda row: -row.backpressured)
        case SortedBy.RATE:
            return sorted(rows, key=lambda row: -row.rates.in_per_s)
