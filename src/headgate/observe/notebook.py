"""Jobs in notebooks: as HTML, and in outputs of cells that are replaced while the jobs run.

IPython is never imported here: where it is not loaded already, nobody reads a notebook. Law:
everything that a user has named is escaped; no style, script or picture comes from outside; what a
colour says, a number says, too.
"""

import os
import sys
from html import escape
from itertools import count
from typing import Any, Final, Protocol

from headgate.base.settings import ProgressShown
from headgate.observe.job_view import (
    JobView,
    describe_end,
    describe_job,
    describe_left_out,
    short_number,
    title_of,
)
from headgate.observe.progress import Shares, VertexRow

BUSY: Final = "#dc2626"
HELD_UP: Final = "#525b6b"
IDLE: Final = "#60a5fa"
_CELL: Final = "padding:1px 10px 1px 0;text-align:right;white-space:nowrap"
_NAME: Final = "padding:1px 10px 1px 0;text-align:left"
_numbers = count()


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


def draw_html(view: JobView) -> str:
    """The job with a row for each vertex: counts, rate, a bar and its shares in numbers."""
    page = ""
    if view.page:
        page = f' · <a href="{escape(view.page)}" target="_blank" rel="noopener">web page</a>'
    lines = [
        '<div style="line-height:1.5">',
        f"<div><b>{escape(view.name)}</b> {escape(view.status)} · {view.seconds:.0f} s{page}</div>",
        '<table style="border-collapse:collapse;border:none;margin:2px 0"><thead><tr>',
        f'<th scope="col" style="{_NAME}">vertex</th>',
        *(f'<th scope="col" style="{_CELL}">{head}</th>' for head in ("in", "out", "in/s")),
        f'<th scope="col" style="{_NAME}" colspan="2">busy, back-pressured, idle</th>',
        "</tr></thead><tbody>",
    ]
    for row in view.rows:
        lines += _draw_row(row, row.vertex == view.blamed)
    lines.append("</tbody></table>")
    if view.waits_for:
        lines.append(f"<div>{escape(view.waits_for)}</div>")
    if view.blamed >= 0 and not view.has_ended:
        lines.append(f"<div>bottleneck: {escape(view.diagnosis.headline)}</div>")
    lines += [f"<div>{escape(text)}</div>" for text in describe_left_out(view)]
    if view.has_ended:
        lines.append(f"<div>{escape(describe_end(view))}</div>")
    return "\n".join([*lines, "</div>"])


def _draw_row(row: VertexRow, blamed: bool) -> list[str]:
    name = escape(title_of(row))
    counts = (row.records_in, row.records_out, row.in_per_s)
    if row.shares == Shares():
        word = "ended" if row.ended == row.tasks else "starting" if not row.running else ""
        bar, words = "", word
    else:
        bar, words = _draw_bar(row.shares), row.shares.describe()
    return [
        f'<tr><td style="{_NAME}">{f"<b>{name}</b>" if blamed else name}</td>',
        *(f'<td style="{_CELL}">{short_number(number)}</td>' for number in counts),
        f'<td style="{_NAME}">{bar}</td><td style="{_NAME}">{words}</td></tr>',
    ]


def _draw_bar(shares: Shares) -> str:
    """Parts as long as their shares."""
    x, parts = 0.0, []
    for share, colour in (
        (shares.busy, BUSY),
        (shares.backpressured, HELD_UP),
        (shares.idle, IDLE),
    ):
        width = 120 * share
        parts.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="12" fill="{colour}"/>')
        x += width
    return (
        '<svg width="120" height="12" role="img" '
        f'aria-label="{shares.describe()}">{"".join(parts)}</svg>'
    )
