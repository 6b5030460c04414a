"""Make the site of the documents in build/site: python docs/make_site.py [folder]

Pages are gathered from `docs`, from the root and from the names that the packages for users export;
their links are rewritten; MkDocs builds the rest, strictly: a link or an anchor that leads nowhere
ends it. The tool can be exchanged: it gets a folder of plain Markdown.
"""

import ast
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MOVED = {
    "README.md": "index.md",
    "docs/README.md": "documents.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Where pages are in the site whose place in it is not that below ``docs``."""
SHOWN = ("*.md", "*.png", "*.svg")
CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\[\]]*)\]\(([^)\s]+)\)")

EXPORTING = (
    "headgate",
    "headgate.datastream.connectors",
    "headgate.datastream.connectors.file_system",
    "headgate.datastream.connectors.kafka",
    "headgate.datastream.state",
    "headgate.datastream.async_retry_predicates",
    "headgate.datastream.formats.json",
    "headgate.common.serialization",
    "headgate.metrics",
    "headgate.state",
    "headgate.testing",
)
"""Packages that users import from. A name is told once, under the first of them."""
REFERENCE = {
    "Streams": ("api",),
    "Functions": ("functions", "metrics"),
    "Time and windows": (
        *("base.elements", "functions.time", "functions.watermarks", "functions.window"),
        *("functions.window_functions", "functions.assigners", "functions.triggers"),
        "functions.evictors",
    ),
    "State": ("functions.state", "host.saved_state"),
    "Types and rows": ("api.types", "api.row"),
    "Sources and sinks": ("functions.source", "functions.sink", "connectors"),
    "Settings": ("api.settings", "api.operator_settings"),
    "Errors": ("base.errors",),
    "Testing": ("testing",),
}
"""Pages of the reference, by the modules that define the names; the longest prefix counts."""


def make_site(build: Path) -> int:
    """The site is in ``build/site``; returns the exit code of MkDocs."""
    gather_pages(build)
    code = run_mkdocs(build, [{"Home": "index.md"}, *navigation()])
    for page in (build / "site/api").rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        # Docstrings announce code by two colons on a line of their own.
        page.write_text(html.replace("<p>::</p>\n", ""), encoding="utf-8")
    return code


def gather_pages(build: Path) -> None:
    shutil.rmtree(build / "pages", ignore_errors=True)
    sources = [path for pattern in SHOWN for path in (ROOT / "docs").rglob(pattern)]
    for source in [*sources, *(ROOT / place for place in MOVED)]:
        place = source.relative_to(ROOT).as_posix()
        write(build / "pages" / in_site(place), source, place)
    (build / "pages/api").mkdir()
    for title, content in reference().items():
        (build / "pages/api" / f"{slug(title)}.md").write_text(content, encoding="utf-8")


def run_mkdocs(build: Path, pages: list[dict[str, Any]]) -> int:
    settings = (ROOT / "docs/site.yml").read_text(encoding="utf-8")
    # JSON is YAML.
    (build / "site.yml").write_text(f"{settings}\nnav: {json.dumps(pages)}\n", encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file"]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run([*command, build / "site.yml"], env=environ, check=False).returncode


def write(target: Path, source: Path, place: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".md":
        text = source.read_text(encoding="utf-8")
        target.write_text(with_links_of_the_site(text, place), encoding="utf-8")
    else:
        shutil.copyfile(source, target)


def with_links_of_the_site(text: str, place: str) -> str:
    """Links to files of the repository that are not in the site become plain text."""

    def moved(link: re.Match[str]) -> str:
        path, sharp, name = link[2].partition("#")
        if not path or "://" in path:
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
        if target not in MOVED and not target.startswith("docs/"):
            return link[1]
        there = posixpath.relpath(in_site(target), posixpath.dirname(in_site(place)))
        return f"[{link[1]}]({there}{sharp}{name})"

    parts = CODE.split(text)
    return "".join(part if odd % 2 else LINK.sub(moved, part) for odd, part in enumerate(parts))


def in_site(place: str) -> str:
    """Where a file of the repository is in the site."""
    return MOVED.get(place) or place.removeprefix("docs/")


def slug(title: str) -> str:
    return title.lower().replace(" ", "-")


def navigation() -> Iterator[dict[str, list[Any]]]:
    """The sections of the table of contents; recipes and decisions as their own pages list them."""
    contents = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    for section in contents.split("\n## ")[1:]:
        title = section.partition("\n")[0]
        pages: list[Any] = [{"All documents": "documents.md"}] if title == "Learn" else []
        for name, place in rows(section, "docs"):
            if posixpath.basename(place) != "README.md":
                pages.append({name: in_site(place)})
                continue
            listed = rows((ROOT / place).read_text(encoding="utf-8"), posixpath.dirname(place))
            known = {place: name} | {page: _title(page) for _, page in listed}
            folder = [each for each in known if is_below(each, posixpath.dirname(place))]
            pages.append({name: [{known[each]: in_site(each)} for each in folder]})
        if title == "Look up":
            pages.append({"Reference": [{title: f"api/{slug(title)}.md"} for title in REFERENCE]})
        yield {title: pages}


def is_below(place: str, folder: str) -> bool:
    return posixpath.dirname(place) == folder


def _title(place: str) -> str:
    return (ROOT / place).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def rows(text: str, folder: str) -> list[tuple[str, str]]:
    """Titles and paths of the pages that the first column of a table links."""
    found = re.findall(r"^\| \[([^\]]+)\]\(([^)#]+)\)", text, flags=re.MULTILINE)
    return [(title, posixpath.normpath(f"{folder}/{path}")) for title, path in found]


def reference() -> dict[str, str]:
    """The pages of the reference: names by the package that users import them from."""
    names: dict[str, dict[str, list[str]]] = {title: {} for title in REFERENCE}
    told: set[str] = set()
    for package in EXPORTING:
        for module, name in sorted(exported(package), key=lambda pair: pair[1].lower()):
            if f"{module}.{name}" not in told:
                told.add(f"{module}.{name}")
                names[page_of(module)].setdefault(package, []).append(f"{module}.{name}")
    return {title: "\n\n".join(page(title, names[title])) for title in REFERENCE}


def page(title: str, names: dict[str, list[str]]) -> Iterator[str]:
    yield f"# {title}"
    for package, paths in names.items():
        yield f"## From `{package}`"
        yield from (f"::: {path}" for path in paths)


def page_of(module: str) -> str:
    """Empty: nobody looks there for what it defines."""
    by_prefix = {prefix: title for title, prefixes in REFERENCE.items() for prefix in prefixes}
    fitting = [it for it in by_prefix if f"{module}.".startswith(f"headgate.{it}.")]
    return by_prefix[max(fitting, key=len)] if fitting else ""


def exported(package: str) -> Iterator[tuple[str, str]]:
    """What a package re-exports: the module that it takes a name from, and the name."""
    base = ROOT / "src" / package.replace(".", "/")
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and page_of(node.module):
            yield from ((node.module, each.name) for each in node.names if each.name in names)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build"
    sys.exit(make_site(folder.resolve()))
