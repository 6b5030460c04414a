"""Users' programs in the simulator: planted mistakes are found, right programs stay clean."""

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import Any

import pytest

from headgate import RuntimeExecutionMode, SourceFunction, StreamExecutionEnvironment
from headgate.connectors.files.sink import TextFileSink
from headgate.testing import External, HarnessMisused, ManualSource, SimulationFailed, simulate
from tests.testing import jobs_kit
from tests.testing.jobs_kit import EVENTS, MISTAKES, RIGHT

Env = StreamExecutionEnvironment
SEEDS = 80
"""Enough for each planted mistake; most show with the first."""


@pytest.mark.parametrize("build", MISTAKES, ids=lambda build: build.__name__)
def test_a_planted_mistake_is_found(build: Callable[[Env], Any]) -> None:
    with pytest.raises(SimulationFailed, match=MISTAKES[build]):
        simulate(build, seeds=SEEDS)


@pytest.mark.parametrize("build", RIGHT, ids=lambda build: build.__name__)
def test_a_right_program_stays_clean(build: Callable[[Env], Any]) -> None:
    result = simulate(build, seeds=12, hash_seeds=1)
    assert result.seeds == 12
    assert result.attempts > 13, "nothing has happened to it"


def test_there_are_twenty_of_each() -> None:
    assert len(MISTAKES) >= 20 and len(RIGHT) >= 20


def test_a_failing_seed_fails_again_alone() -> None:
    with pytest.raises(SimulationFailed) as first:
        simulate(jobs_kit.state_in_an_attribute, seeds=SEEDS)
    seed = first.value.seed
    assert f"simulate(build, seed={seed})" in str(first.value)
    with pytest.raises(SimulationFailed) as again:
        simulate(jobs_kit.state_in_an_attribute, seed=seed)
    assert str(again.value) == str(first.value)


def test_the_environment_names_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_SEED", "7")
    assert simulate(jobs_kit.word_count).seeds == 1
    monkeypatch.delenv("HEADGATE_SEED")
    monkeypatch.setenv("HEADGATE_SEEDS", "3")
    assert simulate(jobs_kit.word_count, hash_seeds=0).seeds == 3


@pytest.mark.parametrize(
    ("build", "cause"),
    [
        (jobs_kit.clock_read_directly, "reads them itself"),
        (jobs_kit.chance_read_directly, "reads them itself"),
        (jobs_kit.order_between_channels, "order"),
        (jobs_kit.state_in_an_attribute, "a restore"),
        (jobs_kit.state_in_a_global, "changed while it ran: tests.testing.jobs_kit.seen"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_failure_names_its_cause(build: Callable[[Env], Any], cause: str) -> None:
    with pytest.raises(SimulationFailed, match=cause):
        simulate(build, seeds=SEEDS)


def test_module_variables_begin_anew_in_every_run() -> None:
    jobs_kit.seen.clear()
    with pytest.raises(SimulationFailed):
        simulate(jobs_kit.state_in_a_global, seeds=SEEDS)
    assert jobs_kit.seen == {}


def test_a_check_decides_instead_of_the_calm_run() -> None:
    def build(env: Env) -> Any:
        return env.from_collection([1, 2, 3]).map(jobs_kit.Numbered())

    with pytest.raises(SimulationFailed, match="differs"):
        simulate(build, seeds=SEEDS)
    simulate(build, seeds=20, check=lambda outputs: len(outputs["output"]) == 3)
    with pytest.raises(SimulationFailed, match="check\\(\\) returned False"):
        simulate(build, seeds=2, check=lambda outputs: outputs["output"] == [])


def test_without_faults_nothing_is_restored() -> None:
    result = simulate(jobs_kit.state_in_an_attribute, seeds=10, faults=())
    assert result.attempts == 11


def test_what_changes_its_input_may_be_allowed() -> None:
    simulate(jobs_kit.changes_its_input, seeds=5, hash_seeds=0, allow_mutation=True)


def test_an_exception_of_the_program_is_a_failure() -> None:
    def build(env: Env) -> Any:
        return env.from_collection([1, 0]).map(lambda number: 1 // number)

    with pytest.raises(SimulationFailed, match="calm run fails.*ZeroDivisionError"):
        simulate(build, seeds=2)


def test_an_exception_that_a_restore_brings_about_is_one() -> None:
    with pytest.raises(SimulationFailed, match="KeyError"):
        simulate(_forgets, seeds=SEEDS)


def _forgets(env: Env) -> Any:
    return env.from_collection(range(40)).key_by(lambda n: n % 2).process(Forgetful())


class Forgetful(jobs_kit.Count):
    def process_element(self, value: Any, ctx: Any) -> Any:
        if self.count.value() is None:
            self.cache = {ctx.get_current_key(): 0, **getattr(self, "cache", {})}
        self.count.update((self.count.value() or 0) + 1)
        yield value, getattr(self, "cache", {})[ctx.get_current_key()]


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ({"faults": ["flood"]}, "there is no fault 'flood'"),
        ({"seeds": 0}, "give a whole number above 0"),
    ],
)
def test_wrong_arguments_are_refused(named: dict[str, Any], problem: str) -> None:
    with pytest.raises(HarnessMisused, match=problem):
        simulate(jobs_kit.word_count, **named)


def test_a_program_without_output_is_refused() -> None:
    with pytest.raises(HarnessMisused, match="no output to compare"):
        simulate(lambda env: env.from_collection([1]).add_sink(lambda value: None) and None)
    with pytest.raises(HarnessMisused, match="has written no program"):
        simulate(lambda env: None)


def test_a_source_that_does_not_end_is_refused() -> None:
    with pytest.raises(HarnessMisused, match="wait for ever"):
        simulate(lambda env: env.from_source(ManualSource("clicks")), seeds=1)


def test_a_hand_filled_source_can_be_simulated() -> None:
    def build(env: Env) -> Any:
        clicks = ManualSource("clicks", splits=2)
        for number in range(20):
            clicks.send(("ab"[number % 2], 1), timestamp=number, split=number % 2)
        clicks.advance_watermark(30)
        clicks.end()
        return env.from_source(clicks).key_by(jobs_kit.key_of).process(jobs_kit.Count())

    assert len(simulate(build, seeds=20).outputs["output"]) == 20


def test_a_batch_can_be_simulated() -> None:
    def build(env: Env) -> Any:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        return env.from_collection(EVENTS).key_by(jobs_kit.key_of).process(jobs_kit.Count())

    assert len(simulate(build, seeds=20, hash_seeds=0).outputs["output"]) == len(EVENTS)


def test_records_with_times_can_be_simulated() -> None:
    simulate(_days, seeds=15, hash_seeds=0)


def _days(env: Env) -> Any:
    days = [datetime(2024, 1, 1 + number % 3) for number in range(20)]
    return env.from_collection(days).key_by(lambda day: day).process(Latest())


class Latest(jobs_kit.Count):
    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value, value + timedelta(days=1), self.count.value()


def test_a_source_that_cannot_be_read_again_is_refused_with_faults() -> None:
    class Once(SourceFunction):
        bounded = True

        def run(self, ctx: Any) -> None:
            for number in range(10):
                ctx.collect(number)

        def cancel(self) -> None:
            pass

    def build(env: Env) -> Any:
        return env.add_source(Once())

    with pytest.raises(HarnessMisused, match="cannot be read again.*faults=\\(\\)"):
        simulate(build, seeds=1)
    assert len(simulate(build, seeds=10, faults=(), hash_seeds=0).outputs["output"]) == 10


def test_externals_begin_empty_in_every_run() -> None:
    rows: External[list[int]] = External(list, "rows")

    def build(env: Env) -> None:
        env.from_collection([1, 2]).add_sink(_appender(rows))

    simulate(build, seeds=3, faults=(), check=lambda outputs: sorted(outputs["rows"][0]) == [1, 2])


def _appender(rows: "External[list[int]]") -> Callable[[int], None]:
    return lambda value: rows.value.append(value)


def test_neither_pyspark_nor_pyarrow_is_loaded() -> None:
    code = (
        "import sys; from headgate.testing import run_local, simulate, FunctionHarness\n"
        "run_local(lambda env: env.from_collection([1]))\n"
        "simulate(lambda env: env.from_collection([1]), seeds=2, hash_seeds=0)\n"
        "print([name for name in ('pyspark', 'py4j', 'pyarrow') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert found.stdout.strip() == "[]"


def test_a_program_that_cannot_leave_the_process_is_warned_of() -> None:
    lock = Lock()

    def build(env: Env) -> Any:
        with lock:
            return env.from_collection([1])

    with pytest.warns(UserWarning, match="cannot be pickled.*hash_seeds=0"):
        simulate(build, seeds=2, hash_seeds=1)


def test_files_are_written_once_in_every_run(tmp_path: Path) -> None:
    folders: External[list[Path]] = External(list, "folders", compared=False)

    def build(env: Env) -> None:
        folders.value.append(Path(mkdtemp(dir=tmp_path)))
        counts = env.from_collection(EVENTS).key_by(jobs_kit.key_of).process(jobs_kit.Count())
        counts.map(str).sink_to(TextFileSink(str(folders.value[0])))

    def check(outputs: dict[str, list[Any]]) -> bool:
        files = [path for path in folders.value[0].rglob("*") if path.is_file()]
        visible = [path for path in files if path.name[0] not in "._"]
        lines = [line for path in visible for line in path.read_text().splitlines()]
        return len(lines) == len(set(lines)) == len(EVENTS)

    assert simulate(build, seeds=25, check=check).attempts > 26
