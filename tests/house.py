"""The house rules that linters miss, as functions from a file or the whole tree to findings.

A finding reads `path:line: what is wrong; what to do`. `test_house.py` runs the rules over
the tree, and over planted breaches to show that each rule can fail. Rules of the whole tree
have debts, in `house_debts.py`: breaches from before the rule. List all findings of these
rules, debts included, with

    python -m tests.house [path prefix ...]
"""

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent
UNTRACKED = {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}

DOCSTRING_LINES = 12
SMALL_MODULE_LINES = 60

CODE = ("src/", "benchmarks/")
PURE_ROOMS = ("api", "base", "control", "core", "functions", "plan")
FACADE_ROOMS = ("common", "datastream", "metrics", "state")
BANNED_WORDS = ("utils", "common", "manager", "impl")
FACADE_MODULES = ("src/headgate/__init__.py", "src/headgate/testing/__init__.py")
FACADES = ("src/headgate/common/__init__.py",)  # named after the PyFlink package it stands for
# Names that are used, though no line of the code, of the examples or the documents mentions them.
ALLOWED_UNUSED = {
    "access_log": "Uvicorn reads it",
    "build_part": "Bytewax calls it",
    "list_parts": "Bytewax calls it",
    "next_batch": "Bytewax calls it",
    "notify_at": "Bytewax calls it",
    "on_eof": "Bytewax calls it",
    "on_item": "Bytewax calls it",
    "on_notify": "Bytewax calls it",
    "emit": "logging calls that of a handler",
    "headgate_harness": "a fixture of pytest",
    "headgate_run_local": "a fixture of pytest",
    "headgate_simulate": "a fixture of pytest",
    "pause_writing": "asyncio calls it",
    "pytest_addoption": "pytest calls it",
    "pytest_configure": "pytest calls it",
    "pytest_runtest_makereport": "pytest calls it",
    "resume_writing": "asyncio calls it",
    "today": "of the datetime that programs under test meet",
    "utcnow": "of the datetime that programs under test meet",
    "open_now": "laws of random runs (tests/sim) look whether spills are left",
    "_render_traceback_": "notebooks call it",
    "_repr_html_": "notebooks call it",
    "_repr_svg_": "notebooks call it",
    "broadcast_state_descriptors": "PyFlink's BroadcastStream has it",
    "connection_lost": "asyncio calls it",
    "connection_made": "asyncio calls it",
    "data_received": "asyncio calls it",
    "find_class": "pickle calls it",
    "initialOffset": "Spark calls it",
    "latestOffset": "Spark calls it",
    "streamReader": "Spark calls it",
    "streamWriter": "Spark calls it",
    "get_delay_between_attempts_interval": "of a strategy that RestartStrategies makes",
    "get_failure_interval": "of a strategy that RestartStrategies makes",
    "get_max_failure_rate": "of a strategy that RestartStrategies makes",
    "get_restart_attempts": "of a strategy that RestartStrategies makes",
    "main_loop": "Uvicorn calls it",
    "maxfrozenset": "reprlib reads it",
    "maxlevel": "reprlib reads it",
    "maxlist": "reprlib reads it",
    "maxlong": "reprlib reads it",
    "maxother": "reprlib reads it",
    "maxset": "reprlib reads it",
    "maxstring": "reprlib reads it",
    "maxtuple": "reprlib reads it",
    "on_response_complete": "Uvicorn calls it",
    "reducer_override": "pickle calls it",
    "repr1": "reprlib calls it",
    "should_exit": "Uvicorn reads it",
}
# Modules below the limit that one other imports, and why they stay apart.
ALLOWED_BASES = {
    "BroadcastState": "what can be read and what can be written, as PyFlink declares them",
    "HeldBroadcast": "the store's view of it, and the public class that users are handed",
}
ALLOWED_SMALL = {
    "headgate.cli.entry": "pyproject.toml names it",
    "headgate.cli.commands": "entry loads it when it can end with one line at a signal",
}
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
_VAGUE_NAME = re.compile(r"\b_*(?:one|told)_*\b")
_TEST_IMPORT = re.compile(r"^\s*(?:from|import)\b.*\btest_", re.MULTILINE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True)
class Source:
    """One file of the project: its path from the root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @property
    def room(self) -> str:
        """The folder below src/headgate, or nothing."""
        parts = Path(self.path).parts
        return parts[2] if parts[:2] == ("src", "headgate") and len(parts) > 3 else ""

    @property
    def is_package(self) -> bool:
        return Path(self.path).name == "__init__.py"

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    def finding(self, line: int, text: str) -> str:
        return f"{self.path}:{line}: {text}"


def module_docstring(source: Source) -> Iterator[str]:
    if source.is_package and not source.text.strip():
        return
    text = ast.get_docstring(source.tree)
    if not text:
        yield source.finding(1, "no module docstring; say purpose, law and caller")
    elif len(text.splitlines()) > DOCSTRING_LINES and not _holds_the_error_tree(source):
        yield source.finding(
            1, f"a docstring of {len(text.splitlines())} lines; {DOCSTRING_LINES} is the limit"
        )


def banned_names(source: Source) -> Iterator[str]:
    path = Path(source.path)
    name = path.parent.name if source.is_package else path.stem
    named = [] if source.path in FACADES else [(1, name)]
    named += [(n.lineno, n.name) for n in source.nodes if isinstance(n, ast.ClassDef)]
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
    for node in source.nodes:
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
        for node in source.nodes:
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


# Rules of the whole tree.

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Finding:
    """A breach of a rule that has debts; `key` names it in `house_debts.py`."""

    key: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Tree:
    """The files of the project that the rules below look at together."""

    files: tuple[Source, ...]

    @cached_property
    def code(self) -> tuple[Source, ...]:
        """The product and its benchmarks."""
        return tuple(f for f in self.files if f.path.startswith(CODE) and f.is_python)

    @cached_property
    def tests(self) -> tuple[Source, ...]:
        return tuple(f for f in self.files if f.path.startswith("tests/") and f.is_python)

    @cached_property
    def programs(self) -> tuple[Source, ...]:
        """What users read and run: examples, and the code in documents."""
        files = [f for f in self.files if f.path.startswith(("docs/", "examples/")) and f.is_python]
        files += [
            Source(f.path, text)
            for f in self.files
            if f.path.endswith(".md")
            for text in re.findall(r"^```python\n(.*?)^```", f.text, re.MULTILINE | re.DOTALL)
        ]
        return tuple(files)

    @cached_property
    def classes(self) -> dict[str, list[ast.ClassDef]]:
        found: dict[str, list[ast.ClassDef]] = defaultdict(list)
        for source in self.code:
            for node in source.nodes:
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(node)
        return found

    def ancestors(self, name: str) -> set[str]:
        """The class itself and its bases, by name; bases from outside among them."""
        found: set[str] = set()
        names = [name]
        while names:
            name = names.pop()
            if name not in found:
                found.add(name)
                names += [base for node in self.classes.get(name, ()) for base in _bases(node)]
        return found


TreeRule = Callable[[Tree], Iterator[Finding]]


def unique_classes(tree: Tree) -> Iterator[Finding]:
    """A public class name stands for one class, in all rooms but the simulator."""
    places: dict[str, list[tuple[Source, ast.ClassDef]]] = defaultdict(list)
    for source in tree.code:
        if source.room != "sim":
            for node in source.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append((source, node))
    for name, found in sorted(places.items()):
        for source, node in found if len(found) > 1 else ():
            others = ", ".join(f.path for f, n in found if n is not node)
            text = f"class {name} is also in {others}; give each a name of its own"
            yield Finding(name, source.finding(node.lineno, text))


def vague_names(tree: Tree) -> Iterator[Finding]:
    """No variable, argument, attribute, function or class is called `one` or `told`."""
    for source in (*tree.code, *tree.tests):
        if not _VAGUE_NAME.search(source.text):
            continue  # not worth parsing
        for line, name in _bindings(source.nodes):
            if _VAGUE_NAME.fullmatch(name):
                text = f"{name} does not say what it is; name the thing or what it does"
                yield Finding(Path(source.path).parts[0], source.finding(line, text))


def used(tree: Tree) -> Iterator[Finding]:
    """What src defines is used by src, by the examples and documents, or is public API.

    What benchmarks define is used by them; what only they use has to leave src, as for tests.
    """
    src = [source for source in tree.code if source.path.startswith("src/")]
    benchmarks = [source for source in tree.code if source not in src]
    yield from _unused(tree, src, (*src, *tree.programs))
    yield from _unused(tree, benchmarks, tree.code)


def _unused(tree: Tree, defined: Sequence[Source], users: Iterable[Source]) -> Iterator[Finding]:
    """By name, as vulture does: any mention of the identifier outside of definitions of that
    name counts, unless it stands inside something that is itself unused. Visitors of syntax trees
    are called by the name of the node, as ``visit_Name``; handlers by the table that their
    decorator enters them into, as ``@ENDPOINTS.get(…)``.
    """
    public = _public_names(tree) | _registered_names(defined)
    definitions = [
        (source, line, name)
        for source in defined
        for line, name in (*_definitions(source.tree), *_attributes(source.nodes))
    ]
    mentions: dict[str, set[frozenset[str]]] = defaultdict(set)
    for source in users:
        for name, inside in _mentions(source.tree, frozenset()):
            mentions[name].add(inside)
    unused: set[str] = set()
    while True:
        found = {
            name
            for _, _, name in definitions
            if name not in public
            and not name.startswith("visit_")
            and not any(name not in i and not i & unused for i in mentions[name])
        }
        if found == unused:
            break
        unused = found
    for source, line, name in definitions:
        if name in unused:
            text = f"{name} is used by tests at most; delete it, or move it to a kit of the tests"
            yield Finding(name, source.finding(line, text))


def class_changes(tree: Tree) -> Iterator[Finding]:
    for source in tree.code:
        for node in source.nodes:
            match node:
                case ast.Attribute(attr="__class__", ctx=ast.Store()):
                    text = "assigns __class__; make the right object, or compose"
                    yield Finding("src", source.finding(node.lineno, text))


def several_bases(tree: Tree) -> Iterator[Finding]:
    """At most one base of a class brings code along; others are protocols or declarations."""
    for source in tree.code:
        for node in source.nodes:
            if not isinstance(node, ast.ClassDef) or len(node.bases) < 2:
                continue
            if node.name in ALLOWED_BASES:
                continue
            if any(a in ("BaseException", "Exception") for a in tree.ancestors(node.name)):
                continue
            coded = [base for base in _bases(node) if _brings_code(tree, base)]
            if len(coded) > 1:
                text = f"{node.name} inherits code from {', '.join(coded)}; compose instead"
                yield Finding(node.name, source.finding(node.lineno, text))


def small_modules(tree: Tree) -> Iterator[Finding]:
    """A module that only one other imports has a thought of its own: not a few lines."""
    modules = {_module(source.path): source for source in tree.code}
    importers: dict[str, set[str]] = defaultdict(set)
    for source in tree.code:
        for module in _imports(source.nodes):
            if module in modules:
                importers[module].add(source.path)
    for module, source in sorted(modules.items()):
        lines = len(source.text.splitlines())
        if (
            lines < SMALL_MODULE_LINES
            and len(importers[module]) == 1
            and not source.is_package
            and module not in ALLOWED_SMALL
            and source.room not in FACADE_ROOMS
        ):
            (importer,) = importers[module]
            if {*Path(importer).parts[2:3]} & {*FACADE_ROOMS, "__init__.py"}:
                continue  # a facade cannot take it in
            text = f"{lines} lines that only {importer} imports; merge them"
            yield Finding("src", source.finding(1, text))


def helpers_in_kits(tree: Tree) -> Iterator[Finding]:
    """What tests share lives in kits: a module of tests is imported by nobody."""
    for source in tree.tests:
        if not _TEST_IMPORT.search(source.text):
            continue  # not worth parsing
        for node in source.nodes:
            match node:
                case ast.ImportFrom(module=str(module)):
                    names = [module, *(f"{module}.{a.name}" for a in node.names)]
                case ast.Import():
                    names = [a.name for a in node.names]
                case _:
                    continue
            found = [n for n in names if n.rpartition(".")[2].startswith("test_")]
            if found and names[0].startswith("tests."):
                text = f"imports from {found[0]}; move what both use to a kit"
                yield Finding("tests", source.finding(node.lineno, text))


TREE_RULES: tuple[TreeRule, ...] = (
    unique_classes,
    vague_names,
    used,
    class_changes,
    several_bases,
    small_modules,
    helpers_in_kits,
)


def unpaid(findings: Iterable[Finding], debts: set[str] | dict[str, int]) -> list[str]:
    """What no debt covers; debts are the known keys, or how many findings a key may have."""
    found = list(findings)
    if isinstance(debts, set):
        return [str(finding) for finding in found if finding.key not in debts]
    return [
        f"{key}: {count} findings, {debts.get(key, 0)} of them known; list: python -m tests.house"
        for key, count in sorted(Counter(finding.key for finding in found).items())
        if count > debts.get(key, 0)
    ]


def paid(findings: Iterable[Finding], debts: set[str] | dict[str, int]) -> list[str]:
    """Debts to strike off: what is not found at all any more."""
    if isinstance(debts, dict):
        return sorted(debts.keys() - {finding.key for finding in findings})
    return [] if any(True for _ in findings) else sorted(debts)


def project_files() -> list[str]:
    """What is tracked or about to be; in a tree without git, everything but caches."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode == 0:
        paths = [path for path in listing.stdout.split("\0") if path]
    else:
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        paths = [path.as_posix() for path in found if not UNTRACKED & {*path.parts}]
    return sorted(path for path in set(paths) if (ROOT / path).is_file())


def project_sources(paths: Iterable[str]) -> Iterator[Source]:
    for path in paths:
        if "__pycache__" not in path:
            data = (ROOT / path).read_bytes()
            if b"\0" not in data:
                yield Source(path, data.decode())


def main(prefixes: tuple[str, ...]) -> None:
    """List the findings of the rules that have debts, and how many they are."""
    tree = Tree(tuple(project_sources(project_files())))
    for rule in TREE_RULES:
        found = [f for f in rule(tree) if not prefixes or str(f).startswith(prefixes)]
        print(f"{rule.__name__}: {len(found)} findings, {len({f.key for f in found})} keys")
        for finding in found:
            print(f"  {finding}")


def _holds_the_error_tree(source: Source) -> bool:
    return source.path == "src/headgate/base/errors.py"


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


def _bases(node: ast.ClassDef) -> list[str]:
    plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return [_last_name(base) for base in plain]


def _brings_code(tree: Tree, name: str) -> bool:
    """Whether a class of the code, or one it inherits from, has a method with a body."""
    return any(
        isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any(_last_name(d) in ("abstractmethod", "overload") for d in method.decorator_list)
        and not all(_is_stub(statement) for statement in method.body)
        for ancestor in tree.ancestors(name)
        for node in tree.classes.get(ancestor, ())
        if "Protocol" not in _bases(node)
        for method in node.body
    )


def _is_stub(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass | ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _bindings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.alias(name=name, asname=asname):
                yield node.lineno, asname or name
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
            ):
                yield node.lineno, name


def _definitions(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Functions, classes, methods and module constants; neither locals nor fields."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if not _is_called_from_outside(child):
                    yield child.lineno, child.name
                if isinstance(child, ast.ClassDef):
                    yield from _definitions(child)
            case ast.Assign(targets=targets) if isinstance(node, ast.Module):
                yield from ((t.lineno, t.id) for t in targets if _is_plain_name(t))
            case ast.AnnAssign(target=ast.Name(id=name)) if isinstance(node, ast.Module):
                if not _is_dunder(name):
                    yield child.lineno, name
            case ast.If() | ast.Try() | ast.With():
                yield from _definitions(child)


def _attributes(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Attributes that methods set on themselves, each where it is set first."""
    lines: dict[str, int] = {}
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                lines[name] = min(node.lineno, lines.get(name, node.lineno))
    yield from ((line, name) for name, line in lines.items() if not _is_dunder(name))


def _is_plain_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and not _is_dunder(node.id)


def _is_dunder(name: str) -> bool:
    return name == "_" or (name.startswith("__") and name.endswith("__"))


def _is_called_from_outside(node: Definition) -> bool:
    """Python calls dunder methods, click the commands."""
    decorators = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return _is_dunder(node.name) or any(_last_name(d) in ("command", "group") for d in decorators)


def _mentions(node: ast.AST, inside: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Identifiers that are read, each with the names of the definitions that it stands in."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
            yield name, inside
        case ast.keyword(arg=str(name)):
            yield name, inside
        case ast.Constant(value=str(name)) if name.isidentifier():
            yield name, inside
        case ast.alias(name=name, asname=str()):
            yield name, inside
        case ast.MatchClass(kwd_attrs=names):
            yield from ((name, inside) for name in names)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            inside |= {node.name}
    for child in ast.iter_child_nodes(node):
        yield from _mentions(child, inside)


def _registered_names(sources: Iterable[Source]) -> set[str]:
    """Functions of modules that a decorator enters into a table with a name in capitals."""
    return {
        node.name
        for source in sources
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and isinstance(decorator.func.value, ast.Name)
        and decorator.func.value.id.isupper()
    }


def _public_names(tree: Tree) -> set[str]:
    """What the facades export, and the public members of all classes that users meet there.

    Those are the exported ones, their bases and inner classes, and what public methods take and
    return: builders, contexts, handles.
    """
    names = {"__version__", *ALLOWED_UNUSED}
    for source in tree.code:
        if source.room in FACADE_ROOMS or source.path in FACADE_MODULES:
            for node in source.nodes:
                if isinstance(node, ast.ImportFrom):
                    names |= {alias.name for alias in node.names}
    met: set[str] = set()
    ahead = {node.name for name in names for node in tree.classes.get(name, ())}
    while ahead:
        met |= ahead
        names |= ahead
        members = [m for name in ahead for node in tree.classes[name] for m in _members(node)]
        names |= {member.name for member in members}
        bases = {base for name in ahead for base in tree.ancestors(name)}
        inner = {member.name for member in members if isinstance(member, ast.ClassDef)}
        handed = {name for member in members for name in _annotated(member)}
        ahead = {name for name in bases | inner | handed if name in tree.classes} - met
    return names


def _members(node: ast.ClassDef) -> Iterator[Definition]:
    for member in node.body:
        if isinstance(member, Definition) and not member.name.startswith("_"):
            yield member


def _annotated(node: Definition) -> Iterator[str]:
    """Names in the annotations of a function, those in strings too."""
    if isinstance(node, ast.ClassDef):
        return
    a = node.args
    arguments = [*a.posonlyargs, *a.args, *a.kwonlyargs]
    for annotation in (node.returns, *(argument.annotation for argument in arguments)):
        if annotation:
            yield from re.findall(r"\w+", ast.unparse(annotation))


def _module(path: str) -> str:
    parts = Path(path.removeprefix("src/")).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Modules that are imported, or named in a string as for `import_module`."""
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(module)):
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.Constant(value=str(text)) if text.startswith(("benchmarks.", "headgate.")):
                yield text


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
