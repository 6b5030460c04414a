"""Scenarios of random jobs: the program, where its tasks run, and what happens to them.

About half of the seeds are calm, as with the exchange alone: nothing breaks, and the sinks must get
exactly what the reference says.
"""

from dataclasses import dataclass, field, replace
from math import inf
from random import Random

from headgate.base.messages import TaskOrder
from headgate.base.settings import MIB, Compression, ExchangeSettings, FlowControl
from headgate.plan.execution_graph import ExecutionGraph, build_execution_graph
from headgate.plan.job_graph import build_job_graph
from headgate.sim.faults import Fault
from headgate.sim.jobs.scenario import JobScenario, draw_workers
from headgate.sim.jobs.threads import SimThread
from headgate.sim.network import NetworkConditions
from tests.sim.jobs.functions import Behavior, Run
from tests.sim.jobs.graphs import Draft, Items, ProgramShape
from tests.sim.jobs.records import Observations

NETWORK_FAULTS = ("cut", "cut", "stall", "stall", "refuse", "black-hole")
OTHER_FAULTS = ("freeze", "kill", "cancel", "cancel", "fail", "fail", "fail", "fail")
PATIENCE_MS = 1000
FLAT = 0.12
"""Share of jobs whose records take one hop; of these, most are without credits."""
LATE = 0.2
"""Share of jobs in which a task begins late, or never."""
LATEST_MS = 150.0
NEAR_MS = 0.5
MOST_FRAMES = 1000
"""About so many full buffers are sent in a job, by all operators together."""
RECORD_BYTES = 80
SLOW_MS = 600
"""What slow functions of a job take together, about."""
SMALL_RECORDS = 20
SMALL_BYTES = 1000
MARKED_TASKS = 15
"""Every hop multiplies latency markers; in a large job they would be all there is."""


@dataclass(slots=True, kw_only=True)
class DrawnJob(JobScenario):
    """A whole run, before it runs; ``expected``: what the reference says that sinks get."""

    run: Run
    expected: dict[int, Items]
    held: dict[str, float] = field(default_factory=dict)
    """Tasks that begin late, by their ids, and when; at infinity: never, until cancelled."""

    def describe(self) -> list[str]:
        """The scenario in a few lines."""
        s = self.settings
        where = ", ".join(
            f"slot {slot} on w{worker} from {arrive_ms:.1f} ms"
            for slot, (worker, arrive_ms) in enumerate(
                zip(self.worker_of, self.arrive_ms, strict=True)
            )
        )
        return [
            f"seed {self.seed}: {'calm' if self.calm else 'with trouble'}, {where}",
            f"  {s.flow_control.value}, segments of {s.segment_bytes} bytes, spare {self.spare}, "
            f"{'roomy' if self.roomy else 'tight'}, exclusive {s.buffers_per_channel}, "
            f"floating {s.floating_per_gate}, overdraft {s.overdraft_buffers}, "
            f"landing {s.landing_buffers}, burst {s.burst_frames}, {s.compression.value}",
            f"  {self.run.behavior}, loans called in {self.called_in}, markers {self.marker_ms}",
            *self.job_graph.describe().splitlines(),
            *self.execution.describe().splitlines(),
            *(f"  {task} begins at {at_ms:.0f} ms" for task, at_ms in self.held.items()),
            *(f"  conditions: {conditions}" for conditions in self.wire_conditions),
            *(f"  fault at step {fault.step}: {fault.kind}" for fault in self.faults),
        ]


class NoThreads:
    """Before the tasks have theirs."""

    def thread_of(self, task: str) -> SimThread:
        raise AssertionError(f"{task} has no thread yet")


def draw_job(seed: int) -> DrawnJob:
    """The scenario of a seed."""
    random = Random(f"job {seed}")
    calm = random.random() < 0.5
    behavior = Behavior(
        slow=random.choice((0, 0, 0.02, 0.2)),
        slow_ms=random.choice((1.0, 12.0, 60.0)),
        changes=random.random() < 0.7,
    )
    run = Run(seed, Observations(), NoThreads(), behavior)
    shape = replace(draw_shape(random), is_flat=Random(f"flat {seed}").random() < FLAT)
    draft = Draft(run, shape, random)
    draft.grow()
    hurry(run, draft)
    scenario = plan_job(draft, calm, run, shape, random)
    _disturb(scenario, random)
    _hold(scenario, Random(f"late {seed}"))
    return scenario


def hurry(run: Run, draft: Draft) -> None:
    """Long jobs are slow at fewer records: while nothing happens, timers alone take steps."""
    behavior = run.behavior
    most = 2 * SLOW_MS / (behavior.slow_ms * max(1, draft.records))
    run.behavior = replace(behavior, slow=min(behavior.slow, most))


def plan_job(draft: Draft, calm: bool, run: Run, shape: ProgramShape, random: Random) -> DrawnJob:
    """Where the tasks of a program run, and how; nothing happens to them."""
    seed = run.seed
    job_graph = build_job_graph(draft.graph)
    execution = build_execution_graph(job_graph, "job", 0)
    settings = _draw_settings(random, execution, draft.selects)
    settings = _draw_sizes(settings, shape, Random(f"sizes {seed}"))
    worker_of = draw_workers(execution.slots, random)
    late = random.random() < 0.3
    patience_ms = settings.backoff_max_ms / 2
    record_bytes = RECORD_BYTES + sum(shape.padding) / len(shape.padding)
    frames = draft.records * record_bytes / settings.segment_bytes
    if frames > MOST_FRAMES:
        longer = min(2048, int(settings.segment_bytes * frames / MOST_FRAMES))
        settings = replace(settings, segment_bytes=longer, min_buffer_bytes=60)
    wire_conditions = [_draw_conditions(frames, random) for _ in range(random.choice((1, 1, 3)))]
    if max(conditions.latency_ms for conditions in wire_conditions) > NEAR_MS:
        # With buffers of a byte over the longest wires nothing ends.
        settings = replace(settings, debloat_period_ms=10, min_buffer_bytes=60)
    return DrawnJob(
        seed=seed,
        calm=calm,
        run=run,
        settings=settings,
        job_graph=job_graph,
        execution=execution,
        expected=draft.expected,
        worker_of=worker_of,
        arrive_ms=[random.random() * (patience_ms if late else 0) for _ in worker_of],
        spare=random.choice((0, 0, 1, 3, 10, 40)),
        roomy=shape.batch or max(map(worker_of.count, worker_of)) > 1,
        called_in=random.choice((0, 0.05, 0.3, 0.8)),
        marker_ms=random.choice((0, 0, 2, 10)) if len(execution.tasks) <= MARKED_TASKS else 0,
        step_ms=random.choice((0.0, 0.001, 0.01, 0.05)),
        tick_ms=random.choice((15.0, 35.0)),
        weights=random.choice(((1, 1, 1), (1, 1, 1), (5, 1, 1), (1, 5, 1), (1, 1, 5), (4, 4, 1))),
        wire_conditions=wire_conditions,
    )


def _draw_conditions(frames: float, random: Random) -> NetworkConditions:
    """Neither far places nor tiny windows for jobs of many frames."""
    near, far = (0.01, 0.01, 0.5, NEAR_MS), (5.0, 30.0)
    latency_ms = random.choice(near if frames > MOST_FRAMES else near + far)
    narrow = latency_ms <= NEAR_MS and frames <= MOST_FRAMES
    return NetworkConditions(
        latency_ms=latency_ms,
        jitter_ms=random.choice((0, 0.5, 4)) * latency_ms,
        bandwidth=random.choice((1e6, 1e6, 5000, 300, 30)),
        window_bytes=random.choice((40, 300, 2000, 60_000) if narrow else (2000, 60_000)),
        tiny_reads=random.choice((0, 0.05, 0.3)),
    )


def draw_shape(random: Random) -> ProgramShape:
    pauses = random.choice((0, 0.1, 0.5))
    stamps = random.random() < 0.6
    return ProgramShape(
        batch=random.random() < 0.15,
        records=random.choice((3, 20, 60, 150)),
        parallelism=random.choice((1, 2, 2, 3)),
        padding=random.choice(((0,), (0, 3, 40), (0, 0, 0, 300))),
        pauses=pauses,
        pause_ms=random.choice((2.0, 30.0)),
        idles=stamps and random.random() < 0.3,
        stamps=stamps,
    )


def _draw_settings(random: Random, execution: ExecutionGraph, selects: bool) -> ExchangeSettings:
    exclusive = random.choice((0, 1, 1, 2, 2))
    initial_ms = random.choice((4, 15))
    compressed = random.random() < 0.2
    # Without credits a channel that takes nothing stops the others of its connection: stages that
    # share one can wait for each other for ever.
    staged = any(task.gates and task.outputs for task in execution.tasks)
    uses_tcp = not staged and not selects and random.random() < 0.7
    return ExchangeSettings(
        segment_bytes=random.choice((33, 64, 100, 256, 512, 2048)),
        buffers_per_channel=exclusive,
        floating_per_gate=random.choice((1, 2, 4, 8) if exclusive == 0 else (0, 1, 2, 8)),
        overdraft_buffers=random.choice((0, 0, 1, 5)),
        landing_buffers=random.choice((1, 2, 6)),
        burst_frames=random.choice((1, 2, 16)),
        flow_control=FlowControl.TCP if uses_tcp else FlowControl.CREDIT,
        compression=Compression.LZ4 if compressed else Compression.NONE,
        backoff_initial_ms=initial_ms,
        backoff_max_ms=initial_ms * random.choice((8, 16)),
        heartbeat_interval_ms=random.choice((30, 80)),
        heartbeat_timeout_ms=random.choice((400, 700)),
        connect_timeout_ms=1500,
    )


def _draw_sizes(
    settings: ExchangeSettings, shape: ProgramShape, random: Random
) -> ExchangeSettings:
    """Jobs last for some hundred milliseconds, so whoever looks at buffers must look often.

    A few small jobs have buffers of a byte, or of 16.
    """
    settings = replace(
        settings,
        debloat=random.random() < 0.5,
        debloat_target_ms=random.choice((1, 5, 50)),
        debloat_period_ms=random.choice((4, 20)),
        debloat_samples=random.choice((1, 4)),
        min_buffer_bytes=random.choice((1, 10, 60)),
        spill_bytes=random.choice((150, 5 * MIB)),
    )
    is_small = shape.records * max(shape.padding) <= SMALL_BYTES
    if is_small and shape.records <= SMALL_RECORDS and random.random() < 0.3:
        settings = replace(settings, segment_bytes=random.choice((1, 16, 16)), min_buffer_bytes=1)
    return settings


def _hold(scenario: DrawnJob, random: Random) -> None:
    """A task begins late: its machine is busy, or its thread hangs. In trouble it never does."""
    if random.random() < LATE:
        task = random.choice(scenario.execution.tasks)
        never = not scenario.calm and random.random() < 0.7
        scenario.held[task.id] = inf if never else random.random() * LATEST_MS
        if never:  # nobody looks at its buffers for a long while
            scenario.settings = replace(scenario.settings, debloat=False)


def _disturb(scenario: DrawnJob, random: Random) -> None:
    settings = scenario.settings
    if random.random() < 0.15:  # what nobody may notice, if the consumers have the patience
        lasts_ms = random.random() * settings.heartbeat_timeout_ms / 4
        scenario.settings = replace(settings, backoff_max_ms=PATIENCE_MS)
        scenario.faults.append(Fault("doze", _draw_step(random), lasts_ms))
    strange = Random(f"stranger {scenario.seed}")
    if strange.random() < 0.1:
        scenario.faults.append(Fault("stranger", _draw_step(strange)))
    if scenario.calm:
        return
    for _ in range(random.choice((1, 1, 2))):
        kinds = OTHER_FAULTS if scenario.workers == 1 else NETWORK_FAULTS + OTHER_FAULTS
        kind = random.choice(kinds)
        if kind == "fail":
            plan_failure(scenario, random)
            continue
        lasts_ms = settings.heartbeat_timeout_ms * random.uniform(1.2, 3)
        early = kind in ("refuse", "black-hole")
        step = random.randint(0, 30) if early else _draw_step(random)
        scenario.faults.append(Fault(kind, step, lasts_ms))


def _draw_step(random: Random) -> int:
    return int(10 ** random.uniform(1.0, 2.9))


def plan_failure(scenario: DrawnJob, random: Random) -> None:
    """A function is to fail somewhere."""
    task: TaskOrder = random.choice(scenario.execution.tasks)
    operator = random.choice(scenario.job_graph.vertices[task.vertex].chain.operators)
    at = random.choice((-1, -2, 1, 1, 2, 5, 30))
    scenario.run.behavior.fails[f"{operator.id}.{task.subtask}"] = at
