"""How one run of a user's program goes: where its tasks run, with what delays and faults.

A calm run is the same each time. Otherwise everything is drawn from the seed. Law: faults are
finite, so that a run comes to its end.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from typing import Final

from headgate.api.program import Program
from headgate.base.recovery_settings import CheckpointSettings, Consistency
from headgate.base.settings import ExchangeSettings, JobSettings
from headgate.plan.execution_graph import build_execution_graph
from headgate.plan.job_graph import JobVertex, build_job_graph
from headgate.sim.jobs.scenario import AT_ONCE, Delays, JobScenario, RecoveryScenario, draw_workers
from headgate.sim.network import NetworkConditions
from headgate.testing.program import planned, scaled
from headgate.testing.watching import Watch

CRASH: Final = "crash"
NETWORK: Final = "network"
ERROR: Final = "error"
RESCALE: Final = "rescale"
DRIVER: Final = "driver"
FAULTS: Final = (CRASH, NETWORK, ERROR, RESCALE, DRIVER)
"""A worker dies, a connection breaks, a function raises, the job is stopped with a savepoint and
goes on with another parallelism, the driver is lost."""
LONG_MS: Final = 10**12
FINE: Final = NetworkConditions(0.0, 0.0, 1e300, 1 << 22, 0.0)
EXCHANGE: Final = ExchangeSettings(
    segment_bytes=4096,
    backoff_initial_ms=1,
    backoff_max_ms=10_000,
    heartbeat_interval_ms=10**9,
    heartbeat_timeout_ms=2 * 10**9,
    connect_timeout_ms=10**9,
    debloat=False,
)

KINDS: Final = {
    CRASH: ("kill",),
    NETWORK: ("cut",),
    ERROR: ("error",),
    RESCALE: ("suspend", "suspend", "savepoint"),
    DRIVER: ("driver",),
}

Wrap = Callable[[Mapping[int, JobVertex]], Mapping[int, JobVertex]]
"""Puts something between the tasks of a run and their operators."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that happens to a run, so many steps after a checkpoint was stored."""

    kind: str
    checkpoints: int
    """How many must have been stored before, in all attempts."""
    steps: int


@dataclass(slots=True)
class ProgramScenario(RecoveryScenario):
    """All attempts of one run."""

    parallelisms: tuple[int | None, int | None, int | None] = (None, None, None)
    """Of operators that do not have 1, at first and after each savepoint; None: their own."""
    timeout_ms: int = 0
    """The buffer timeout."""
    wrap: Wrap = lambda vertices: vertices
    inline_functions: bool = True
    """Whether loops have the functions in them, as in production."""
    troubles: list[Trouble] = field(default_factory=list)
    break_next: Callable[[], None] = lambda: None
    """Lets the next operator that works fail."""
    epoch_ms: int = 0
    """What the clock shows at the start."""
    chance: int = 0
    """The seed of random numbers that the program draws itself."""

    def scaled(self, scale: int, random: Random) -> JobScenario:
        return _placed(self, self.first, self.parallelisms[scale], random)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is drawn for a run, and may differ from a calm run."""

    parallelism: bool = True
    scheduling: bool = True
    faults: tuple[str, ...] = FAULTS
    outside: bool = True
    """The clock, and random numbers."""


CALM: Final = Circumstances(False, False, (), False)


def calm_scenario(program: Program, wrap: Wrap, epoch_ms: int = 0) -> ProgramScenario:
    """For ``run_local`` and as the standard that others are compared with: everything at once."""
    settings = CheckpointSettings.parse(program.configuration)
    if not settings.is_enabled:
        settings = replace(settings, interval_ms=-1)
    plan = _scenario(program, wrap, 0, settings, AT_ONCE)
    plan.epoch_ms = epoch_ms
    plan.first = _placed(plan, plan.first, None, None)
    return plan


def draw_scenario(
    program: Program, watch: Watch, seed: int, length_ms: float, what: Circumstances
) -> ProgramScenario:
    """``length_ms``: how long a calm run takes."""
    random = Random(f"program {seed}")
    chosen = [random.choice((1, 2, 3, 4)) for _ in range(3)]
    epoch_ms = random.randrange(10**9, 2 * 10**12)
    if what.scheduling:
        settings = _draw_checkpoints(random, length_ms, bool(what.faults))
        if program.graph.batch:
            settings = replace(settings, interval_ms=-1)
        plan = _scenario(program, watch.wrap, seed, settings, Delays())
        _draw_order(plan, watch, random)
    else:
        plan = calm_scenario(program, watch.wrap)
    if what.outside:
        plan.epoch_ms, plan.chance = epoch_ms, seed
    if what.parallelism:
        plan.parallelisms = (chosen[0], chosen[1], chosen[2])
    plan.rescales = what.parallelism
    plan.break_next = watch.fail_next
    plan.troubles = _draw_troubles(random, what.faults, program.graph.batch)
    places = random if what.scheduling else None
    plan.first = _placed(plan, plan.first, plan.parallelisms[0], places)
    return plan


def _draw_checkpoints(random: Random, length_ms: float, are_needed: bool) -> CheckpointSettings:
    interval_ms = max(random.choice((2, 10, 30)), int(length_ms / random.choice((5, 15, 50))))
    return CheckpointSettings(
        interval_ms=interval_ms if are_needed else LONG_MS,
        mode=Consistency.EXACTLY_ONCE,
        timeout_ms=LONG_MS,
        max_concurrent=random.choice((1, 1, 2)),
        tolerable_failures=1000,
        unaligned=random.random() < 0.5,
        aligned_timeout_ms=random.choice((0, 0, 5)),
    )


def _draw_order(plan: ProgramScenario, watch: Watch, random: Random) -> None:
    """Draw what changes the order of events."""
    watch.poll_limits = random.choice(((1,), (1, 2, 3), (1, 3, 10), (50,)))
    watch.pauses = random.choice(((0.0, 0.0, 1.0), (0.0, 5.0), (1.0, 10.0), (20.0,)))
    plan.timeout_ms = random.choice((0, 0, 1, 10))
    first = plan.first
    first.called_in = random.choice((0, 0.3, 0.8))
    first.weights = random.choice(((1, 1, 1), (5, 1, 1), (1, 5, 1), (1, 1, 5), (4, 4, 1)))
    first.step_ms = random.choice((0.0, 0.01, 0.1))
    first.wire_conditions = [_draw_conditions(random) for _ in range(random.choice((1, 3)))]


def _scenario(
    program: Program, wrap: Wrap, seed: int, settings: CheckpointSettings, delays: Delays
) -> ProgramScenario:
    job_graph = build_job_graph(program.graph)
    first = JobScenario(
        seed=seed,
        calm=False,  # its checkpoints may be aborted
        settings=EXCHANGE,
        job_graph=job_graph,
        execution=build_execution_graph(job_graph, "job", 0),
        worker_of=[],
        arrive_ms=[],
        spare=16,
        roomy=True,
        called_in=0.0,
        marker_ms=0.0,
        step_ms=0.0,
        tick_ms=0.0,
        weights=(1, 1, 1),
        wire_conditions=[FINE],
        delays=delays,
        name=program.name,
        parameters=program.parameters,
    )
    return ProgramScenario(
        first,
        program.graph,
        settings,
        retained=1,
        write_fails=0.0,
        store_fails=0.0,
        pause_ms=0.0,
        notices_ms=inf,
        rescales=False,
        wrap=wrap,
        inline_functions=JobSettings.parse(program.configuration).inline_functions,
    )


def _placed(
    plan: ProgramScenario, first: JobScenario, parallelism: int | None, random: Random | None
) -> JobScenario:
    graph = scaled(plan.graph, parallelism, plan.timeout_ms)
    job_graph, load = planned(graph, plan.inline_functions)
    execution = build_execution_graph(job_graph, "job", 0)
    slots = execution.slots
    workers = list(range(slots)) if random is None else draw_workers(slots, random)
    return replace(
        first,
        job_graph=job_graph,
        execution=execution,
        worker_of=workers,
        arrive_ms=[0.0 for _ in workers],
        code=lambda: plan.wrap(load()),
    )


def _draw_conditions(random: Random) -> NetworkConditions:
    return NetworkConditions(
        latency_ms=random.choice((0.0, 0.1, 3.0)),
        jitter_ms=random.choice((0.0, 1.0, 10.0)),
        bandwidth=random.choice((1e3, 1e9)),
        window_bytes=1 << 16,
        tiny_reads=0.0,
    )


def _draw_troubles(random: Random, faults: tuple[str, ...], batch: bool) -> list[Trouble]:
    """A batch takes no checkpoints, and begins anew after each."""
    if batch:
        faults = tuple(fault for fault in faults if fault != RESCALE)
    if not faults:
        return []
    kinds = [random.choice(KINDS[random.choice(faults)]) for _ in range(random.choice((1, 2, 3)))]
    after = sorted(random.choice((0,) if batch else (0, 1, 1, 1, 2, 3)) for _ in kinds)
    return [
        Trouble(kind, checkpoints, int(10 ** random.uniform(0.0, 2.2)))
        for kind, checkpoints in zip(kinds, after, strict=True)
    ]
