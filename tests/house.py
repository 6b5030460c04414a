"""The house rules that linters miss, as functions from a file to its findings.

A finding reads `path:line: what is wrong; what to do`. `test_house.py` runs the rules over
the tree, and over planted breaches to show that each rule can fail.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FILE_LINES = 600
FUNCTION_LINES = 50
DOCSTRING_LINES = 12

PURE_ROOMS = ("api", "base", "control", "core", "plan")
BANNED_WORDS = ("utils", "common", "manager", "impl")
FACADES = ("src/headgate/common/__init__.py",)  # named after the PyFlink package it stands for
BANNED_CALLS = {
    "hash": "it differs from process to process; use a stable hash",
    "id": "it differs from run to run; give the thing an id of its own",
    "open": "a machine touches no file; return an effect and let host carry it out",
    "print": "a machine does not speak; expose statistics() and let host log",
}
CLOCK_READS = ("now", "today", "utcnow")

# Split, so that this file does not break the rules it states.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("anaconda", "org"),
        ("npmjs", "org"),
        ("maven", "org"),
        ("maven", "apache", "org"),
    )
)
_MACHINE_PATH = re.compile(r"(?:(?<![\w.~$})\]/-])|(?<=//))/(?:work|root|home|Users)\b")
_BARE_TODO = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME)\b(?!\s*\(?#\d+)")
_PIN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*==[0-9]+(\.[0-9]+)*((a|b|rc|\.post)[0-9]+)?")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True)
class Source:
    """One file of the project: its path from the root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def room(self) -> str:
        """The folder below src/headgate, or nothing."""
        parts = Path(self.path).parts
        return parts[2] if parts[:2] == ("src", "headgate") and len(parts) > 3 else ""

    @property
    def is_package(self) -> bool:
        return Path(self.path).name == "__init__.py"

    def finding(self, line: int, text: str) -> str:
        return f"{self.path}:{line}: {text}"


def lengths(source: Source) -> Iterator[str]:
    lines = len(source.text.splitlines())
    if lines > FILE_LINES:
        yield source.finding(lines, f"{lines} lines; split the file, {FILE_LINES} is the limit")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = _last_line(node) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield source.finding(
                    node.lineno,
                    f"{node.name} has {lines} lines; split it, {FUNCTION_LINES} is the limit",
                )


def module_docstring(source: Source) -> Iterator[str]:
    if source.is_package and not source.text.strip():
        return
    text = ast.get_docstring(source.tree)
    if not text:
        yield source.finding(1, "no module docstring; say purpose, law and caller")
    elif len(text.splitlines()) > DOCSTRING_LINES and not _opens_with_the_error_tree(source):
        yield source.finding(
            1, f"a docstring of {len(text.splitlines())} lines; {DOCSTRING_LINES} is the limit"
        )


def banned_names(source: Source) -> Iterator[str]:
    path = Path(source.path)
    name = path.parent.name if source.is_package else path.stem
    named = [] if source.path in FACADES else [(1, name)]
    named += [(n.lineno, n.name) for n in ast.walk(source.tree) if isinstance(n, ast.ClassDef)]
    for line, name in named:
        # "Task manager" is a word of the glossary: one worker process. The other is PyFlink's.
        plain = name.replace("TaskManager", "").replace("task_manager", "")
        words = _WORD.findall(plain.replace("JobManagerCheckpointStorage", ""))
        for word in words:
            if word.lower() in BANNED_WORDS:
                yield source.finding(line, f"{name} says {word!r}; name what it does instead")


def purity(source: Source) -> Iterator[str]:
    """Calls and loops that make a machine, or what it is told, differ from run to run."""
    if source.room not in PURE_ROOMS:
        return
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in BANNED_CALLS:
                yield source.finding(node.lineno, f"{name}() is called; {BANNED_CALLS[name]}")
            case ast.Attribute(attr=attr, value=value) if attr in CLOCK_READS and (
                _last_name(value) in ("date", "datetime")
            ):
                yield source.finding(node.lineno, f"{attr} reads a clock; take now_ms instead")
            case ast.For(iter=walked) | ast.comprehension(iter=walked) if _is_set(walked):
                yield source.finding(
                    walked.lineno, "iterates over a set; sort it, or keep a dict or a list"
                )


def no_any(source: Source) -> Iterator[str]:
    """A user's value is a Record; everything else in core and control has a type."""
    if source.room in ("control", "core"):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Name | ast.Attribute) and _last_name(node) == "Any":
                yield source.finding(
                    node.lineno, "Any; name the type, or Record for a user's value"
                )


def docstrings(source: Source) -> Iterator[str]:
    """Public classes and functions of core say what they are for."""
    if source.room != "core":
        return
    for node in source.tree.body:
        if (
            isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
        ):
            yield source.finding(
                node.lineno, f"{node.name} has no docstring; say what it is for and its law"
            )


def twin(source: Source, paths: set[str]) -> Iterator[str]:
    """Every module of core has a test module at the mirrored path."""
    if source.room != "core" or source.is_package:
        return
    path = Path(source.path)
    expected = Path("tests", *path.parts[2:-1], f"test_{path.name}").as_posix()
    if expected not in paths:
        yield source.finding(1, f"has no test module; write {expected}")


def doors(source: Source, paths: set[str]) -> Iterator[str]:
    """A folder without `__init__.py` is invisible to the import contract."""
    door = Path(source.path).with_name("__init__.py").as_posix()
    if door not in paths:
        yield source.finding(1, f"its folder is no package; add {door} with a docstring")


def todos(source: Source) -> Iterator[str]:
    for line, text in enumerate(source.text.splitlines(), 1):
        if _BARE_TODO.search(text):
            yield source.finding(line, "a note without an issue; write it as (#number), or do it")


def machine_traces(source: Source) -> Iterator[str]:
    """Paths of one machine and hosts of package registries stay out of the project."""
    for line, text in enumerate(source.text.splitlines(), 1):
        if found := _MACHINE_PATH.search(text):
            yield source.finding(line, f"{found[0]!r} is a path of one machine; make it relative")
        for host in REGISTRY_HOSTS:
            if host in text.lower():
                yield source.finding(line, f"names {host}; leave the registry to the installer")


def pins(source: Source) -> Iterator[str]:
    for line, text in enumerate(source.text.splitlines(), 1):
        if not _PIN.fullmatch(text):
            yield source.finding(line, f"{text!r} is no pin; write name==version and nothing else")


def contract_covers(source: Source, rooms: set[str]) -> Iterator[str]:
    """A room that exists is forbidden by its own name; `room.**` would leave out its door."""
    for line, text in enumerate(source.text.splitlines(), 1):
        for room in re.findall(r'"headgate\.(\w+)\.\*\*"', text):
            if room in rooms:
                yield source.finding(line, f"{room} exists now; write headgate.{room} without .**")


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _opens_with_the_error_tree(source: Source) -> bool:
    return source.path in ("src/headgate/base/errors.py", "src/headgate/base/job_errors.py")


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_set(node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
    return False
