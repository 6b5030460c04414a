"""``bench exchange``: raw 32 KiB buffers between two processes, against a plain socket loop.

Both move the same bytes in the same block size over loopback, in turns; the ratio is the median of
the rounds' ratios. CPU seconds are those of both processes, user and system.
"""

import mmap
import os
import socket
from multiprocessing.connection import Connection
from operator import truediv
from statistics import median
from typing import Any

from benchmarks.two_processes import (
    JOIN_S,
    SEGMENTS,
    Child,
    CpuWatch,
    RawConsumer,
    RawProducer,
    child_process,
    consume,
    open_gate,
    open_partition,
    wait_until_consumed,
)
from headgate.base.ids import PartitionId
from headgate.base.settings import ExchangeSettings
from headgate.host.net.exchange import Exchange

PARTITION = PartitionId("bench/raw/0#0")


def run_exchange_bench(
    megabytes: int, channels: int, exclusive: int, rounds: int
) -> dict[str, Any]:
    """Measure in turns; figures are medians over the rounds."""
    settings = ExchangeSettings(buffers_per_channel=exclusive)
    block = settings.segment_bytes
    buffers = megabytes * 1_000_000 // block
    plain, ours, cpu = [], [], []
    for _ in range(rounds):
        plain.append(_plain_round(buffers, block))
        rate, cpu_s_per_gb = _exchange_round(buffers, channels, settings)
        ours.append(rate)
        cpu.append(cpu_s_per_gb)
    return {
        "mb_per_s": round(median(ours), 1),
        "buffers_per_s": round(median(ours) * 1e6 / block),
        "plain_socket_mb_per_s": round(median(plain), 1),
        "ratio": round(median(map(truediv, ours, plain)), 3),
        "cpu_s_per_gb": round(median(cpu), 3),
        "channels": channels,
        "buffers_per_channel": exclusive,
        "buffer_bytes": block,
        "megabytes": megabytes,
        "rounds": rounds,
        "mb_per_s_all": [round(rate, 1) for rate in ours],
        "plain_socket_mb_per_s_all": [round(rate, 1) for rate in plain],
    }


# Headgate: one partition with several subpartitions there, one gate with as many channels here.


def _exchange_round(buffers: int, channels: int, settings: ExchangeSettings) -> tuple[float, float]:
    secret = os.urandom(32)
    with child_process(_send_buffers, secret, buffers, channels, settings) as child:
        address = child.hear(tuple)
        with Exchange(settings, secret, segments=SEGMENTS) as exchange:
            task_thread = exchange.task_thread("consumer")
            gate = open_gate(exchange, task_thread, PARTITION, address, channels)
            consumer = RawConsumer("consumer", gate)
            wall_s, cpu_s = consume(exchange, task_thread, consumer, child)
            assert consumer.buffers_in == buffers, "buffers were lost"
        cpu_s += child.hear(float)
    return consumer.bytes_in / 1e6 / wall_s, cpu_s / (consumer.bytes_in / 1e9)


def _send_buffers(
    pipe: Connection, secret: bytes, buffers: int, channels: int, settings: ExchangeSettings
) -> None:
    with Exchange(settings, secret, segments=SEGMENTS) as exchange:
        task_thread = exchange.task_thread("producer")
        partition = open_partition(exchange, task_thread, PARTITION, channels)
        pipe.send(exchange.address)
        pipe.recv()
        watch = CpuWatch()
        exchange.run(RawProducer("producer", partition, buffers), task_thread).join(JOIN_S)
        wait_until_consumed(exchange, PARTITION)
        pipe.send(watch.cpu_s())


# The yardstick: send and recv_into of one block, page-aligned, nothing else.


def _plain_round(buffers: int, block: int) -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with child_process(_send_plain, port, buffers, block) as child:
            rate = _receive_plain(server, buffers * block, block, child)
    return rate


def _receive_plain(server: socket.socket, total: int, block: int, child: Child) -> float:
    sock, _ = server.accept()
    target = memoryview(mmap.mmap(-1, block))
    with sock:
        child.tell("go")
        received = sock.recv_into(target)
        watch = CpuWatch()
        while received < total:
            received += sock.recv_into(target)
        return total / 1e6 / watch.wall_s()


def _send_plain(pipe: Connection, port: int, buffers: int, block: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = memoryview(mmap.mmap(-1, block))
        pipe.recv()
        for _ in range(buffers):
            sent = sock.send(data)
            while sent < block:
                sent += sock.send(data[sent:])
