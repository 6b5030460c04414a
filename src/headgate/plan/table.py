"""Text for people: plain tables, single lines, short and escaped texts."""

import re
import unicodedata
from collections.abc import Sequence
from html import escape
from typing import Final

_ILLEGAL_IN_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML may hold, not even escaped."""


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under their headings, each as wide as its widest cell; ends with a newline."""
    return "".join("  ".join(cells).rstrip() + "\n" for cells in padded([head, *rows]))


def padded(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The cells of a table, each as wide as the widest of its column."""
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    return [
        [cell + " " * (width - width_of(cell)) for cell, width in zip(row, widths, strict=True)]
        for row in rows
    ]


def width_of(text: str) -> int:
    """How many columns a terminal gives it: two for wide letters, none for accents on others."""
    return sum(
        0
        if unicodedata.combining(letter)
        else 2
        if unicodedata.east_asian_width(letter) in "WF"
        else 1
        for letter in text
    )


def clean(text: str) -> str:
    """In one line, without letters that would move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def cut(text: str, most: int) -> str:
    """At most so many characters; an ellipsis stands for what is missing."""
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"


def xml_text(text: str) -> str:
    """Escaped for XML and HTML."""
    return escape(_ILLEGAL_IN_XML.sub("\ufffd", text))
