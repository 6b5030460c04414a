"""A whole program in this process, without Spark, in virtual time; its state and its timers."""

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.api.program import Program
from headgate.base.checkpoints import Stop
from headgate.base.errors import HarnessMisused, HeadgateError, JobFailed, UserFunctionFailed
from headgate.base.moved import loads
from headgate.control.effects import StoreCheckpoint
from headgate.core.state.reading import StateReader
from headgate.functions.context import TimeDomain
from headgate.functions.state import StateDescriptor
from headgate.host.shipping.failures import root_of
from headgate.sim.jobs.storage import SimStorage
from headgate.testing.program import Build, built_program
from headgate.testing.runtime import DEFAULT_PARALLELISM, PrintedOutput, TestingRuntime
from headgate.testing.scenario import Wrap, calm_scenario
from headgate.testing.sources import ManualSource
from headgate.testing.virtual_time import virtual_time
from headgate.testing.world import ProgramWorld

_NOTHING: Final[dict[str, Any]] = {"list": list, "map": dict}


@dataclass(frozen=True, slots=True)
class PendingTimer:
    """A timer that has not fired."""

    time_ms: int
    key: Any
    domain: TimeDomain = TimeDomain.EVENT_TIME


def read_state(world: ProgramWorld, name: str, key: object, operator: str | None) -> Any:
    """What a state holds at a key; raises HarnessMisused if there is no such state."""
    problems: dict[str, None] = {}
    kind: str | None = None
    for title, reader in _readers(world, operator):
        values = reader.read(name, [pickle.dumps(key)])
        if values.problem:
            problems[f"operator {title!r}: {values.problem}"] = None
            continue
        kind, (found,) = values.kind, values.values
        if found.problem:
            raise HarnessMisused(f"operator {title!r}, state {name!r}: {found.problem}")
        if found.data is not None:
            return loads(found.data)
    if kind is not None:
        return _NOTHING.get(kind, lambda: None)()
    raise HarnessMisused("; ".join(problems) or f"no operator has a state {name!r}")


def pending_timers(
    world: ProgramWorld, key: object = None, operator: str | None = None
) -> list[PendingTimer]:
    """Timers that have not fired, in the order of their times; ``key`` None: of all keys."""
    found = [
        PendingTimer(*timer)
        for _, reader in _readers(world, operator)
        for timer in reader.timers()
        if key is None or timer[1] == key
    ]
    return sorted(found, key=lambda timer: (timer.time_ms, timer.domain.value, repr(timer.key)))


def _readers(world: ProgramWorld, operator: str | None) -> Iterator[tuple[str, StateReader]]:
    """Readers of the state of each task of each operator that keeps state by key."""
    vertices = world.driver.vertices
    known: dict[str, None] = {}
    is_found = False
    for task in world.running:
        for spec in vertices[task.order.vertex].chain.operators:
            if operator is not None and operator not in (spec.name, spec.uid):
                known[spec.name] = None
                continue
            is_found = True
            reader = task.task.state_reader(spec.uid)
            if reader is not None:
                yield spec.name, reader
            elif operator is not None:
                raise HarnessMisused(
                    f"operator {operator!r} keeps no state by key; call key_by() before it"
                )
    if operator is not None and not is_found:
        raise HarnessMisused(
            f"there is no operator {operator!r}; there are {', '.join(map(repr, known))}"
        )


@dataclass(frozen=True, slots=True)
class ProgramSnapshot:
    """The state of a program at one moment: a savepoint, in memory."""

    store: StoreCheckpoint
    storage: SimStorage
    sent: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """How much was sent to each split of each hand-filled source before."""


def run_local(
    build: Build,
    *,
    parallelism: int = DEFAULT_PARALLELISM,
    settings: Mapping[str, str] | None = None,
    start_ms: int = 0,
    duration_ms: float | None = None,
    restore: ProgramSnapshot | None = None,
) -> "LocalRun":
    """Run the program that ``build(env)`` writes, here and now.

    ::

        run = run_local(lambda env: env.from_collection([1, 2]).map(lambda x: x + 1))
        assert run.output == [2, 3]

    It runs to its end before this returns, unless it reads a ``ManualSource``: then the test sends
    records, and moves the clock. ``parallelism`` is that of operators that set none; ``settings``
    are those of the environment; the clock begins at ``start_ms``. With ``duration_ms`` the run
    lasts so long by the clock, for sources that never end. ``restore`` begins with a snapshot.
    """
    run = LocalRun(parallelism, settings, start_ms, restore)
    run._start(build, duration_ms)
    return run


class LocalRun:
    """A program that has run, or that a test drives."""

    def __init__(
        self,
        parallelism: int,
        settings: Mapping[str, str] | None,
        start_ms: int,
        restore: ProgramSnapshot | None,
        wrap: Wrap = lambda vertices: vertices,
    ) -> None:
        self._runtime = TestingRuntime(self._run_program, parallelism, settings)
        self._start_ms = start_ms
        self._restore = restore
        self._wrap = wrap
        self._world: ProgramWorld | None = None
        self._sources: list[ManualSource] = []
        self._has_ended = False

    # Results.

    @property
    def output(self) -> list[Any]:
        """The records of the stream that ``build`` returned, in order of arrival."""
        outputs = [found for found in self._runtime.outputs if not isinstance(found, PrintedOutput)]
        if len(outputs) != 1:
            names = ", ".join(repr(found.name) for found in outputs)
            raise HarnessMisused(
                f"the program has {len(outputs)} outputs ({names}), and output is for one; return "
                f"a stream from build(), or ask for outputs"
            )
        return outputs[0].records

    @property
    def outputs(self) -> dict[str, list[Any]]:
        """The records of all outputs by name: ``output``, or the names that ``build`` gave."""
        return {output.name: output.records for output in self._runtime.outputs}

    @property
    def printed(self) -> list[str]:
        """The lines that ``print()`` has printed."""
        printed = [found for found in self._runtime.outputs if isinstance(found, PrintedOutput)]
        return [line for output in printed for line in output.lines]

    # Time.

    @property
    def now_ms(self) -> int:
        """What the clock of the program shows."""
        return self._live().clock.wall_ms

    def advance_clock(self, duration_ms: float) -> None:
        """Let so much processing time pass; timers and the like fire on the way, in order."""
        if duration_ms < 0:
            raise HarnessMisused(f"the clock cannot go back by {-duration_ms} ms; it only advances")
        world = self._live()
        self._failing(lambda: world.settle(world.clock.now_ms + duration_ms))

    def finish(self) -> None:
        """End the sources, and let the program run to its end."""
        world = self._live()
        for source in self._sources:
            source.on_change(_nothing)
            source.end()
        self._run_on(world)

    def close(self) -> None:
        """Cancel the program; its functions are closed. Idempotent."""
        has_ended, self._has_ended = self._has_ended, True
        for source in self._sources:
            source.on_change(_nothing)
        if self._world is not None:
            try:
                if not has_ended:
                    self._world.cancel()
            finally:
                self._world.close()

    def __enter__(self) -> "LocalRun":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # State.

    def state(self, state: StateDescriptor | str, key: object, operator: str | None = None) -> Any:
        """What a keyed state holds at a key; None, an empty list or an empty dict: nothing.

        ``operator`` is its name or uid; without it the first operator that has such a state counts.
        """
        name = state if isinstance(state, str) else state.get_name()
        return read_state(self._live(), name, key, operator)

    def timers(self, key: object = None, operator: str | None = None) -> list[PendingTimer]:
        """Timers that have not fired, those that are due first in front; ``key`` None: of all."""
        return pending_timers(self._live(), key, operator)

    def snapshot(self) -> ProgramSnapshot:
        """A savepoint of the whole program, now; it goes on."""
        world = self._live()
        taken = world.savepoint(Stop.NO)
        self._settle()
        store = taken()
        if store is None:
            raise HarnessMisused("no snapshot can be taken: the program has ended, or is ending")
        sent = {source.name: source.sent() for source in self._sources}
        return ProgramSnapshot(store, world.job.storage.copy(), sent)

    def check_alive(self) -> None:
        """Raises HarnessMisused if the program has ended."""
        self._live()

    # Running.

    def _start(self, build: Build, duration_ms: float | None) -> None:
        program = built_program(build, self._runtime)
        if program is None:
            self._has_ended = True
            return
        self._begin(program)
        world = self._live()
        if duration_ms is not None:
            self._failing(lambda: world.settle(duration_ms))
        elif self._sources:
            self._settle()
        else:
            self._run_on(world)

    def _run_program(self, program: Program) -> None:
        """``build`` has executed it itself."""
        self._begin(program)
        self._run_on(self._live())
        self._has_ended = False

    def _run_on(self, world: ProgramWorld) -> None:
        with virtual_time(world.clock, world.plan.chance):
            self._failing(world.finish)
        self._has_ended = True

    def _begin(self, program: Program) -> None:
        plan = calm_scenario(program, self._wrap, self._start_ms)
        self._name = program.name
        self._world = world = ProgramWorld(plan)
        if self._restore is not None:
            world.restore(self._restore.store, self._restore.storage.copy())
        sources = [node.source for node in program.graph.nodes.values()]
        self._sources = [found for found in sources if isinstance(found, ManualSource)]
        for source in self._sources:
            if self._restore is not None:
                source.skip(self._restore.sent.get(source.name, ()))
            source.on_change(self._settle)
        self._failing(lambda: world.begin(plan.first))

    def _settle(self) -> None:
        self._failing(self._live().settle)

    def _failing(self, act: Callable[[], None]) -> None:
        """Errors come as a job's errors do; the program ends with them."""
        try:
            act()
        except HarnessMisused:
            raise
        except HeadgateError as error:
            with suppress(HeadgateError):  # the first one is the cause
                self.close()
            operator = error.operator if isinstance(error, UserFunctionFailed) else ""
            raise JobFailed(self._name, str(error), operator) from root_of(error)

    def _live(self) -> ProgramWorld:
        if self._world is None or self._has_ended:
            raise HarnessMisused("the program has ended; only its outputs can be read")
        return self._world


def _nothing() -> None:
    """Nobody reads the source any more."""
