"""Every public name and signature of PyFlink, looked for in Headgate.

PyFlink is read, never imported: its sources tell the names, and nothing of it runs. Run it where
``apache-flink`` is installed to see what differs::

    python tests/api/pyflink_surface.py [--all | --names] [folder of PyFlink]

A *difference* is a name that Headgate lacks, or a call that PyFlink takes and Headgate does not.
``pyflink_differences.txt`` holds those that are meant to be, each with its reason.
``pyflink_names.txt`` holds what PyFlink's modules export, as ``--names`` prints it.
"""

import ast
import importlib
import importlib.util
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

ROOMS = ("common", "datastream", "metrics")
PICKLING = frozenset({"__setstate__", "__getstate__", "__reduce__"})
NAMES = Path(__file__).with_name("pyflink_names.txt")
EXPECTED = Path(__file__).with_name("pyflink_differences.txt")


class Parameter(NamedTuple):
    """One that a caller may give by position or by name."""

    name: str
    is_optional: bool


class Call(NamedTuple):
    """How a function may be called."""

    parameters: tuple[Parameter, ...]
    takes_more: bool
    """By ``*args``."""
    takes_any_name: bool
    """By ``**kwargs``."""


def installed_pyflink() -> Path | None:
    """The folder of its sources, or None."""
    spec = importlib.util.find_spec("pyflink")
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    return Path(places[0]) if places else None


def differences(root: Path) -> dict[str, str]:
    """What differs, by the name in PyFlink without ``pyflink.``."""
    found: dict[str, str] = {}
    for path in sorted(file for room in ROOMS for file in (root / room).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if "tests" in parts:
            continue
        name = ".".join(part for part in parts if part != "__init__")
        found.update(_of_module(name, ast.parse(path.read_text(encoding="utf-8"))))
    return found


def exported_names(root: Path) -> dict[str, list[str]]:
    """What the modules for users export, by module without ``pyflink.``: ``__all__``, or all."""
    found: dict[str, list[str]] = {}
    for path in sorted(file for room in ROOMS for file in (root / room).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if "tests" in parts or parts[-1] == "utils":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = _exported(tree) or [node.name for node in _definitions(tree)]
        if names:
            found[".".join(part for part in parts if part != "__init__")] = sorted(names)
    return found


def stored_names() -> dict[str, list[str]]:
    """The same of PyFlink 2.3, from the committed list: ``module: name name``."""
    found: dict[str, list[str]] = {}
    for line in NAMES.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            module, _, names = line.partition(":")
            found.setdefault(module, []).extend(names.split())
    return found


def missing_names(stored: dict[str, list[str]], page: str) -> list[str]:
    """Names that are neither in Headgate nor in backticks on the page."""
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    quoted = " ".join(re.findall(r"`([^`]+)`", prose))
    on_page = set(re.findall(r"\w+", quoted))
    missing = []
    for module, names in stored.items():
        try:
            ours: object = importlib.import_module(f"headgate.{module}")
        except ModuleNotFoundError:
            ours = None
        missing += [
            f"{module}.{name}" for name in names if not hasattr(ours, name) and name not in on_page
        ]
    return missing


def public_names(root: Path) -> int:
    """How many names were compared."""
    count = 0
    for path in sorted(file for room in ROOMS for file in (root / room).rglob("*.py")):
        if "tests" not in path.parts:
            for node in _definitions(ast.parse(path.read_text(encoding="utf-8"))):
                count += 1 + (len(list(_members(node))) if isinstance(node, ast.ClassDef) else 0)
    return count


def expected_differences() -> dict[str, str]:
    """Reasons by pattern, from the committed list: ``pattern | reason``."""
    lines = EXPECTED.read_text(encoding="utf-8").splitlines()
    pairs = [line.split("|", 1) for line in lines if line.strip() and not line.startswith("#")]
    return {pattern.strip(): reason.strip() for pattern, reason in pairs}


def unexpected(found: dict[str, str], expected: dict[str, str]) -> dict[str, str]:
    """Differences that no pattern covers."""
    return {
        name: how
        for name, how in found.items()
        if not any(_covers(pattern, name) for pattern in expected)
    }


def stale(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """Patterns that cover nothing any more."""
    return [pattern for pattern in expected if not any(_covers(pattern, name) for name in found)]


def _covers(pattern: str, name: str) -> bool:
    """A pattern covers what it matches and all below it."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _of_module(name: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    try:
        ours = importlib.import_module(f"headgate.{name}")
    except ModuleNotFoundError:
        yield name, "no such module"
        return
    for exported in _exported(tree):
        if not hasattr(ours, exported):
            yield f"{name}.{exported}", "no such name"
    for node in _definitions(tree):
        place = f"{name}.{node.name}"
        found = getattr(ours, node.name, None)
        if found is None:
            yield place, "no such name"
        elif isinstance(node, ast.ClassDef):
            yield from _of_class(place, node, found)
        elif isinstance(node, ast.FunctionDef):
            yield from _of_call(place, node, found, skip=0)
    for constant in _constants(tree):
        if not hasattr(ours, constant):
            yield f"{name}.{constant}", "no such name"


def _of_class(place: str, node: ast.ClassDef, ours: object) -> Iterator[tuple[str, str]]:
    for name, member in _members(node):
        here = f"{place}.{name}"
        if not hasattr(ours, name):
            yield here, "no such name"
        elif isinstance(member, ast.ClassDef):
            yield from _of_class(here, member, getattr(ours, name))
        elif isinstance(member, ast.FunctionDef) and not _is_property(member):
            if name == "__init__":
                yield from _of_call(here, member, ours, skip=0)
            elif not name.startswith("__"):
                own = inspect.getattr_static(ours, name, None)
                skip = 0 if isinstance(own, staticmethod | classmethod) else 1
                yield from _of_call(here, member, getattr(ours, name), skip)


def _of_call(
    place: str, node: ast.FunctionDef, ours: object, skip: int
) -> Iterator[tuple[str, str]]:
    theirs, call = _their_call(node), _our_call(ours, skip)
    if theirs is None or call is None:
        return
    problem = _problem(theirs, call)
    if problem is None and _chains(node) and _returns_none(ours):
        problem = "returns None, not the object itself"
    if problem:
        yield place, problem


def _problem(theirs: Call, ours: Call) -> str | None:
    """Why a call that PyFlink takes would fail; None: it would not."""
    for at, wanted in enumerate(theirs.parameters):
        if at >= len(ours.parameters):
            if not ours.takes_more or not ours.takes_any_name:
                return f"parameter {wanted.name!r} is not taken"
            continue
        given = ours.parameters[at]
        if given.name != wanted.name:
            return f"parameter {at} is {given.name!r}, not {wanted.name!r}"
        if wanted.is_optional and not given.is_optional:
            return f"parameter {wanted.name!r} has no default"
    for extra in ours.parameters[len(theirs.parameters) :]:
        if not extra.is_optional:
            return f"parameter {extra.name!r} is asked for"
    if theirs.takes_more and not ours.takes_more:
        return "takes no *args"
    if theirs.takes_any_name and not ours.takes_any_name:
        return "takes no **kwargs"
    return None


def _their_call(node: ast.FunctionDef) -> Call | None:
    """None: it wants an object of Java, which no program has at hand."""
    spec = node.args
    names = [argument.arg for argument in [*spec.posonlyargs, *spec.args]]
    first_optional = len(names) - len(spec.defaults)
    found = [Parameter(name, at >= first_optional) for at, name in enumerate(names)]
    if found and found[0].name in ("self", "cls"):
        found = found[1:]
    if any(parameter.name.startswith("j_") and not parameter.is_optional for parameter in found):
        return None
    parameters = [parameter for parameter in found if not parameter.name.startswith("j_")]
    return Call(tuple(parameters), spec.vararg is not None, spec.kwarg is not None)


def _our_call(function: object, skip: int) -> Call | None:
    try:
        parameters = list(inspect.signature(function).parameters.values())  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    plain = [
        Parameter(parameter.name, parameter.default is not parameter.empty)
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    kinds = {parameter.kind for parameter in parameters}
    return Call(
        tuple(plain[skip:]),
        inspect.Parameter.VAR_POSITIONAL in kinds,
        inspect.Parameter.VAR_KEYWORD in kinds,
    )


def _chains(node: ast.FunctionDef) -> bool:
    """Whether it gives back the object that it is called on."""
    returns = [part.value for part in ast.walk(node) if isinstance(part, ast.Return)]
    return any(isinstance(value, ast.Name) and value.id == "self" for value in returns)


def _returns_none(ours: object) -> bool:
    annotations = getattr(ours, "__annotations__", {})
    return "return" in annotations and annotations["return"] in (None, "None")


def _exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def _constants(tree: ast.Module) -> list[str]:
    """Names in capitals."""
    targets = [
        target
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    return [target.id for target in targets if len(target.id) > 3 and target.id.isupper()]


def _definitions(tree: ast.Module) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node


def _members(node: ast.ClassDef) -> Iterator[tuple[str, ast.stmt]]:
    for member in node.body:
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [member.name]
        elif isinstance(member, ast.Assign):
            names = [target.id for target in member.targets if isinstance(target, ast.Name)]
        elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            names = [member.target.id]
        else:
            names = []
        for name in names:
            is_protocol = name.startswith("__") and name.endswith("__")
            if (is_protocol and name not in PICKLING) or not name.startswith("_"):
                yield name, member


def _is_property(member: ast.FunctionDef) -> bool:
    decorators = [ast.unparse(decorator) for decorator in member.decorator_list]
    return any("property" in name or "setter" in name for name in decorators)


def main() -> None:
    """Print what differs."""
    paths = [text for text in sys.argv[1:] if not text.startswith("-")]
    root = Path(paths[0]) if paths else installed_pyflink()
    if root is None:
        sys.exit("PyFlink is not installed; pip install apache-flink, or give its folder")
    if "--names" in sys.argv:
        for module, exported in exported_names(root).items():
            print(
                textwrap.fill(
                    " ".join(exported),
                    100,
                    initial_indent=f"{module}: ",
                    subsequent_indent=f"{module}: ",
                )
            )
        return
    found, expected = differences(root), expected_differences()
    shown = found if "--all" in sys.argv else unexpected(found, expected)
    for name, how in sorted(shown.items()):
        print(f"{name} | {how}")
    for pattern in stale(found, expected):
        print(f"{pattern} | differs no more: take it off the list")
    names = public_names(root)
    print(f"{names} names, {len(found)} differences, {len(shown)} shown", file=sys.stderr)


if __name__ == "__main__":
    main()
