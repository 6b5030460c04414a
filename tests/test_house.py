"""The house rules hold in the tree, and each of them can fail."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests import house
from tests.house import Source

ROOT = Path(__file__).parent.parent
UNTRACKED = {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
Rule = Callable[[Source], Iterable[str]]
TreeRule = Callable[[Source, set[str]], Iterable[str]]


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


PATHS = project_files()


def sources(prefix: str = "", suffix: str = "") -> Iterator[Source]:
    for path in PATHS:
        if path.startswith(prefix) and path.endswith(suffix) and "__pycache__" not in path:
            data = (ROOT / path).read_bytes()
            if b"\0" not in data:
                yield Source(path, data.decode())


def rooms() -> set[str]:
    return {source.room for source in sources("src/", ".py")}


def report(findings: Iterable[str]) -> None:
    found = list(findings)
    if found:
        pytest.fail("\n".join(["", *found]), pytrace=False)


@pytest.mark.parametrize(
    "rule",
    [
        house.lengths,
        house.module_docstring,
        house.banned_names,
        house.purity,
        house.no_any,
        house.docstrings,
    ],
)
def test_source_keeps_the_rule(rule: Rule) -> None:
    report(finding for source in sources("src/", ".py") for finding in rule(source))


@pytest.mark.parametrize("rule", [house.twin, house.doors])
def test_tree_keeps_the_rule(rule: TreeRule) -> None:
    paths = set(PATHS)
    report(finding for source in sources("src/", ".py") for finding in rule(source, paths))


def test_every_note_carries_an_issue_number() -> None:
    report(finding for source in sources("", ".py") for finding in house.todos(source))


def test_no_file_names_a_machine_or_a_registry() -> None:
    report(finding for source in sources() for finding in house.machine_traces(source))


def test_constraints_hold_only_pins() -> None:
    report(finding for source in sources("constraints.txt") for finding in house.pins(source))


def test_import_contract_names_every_room_that_exists() -> None:
    report(
        finding
        for source in sources("pyproject.toml")
        for finding in house.contract_covers(source, rooms())
    )


def test_rules_see_the_files_they_judge() -> None:
    assert {"src/headgate/__init__.py", "constraints.txt", "pyproject.toml"} <= set(PATHS)
    assert {"base", "cli"} <= rooms()


def test_import_headgate_loads_nothing_heavy() -> None:
    heavy = ["pyspark", "pyarrow", "threading", "socket", "headgate.host", "headgate.spark"]
    script = (
        "import sys; before = set(sys.modules); import headgate; "
        f"print(*sorted((set(sys.modules) - before) & set({heavy})))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not loaded, f"src/headgate/__init__.py: import headgate loads {loaded}; import it later"


MACHINE = "src/headgate/core/egress/writer.py"
LONG_FUNCTION = "def f():\n" + "    x = 1\n" * house.FUNCTION_LINES
SLASH = "/"
NOTE = "TO" + "DO"

BREACHES: list[tuple[Rule, str, str, int]] = [
    (house.lengths, MACHINE, "x = 1\n" * (house.FILE_LINES + 1), house.FILE_LINES + 1),
    (house.lengths, MACHINE, LONG_FUNCTION, 1),
    (house.lengths, MACHINE, "class A:\n" + LONG_FUNCTION.replace("def", " def"), 2),
    (house.module_docstring, MACHINE, "x = 1\n", 1),
    (house.module_docstring, MACHINE, '""\n', 1),
    (house.module_docstring, MACHINE, '"""' + "a\n" * 13 + '"""\n', 1),
    (house.module_docstring, "src/headgate/core/__init__.py", "x = 1\n", 1),
    (house.banned_names, "src/headgate/host/utils.py", "", 1),
    (house.banned_names, "src/headgate/host/net_common.py", "", 1),
    (house.banned_names, "src/headgate/host/common/__init__.py", "", 1),
    (house.banned_names, MACHINE, "x = 1\nclass BufferManager: ...\n", 2),
    (house.banned_names, MACHINE, "class WriterImpl: ...\n", 1),
    (house.purity, MACHINE, "x = 1\nwith open('f') as f: ...\n", 2),
    (house.purity, MACHINE, "channel = hash(key) % 4\n", 1),
    (house.purity, MACHINE, "print(1)\n", 1),
    (house.purity, MACHINE, "seen[id(x)] = x\n", 1),
    (house.purity, MACHINE, "for x in {1, 2}: ...\n", 1),
    (house.purity, MACHINE, "y = [x for x in set(xs)]\n", 1),
    (house.purity, MACHINE, "at = datetime.now(UTC)\n", 1),
    (house.purity, "src/headgate/base/ids.py", "at = datetime.datetime.utcnow()\n", 1),
    (house.no_any, MACHINE, "from typing import Any\nx: list[Any] = []\n", 2),
    (house.no_any, MACHINE, "x: typing.Any\n", 1),
    (house.docstrings, MACHINE, "class Writer:\n    x = 1\n", 1),
    (house.docstrings, MACHINE, "x = 1\ndef write(): ...\n", 2),
    (house.todos, MACHINE, f"x = 1\n# {NOTE}: later\n", 2),
    (house.machine_traces, "README.md", f"cd {SLASH}work/main\n", 1),
    (house.machine_traces, "README.md", f"x\nsee '{SLASH}home'\n", 2),
    (house.machine_traces, "README.md", f"PATH={SLASH}root/bin\n", 1),
    (house.machine_traces, "x.cfg", f"links = file://{SLASH}root/wheels\n", 1),
    (house.machine_traces, "x.cfg", f"url = https://{house.REGISTRY_HOSTS[0]}/simple\n", 1),
    (house.pins, "constraints.txt", "click==8.1.0\nrich>=13\n", 2),
    (house.pins, "constraints.txt", "click==8.1.0 --hash=sha256:0\n", 1),
    (house.pins, "constraints.txt", "# pinned\n", 1),
]


@pytest.mark.parametrize(("rule", "path", "text", "line"), BREACHES)
def test_rule_catches_a_planted_breach(rule: Rule, path: str, text: str, line: int) -> None:
    findings = list(rule(Source(path, text)))
    assert len(findings) == 1
    assert findings[0].startswith(f"{path}:{line}: ")


HABITS: list[tuple[Rule, str, str]] = [
    (house.lengths, MACHINE, "def f():\n" + "    x = 1\n" * (house.FUNCTION_LINES - 1)),
    (house.module_docstring, MACHINE, '"""Why."""\n'),
    (house.module_docstring, "src/headgate/core/__init__.py", ""),
    (house.banned_names, "src/headgate/host/worker/task_manager.py", "class TaskManager: ...\n"),
    (house.banned_names, MACHINE, "class Implicit: ...\n"),
    (house.purity, "src/headgate/host/files.py", "with open('f') as f: print(f)\n"),
    (house.purity, MACHINE, "gate.open()\nfor x in sorted({1, 2}): ...\nx in {1, 2}\n"),
    (house.no_any, MACHINE, "x = any(xs)\n"),
    (house.no_any, "src/headgate/host/x.py", "x: Any\n"),
    (house.docstrings, MACHINE, "class _Inner: ...\nx = 1\n"),
    (house.docstrings, "src/headgate/host/x.py", "class Loop: ...\n"),
    (house.todos, MACHINE, f"# {NOTE}(#12): later\n# {NOTE} #12\n"),
    (house.machine_traces, "README.md", "see docs/home.md, https://a.example/home, /workers\n"),
    (house.pins, "constraints.txt", "click==8.1.0\npytest-xdist==3.8.0\nx==1.0rc1\n"),
]


@pytest.mark.parametrize(("rule", "path", "text"), HABITS)
def test_rule_leaves_good_habits_alone(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text))) == []


def test_twin_rule_names_the_missing_test() -> None:
    (finding,) = house.twin(Source(MACHINE, ""), set())
    assert finding.endswith("write tests/core/egress/test_writer.py")
    assert not [*house.twin(Source(MACHINE, ""), {"tests/core/egress/test_writer.py"})]


def test_door_rule_names_the_missing_package() -> None:
    (finding,) = house.doors(Source(MACHINE, ""), {MACHINE})
    assert "add src/headgate/core/egress/__init__.py" in finding
    assert not [*house.doors(Source(MACHINE, ""), {"src/headgate/core/egress/__init__.py"})]


def test_contract_rule_wants_the_room_by_its_name() -> None:
    contract = Source("pyproject.toml", 'x = [\n    "headgate.plan.**",\n]\n')
    assert [*house.contract_covers(contract, {"base"})] == []
    (finding,) = house.contract_covers(contract, {"base", "plan"})
    assert finding.startswith("pyproject.toml:2: ")
