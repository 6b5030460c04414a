"""``headgate checkpoints PATH``: which checkpoints and savepoints are there, and are they whole?

A line for each: complete ones are read and compared with their checksums, unless told not to; how
far that is shows on a terminal. Exit code 0: nothing is wrong, 1: one is damaged, 2: the path
cannot be read.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

import click

from headgate.cli.exit_codes import FAILED

if TYPE_CHECKING:  # it loads pyarrow, which other commands do without
    from headgate.host.checkpoints.checkpoint_store import FoundCheckpoint

WHOLE: Final = "ok"
FILES_THERE: Final = "files there"
DAMAGED: Final = "damaged"
UNFINISHED: Final = "unfinished"
_COLOURS: Final = {WHOLE: "green", FILES_THERE: "green", DAMAGED: "red", UNFINISHED: "yellow"}
_HEADS: Final = ("id", "kind", "job", "name", "completed", "size", "tasks", "state", "path")
_KIB: Final = 1024
_PATIENCE_S: Final = 1.0
"""Nothing is said about a check that takes less; then so often."""


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """What is told about one checkpoint."""

    path: str
    state: str
    checkpoint: int | None = None
    kind: str = ""
    job: str = ""
    name: str = ""
    completed_ms: int | None = None
    state_bytes: int | None = None
    files: int | None = None
    tasks: int | None = None
    unaligned: bool = False
    problems: tuple[str, ...] = field(default=())


@click.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--secret-file",
    metavar="FILE",
    help="Check signatures with the key in this file, too (…checkpointing.hmac.secret-file).",
)
@click.option("--no-verify", is_flag=True, help="Look for the files, but do not read them.")
def checkpoints(path: str, as_json: bool, secret_file: str | None, no_verify: bool) -> int:
    """List and check the checkpoints and savepoints at PATH and below.

    PATH is a folder of checkpoints, of a job, of one checkpoint or savepoint, or its metadata file;
    on this machine, or a URI such as s3://bucket/folder.
    """
    from headgate.base.recovery_settings import CheckpointSettings
    from headgate.host.checkpoints.checkpoint_store import find_checkpoints
    from headgate.host.checkpoints.metadata import checkpoint_key

    settings = CheckpointSettings(hmac_secret_file=secret_file or "")
    found = find_checkpoints(path, checkpoint_key(settings))
    sizes = [
        checkpoint.metadata.state_bytes for checkpoint in found if checkpoint.metadata is not None
    ]
    with ProgressLine(sum(sizes), sys.stderr.isatty() and not no_verify) as meter:
        described = [
            describe(checkpoint, deep=not no_verify, on_read=meter.read) for checkpoint in found
        ]
    lines = [line for line in described if line is not None]
    if as_json:
        click.echo(json.dumps({"path": path, "checkpoints": [asdict(line) for line in lines]}))
    elif not lines:
        click.echo(f"there are no checkpoints in {path}", err=True)
    else:
        show(lines)
    return FAILED if any(line.state == DAMAGED for line in lines) else 0


class ProgressLine:
    """One line on the terminal about a check that takes long; it is gone afterwards."""

    def __init__(self, total: int, is_shown: bool) -> None:
        self._total = total
        self._done = 0
        self._next_s = time.monotonic() + _PATIENCE_S if is_shown else float("inf")
        self._was_shown = False

    def read(self, count: int) -> None:
        """So many more bytes are checked."""
        self._done += count
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _PATIENCE_S
            self._was_shown = True
            share = self._done / self._total if self._total else 1.0
            text = f"checked {size_text(self._done)} of {size_text(self._total)} ({share:.0%})"
            self._replace_line(text)

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *trouble: object) -> None:
        if self._was_shown:
            self._replace_line("")

    def _replace_line(self, text: str) -> None:
        click.echo(f"\r\x1b[2K{text}", err=True, nl=False, color=True)


def describe(
    found: "FoundCheckpoint", *, deep: bool, on_read: Callable[[int], None] = lambda count: None
) -> CheckpointLine | None:
    """Read as much of it as is asked for; None: its job dropped it meanwhile.

    Raises StorageUnusable.
    """
    from headgate.host.checkpoints.piece_reader import verify

    metadata = found.metadata
    if metadata is None:
        state = DAMAGED if found.problem else UNFINISHED
        problems = (found.problem,) if found.problem else ()
        return CheckpointLine(found.location.shown, state, found.checkpoint, problems=problems)
    verification = verify(found.location, metadata, deep=deep, on_read=on_read)
    if not verification.is_whole and not found.location.is_complete():
        return None
    whole = WHOLE if deep else FILES_THERE
    return CheckpointLine(
        found.location.shown,
        whole if verification.is_whole else DAMAGED,
        metadata.checkpoint,
        metadata.kind.value,
        metadata.job,
        metadata.name,
        metadata.completed_ms,
        verification.state_bytes,
        verification.files,
        len(metadata.tasks),
        metadata.unaligned,
        verification.problems,
    )


def show(lines: Sequence[CheckpointLine]) -> None:
    """A table for people; what is wrong stands below its line."""
    rows = [_HEADS, *map(_cells, lines)]
    widths = column_widths(rows)
    for row, line in zip(rows, [None, *lines], strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if line is not None:
            cells[_HEADS.index("state")] = click.style(
                cells[_HEADS.index("state")], fg=_COLOURS[line.state]
            )
        click.echo("  ".join(cells).rstrip())
        for problem in line.problems if line else ():
            click.echo(f"    {problem}")


def _cells(line: CheckpointLine) -> tuple[str, ...]:
    return (
        "-" if line.checkpoint is None else str(line.checkpoint),
        line.kind or "-",
        line.job or "-",
        line.name or "-",
        "-" if line.completed_ms is None else time_text(line.completed_ms),
        "-" if line.state_bytes is None else size_text(line.state_bytes),
        "-" if line.tasks is None else str(line.tasks),
        line.state,
        line.path,
    )


def column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Of a table for people."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def time_text(at_ms: int) -> str:
    """A moment for people, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def size_text(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < _KIB:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KIB
    return f"{count:.1f} TiB"
