"""Runs a user's program again and again in the simulator, and compares what comes of it.

The first run is calm. Each seed draws another clock, parallelism, order of steps and faults. Law:
every run commits what the calm one has committed, or the program relies on something that no
cluster promises; a seed that fails, fails again. Runs alone rarely show that the order in which
windows merge matters, so ``merge`` of aggregate functions is tried with records of the calm run.
"""

import gc
import os
import pickle
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any, Final

from headgate.api.program import Program
from headgate.base.errors import HarnessMisused, HeadgateError, UserFunctionFailed
from headgate.functions.source import why_not_rewound
from headgate.functions.window_functions import AggregateFunction
from headgate.host.shipping.failures import root_of
from headgate.testing.canonical import copied, counted, difference, short_text, text_of
from headgate.testing.global_state import GlobalState
from headgate.testing.hash_order import OtherProcess
from headgate.testing.outside import externals
from headgate.testing.program import Build, built_program
from headgate.testing.runtime import DEFAULT_PARALLELISM, TestingRuntime
from headgate.testing.scenario import (
    CALM,
    FAULTS,
    Circumstances,
    calm_scenario,
    draw_scenario,
)
from headgate.testing.watching import Watch
from headgate.testing.world import MOST_STEPS, MOST_TIMES, ProgramWorld

SEEDS: Final = 200
SEED_VARIABLE: Final = "HEADGATE_SEED"
SEEDS_VARIABLE: Final = "HEADGATE_SEEDS"
HASH_SEEDS: Final = 2
SEEDS_ALONE: Final = 8
"""Other processes are started after so many seeds: most mistakes have shown by then."""

Check = Callable[[dict[str, list[Any]]], object]
"""Takes the records of all outputs by name; False or an exception: they are wrong."""


class SimulationFailed(AssertionError):
    """A run of a program in the simulator went wrong; the message says how to repeat it."""

    def __init__(self, problem: str, seed: int | None, details: Sequence[str] = ()) -> None:
        lines = [problem, *(f"  {line}" for line in details)]
        super().__init__("\n".join(lines))
        self.problem = problem
        self.seed = seed


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of ``simulate``."""

    outputs: dict[str, list[Any]]
    """The outputs of the calm run, by name."""
    seeds: int
    attempts: int
    """Attempts of all runs together: one more for each time that a job was restored."""
    steps: int


@dataclass(slots=True)
class _RunResult:
    outputs: dict[str, list[Any]] = field(default_factory=dict)
    error: BaseException | None = None
    story: list[str] = field(default_factory=list)
    steps: int = 0
    attempts: int = 0
    length_ms: float = 0.0
    watch: Watch = field(default_factory=Watch)
    programs: list[Program] = field(default_factory=list)

    def texts(self) -> "dict[str, Counter[str]]":
        return {name: counted(records) for name, records in self.outputs.items()}


def simulate(
    build: Build,
    *,
    seeds: int | None = None,
    seed: int | None = None,
    faults: Iterable[str] = FAULTS,
    check: Check | None = None,
    allow_mutation: bool = False,
    hash_seeds: int = HASH_SEEDS,
    parallelism: int = DEFAULT_PARALLELISM,
) -> SimulationResult:
    """Run the program that ``build(env)`` writes with many seeds; raises SimulationFailed.

    ::

        def test_orders_survive():
            simulate(build, seeds=200)

    Every run begins with ``build(env)``, and its outputs must be those of a calm run, in any order;
    so must be what each ``External`` holds. With ``check(outputs)`` that decides instead, for
    programs that may come to several results. ``faults`` are some of crash, network, error, rescale
    and driver. Operators with a parallelism of 1 keep it, others get 1 to 4. ``seed`` repeats one
    run. In ``hash_seeds`` other processes, sets of texts have another order.
    """
    simulation = _Simulation(build, _checked(faults), check, not allow_mutation, parallelism)
    chosen = _chosen_seeds(seeds, seed)
    with ExitStack() as stack:
        stack.enter_context(_no_leaks())
        calm = simulation.begin()
        steps, attempts = calm.steps, calm.attempts
        others: list[OtherProcess] = []
        for at, number in enumerate(chosen, 1):
            run = simulation.run(number, Circumstances(faults=simulation.faults))
            steps, attempts = steps + run.steps, attempts + run.attempts
            simulation.judge(number, run)
            if at == min(len(chosen), SEEDS_ALONE) and check is None and len(chosen) > 1:
                others = simulation.start_others(hash_seeds, stack)
            for other in [each for each in others if each.has_ended or at == len(chosen)]:
                others.remove(other)
                simulation.compare(other)
    return SimulationResult(calm.outputs, len(chosen), attempts, steps)


@contextmanager
def _no_leaks() -> Iterator[None]:
    """A worker that dies closes nothing; its system would, and here the garbage collector does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            yield
        finally:
            gc.collect()


def _chosen_seeds(seeds: int | None, seed: int | None) -> Sequence[int]:
    if seed is None and os.environ.get(SEED_VARIABLE):
        seed = int(os.environ[SEED_VARIABLE])
    if seed is not None:
        return [seed]
    if seeds is None:
        seeds = int(os.environ.get(SEEDS_VARIABLE, SEEDS))
    if type(seeds) is not int or seeds < 1:
        raise HarnessMisused(f"simulate(): seeds is {seeds!r}; give a whole number above 0")
    return range(1, seeds + 1)


def _checked(faults: Iterable[str]) -> tuple[str, ...]:
    chosen = (faults,) if isinstance(faults, str) else tuple(faults)
    for fault in chosen:
        if fault not in FAULTS:
            raise HarnessMisused(f"there is no fault {fault!r}; there are {', '.join(FAULTS)}")
    return chosen


class _Simulation:
    def __init__(
        self,
        build: Build,
        faults: tuple[str, ...],
        check: Check | None,
        mutation: bool,
        parallelism: int,
    ) -> None:
        self.faults = faults
        self._build = build
        self._check = check
        self._mutation = mutation
        self._parallelism = parallelism
        self._globals = GlobalState()
        self._calm = _RunResult()

    def begin(self) -> _RunResult:
        """Do the calm run, and the checks that need no other run."""
        self._calm = calm = self.run(0, CALM)
        if calm.error is not None:
            raise _failed(f"the calm run fails: {_words(calm.error)}", None, calm) from root_of(
                calm.error
            )
        if not calm.programs:
            raise HarnessMisused("build() has written no program; return a stream from it")
        if self._check is None and not calm.outputs:
            raise HarnessMisused(
                "the program has no output to compare; return a stream from build(), let its sinks "
                "write to an External, or give check="
            )
        problem = self._verdict(calm, None)
        if problem:
            raise _failed(f"the calm run is wrong: {problem}", None, calm)
        for program in calm.programs:
            try:
                check_aggregates(program, calm.watch.samples)
            except MergeUnsound as error:
                raise SimulationFailed(str(error), None) from error
        self._globals.narrow(_modules_of(self._build, calm.programs))
        return calm

    def run(self, seed: int, what: Circumstances) -> _RunResult:
        """One run; its error is in the result."""
        result = _RunResult()
        self._globals.reset()
        for external in externals():
            external.reset()

        def run_program(program: Program) -> None:
            result.programs.append(program)
            self._run_program(program, seed, what, result)

        runtime = TestingRuntime(run_program, self._parallelism, with_faults=True)
        try:
            program = built_program(self._build, runtime)
            if program is not None:
                run_program(program)
        except Exception as error:
            if what is CALM and isinstance(error, HarnessMisused):
                raise  # no matter of the program
            result.error = error
        result.outputs = {output.name: output.records for output in runtime.outputs}
        for number, external in enumerate(externals()):
            is_empty = text_of(external.value) == text_of(external.factory())
            if external.compared and not is_empty:
                name = external.name
                free = name if name not in result.outputs else f"{name} {number}"
                result.outputs[free] = [copied(external.value)]
        return result

    def _run_program(
        self, program: Program, seed: int, what: Circumstances, result: _RunResult
    ) -> None:
        calm = self._calm
        if self.faults:
            _check_rewinds(program)
        watch = result.watch = Watch(seed, mutation=self._mutation)
        if what is CALM:
            watch.takes_samples = True
            plan, most_steps = calm_scenario(program, watch.wrap), MOST_STEPS
        else:
            plan = draw_scenario(program, watch, seed, calm.length_ms, what)
            most_steps = max(200_000, MOST_TIMES * calm.steps)
        world = ProgramWorld(plan, most_steps)
        try:
            world.run_to_end()
        finally:
            result.story += world.describe()
            result.steps += world.steps
            result.attempts += world.job.attempts
            result.length_ms = max(result.length_ms, world.clock.now_ms)

    # Judgement.

    def judge(self, seed: int, run: _RunResult) -> None:
        """Raises SimulationFailed."""
        problem = self._verdict(run, self._calm)
        if problem:
            says_all = isinstance(run.error, HeadgateError) and not isinstance(
                run.error, UserFunctionFailed
            )
            cause = "" if says_all else self._cause(seed)
            changed = self._globals.changed()
            error = _failed(f"seed {seed}: {problem}", seed, run, cause, changed)
            raise error from run.error and root_of(run.error)

    def _verdict(self, run: _RunResult, calm: _RunResult | None) -> str:
        """What is wrong with a run; empty: nothing."""
        if run.error is not None:
            return _words(run.error)
        if self._check is not None:
            return _checked_by(self._check, run.outputs)
        return "" if calm is None else _compared(calm.texts(), run.texts())

    def _cause(self, seed: int) -> str:
        """The smallest difference from the calm run that is enough to make it fail, in words."""
        for what, words in _ladder(self.faults):
            if self._verdict(self.run(seed, what), self._calm):
                return words
        return "all of it together"

    def start_others(self, hash_seeds: int, stack: ExitStack) -> list[OtherProcess]:
        """Processes with other hash seeds, which run beside this one."""
        return [
            stack.enter_context(closing(OtherProcess(self._build, self._parallelism, hash_seed)))
            for hash_seed in range(1, hash_seeds + 1)
        ]

    def compare(self, other: OtherProcess) -> None:
        """Another process comes to the same; raises SimulationFailed."""
        found = other.texts()
        if found is None:
            warnings.warn(
                f"simulate() could not run the program in another process, where sets have another "
                f"order ({other.problem}); hash_seeds=0 turns that off",
                stacklevel=3,
            )
            return
        problem = _compared(self._calm.texts(), found)
        if problem:
            raise SimulationFailed(
                f"with PYTHONHASHSEED={other.hash_seed} {problem}",
                None,
                ["it relies on the order of a set, or on hash(): sort, or use a dict"],
            )


def _modules_of(build: Build, programs: Sequence[Program]) -> set[str]:
    """Where the program and its functions are written."""
    functions = [
        function
        for program in programs
        for node in program.graph.nodes.values()
        for _, function in node.functions
    ]
    parts = [part for each in (build, *functions) for part in (each, type(each))]
    return {str(getattr(part, "__module__", "")) for part in parts}


def _check_rewinds(program: Program) -> None:
    for node in program.graph.nodes.values():
        problem = None if node.source is None else why_not_rewound(node.source, node.name)
        if problem is not None:
            raise HarnessMisused(f"{problem}; or simulate it with faults=()")


def _ladder(faults: tuple[str, ...]) -> list[tuple[Circumstances, str]]:
    """From what says most about the cause to what says least."""
    still = Circumstances(parallelism=False, scheduling=False, faults=(), outside=False)
    return [
        (
            replace(still, outside=True),
            "another time of day and other random numbers; the program reads them itself: use "
            "timestamps, the timer service, or a Random made of the record",
        ),
        (
            replace(still, parallelism=True),
            "another parallelism; the result depends on which keys share a task: keep state by key",
        ),
        (
            replace(still, scheduling=True),
            "another order of steps; the result depends on the order in which records of several "
            "channels or keys come",
        ),
        (
            replace(still, parallelism=True, scheduling=True),
            "another parallelism and order of steps; the result depends on the order in which "
            "records of several tasks come",
        ),
        (
            replace(still, scheduling=True, faults=faults),
            "a restore; what is kept outside of Headgate's state is lost or counts twice: keep it "
            "in state, let sinks overwrite or commit, let a source's position follow its records",
        ),
    ]


def _compared(expected: "dict[str, Counter[str]]", found: "dict[str, Counter[str]]") -> str:
    nothing: Counter[str] = Counter()
    problems = [
        f"{name!r} differs from the calm run: {different}"
        for name in dict.fromkeys((*expected, *found))
        if (different := difference(expected.get(name, nothing), found.get(name, nothing)))
    ]
    return "; ".join(problems)


def _checked_by(check: Check, outputs: dict[str, list[Any]]) -> str:
    try:
        found = check(outputs)
    except Exception as error:
        return f"check() raised {_words(error)}"
    return "check() returned False" if found is False else ""


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, HeadgateError) else f"{type(error).__name__}: {error}"


def _failed(
    problem: str, seed: int | None, run: _RunResult, cause: str = "", changed: Sequence[str] = ()
) -> SimulationFailed:
    details = list(run.story)
    if cause:
        details.append(f"enough to make it go wrong: {cause}")
    if changed:
        details.append(f"changed while it ran: {', '.join(changed)}")
    if seed is not None:
        details.append(f"repeat it: simulate(build, seed={seed}), or {SEED_VARIABLE}={seed} pytest")
    return SimulationFailed(problem, seed, details)


def calm_texts(build: Build, parallelism: int) -> "dict[str, Counter[str]]":
    """How the outputs of a calm run look."""
    run = _Simulation(build, (), None, False, parallelism).run(0, CALM)
    if run.error is not None:
        raise run.error
    return run.texts()


TRIPLES: Final = 12


class MergeUnsound(HeadgateError):
    """The result of an aggregate function depends on the order in which windows merge."""

    def __init__(self, operator: str, function: str, left: str, right: str) -> None:
        super().__init__(
            f"operator {operator!r}: merge() of {function} gives {left} or {right} for the same "
            f"records, by the order of merging; let it be associative, and agree with add()"
        )
        self.operator = operator


def check_aggregates(program: Program, samples: dict[int, list[bytes]]) -> None:
    """Try ``merge`` with records that have come to its operator; raises MergeUnsound."""
    for number, node in program.graph.nodes.items():
        for _, function in node.functions:
            if (
                isinstance(function, AggregateFunction)
                and type(function).merge is not AggregateFunction.merge
            ):
                keys = [edge.ship.key_of for edge in program.graph.inputs_of(number)]
                for records in _triples(samples.get(number, []), keys[0] if keys else None):
                    _check_merge(node.name, function, records)


def _triples(samples: list[bytes], key_of: Any) -> Iterator[tuple[bytes, ...]]:
    """Three records of the same key each."""
    by_key: dict[str, list[bytes]] = {}
    for data in samples:
        key = "" if key_of is None else text_of(key_of(pickle.loads(data)))
        by_key.setdefault(key, []).append(data)
    count = 0
    for of_key in by_key.values():
        for at in range(max(1, len(of_key) - 2)):
            triple = of_key[at : at + 3]
            while len(triple) < 3:
                triple = [*triple, triple[-1]]
            yield tuple(triple)
            count += 1
            if count >= TRIPLES:
                return


def _check_merge(operator: str, function: Any, records: tuple[bytes, ...]) -> None:
    def folded(*parts: bytes) -> Any:
        accumulator = function.create_accumulator()
        for data in parts:
            accumulator = function.add(pickle.loads(data), accumulator)
        return accumulator

    def result(accumulator: Any) -> str:
        return text_of(function.get_result(accumulator))

    for first, second, third in list(permutations(records))[:2]:
        merge = function.merge
        left = result(merge(merge(folded(first), folded(second)), folded(third)))
        right = result(merge(folded(first), merge(folded(second), folded(third))))
        added = result(merge(folded(first, second), folded(third)))
        for other in (right, added):
            if left != other:
                name = type(function).__name__
                raise MergeUnsound(operator, name, short_text(left), short_text(other))
