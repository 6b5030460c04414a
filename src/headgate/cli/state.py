"""``headgate state PATH``: what a checkpoint or savepoint holds, operator by operator.

Operators with their states, how many keys and bytes each has, and some rows. Everything that is
shown is read and counted, nothing of it is run: values of the user's classes are shown by their
parts. Exit code 2: the path is no checkpoint, or has no such operator or state.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from headgate.cli.checkpoints import column_widths, size_text, time_text
from headgate.plan.table import clean

if TYPE_CHECKING:  # it loads pyarrow, which other commands do without
    from headgate.host.saved_state.reader import SavedOperator, SavedState, StateFigures

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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
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
    shown = [_operator(operator, state_name, limit) for operator in operators]
    if as_json:
        click.echo(json.dumps(_saved(saved) | {"operators": shown, "unloaded": saved.unloaded}))
    else:
        _print(saved, shown)


def _saved(saved: "SavedState") -> dict[str, Any]:
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


def _operator(operator: "SavedOperator", state_name: str, limit: int) -> dict[str, Any]:
    figures = operator.figures(limit) if operator.is_keyed else []
    if state_name:
        names = [each.name for each in figures]
        if state_name not in names:
            raise operator.unknown_state(state_name, names)
        figures = [each for each in figures if each.name == state_name]
    key_type = operator.key_type
    return {
        "uid": operator.uid,
        "name": operator.name,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "state_bytes": operator.size_bytes,
        "key_type": None if key_type is None else str(key_type),
        "states": list(map(_state, figures)),
        "operator_state": [] if state_name else _operator_rows(operator, limit),
    }


def _state(figures: "StateFigures") -> dict[str, Any]:
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


def _operator_rows(operator: "SavedOperator", limit: int) -> list[dict[str, Any]]:
    return [_named(row) for row in islice(operator.operator_state(), limit)]


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


def _print(saved: "SavedState", operators: list[dict[str, Any]]) -> None:
    about = _saved(saved)
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
        cells = [head, *map(_cells, operator["states"])]
        widths = column_widths(cells)
        for row, shown in zip(cells, [{"rows": []}, *operator["states"]], strict=True):
            padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            click.echo(f"  {'  '.join(padded)}".rstrip())
            _print_rows(shown["rows"])
    if operator["operator_state"]:
        click.echo("  without keys")
        _print_rows(operator["operator_state"])


def _cells(state_: dict[str, Any]) -> tuple[str, ...]:
    scope = "" if state_["scope"] == "keyed" else f" {state_['scope']}"
    types = ", ".join(kind or "-" for kind in state_["types"]) or "-"
    counts = (str(state_["keys"]), str(state_["entries"]), size_text(state_["state_bytes"]))
    return (clean(state_["name"]), clean(state_["kind"]) + scope, types, *counts)


def _print_rows(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        click.echo(f"      {'  '.join(_fields(row))}")


def _fields(row: dict[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        text = clean(str(value))
        yield f"{name}={text if len(text) <= _WIDEST else f'{text[:_WIDEST]}…'}"
