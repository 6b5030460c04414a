"""Pages of the documents whose code runs: their blocks, what they print, and a check of a page.

A page's blocks run in order, as one program. A block of text is what the block before it prints;
lines are compared without their order, because tasks run side by side.
"""

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Shown:
    """A block of code with its line on the page, and what it is said to print."""

    line: int
    code: str
    output: str = ""


def check_page(program: ModuleType, page: str) -> None:
    for shown in blocks_of((ROOT / page).read_text(encoding="utf-8")):
        check_block(program, shown, page)


def check_block(program: ModuleType, shown: Shown, page: str) -> None:
    printed = run(program, shown, page)
    where = f"{page}:{shown.line} prints\n{printed}"
    assert sorted(printed.splitlines()) == sorted(shown.output.splitlines()), where


def blocks_of(text: str) -> Iterator[Shown]:
    """Blocks of code, each with the text after it."""
    present: Shown | None = None
    for found in BLOCK.finditer(text):
        if found[1] == "text":
            assert present is not None, f"output without code: {found[2]}"
            present.output = found[2]
            continue
        if present is not None:
            yield present
        present = Shown(text.count("\n", 0, found.start(2)) + 1, found[2])
    if present is not None:
        yield present


def run(program: ModuleType, shown: Shown, page: str) -> str:
    """What a block prints; errors name the line on the page."""
    code = compile("\n" * (shown.line - 1) + shown.code, page, "exec")
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, program.__dict__)
    return printed.getvalue()
