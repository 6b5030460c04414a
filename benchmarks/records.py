"""``bench records``: Python records through writer, wire, gate and deserializer, between processes.

The yardstick is plain pickling and unpickling of the same lists of records in the same run, in the
same processes and at the same time, so that both cores are as busy as they are in the exchange.
Costs are CPU time, user and system, divided by the number of records.
"""

import os
import pickle
import random
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

from benchmarks.two_processes import (
    JOIN_S,
    SEGMENTS,
    CpuWatch,
    RecordConsumer,
    RecordProducer,
    child_process,
    consume,
    open_gate,
    open_partition,
    wait_until_consumed,
)
from headgate.base.ids import PartitionId
from headgate.base.settings import ExchangeSettings
from headgate.core.egress.router import RoundRobin
from headgate.core.egress.writer import RecordWriter
from headgate.host.net.exchange import Exchange

PARTITION = PartitionId("bench/records/0#0")
LISTS = 64
RECORDS_PER_LIST = 256
PLAIN_RECORDS = 2_000_000


def run_records_bench(records: int, channels: int, rounds: int) -> dict[str, Any]:
    """Figures are medians over the rounds."""
    rates, ratios, sending, receiving, plain = [], [], [], [], []
    for _ in range(rounds):
        rate, sender_ns, receiver_ns, plain_ns = _round(records, channels)
        rates.append(rate)
        ratios.append((sender_ns + receiver_ns) / plain_ns)
        sending.append(sender_ns)
        receiving.append(receiver_ns)
        plain.append(plain_ns)
    return {
        "records_per_s": round(median(rates)),
        "cost_ratio": round(median(ratios), 3),
        "sender_ns_per_record": round(median(sending), 1),
        "receiver_ns_per_record": round(median(receiving), 1),
        "plain_pickle_ns_per_record": round(median(plain), 1),
        "records": records,
        "channels": channels,
        "rounds": rounds,
        "cost_ratio_all": [round(ratio, 3) for ratio in ratios],
    }


def make_lists() -> list[list[tuple[str, int]]]:
    """Lists of (word, number), the words from a vocabulary of 10,000."""
    chance = random.Random(7)
    words = [f"word-{number}" for number in range(10_000)]
    return [
        [(chance.choice(words), chance.randrange(1_000_000)) for _ in range(RECORDS_PER_LIST)]
        for _ in range(LISTS)
    ]


def _round(records: int, channels: int) -> tuple[float, float, float, float]:
    settings, secret = ExchangeSettings(), os.urandom(32)
    pickled = [pickle.dumps(records, 5) for records in make_lists()]
    with child_process(_send_records, secret, records, channels, settings) as child:
        address = child.hear(tuple)
        child.tell("pickle")
        unpickling_ns = _plain_unpickling_ns(pickled)
        pickling_ns = child.hear(float)
        with Exchange(settings, secret, segments=SEGMENTS) as exchange:
            task_thread = exchange.task_thread("consumer")
            gate = open_gate(exchange, task_thread, PARTITION, address, channels)
            deserializers = exchange.environment.create_deserializers(gate)
            consumer = RecordConsumer("consumer", gate, deserializers)
            wall_s, cpu_s = consume(exchange, task_thread, consumer, child)
        sender_ns = child.hear(float)
    count = consumer.records_in
    assert count >= records, "records were lost"
    return count / wall_s, sender_ns, cpu_s / count * 1e9, pickling_ns + unpickling_ns


def _send_records(
    pipe: Connection, secret: bytes, records: int, channels: int, settings: ExchangeSettings
) -> None:
    lists = make_lists()
    with Exchange(settings, secret, segments=SEGMENTS) as exchange:
        task_thread = exchange.task_thread("producer")
        partition = open_partition(exchange, task_thread, PARTITION, channels)
        with exchange.inside():
            writer = RecordWriter(partition, RoundRobin(), timeout_ms=settings.buffer_timeout_ms)
            exchange.flush_by_time("producer", writer)
        pipe.send(exchange.address)
        pipe.recv()
        pipe.send(_plain_pickling_ns(lists))
        pipe.recv()
        watch = CpuWatch()
        exchange.run(RecordProducer("producer", writer, lists, records), task_thread).join(JOIN_S)
        wait_until_consumed(exchange, PARTITION)
        pipe.send(watch.cpu_s() / writer.records_out * 1e9)


def _plain_pickling_ns(lists: list[list[tuple[str, int]]]) -> float:
    return _cpu_ns_per_record(partial(pickle.dumps, protocol=5), lists)


def _plain_unpickling_ns(pickled: list[bytes]) -> float:
    return _cpu_ns_per_record(pickle.loads, pickled)


def _cpu_ns_per_record(call: Callable[[Any], object], items: Sequence[object]) -> float:
    """Of a call for each list of records."""
    rounds = PLAIN_RECORDS // (LISTS * RECORDS_PER_LIST)
    watch = CpuWatch()
    for _ in range(rounds):
        for item in items:
            call(item)
    return watch.cpu_s() / (rounds * LISTS * RECORDS_PER_LIST) * 1e9
