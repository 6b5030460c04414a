"""Sizes that a commit may lower, and has to explain in its message when it raises them.

Length is a symptom and no rule for a file or a function. But a tree that grows, and a record that
passes ever more files, is worth a sentence.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import headgate
from headgate import KeyedProcessFunction, StreamExecutionEnvironment, ValueStateDescriptor
from headgate.core.task.task import Task
from headgate.testing import simulate

SRC = Path(headgate.__file__).parent

LINES = {
    "": 400,
    "api": 8_500,
    "base": 7_100,
    "cli": 3_600,
    "common": 300,
    "connectors": 21_200,
    "control": 3_200,
    "core": 32_800,
    "datastream": 800,
    "functions": 4_100,
    "host": 16_500,
    "metrics": 100,
    "observe": 8_100,
    "plan": 2_300,
    "sim": 2_800,
    "spark": 9_900,
    "state": 100,
    "testing": 3_400,
}
"""Of ``src/headgate`` by top folder, rounded up to hundreds; "" stands for its own files."""

FILES_OF_A_RECORD = 34
"""So many are passed at most from a source through map, key_by and process to a sink over TCP."""


def lines() -> Counter[str]:
    counted: Counter[str] = Counter()
    for path in SRC.rglob("*.py"):
        folder = path.relative_to(SRC).parent.parts[:1]
        counted[folder[0] if folder else ""] += len(path.read_text(encoding="utf-8").splitlines())
    return counted


def test_no_folder_has_more_lines_than_it_had() -> None:
    found = {folder: -(-count // 100) * 100 for folder, count in lines().items()}
    assert found == LINES, "lower what is less; raise what has to be more, and say why"


class Counting(KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[0], count


def calls(records: int, patch: pytest.MonkeyPatch) -> Counter[str]:
    """How often functions of each file are called by the steps of tasks."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(f"{SRC}/"):
            found[path[len(f"{SRC}/") :]] += 1

    def step(task: Task, *arguments: Any) -> Any:
        sys.setprofile(note)
        try:
            return real(task, *arguments)
        finally:
            sys.setprofile(None)

    def build(env: StreamExecutionEnvironment) -> None:
        env.set_parallelism(2)
        words = env.from_collection([str(number % 7) for number in range(records)])
        pairs = words.map(lambda word: (word, 1))
        pairs.key_by(lambda pair: pair[0]).process(Counting()).print()

    real = Task.step
    with patch.context() as patched:
        patched.setattr(Task, "step", step)
        simulate(build, seeds=1, faults=(), hash_seeds=0)
    return found


def test_a_record_passes_no_more_files_than_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are called more often where there are more records, but for the simulator's."""
    few, many = calls(5_000, monkeypatch), calls(20_000, monkeypatch)
    passed = {path for path in many if many[path] > 2 * few[path]}
    passed = {path for path in passed if not path.startswith(("sim/", "testing/", "api/"))}
    assert len(passed) <= FILES_OF_A_RECORD, "\n".join(sorted(passed))
