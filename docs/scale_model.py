"""How the exchange behaves with 1,000 task managers: computed, simulated, checked where it can be.

``PYTHONPATH=. .venv/bin/python docs/scale_model.py`` prints the tables of docs/scaling.md and draws
docs/scaling.svg, in about a minute on a quiet machine. One task of each side on every task manager,
all to all.

- *computed*: buffers, from the sums with which jobs are admitted (``core/buffers/sizing.py``);
- *modelled*: a discrete-event model of one producer, which knows buffers and credit and no bytes;
- *real*: the machines themselves in the simulator, with 4, 8 and 16 task managers. Model and
  machines must agree there (``tests/docs/test_scale_model.py``) before the model says anything of
  1,000.
"""

import heapq
import itertools
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log10
from pathlib import Path
from random import Random
from typing import Final

from headgate.base.ids import ChannelId, PartitionId
from headgate.base.settings import ExchangeSettings, FlowControl
from headgate.core.buffers.sizing import GateShape, buffer_need, partition_bounds
from headgate.core.exchange.frames import PREFIX, AddCredit, Kind, encode
from headgate.core.exchange.sender import Reader
from headgate.core.task.environment import Here, Input, RemoteProducer
from headgate.sim.clock import Clock
from headgate.sim.jobs.world import Scheduler
from headgate.sim.network import Network, NetworkConditions
from headgate.sim.worker import SimWorker
from tests.sim.plain_tasks import PlainReader, PlainWriter
from tests.sim.tap import Tap

PICTURE: Final = Path(__file__).with_name("scaling.svg")
SIZES: Final = (4, 8, 16, 32, 100, 300, 1000)
REAL: Final = (4, 8, 16)
RATE: Final = 10 << 20
"""Bytes a second that one producer writes."""
RECORD_BYTES: Final = 165
WINDOW_BYTES: Final = 2_560
"""Of a connection in the simulator: eight of its buffers with their heads."""
WINDOW_FRAMES: Final = 8
KERNEL_BYTES: Final = 4 << 20
"""What Linux lets a socket hold that is not read, by default."""
WIRE: Final = NetworkConditions(0.5, 0, 1e6, WINDOW_BYTES, 0)
STEP_MS: Final = 0.001
TICK_MS: Final = 100.0
LOOK_EVERY: Final = 50
"""Steps of each worker between two looks at whether the producers stand still."""
QUIET_LOOKS: Final = 4
MIB: Final = 1 << 20


# Computed.


@dataclass(frozen=True)
class Memory:
    """Buffers of one task manager, in MiB, and the Python objects of its remote channels."""

    exclusive: float
    partition: float
    landing: float
    spare: float


def memory(count: int, settings: ExchangeSettings) -> Memory:
    """A producer and a consumer on each of so many task managers."""
    gate = GateShape(count, count - 1)
    need = buffer_need(settings, [count], [gate], count - 1)
    unit = settings.segment_bytes / MIB
    return Memory(
        (need.exclusive + need.gates) * unit,
        need.partitions * unit,
        need.landing * unit,
        need.spare * unit,
    )


def reader_bytes(count: int = 1000) -> float:
    """Measured: what the sender's side of one channel takes beside its buffers."""
    tracemalloc.start()
    try:
        name = PartitionId("source/0#0")
        readers = {ChannelId(index): Reader(ChannelId(index), name, 2) for index in range(count)}
        return tracemalloc.get_traced_memory()[0] / len(readers)
    finally:
        tracemalloc.stop()


def grant_bytes(grants: int) -> int:
    """A message that grants credit to so many channels."""
    return len(encode(AddCredit(tuple((ChannelId(index), 1) for index in range(grants)))))


# Modelled: one producer writes whole buffers to its channels in turn.


@dataclass(frozen=True)
class Blocked:
    """When a producer stands still because one of its consumers does."""

    buffers: int
    """That it has written until then, to all channels."""
    ms: float


def until_blocked(
    count: int, settings: ExchangeSettings, step_ms: float, trip_ms: float, window: int = 0
) -> Blocked:
    """One consumer stops at the start; all others take a buffer as soon as it is there.

    The producer's pool is shared: its stopped channel may take all of it. A buffer of another
    channel comes back when it is sent, and its credit one round trip later. Without credit the
    stopped channel also fills ``window`` buffers of the connection, and its share of the gate.
    """
    pool = partition_bounds(settings, count, bounded=True).maximum
    assert pool is not None
    credit = [settings.buffers_per_channel] * count
    # Floating buffers of the stopped gate go to its channels by backlog: a share for each.
    credit[0] += settings.floating_per_gate // count
    if settings.flow_control is FlowControl.TCP:
        credit[0] += window
    # Every other channel has a buffer that is being filled.
    queued, free, now, written = [0] * count, pool - (count - 1), 0.0, 0
    returns: list[tuple[float, int]] = []
    while True:
        channel = written % count
        while returns and returns[0][0] <= now:
            _, back = heapq.heappop(returns)
            credit[back] += 1
            if queued[back]:
                queued[back] -= 1
                free += 1
                credit[back] -= 1
                heapq.heappush(returns, (now + trip_ms, back))
        if not free:
            if not returns:
                return Blocked(written, now)
            now = returns[0][0]
            continue
        now += step_ms
        written += 1
        if credit[channel]:
            credit[channel] -= 1
            if channel:
                heapq.heappush(returns, (now + trip_ms, channel))
        else:
            queued[channel] += 1
            free -= 1


def in_flight_bytes(count: int, settings: ExchangeSettings) -> int:
    """Of one task manager under back pressure: its full output and its full input."""
    pool = partition_bounds(settings, count, bounded=True).maximum
    assert pool is not None
    held = pool + count * settings.buffers_per_channel + settings.floating_per_gate
    kernel = 0 if settings.flow_control is FlowControl.CREDIT else (count - 1) * KERNEL_BYTES
    return held * settings.segment_bytes + kernel


def frames_per_s(count: int, settings: ExchangeSettings, rate: float = RATE) -> float:
    """Of one producer: full buffers, or one for each channel and flush if they do not fill."""
    full = rate / settings.segment_bytes
    return max(full, min(count * 1000 / settings.buffer_timeout_ms, rate))


def fill_ms(settings: ExchangeSettings, rate: float = RATE) -> float:
    """In which a producer of this rate fills a buffer."""
    return settings.segment_bytes / rate * 1000


# Real: the machines in the simulator.


@dataclass(frozen=True)
class Traffic:
    """What went over all wires of a run."""

    data: int
    credit: int
    data_bytes: int
    credit_bytes: int


def counting(frames: Counter[int], size: Counter[int]) -> type[Tap]:
    """Taps that count frames by their kind, and their bytes."""

    class CountingTap(Tap):
        def _seen(self) -> None:
            length, _, _, kind = PREFIX.unpack_from(self.head)
            frames[kind] += 1
            size[kind] += PREFIX.size + length
            super()._seen()

    return CountingTap


def settings_for(flow: FlowControl) -> ExchangeSettings:
    """The defaults, with small buffers: the model counts buffers."""
    return ExchangeSettings(
        segment_bytes=256,
        min_buffer_bytes=256,
        debloat=False,
        flow_control=flow,
        buffer_timeout_ms=-1,
        landing_buffers=2,
    )


class Cluster:
    """A producer and a consumer on each worker; the consumer of the first one may stop."""

    def __init__(
        self,
        count: int,
        settings: ExchangeSettings,
        records: int | None,
        stops: bool,
        make_tap: Callable[[], Tap | None] = lambda: None,
    ) -> None:
        """``records`` of each producer; None: without an end."""
        self.clock = Clock()
        wires = Network(self.clock, Random("network"), lambda: WIRE)
        wires.make_tap = make_tap
        need = buffer_need(settings, [count], [GateShape(count, count - 1)], count - 1)
        held = need.exclusive + need.gates + need.partitions + need.landing
        arena = held + count * (2 * count + 16)
        self.workers = [
            SimWorker(index, settings, arena, self.clock, wires, Random(index), TICK_MS)
            for index in range(count)
        ]
        for worker in self.workers:
            worker.peers = self.workers
        self.writers = [
            PlainWriter(
                worker, f"source/{worker.index}", _numbered(records), count,
                first=worker.index, timeout_ms=settings.buffer_timeout_ms, is_patient=True,
            )
            for worker in self.workers
        ]  # fmt: skip
        self.readers = [
            PlainReader(worker, f"sink/{worker.index}", self._inputs(worker),
                        most=1 if stops and not worker.index else None)
            for worker in self.workers
        ]  # fmt: skip
        tasks = [*self.writers, *self.readers]
        for task in tasks:
            task.thread.start(task)
        self.scheduler = Scheduler(self.clock, self.workers, Random("steps"))
        self.scheduler.tasks = [task.thread for task in tasks]

    def _inputs(self, worker: SimWorker) -> list[Input]:
        """Its channel of every producer."""
        return [
            Input(
                PartitionId(f"source/{other.index}"),
                worker.index,
                Here() if other is worker else RemoteProducer(other.address),
            )
            for other in self.workers
        ]

    def step(self) -> None:
        self.clock.advance(STEP_MS)
        assert self.scheduler.act() is not None

    @property
    def written(self) -> int:
        """Buffers of all producers."""
        return sum(task.writer.buffers_out for task in self.writers)

    def kill(self) -> None:
        """Its tasks have stacks of their own."""
        for task in (*self.writers, *self.readers):
            task.thread.kill()


def _numbered(count: int | None) -> Iterator[tuple[int, bytes]]:
    """Records of one size."""
    numbers = itertools.count() if count is None else range(count)
    return ((number, b"x" * RECORD_BYTES) for number in numbers)


def real_traffic(count: int, flow: FlowControl, steps: int = 120) -> Traffic:
    """Everybody writes and reads; how many messages that takes."""
    found: Counter[int] = Counter()
    size: Counter[int] = Counter()
    tap = counting(found, size)
    cluster = Cluster(count, settings_for(flow), steps, stops=False, make_tap=tap)
    while not all(task.thread.is_over for task in cluster.readers):
        cluster.step()
    cluster.kill()
    return Traffic(
        found[Kind.BUFFER], found[Kind.ADD_CREDIT], size[Kind.BUFFER], size[Kind.ADD_CREDIT]
    )


def real_until_blocked(count: int, flow: FlowControl) -> float:
    """Buffers that a producer has written, in the mean, when all of them stand still."""
    cluster = Cluster(count, settings_for(flow), None, stops=True)
    before, quiet = -1, 0
    while quiet < QUIET_LOOKS:
        for _ in range(LOOK_EVERY * count):
            cluster.step()
        written = cluster.written
        quiet, before = quiet + 1 if written == before else 0, written
    cluster.kill()
    return before / count


# Tables and picture.


def tables() -> list[str]:
    """What docs/scaling.md shows, as lines of Markdown."""
    credit, tcp = ExchangeSettings(), ExchangeSettings(flow_control=FlowControl.TCP)
    small = settings_for(FlowControl.CREDIT)
    lines = ["| n | exclusive MiB | output MiB | landing MiB | in flight MiB, credit | tcp |"]
    lines.append("|---|---|---|---|---|---|")
    for count in SIZES:
        held = memory(count, credit)
        flying = [in_flight_bytes(count, settings) / MIB for settings in (credit, tcp)]
        lines.append(
            f"| {count} | {held.exclusive:.1f} | {held.partition:.1f} | {held.landing:.1f} | "
            f"{flying[0]:.1f} | {flying[1]:.0f} |"
        )
    lines += ["", "| n | buffers until blocked, model | real, credit | model | real, tcp |"]
    lines.append("|---|---|---|---|---|")
    for count in REAL:
        found = [real_until_blocked(count, flow) for flow in (FlowControl.CREDIT, FlowControl.TCP)]
        without = until_blocked(
            count, settings_for(FlowControl.TCP), 0.1, 1.0, WINDOW_FRAMES
        ).buffers
        model = until_blocked(count, small, 0.1, 1.0).buffers
        lines.append(f"| {count} | {model} | {found[0]:.0f} | {without} | {found[1]:.0f} |")
    lines += ["", "| n | data frames | credit messages | per data frame | share of bytes |"]
    lines.append("|---|---|---|---|---|")
    for count in REAL:
        seen = real_traffic(count, FlowControl.CREDIT, 20 * count)
        lines.append(
            f"| {count} | {seen.data} | {seen.credit} | {seen.credit / seen.data:.2f} | "
            f"{seen.credit_bytes / seen.data_bytes:.3f} |"
        )
    return [*lines, "", *extrapolated()]


def extrapolated() -> list[str]:
    """Figures for large n: the model's, and what follows from settings."""
    credit = ExchangeSettings()
    debloated = ExchangeSettings(segment_bytes=credit.min_buffer_bytes)
    lines = ["| n | s until blocked | debloated | frames/s | aligned checkpoint s, at most |"]
    lines.append("|---|---|---|---|---|")
    for count in SIZES:
        full = until_blocked(count, credit, fill_ms(credit), 1.0)
        less = until_blocked(count, debloated, fill_ms(debloated), 1.0)
        lines.append(
            f"| {count} | {full.ms / 1000:.1f} | {less.ms / 1000:.2f} | "
            f"{frames_per_s(count, credit):.0f} | {in_flight_bytes(count, credit) / RATE:.1f} |"
        )
    readers = reader_bytes()
    return [*lines, "", f"reader: {readers:.0f} bytes; a grant: {grant_bytes(1)} bytes"]


def draw() -> str:
    """Buffers of a task manager, and time until back pressure, by task managers."""
    credit, tcp = ExchangeSettings(), ExchangeSettings(flow_control=FlowControl.TCP)
    debloated = ExchangeSettings(segment_bytes=credit.min_buffer_bytes)
    flying = {
        "credit": [in_flight_bytes(count, credit) / MIB for count in SIZES],
        "tcp, with the kernel": [in_flight_bytes(count, tcp) / MIB for count in SIZES],
    }
    blocked = {
        name: [until_blocked(count, s, fill_ms(s), 1.0).ms / 1000 for count in SIZES]
        for name, s in (("full buffers", credit), ("debloated", debloated))
    }
    panels = [
        panel(0, "MiB in flight on a task manager, at most", flying),
        panel(1, "s until a producer stands still, one consumer stopped", blocked),
    ]
    style = "text{font:11px sans-serif;fill:#777}polyline{fill:none;stroke-width:2}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}">'
    return "\n".join([head, f"<style>{style}</style>", *panels, "</svg>"]) + "\n"


WIDTH, HEIGHT, MARGIN = 380, 240, 44
COLORS = ("#2a7fba", "#c9541b")


def panel(number: int, title: str, curves: dict[str, list[float]]) -> str:
    """Both axes are logarithmic."""
    left = number * WIDTH
    high = log10(max(max(curve) for curve in curves.values()))
    low = log10(min(min(curve) for curve in curves.values()))
    lines = [f'<text x="{left + MARGIN}" y="18">{title}</text>']

    def place(count: int, value: float) -> tuple[float, float]:
        across = log10(count / SIZES[0]) / log10(SIZES[-1] / SIZES[0])
        up = (log10(value) - low) / (high - low)
        return (
            round(left + MARGIN + across * (WIDTH - 2 * MARGIN), 1),
            round(HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN - 20), 1),
        )

    for turn, (name, curve) in enumerate(curves.items()):
        color, places = COLORS[turn], [place(*pair) for pair in zip(SIZES, curve, strict=True)]
        points = " ".join(f"{x},{y}" for x, y in places)
        lines.append(f'<polyline style="stroke:{color}" points="{points}"/>')
        x, y = MARGIN + left, 34 + 14 * turn
        lines.append(f'<text x="{x}" y="{y}" style="fill:{color}">{name}</text>')
        for at, value in ((places[0], curve[0]), (places[-1], curve[-1])):
            lines.append(f'<text x="{at[0] - 10}" y="{at[1] - 6}">{value:,.3g}</text>')
    lines += [
        f'<text x="{place(count, 10**low)[0] - 6}" y="{HEIGHT - 22}">{count}</text>'
        for count in SIZES
    ]
    lines.append(f'<text x="{left + MARGIN}" y="{HEIGHT - 6}">task managers</text>')
    return "\n".join(lines)


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
    sys.stdout.write("\n".join(tables()) + "\n")
