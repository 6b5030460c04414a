"""The house rules hold in the tree, and each of them can fail."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import pytest

from tests import house
from tests.house import Finding, Source, Tree, TreeRule
from tests.house_debts import DEBTS

Rule = Callable[[Source], Iterable[str]]
PathRule = Callable[[Source, set[str]], Iterable[str]]
PATHS = house.project_files()


def sources(prefix: str = "", suffix: str = "") -> Iterator[Source]:
    return house.project_sources(p for p in PATHS if p.startswith(prefix) and p.endswith(suffix))


def code() -> Iterator[Source]:
    return (source for prefix in house.CODE for source in sources(prefix, ".py"))


@cache
def project() -> Tree:
    return Tree(tuple(sources()))


@cache
def findings(rule: TreeRule) -> list[Finding]:
    return list(rule(project()))


def rooms() -> set[str]:
    return {source.room for source in sources("src/", ".py")}


def report(findings: Iterable[str]) -> None:
    found = list(findings)
    if found:
        pytest.fail("\n".join(["", *found]), pytrace=False)


@pytest.mark.parametrize(
    "rule",
    [
        house.module_docstring,
        house.banned_names,
        house.purity,
        house.no_any,
        house.docstrings,
    ],
)
def test_source_keeps_the_rule(rule: Rule) -> None:
    report(finding for source in code() for finding in rule(source))


@pytest.mark.parametrize("rule", [house.doors])
def test_path_keeps_the_rule(rule: PathRule) -> None:
    paths = set(PATHS)
    report(finding for source in code() for finding in rule(source, paths))


@pytest.mark.parametrize("rule", house.TREE_RULES)
def test_tree_keeps_the_rule_but_for_debts(rule: TreeRule) -> None:
    report(house.unpaid(findings(rule), DEBTS.get(rule.__name__, set())))


@pytest.mark.parametrize("rule", house.TREE_RULES)
def test_debts_that_are_paid_are_struck_off(rule: TreeRule) -> None:
    settled = house.paid(findings(rule), DEBTS.get(rule.__name__, set()))
    report(f"{rule.__name__}: {key}: paid; remove it from tests/house_debts.py" for key in settled)


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
SLASH = "/"
NOTE = "TO" + "DO"

BREACHES: list[tuple[Rule, str, str, int]] = [
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


def test_door_rule_names_the_missing_package() -> None:
    (finding,) = house.doors(Source(MACHINE, ""), {MACHINE})
    assert "add src/headgate/core/egress/__init__.py" in finding
    assert not [*house.doors(Source(MACHINE, ""), {"src/headgate/core/egress/__init__.py"})]


def test_contract_rule_wants_the_room_by_its_name() -> None:
    contract = Source("pyproject.toml", 'x = [\n    "headgate.plan.**",\n]\n')
    assert [*house.contract_covers(contract, {"base"})] == []
    (finding,) = house.contract_covers(contract, {"base", "plan"})
    assert finding.startswith("pyproject.toml:2: ")


HOST = "src/headgate/host/loop.py"
SIM = "src/headgate/sim/loop.py"
BENCHMARK = "benchmarks/latency.py"
KIT = "tests/host/kit.py"
FACADE = "src/headgate/common/__init__.py"
CODED = "class A:\n    def f(self): return 1\nclass B:\n    def g(self): return 2\n"

TREE_BREACHES: list[tuple[TreeRule, dict[str, str], list[str]]] = [
    (
        house.unique_classes,
        {MACHINE: "class A: ...\n", HOST: "x = 1\nclass A: ...\n"},
        [f"{MACHINE}:1", f"{HOST}:2"],
    ),
    (house.vague_names, {HOST: "x = 1\none = 2\n"}, [f"{HOST}:2"]),
    (house.vague_names, {HOST: "def told(): ...\n"}, [f"{HOST}:1"]),
    (house.vague_names, {HOST: "class A:\n    one: int\n    def told(self): ...\n"}, ["", ""]),
    (house.vague_names, {HOST: "def f(one, *, told=1): ...\n"}, ["", ""]),
    (house.vague_names, {HOST: "for one, (x, told) in xs: ...\n"}, ["", ""]),
    (house.vague_names, {HOST: "xs = [1 for one in ys]\n"}, [f"{HOST}:1"]),
    (house.vague_names, {HOST: "f(lambda one: 1)\n"}, [f"{HOST}:1"]),
    (house.vague_names, {HOST: "self.one = self._told = 1\n"}, ["", ""]),
    (house.vague_names, {HOST: "from a import b as told, one\n"}, ["", ""]),
    (house.vague_names, {HOST: "with a as one: ...\n"}, [f"{HOST}:1"]),
    (house.vague_names, {HOST: "match x:\n    case A(one): ...\n"}, [f"{HOST}:2"]),
    (house.vague_names, {KIT: "one = 1\n"}, [f"{KIT}:1"]),
    (house.used, {HOST: "def f(): ...\n"}, [f"{HOST}:1"]),
    (house.used, {HOST: "def f(): f()\n"}, [f"{HOST}:1"]),
    (house.used, {HOST: "def f(): g()\ndef g(): ...\n"}, [f"{HOST}:1", f"{HOST}:2"]),
    (house.used, {HOST: "class A: ...\n", KIT: "A()\n"}, [f"{HOST}:1"]),
    (house.used, {HOST: "def f(): ...\n", BENCHMARK: "f()\n"}, [f"{HOST}:1"]),
    (house.used, {BENCHMARK: "def f(): ...\n"}, [f"{BENCHMARK}:1"]),
    (house.used, {HOST: "LIMIT = 1\nSIZE: int = 2\n"}, ["", ""]),
    (house.used, {HOST: "class A:\n    def f(self): ...\nA()\n"}, [f"{HOST}:2"]),
    (house.used, {HOST: "class A:\n    def __init__(self):\n        self.x = 1\nA()\n"}, [""]),
    (house.used, {HOST: "if x:\n    def f(): ...\n", SIM: "from a import f\n"}, [f"{HOST}:2"]),
    (
        house.used,
        {FACADE: "from a import A\n", HOST: "class A:\n    def _f(self): ...\n"},
        [f"{HOST}:2"],
    ),
    (house.class_changes, {HOST: "a.b.__class__ = B\n"}, [f"{HOST}:1"]),
    (house.several_bases, {HOST: CODED + "class C(A, B): ...\n"}, [f"{HOST}:5"]),
    (house.several_bases, {HOST: CODED + "class D(B): ...\nclass C(A, D): ...\n"}, [""]),
    (house.small_modules, {MACHINE: "", HOST: "from headgate.core.egress import writer"}, [""]),
    (house.small_modules, {MACHINE: "", HOST: 'f("headgate.core.egress.writer")'}, [""]),
    (house.helpers_in_kits, {KIT: "x\nfrom tests.host.test_a import b\n"}, [f"{KIT}:2"]),
    (house.helpers_in_kits, {KIT: "from tests.host import test_a\n"}, [f"{KIT}:1"]),
    (house.helpers_in_kits, {KIT: "import tests.host.test_a\n"}, [f"{KIT}:1"]),
]


def tree_of(texts: dict[str, str]) -> Tree:
    return Tree(tuple(Source(path, text) for path, text in texts.items()))


@pytest.mark.parametrize(("rule", "texts", "places"), TREE_BREACHES)
def test_tree_rule_catches_a_planted_breach(
    rule: TreeRule, texts: dict[str, str], places: list[str]
) -> None:
    found = [str(finding) for finding in rule(tree_of(texts))]
    assert len(found) == len(places)
    for place in places:
        assert any(finding.startswith(place) for finding in found)


TREE_HABITS: list[tuple[TreeRule, dict[str, str]]] = [
    (house.unique_classes, {MACHINE: "class A: ...\n", SIM: "class A: ...\n"}),
    (house.unique_classes, {MACHINE: "class _A: ...\n", HOST: "class _A: ...\n"}),
    (house.vague_names, {HOST: "one_by_one = other.one(told, one=1)  # one\n"}),
    (house.used, {HOST: "def f(): ...\n", SIM: "f()\n"}),
    (house.used, {BENCHMARK: "def f(): ...\nf()\n"}),
    (house.used, {HOST: "class A:\n    def f(self): ...\n", "examples/a.py": "A().f()\n"}),
    (house.used, {HOST: "def f(): ...\n", "docs/a.md": "\n```python\nf()\n```\n"}),
    (house.used, {HOST: "def f(): ...\n", SIM: "getattr(a, 'f')\n"}),
    (house.used, {HOST: "def f(): ...\n", SIM: "from a import f as g\n"}),
    (house.used, {HOST: "def __getattr__(): ...\n@a.command()\ndef f(): ...\n"}),
    (house.used, {HOST: "class A:\n    x: int\n    y = 1\n", SIM: "A\n"}),
    (house.used, {FACADE: "from a import A\n", HOST: "class A:\n    def f(self): ...\n"}),
    (
        house.used,
        {
            FACADE: "from a import A\n",
            HOST: "class A:\n    def f(self) -> 'B | None': ...\n",
            MACHINE: "class C:\n    def g(self): ...\nclass B(C):\n    def h(self): ...\n",
        },
    ),
    (house.class_changes, {HOST: "a = b.__class__\n"}),
    (house.several_bases, {HOST: CODED + "class C(A, Protocol, Generic[T]): ...\n"}),
    (house.several_bases, {HOST: CODED.replace("return 2", "...") + "class C(A, B): ...\n"}),
    (
        house.several_bases,
        {HOST: CODED.replace("class A", "class A(Exception)") + "class C(A, B): ...\n"},
    ),
    (house.small_modules, {MACHINE: "", HOST: "", FACADE: "import headgate.host.loop\n"}),
    (
        house.small_modules,
        {MACHINE: "\n" * house.SMALL_MODULE_LINES, HOST: "import headgate.core.egress.writer"},
    ),
    (
        house.small_modules,
        {MACHINE: "", HOST: (asks := "import headgate.core.egress.writer\n"), SIM: asks},
    ),
    (house.helpers_in_kits, {KIT: "import pytest\nfrom tests.host.kit import latest_key\n"}),
]


@pytest.mark.parametrize(("rule", "texts"), TREE_HABITS)
def test_tree_rule_leaves_good_habits_alone(rule: TreeRule, texts: dict[str, str]) -> None:
    assert [str(finding) for finding in rule(tree_of(texts))] == []


def test_debts_cover_what_they_name_and_no_more() -> None:
    found = [Finding("A", "a"), Finding("B", "b"), Finding("B", "c")]
    assert house.unpaid(found, {"A"}) == ["b", "c"]
    assert house.unpaid(found, {"A": 1, "B": 2}) == []
    (excess,) = house.unpaid(found, {"A": 1, "B": 1})
    assert excess.startswith("B: 2 findings, 1 ")


def test_debt_is_paid_when_nothing_is_found() -> None:
    assert house.paid([Finding("A", "a")], {"A", "B"}) == []
    assert house.paid([], {"A", "B"}) == ["A", "B"]
    assert house.paid([Finding("A", "a")], {"A": 2, "B": 1}) == ["B"]
