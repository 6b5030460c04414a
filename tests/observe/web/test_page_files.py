"""What the page's files say, without a browser: what is loaded first, and what none may contain."""

import re
from importlib.resources import files
from pathlib import Path

PAGE = Path(str(files("headgate.observe.web") / "page"))
STATIC_IMPORT = re.compile(r'^(?:import|export) [^"]*?from "(\.[^"]+)"|^import "(\.[^"]+)"', re.M)
NAMESPACE = "http://www.w3.org/2000/svg"


def loaded_by(module: Path) -> set[Path]:
    """All modules that have to be there before this one can run, without itself."""
    found: set[Path] = set()
    waiting = [module]
    while waiting:
        current = waiting.pop()
        for match in STATIC_IMPORT.finditer(current.read_text(encoding="utf-8")):
            imported = (current.parent / (match[1] or match[2])).resolve()
            if imported not in found:
                found.add(imported)
                waiting.append(imported)
    return found


def test_the_browser_is_told_at_once_of_every_module_that_it_needs_first() -> None:
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    preloaded = re.findall(r'rel="modulepreload" href="static/([^"]+)"', index)
    needed = {path.relative_to(PAGE.resolve()).as_posix() for path in loaded_by(PAGE / "main.js")}
    assert sorted(preloaded) == sorted(needed)


def test_no_file_names_another_machine_or_turns_text_into_markup() -> None:
    for path in PAGE.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8").replace(NAMESPACE, "")
            assert not re.search(
                r"https?://|innerHTML|outerHTML|insertAdjacentHTML|eval\(", text
            ), path
            assert path.suffix != ".html" or not re.search(r"\sstyle=|\son\w+=", text), path
