"""``headgate checkpoints PATH``: which checkpoints and savepoints are there, and are they whole?

A line for each: complete ones are read and compared with their checksums, unless told not to; how
far that is shows on a terminal. Exit code 0: nothing is wrong, 1: one is damaged, 2: the path
cannot be read.

``headgate state PATH``: what one of them holds, operator by operator. Operators with their states,
how many keys and bytes each has, and some rows. Everything that is shown is read and counted,
nothing of it is run: values of the user's classes are shown by their parts. Exit code 2: the path
is no checkpoint, or has no such operator or state.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from headgate.base.recovery_settings import CheckpointSettings
from headgate.cli.entry import FAILED
from headgate.cli.jobs import JSON
from headgate.host.checkpoints.checkpoint_store import FoundCheckpoint, find_checkpoints
from headgate.host.checkpoints.metadata import checkpoint_key
from headgate.host.checkpoints.pieces import verify
from headgate.observe.job_view import time_text
from headgate.plan.table import clean, padded

if TYPE_CHECKING:  # it loads pyarrow, which other commands do without
    from headgate.host.saved_state.reader import SavedOperator, SavedState, StateFigures


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
@JSON
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
    head, *rows = padded([_HEADS, *map(_cells, lines)])
    click.echo("  ".join(head).rstrip())
    state = _HEADS.index("state")
    for cells, line in zip(rows, lines, strict=True):
        cells[state] = click.style(cells[state], fg=_COLOURS[line.state])
        click.echo("  ".join(cells).rstrip())
        for problem in line.problems:
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


def size_text(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < _KIB:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KIB
    return f"{count:.1f} TiB"


_WIDEST: Final = 100
"""Characters of a value that are shown to people."""
_PLAIN: Final = (str, int, float, bool, type(None))


@click.command()
@click.argument("path")
@click.option("--uid", default="", help="Only the operator with this uid (or name).")
@click.option("--state", "state_name", default="", help="Only the keyed state of this name.")
@click.option(
    "--limit",
    default=5,
    show_default=True,
    type=click.IntRange(0),
    help="Rows that are shown of each state.",
)
@JSON
@click.option(
    "--load-classes",
    is_flag=True,
    help="Import the classes of values, as a restore does; for checkpoints that you trust.",
)
@click.option(
    "--secret-file",
    metavar="FILE",
    help="Check the signature with the key in this file (…checkpointing.hmac.secret-file).",
)
def state(
    path: str,
    uid: str,
    state_name: str,
    limit: int,
    as_json: bool,
    load_classes: bool,
    secret_file: str | None,
) -> None:
    """Show the operators, states and rows of the checkpoint or savepoint at PATH.

    PATH is the folder of one checkpoint or savepoint, or its metadata file; on this machine, or a
    URI such as s3://bucket/folder.
    """
    from headgate.host.saved_state.reader import open_state

    saved = open_state(path, loads_classes=load_classes, secret_file=secret_file or "")
    if uid or state_name:
        operators = [saved.operator(uid, state_name)]
    else:
        operators = [operator for operator in saved.operators if operator.has_state]
    shown = [_operator_fields(operator, state_name, limit) for operator in operators]
    if as_json:
        click.echo(
            json.dumps(_saved_fields(saved) | {"operators": shown, "unloaded": saved.unloaded})
        )
    else:
        _print_saved(saved, shown)


def _saved_fields(saved: "SavedState") -> dict[str, Any]:
    metadata = saved.metadata
    return {
        "path": saved.path,
        "kind": metadata.kind.value,
        "checkpoint": metadata.checkpoint,
        "job": metadata.job,
        "name": metadata.name,
        "completed_ms": metadata.completed_ms,
        "state_bytes": metadata.state_bytes,
    }


def _operator_fields(operator: "SavedOperator", state_name: str, limit: int) -> dict[str, Any]:
    figures = operator.figures(limit) if operator.is_keyed else []
    if state_name:
        names = [each.name for each in figures]
        if state_name not in names:
            raise operator.unknown_state(state_name, names)
        figures = [each for each in figures if each.name == state_name]
    key_type, shown = operator.key_type, 0 if state_name else limit
    return {
        "uid": operator.uid,
        "name": operator.name,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "state_bytes": operator.size_bytes,
        "key_type": None if key_type is None else str(key_type),
        "states": list(map(_state_fields, figures)),
        "operator_state": list(map(_named, islice(operator.operator_state(), shown))),
    }


def _state_fields(figures: "StateFigures") -> dict[str, Any]:
    return {
        "name": figures.name,
        "kind": figures.kind,
        "scope": figures.scope,
        "types": [None if kind is None else str(kind) for kind in figures.types],
        "keys": figures.keys,
        "entries": figures.entries,
        "state_bytes": round(figures.size_bytes),
        "rows": [_named(row) for row in figures.rows],
    }


def _named(row: Any) -> dict[str, Any]:
    """The fields of a row that say something; what JSON does not know as text."""
    found = row._asdict().items()
    return {name: _plain(value) for name, value in found if value is not None and value != ""}


def _plain(value: Any) -> Any:
    from headgate.host.saved_state.loading import shown

    if type(value) in _PLAIN:
        return value
    if type(value) is list:
        return list(map(_plain, value))
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _plain(held) for key, held in value.items()}
    return shown(value)


def _print_saved(saved: "SavedState", operators: list[dict[str, Any]]) -> None:
    about = _saved_fields(saved)
    click.echo(
        f"{about['kind']} {about['checkpoint']} of job {about['name']!r} ({clean(about['job'])}), "
        f"{time_text(about['completed_ms'])}, {size_text(about['state_bytes'])}"
    )
    if not operators:
        click.echo("no operator has state")
    for operator in operators:
        click.echo("")
        _print_operator(operator)
    if saved.unloaded:
        names = clean(", ".join(saved.unloaded[:5]))
        click.echo(
            f"\nvalues of {names} are shown by their parts, because their classes are not loaded; "
            f"for a checkpoint that you trust give --load-classes",
            err=True,
        )


def _print_operator(operator: dict[str, Any]) -> None:
    tasks = f"{operator['parallelism']} task{'s'[: operator['parallelism'] != 1]}"
    keys = f", keys {operator['key_type']}" if operator["key_type"] else ""
    click.echo(
        click.style(clean(operator["uid"]), bold=True)
        + f"  {clean(operator['name'])}, {tasks}, {operator['max_parallelism']} key groups{keys}, "
        + size_text(operator["state_bytes"])
    )
    if operator["states"]:
        head = ("state", "kind", "types", "keys", "entries", "size")
        rows = padded([head, *map(_state_cells, operator["states"])])
        for cells, shown in zip(rows, [{"rows": []}, *operator["states"]], strict=True):
            click.echo(f"  {'  '.join(cells)}".rstrip())
            _print_rows(shown["rows"])
    if operator["operator_state"]:
        click.echo("  without keys")
        _print_rows(operator["operator_state"])


def _state_cells(state_: dict[str, Any]) -> tuple[str, ...]:
    scope = "" if state_["scope"] == "keyed" else f" {state_['scope']}"
    types = ", ".join(kind or "-" for kind in state_["types"]) or "-"
    counts = (str(state_["keys"]), str(state_["entries"]), size_text(state_["state_bytes"]))
    return (clean(state_["name"]), clean(state_["kind"]) + scope, types, *counts)


def _print_rows(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        click.echo(f"      {'  '.join(_row_fields(row))}")


def _row_fields(row: dict[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        text = clean(str(value))
        yield f"{name}={text if len(text) <= _WIDEST else f'{text[:_WIDEST]}…'}"
