"""``bench isolation``: two channels share one connection, one consumer stops.

With credits the other channel goes on as if nothing had happened; with TCP flow control the stopped
one blocks the connection for both. Two producers there, two consumers here; the healthy channel's
throughput is measured alone and beside the stopped one, in both modes, in one run.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

from headgate.base.ids import PartitionId
from headgate.base.settings import ExchangeSettings, FlowControl
from headgate.cli.bench.exchange import open_gate, open_partition
from headgate.cli.bench.tasks import RawConsumer, RawProducer
from headgate.cli.bench.two_processes import Child, child_process
from headgate.host.net.exchange import Exchange
from headgate.host.net.runner import TaskThread

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


@dataclass(slots=True)
class ModeResult:
    """One mode: megabytes a second alone and beside the stopped channel, and the time to block."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    block_ms: list[float] = field(default_factory=list)

    def share(self) -> float:
        return median(self.beside) / median(self.alone)


def run_isolation_bench(
    seconds: float, rounds: int, watch: Callable[[IsolationSample], None] = lambda reading: None
) -> dict[str, Any]:
    """Both modes in turns; ``watch`` is called some ten times a second, for a picture."""
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


def _round(
    mode: FlowControl, seconds: float, result: ModeResult, watch: Callable[[IsolationSample], None]
) -> None:
    settings, secret = ExchangeSettings(flow_control=mode), os.urandom(32)
    with (
        child_process(_produce, secret, settings) as child,
        Exchange(settings, secret, segments=SEGMENTS) as exchange,
    ):
        address = child.hear(tuple)
        healthy = _start_consumer(exchange, "healthy", HEALTHY, address)
        stopped = _start_consumer(exchange, "stopped", STOPPED, address)
        reading = IsolationSample(mode)

        def measure(phase: str) -> float:
            reading.phase = phase
            return _measure(seconds, reading, healthy, stopped, watch)

        child.tell("healthy only")
        child.hear(str)
        measure("warming up")
        result.alone.append(measure("one channel alone"))
        child.tell("both")
        child.hear(str)
        measure("both channels run")
        with exchange.inside():
            stopped.stopped = True
        stopped_at = time.monotonic()
        child.tell("when blocked")
        reading.phase = "one consumer has stopped"
        blocked_at = _hear_watching(child, reading, healthy, stopped, watch)
        result.block_ms.append(max(0.0, blocked_at - stopped_at) * 1000)
        result.beside.append(measure("one consumer has stopped"))
        child.tell("end")


def _start_consumer(
    exchange: Exchange, name: str, partition: PartitionId, address: tuple[str, int]
) -> RawConsumer:
    seat = exchange.seat(name)
    gate = open_gate(exchange, seat, partition, address, channels=1)
    consumer = RawConsumer(name, gate)
    exchange.run(consumer, seat)
    return consumer


def _measure(
    seconds: float,
    reading: IsolationSample,
    healthy: RawConsumer,
    stopped: RawConsumer,
    watch: Callable[[IsolationSample], None],
) -> float:
    start, first = time.perf_counter(), healthy.bytes_in
    while (now := time.perf_counter()) - start < seconds:
        _show(reading, healthy, stopped, watch)
        time.sleep(min(0.1, seconds / 5))
    return (healthy.bytes_in - first) / 1e6 / (now - start)


def _show(
    reading: IsolationSample,
    healthy: RawConsumer,
    stopped: RawConsumer,
    watch: Callable[[IsolationSample], None],
) -> None:
    reading.healthy_bytes, reading.stopped_bytes = healthy.bytes_in, stopped.bytes_in
    watch(reading)


def _hear_watching(
    child: Child,
    reading: IsolationSample,
    healthy: RawConsumer,
    stopped: RawConsumer,
    watch: Callable[[IsolationSample], None],
) -> float:
    while not child.has_answer(0.1):
        _show(reading, healthy, stopped, watch)
    return child.hear(float)


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
    seat = exchange.seat(partition_id)
    partition = open_partition(exchange, seat, partition_id, subpartitions=1)
    producer = RawProducer(partition_id, partition, None)
    producer.paused = True
    exchange.run(producer, seat)
    return producer, seat


def _pacer(exchange: Exchange, seat: TaskThread, buffers_per_s: float) -> Callable[[int], bool]:
    started_at = 0.0

    def is_time(sent: int) -> bool:
        nonlocal started_at
        now = time.monotonic()
        started_at = started_at or now
        if sent < (now - started_at) * buffers_per_s:
            return True
        exchange.loop.later(1.0, seat.wake)
        return False

    return is_time


def _resume(exchange: Exchange, producer: RawProducer, seat: TaskThread) -> None:
    with exchange.inside():
        producer.paused = False
        seat.wake()


def _wait_until_blocked(producer: RawProducer) -> float:
    """When the producer found no buffer for the last time before it stood still."""
    give_up = time.monotonic() + BLOCK_LIMIT_S
    while (now := time.monotonic()) < give_up:
        sent, blocked_at = producer.sent, producer.blocked_at
        time.sleep(STOPPED_FOR_S)
        if producer.sent == sent and producer.blocked_at == blocked_at:
            return blocked_at
    return now
