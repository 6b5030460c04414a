"""Scenarios: everything that a seed decides before the first step.

About half of the seeds are calm: links may be slow and workers doze, but nothing breaks, and every
record must arrive. The others have faults, planned failures, or readers that close early.
"""

from dataclasses import dataclass, field, replace
from math import log10
from random import Random

from headgate.base.settings import MIB, Compression, ExchangeSettings, FlowControl
from headgate.core.buffers.sizing import PoolBounds, gate_bounds, partition_bounds
from headgate.core.egress.partition import PartitionKind
from headgate.sim.faults import Fault
from headgate.sim.network import Weather
from tests.sim.programs import Manners
from tests.sim.routes import RouteKind
from tests.sim.streams import OutputPlan
from tests.sim.topology import Feed, Vertex, draw_vertices

RECORD_OVERHEAD_BYTES = 60
FRAMES = (80, 4000)
STEPS = (2, 150)
PATIENCE_MS = 1000
TROUBLES = (
    *("cut", "cut", "cut", "stall", "stall", "freeze", "kill", "refuse", "black-hole"),
    *("fail", "fail", "quit", "quit", "never", "cancel"),
)


@dataclass(slots=True)
class JobPlan:
    """One task, and where it runs."""

    name: str
    worker: int
    manners: Manners
    output: OutputPlan | None
    feeds: list[list[Feed]]
    start_ms: float | None = 0
    """None: it never starts."""
    place_ms: list[list[float | None]] = field(default_factory=list)
    """For each channel: when its producer's place becomes known; None: from the start."""


@dataclass(slots=True)
class Scenario:
    """A whole run, before it runs."""

    seed: int
    calm: bool
    settings: ExchangeSettings
    workers: int
    spare: int
    jobs: list[JobPlan]
    faults: list[Fault]
    weathers: list[Weather]
    step_ms: float
    tick_ms: float
    moods: tuple[int, int, int]
    """Weights of tasks, network and timers when the next step is chosen."""
    together: bool
    """Whether all tasks are set up before the first one runs. If not, some find their memory lent
    to others, and so there must be enough for all."""
    sweeps: bool
    """Whether the first trouble cancels all tasks; else only what got stuck, later."""

    def segments(self, worker: int) -> int:
        """The least arena with which the tasks of a worker can end, and the spare."""
        settings, need, where = self.settings, self.spare, self.places()
        uses_credit = settings.flow_control is FlowControl.CREDIT
        remote: dict[int, None] = {}
        for job in self.jobs:
            if job.worker != worker:
                continue
            if job.output is not None:
                need += self._size(partition_bounds(settings, job.output.subpartitions, True))
                need += 0 if self.together else settings.overdraft_buffers
            for feeds, place_ms in zip(job.feeds, job.place_ms, strict=True):
                need += self._size(gate_bounds(settings, len(feeds), True))
                for feed, placed_ms in zip(feeds, place_ms, strict=True):
                    is_remote = where[feed.producer] != worker
                    if is_remote:
                        remote[where[feed.producer]] = None
                    if uses_credit and (is_remote or placed_ms is not None):
                        need += settings.buffers_per_channel
        return need + len(remote) * settings.landing_buffers

    def _size(self, bounds: PoolBounds) -> int:
        assert bounds.maximum is not None
        return bounds.minimum if self.together else bounds.maximum

    def places(self) -> dict[str, int]:
        """Each task's worker."""
        return {job.name: job.worker for job in self.jobs}

    def describe(self) -> list[str]:
        """The scenario in a few lines."""
        s = self.settings
        lines = [
            f"seed {self.seed}: {'calm' if self.calm else 'with trouble'}, {self.workers} workers, "
            f"{'set up together' if self.together else 'set up one by one'}, "
            f"{s.flow_control.value}, segments of {s.segment_bytes} bytes, spare {self.spare}, "
            f"exclusive {s.buffers_per_channel}, floating {s.floating_per_gate}, "
            f"overdraft {s.overdraft_buffers}, landing {s.landing_buffers}, "
            f"burst {s.burst_frames}, timeout {s.buffer_timeout_ms} ms, {s.compression.value}",
        ]
        for job in self.jobs:
            output = job.output
            writes = f" → {output.kind.name} {output.route.value} " if output is not None else ""
            sizes = f"to {output.subpartitions}" if output is not None else ""
            reads = "; ".join(
                ", ".join(f"{feed.partition}[{feed.subpartition}]" for feed in feeds)
                for feeds in job.feeds
            )
            lines.append(
                f"  {job.name} on w{job.worker}, starts {job.start_ms}: {reads}{writes}{sizes}"
            )
            lines.append(f"    {job.manners}")
        lines += [f"  weather: {weather}" for weather in self.weathers]
        lines += [f"  fault at step {fault.step}: {fault.kind}" for fault in self.faults]
        return lines


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    random = Random(f"scenario {seed}")
    calm = random.random() < 0.5
    settings = _draw_settings(random)
    workers = random.choice((1, 2, 2, 2, 3, 3, 4) if calm else (1, 2, 2, 2, 2, 3, 3, 3, 4))
    vertices = draw_vertices(random)
    if any(vertex.upstream and vertex.writes for vertex in vertices):
        # Without credits two stages that share their connections can wait for each other for ever:
        # a reader without buffers stops the connection that the other stage's readers need.
        settings = replace(settings, flow_control=FlowControl.CREDIT)
    together = random.random() < 0.7
    if not together:
        for vertex in vertices:
            if vertex.kind is PartitionKind.PIPELINED:
                vertex.kind = PartitionKind.PIPELINED_BOUNDED
    jobs = _draw_jobs(vertices, settings, workers, random)
    _draw_starts(jobs, settings, together, random)
    count = random.choice((1, 1, 3))
    weathers = [draw_weather(settings.segment_bytes, random) for _ in range(count)]
    scenario = Scenario(
        seed=seed,
        calm=calm,
        settings=settings,
        workers=workers,
        spare=random.choice((0, 0, 1, 3, 10, 40)),
        jobs=jobs,
        faults=[],
        weathers=weathers,
        step_ms=random.choice((0.0, 0.001, 0.01, 0.05)),
        tick_ms=random.choice((15.0, 35.0)),
        moods=random.choice(((1, 1, 1), (1, 1, 1), (5, 1, 1), (1, 5, 1), (1, 1, 5), (4, 4, 1))),
        together=together,
        sweeps=random.random() < 0.4,
    )
    _disturb_lightly(scenario, random)
    if not calm:
        _disturb(scenario, random)
    return scenario


def _draw_settings(random: Random) -> ExchangeSettings:
    exclusive = random.choice((0, 1, 1, 2, 2, 3))
    initial_ms = random.choice((4, 15))
    segment_bytes = 1 if random.random() < 0.05 else random.choice((16, 33, 64, 100, 256, 512))
    compressed = random.random() < 0.2
    return ExchangeSettings(
        segment_bytes=segment_bytes,
        buffers_per_channel=exclusive,
        floating_per_gate=random.choice((1, 2, 4, 8) if exclusive == 0 else (0, 1, 2, 8)),
        overdraft_buffers=random.choice((0, 0, 1, 5)),
        landing_buffers=random.choice((1, 2, 6)),
        burst_frames=random.choice((1, 2, 16)),
        flow_control=FlowControl.TCP if random.random() < 0.2 else FlowControl.CREDIT,
        compression=Compression.LZ4 if compressed else Compression.NONE,
        buffer_timeout_ms=random.choice((-1, 0, 3, 20, 100)),
        backoff_initial_ms=initial_ms,
        backoff_max_ms=initial_ms * random.choice((8, 16)),
        heartbeat_interval_ms=random.choice((30, 80)),
        heartbeat_timeout_ms=random.choice((400, 700)),
        connect_timeout_ms=1500,
        spill_bytes=random.choice((150, 5 * MIB)),
    )


def _draw_jobs(
    vertices: list[Vertex], settings: ExchangeSettings, workers: int, random: Random
) -> list[JobPlan]:
    payload_bytes = _draw_payload(settings.segment_bytes, random)
    steps = _draw_steps(vertices, settings.segment_bytes, payload_bytes, random)
    nudges = random.choice((0, 0, 0.1))
    sleeps = random.choice((0, 0, 0.05, 0.3))
    holds = random.choice((0, 0, 0, 0.1))
    jobs = []
    for vertex in vertices:
        for index in range(vertex.parallelism):
            output = None
            if vertex.writes:
                output = OutputPlan(
                    vertex.partition(index),
                    vertex.kind,
                    vertex.subpartitions(index),
                    vertex.route,
                    random.randrange(4),
                    payload_bytes,
                )
            feeds = [producer.feeds(index) for producer in vertex.upstream]
            manners = Manners(
                steps=0 if feeds else random.randint(1, steps),
                polite=random.random() < 0.5,
                sleeps=sleeps if random.random() < 0.7 else 0,
                sleep_ms=random.choice((0.5, 10, 40)),
                holds=holds,
                stops_after=random.randint(1, 30) if feeds and random.random() < 0.1 else -1,
                stop_ms=random.choice((100, 1200)),
                nudges=nudges,
                bounded=random.random() < 0.8,
            )
            name, worker = vertex.task(index), random.randrange(workers)
            jobs.append(JobPlan(name, worker, manners, output, feeds))
    return jobs


def _draw_starts(
    jobs: list[JobPlan], settings: ExchangeSettings, together: bool, random: Random
) -> None:
    """Some start late, and some places are known late."""
    patience_ms = settings.backoff_max_ms  # less than all pauses together
    for job in jobs:
        job.start_ms = random.random() * 3
        if not job.feeds and random.random() < 0.2:
            job.start_ms = random.random() * patience_ms
        unknown = not together and random.random() < 0.4
        job.place_ms = [
            [random.random() * 50 if unknown and random.random() < 0.7 else None for _ in feeds]
            for feeds in job.feeds
        ]


def _draw_payload(segment_bytes: int, random: Random) -> tuple[int, ...]:
    large = min(3000, segment_bytes * random.choice((2, 6, 20)))
    return random.choice(
        ((0, 1, 5, 20), (10, 50, 200), (0, 10, 10, 10, large), (segment_bytes, large))
    )


def _draw_steps(
    vertices: list[Vertex], segment_bytes: int, payload_bytes: tuple[int, ...], random: Random
) -> int:
    """So many steps for each source that a run stays small."""
    frames = 10 ** random.uniform(log10(FRAMES[0]), log10(FRAMES[1]))
    record = sum(payload_bytes) / len(payload_bytes) + RECORD_OVERHEAD_BYTES
    per_step = 0.0
    for vertex in vertices:
        copies = vertex.width if vertex.route is RouteKind.BROADCAST else 1
        per_step += vertex.parallelism * (4 * copies * record / segment_bytes + vertex.width)
    return max(STEPS[0], min(STEPS[1], int(frames / per_step)))


def draw_weather(segment_bytes: int, random: Random) -> Weather:
    """Neither far places for runs with a frame for every byte, nor tiny windows for large ones."""
    near, far = (0.01, 0.01, 0.5, 0.5), (5.0, 30.0)
    latency_ms = random.choice(near if segment_bytes == 1 else near + far)
    narrow = latency_ms < 1 and segment_bytes <= 100
    return Weather(
        latency_ms=latency_ms,
        jitter_ms=random.choice((0, 0.5, 4)) * latency_ms,
        bandwidth=random.choice((1e6, 1e6, 5000, 300, 30)),
        window_bytes=random.choice((40, 300, 2000, 60_000) if narrow else (2000, 60_000)),
        tiny_reads=random.choice((0, 0.05, 0.3)),
    )


def _disturb_lightly(scenario: Scenario, random: Random) -> None:
    """What nobody may notice: a stranger who connects, and a worker that dozes for a while."""
    if random.random() < 0.2:
        settings = scenario.settings
        lasts_ms = random.random() * settings.heartbeat_timeout_ms / 4
        # Its tasks may start that much later, and their consumers must have the patience.
        scenario.settings = replace(settings, backoff_max_ms=PATIENCE_MS)
        scenario.faults.append(Fault("doze", draw_step(random), lasts_ms))
    if random.random() < 0.1:
        scenario.faults.append(Fault("stranger", draw_step(random)))


def _disturb(scenario: Scenario, random: Random) -> None:
    """One or two troubles."""
    for _ in range(random.choice((1, 1, 2))):
        kind = random.choice(TROUBLES)
        job = random.choice(scenario.jobs)
        if kind == "quit":
            job = random.choice([job for job in scenario.jobs if job.output is None])
        if kind == "fail":
            job.manners = replace(job.manners, fails_at=random.randint(0, 20))
        elif kind == "quit":
            job.manners = replace(job.manners, quits_after=random.randint(1, 8))
        elif kind == "never":
            job.start_ms = None
        else:
            patience_ms = scenario.settings.heartbeat_timeout_ms
            lasts_ms = patience_ms * random.uniform(1.2, 3)
            early = kind in ("refuse", "black-hole")
            step = random.randint(0, 30) if early else draw_step(random)
            scenario.faults.append(Fault(kind, step, lasts_ms))


def draw_step(random: Random) -> int:
    return int(10 ** random.uniform(0.7, 2.9))


def waits_for_blocking(job: JobPlan, jobs: list[JobPlan]) -> bool:
    """Whether a task starts only when an earlier one has ended."""
    kinds = {task.output.partition: task.output.kind for task in jobs if task.output is not None}
    return any(
        kinds[feed.partition] is PartitionKind.BLOCKING for feeds in job.feeds for feed in feeds
    )
