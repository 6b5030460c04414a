"""How results are shown: one JSON object for machines, a table for people."""

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table


def show(title: str, result: dict[str, Any], meanings: dict[str, str], as_json: bool) -> None:
    """Print a result; the table shows the figures that ``meanings`` explains, in its order."""
    if as_json:
        click.echo(json.dumps(result))
        return
    table = Table(title=title, title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    for key, meaning in meanings.items():
        table.add_row(key, _text(result[key]), meaning)
    Console().print(table)


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)
