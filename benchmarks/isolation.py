"""``bench isolation``: two channels share one connection, one consumer stops.

With credits the other channel goes on as if nothing had happened; with TCP flow control the stopped
one blocks the connection for both. Two producers there, two consumers here; the healthy channel's
throughput is measured alone and beside the stopped one, in both modes, in one run. With ``--live``
the same is a picture in the terminal, or plain lines where there is none.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from benchmarks.two_processes import (
    Child,
    RawConsumer,
    RawProducer,
    child_process,
    open_gate,
    open_partition,
)
from headgate.base.ids import PartitionId
from headgate.base.settings import ExchangeSettings, FlowControl
from headgate.host.net.exchange import Exchange
from headgate.host.net.runner import TaskThread

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60
_MODE_NAMES = {
    FlowControl.CREDIT: "credit-based flow control",
    FlowControl.TCP: "TCP-based flow control",
}


HEALTHY = PartitionId("bench/healthy/0#0")
STOPPED = PartitionId("bench/stopped/0#0")
SEGMENTS = 256
STOPPED_FOR_S = 0.3
"""A producer that has found no buffer for this long is blocked, not just waiting for a moment."""

BLOCK_LIMIT_S = 10.0

PACE_BYTES_PER_S = 100_000_000
"""The channel that will stop is not at its limit before, so that its buffers are not full yet."""


@dataclass(slots=True)
class IsolationSample:
    """What the picture shows: bytes so far on both channels, and what is going on."""

    mode: FlowControl
    phase: str = "starting"
    healthy_bytes: int = 0
    stopped_bytes: int = 0


Watch: TypeAlias = Callable[[IsolationSample], None]
"""Called some ten times a second."""


@dataclass(slots=True)
class ModeResult:
    """One mode: megabytes a second alone and beside the stopped channel, and the time to block."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    block_ms: list[float] = field(default_factory=list)

    def share(self) -> float:
        return median(self.beside) / median(self.alone)


def run_isolation_bench(
    seconds: float, rounds: int, watch: Watch = lambda sample: None
) -> dict[str, Any]:
    """Both modes in turns; ``watch`` draws a picture, or does nothing."""
    results = {mode: ModeResult() for mode in FlowControl}
    for _ in range(rounds):
        for mode in (FlowControl.CREDIT, FlowControl.TCP):
            _round(mode, seconds, results[mode], watch)
    credit, tcp = results[FlowControl.CREDIT], results[FlowControl.TCP]
    return {
        "credit_share": round(credit.share(), 3),
        "tcp_share": round(tcp.share(), 3),
        "credit_alone_mb_per_s": round(median(credit.alone), 1),
        "credit_beside_mb_per_s": round(median(credit.beside), 1),
        "tcp_alone_mb_per_s": round(median(tcp.alone), 1),
        "tcp_beside_mb_per_s": round(median(tcp.beside), 1),
        "credit_block_ms": round(median(credit.block_ms), 1),
        "tcp_block_ms": round(median(tcp.block_ms), 1),
        "seconds": seconds,
        "rounds": rounds,
    }


def _round(mode: FlowControl, seconds: float, result: ModeResult, watch: Watch) -> None:
    settings, secret = ExchangeSettings(flow_control=mode), os.urandom(32)
    with (
        child_process(_produce, secret, settings) as child,
        Exchange(settings, secret, segments=SEGMENTS) as exchange,
    ):
        address = child.hear(tuple)
        healthy = _start_consumer(exchange, "healthy", HEALTHY, address)
        stopped = _start_consumer(exchange, "stopped", STOPPED, address)
        observer = _Observer(IsolationSample(mode), healthy, stopped, watch)
        child.tell("healthy only")
        child.hear(str)
        observer.measure("warming up", seconds)
        result.alone.append(observer.measure("one channel alone", seconds))
        child.tell("both")
        child.hear(str)
        observer.measure("both channels run", seconds)
        with exchange.inside():
            stopped.stopped = True
        stopped_at = time.monotonic()
        child.tell("when blocked")
        blocked_at = observer.hear("one consumer has stopped", child)
        result.block_ms.append(max(0.0, blocked_at - stopped_at) * 1000)
        result.beside.append(observer.measure("one consumer has stopped", seconds))
        child.tell("end")


@dataclass(frozen=True, slots=True)
class _Observer:
    """Shows samples of both channels while it measures or waits."""

    sample: IsolationSample
    healthy: RawConsumer
    stopped: RawConsumer
    watch: Watch

    def measure(self, phase: str, seconds: float) -> float:
        """Megabytes a second of the healthy channel."""
        self.sample.phase = phase
        start, first = time.perf_counter(), self.healthy.bytes_in
        while (now := time.perf_counter()) - start < seconds:
            self._show()
            time.sleep(min(0.1, seconds / 5))
        return (self.healthy.bytes_in - first) / 1e6 / (now - start)

    def hear(self, phase: str, child: Child) -> float:
        self.sample.phase = phase
        while not child.has_answer(0.1):
            self._show()
        return child.hear(float)

    def _show(self) -> None:
        self.sample.healthy_bytes = self.healthy.bytes_in
        self.sample.stopped_bytes = self.stopped.bytes_in
        self.watch(self.sample)


def _start_consumer(
    exchange: Exchange, name: str, partition: PartitionId, address: tuple[str, int]
) -> RawConsumer:
    task_thread = exchange.task_thread(name)
    gate = open_gate(exchange, task_thread, partition, address, channels=1)
    consumer = RawConsumer(name, gate)
    exchange.run(consumer, task_thread)
    return consumer


# The child: two producers on one exchange, driven by words through the pipe.


def _produce(pipe: Connection, secret: bytes, settings: ExchangeSettings) -> None:
    with Exchange(settings, secret, segments=SEGMENTS) as exchange:
        healthy, wake_healthy = _start_producer(exchange, HEALTHY)
        stopped, wake_stopped = _start_producer(exchange, STOPPED)
        stopped.pace = _pacer(exchange, wake_stopped, PACE_BYTES_PER_S / settings.segment_bytes)
        pipe.send(exchange.address)
        while (word := pipe.recv()) != "end":
            if word == "healthy only":
                _resume(exchange, healthy, wake_healthy)
                pipe.send("yes")
            elif word == "both":
                _resume(exchange, stopped, wake_stopped)
                pipe.send("yes")
            else:
                pipe.send(_wait_until_blocked(stopped))


def _start_producer(
    exchange: Exchange, partition_id: PartitionId
) -> tuple[RawProducer, TaskThread]:
    task_thread = exchange.task_thread(partition_id)
    partition = open_partition(exchange, task_thread, partition_id, subpartitions=1)
    producer = RawProducer(partition_id, partition, None)
    producer.paused = True
    exchange.run(producer, task_thread)
    return producer, task_thread


def _pacer(
    exchange: Exchange, task_thread: TaskThread, buffers_per_s: float
) -> Callable[[int], bool]:
    started_at = 0.0

    def is_time(sent: int) -> bool:
        nonlocal started_at
        now = time.monotonic()
        started_at = started_at or now
        if sent < (now - started_at) * buffers_per_s:
            return True
        exchange.loop.later(1.0, task_thread.wake)
        return False

    return is_time


def _resume(exchange: Exchange, producer: RawProducer, task_thread: TaskThread) -> None:
    with exchange.inside():
        producer.paused = False
        task_thread.wake()


def _wait_until_blocked(producer: RawProducer) -> float:
    """When the producer found no buffer for the last time before it stood still."""
    give_up = time.monotonic() + BLOCK_LIMIT_S
    while (now := time.monotonic()) < give_up:
        sent, blocked_at = producer.sent, producer.blocked_at
        time.sleep(STOPPED_FOR_S)
        if producer.sent == sent and producer.blocked_at == blocked_at:
            return blocked_at
    return now


def show_isolation(seconds: float) -> dict[str, Any]:
    """Show both modes, then say what was seen."""
    console = Console()
    console.print(
        "Two channels share one TCP connection between two processes. "
        "Then the consumer of one of them stops.\n"
    )
    if console.is_terminal:
        with Live(console=console, refresh_per_second=12) as live:
            picture = Picture()

            def show(sample: IsolationSample) -> None:
                live.update(picture.update(sample))

            result = run_isolation_bench(seconds, 1, show)
    else:
        result = run_isolation_bench(seconds, 1, PlainLines(console).update)
    console.print(summary(result))
    return result


def summary(result: dict[str, Any]) -> RenderableType:
    """The closing table."""
    table = Table(title="The healthy channel while its neighbour is stopped", title_justify="left")
    for column in ("flow control", "alone", "beside the stopped one", "share", "producer blocked"):
        table.add_column(column, justify="left" if column == "flow control" else "right")
    for mode in ("credit", "tcp"):
        table.add_row(
            mode,
            f"{result[f'{mode}_alone_mb_per_s']:,.0f} MB/s",
            f"{result[f'{mode}_beside_mb_per_s']:,.0f} MB/s",
            f"{result[f'{mode}_share']:.0%}",
            f"after {result[f'{mode}_block_ms']:.0f} ms",
        )
    return table


class RateBars:
    """Megabytes a second of one channel, as a line of bars."""

    def __init__(self, name: str, style: str) -> None:
        self.name = name
        self._style = style
        self._rates: deque[float] = deque(maxlen=_WIDTH)
        self._last: tuple[float, int] | None = None

    def update(self, total_bytes: int, now: float) -> None:
        if self._last is not None and total_bytes >= self._last[1]:
            seconds = max(1e-6, now - self._last[0])
            self._rates.append((total_bytes - self._last[1]) / 1e6 / seconds)
        self._last = (now, total_bytes)

    def line(self, top: float) -> Text:
        steps = len(_BARS) - 1
        bars = "".join(_BARS[min(steps, round(rate / top * steps))] for rate in self._rates)
        current = self._rates[-1] if self._rates else 0.0
        return Text.assemble(
            f"{self.name:<16}", (f"{bars:<{_WIDTH}}", self._style), f"{current:>8,.0f} MB/s"
        )

    @property
    def peak(self) -> float:
        return max(self._rates, default=0.0)


class Picture:
    """One panel for each mode; the last one moves."""

    def __init__(self) -> None:
        self._panels: dict[FlowControl, tuple[RateBars, RateBars]] = {}
        self._phases: dict[FlowControl, str] = {}

    def update(self, sample: IsolationSample) -> RenderableType:
        """Take a sample, give the picture."""
        meters = self._panels.setdefault(
            sample.mode,
            (RateBars("healthy channel", "green"), RateBars("its neighbour", "yellow")),
        )
        now = time.perf_counter()
        meters[0].update(sample.healthy_bytes, now)
        meters[1].update(sample.stopped_bytes, now)
        self._phases[sample.mode] = sample.phase
        return Group(*(self._panel(mode) for mode in self._panels))

    def _panel(self, mode: FlowControl) -> Panel:
        healthy, stopped = self._panels[mode]
        top = max(healthy.peak, stopped.peak, 1.0)
        return Panel(
            Group(healthy.line(top), stopped.line(top)),
            title=f"{_MODE_NAMES[mode]}: {self._phases[mode]}",
            title_align="left",
            width=_WIDTH + 34,
        )


class PlainLines:
    """A line for each phase, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: tuple[FlowControl, str] | None = None

    def update(self, sample: IsolationSample) -> None:
        now = (sample.mode, sample.phase)
        if now != self._seen:
            self._seen = now
            self._console.print(f"{_MODE_NAMES[sample.mode]}: {sample.phase}")
