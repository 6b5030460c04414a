"""A slow consumer and what is in flight to it: with debloating what it consumes in the target time,
without many times as much. Counted in records that were made and are not consumed yet.
"""

import functools
import threading
import time
from collections.abc import Callable
from statistics import median

import pytest

from headgate.base.elements import Record
from headgate.base.settings import ExchangeSettings
from headgate.core.operators.one_input import MapOperator
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.plan import ship_strategies as ships
from tests.host.conftest import MakeExchange
from tests.host.local_job import Job, Run, reads
from tests.host.rig import eventually

SLEEP_S = 0.001
TARGET_MS = 100
IN_TARGET = 100
"""A consumer that sleeps so long before each record is through with no more in the target time."""
CONSUMED = 2_000
LAST = 300


class Counted:
    """Makes records of 1,000 bytes, and consumes them slowly; notes what was in flight."""

    def __init__(self) -> None:
        self.in_flight: list[int] = []
        self._made = 0
        self._lock = threading.Lock()

    def make(self, number: int) -> bytes:
        self._made += 1
        return number.to_bytes(1000, "little")

    def consume(self, record: bytes) -> None:
        time.sleep(SLEEP_S)
        with self._lock:
            self.in_flight.append(self._made - len(self.in_flight))

    def lately(self) -> float:
        return median(self.in_flight[-LAST:])


def here_and_there(job: Job, made: int, counted: Counted) -> int:
    """Two consumers: one beside the producer, one on another exchange."""
    sink = functools.partial(SinkFunctionOperator, counted.consume)
    job.operator(sink, reads(made, ships.rebalance()), parallelism=2)
    return 2


def behind_a_task_that_is_held_up(job: Job, made: int, counted: Counted) -> int:
    """Two hops: the task between them is fast, but waits for the slow one."""
    relay = functools.partial(MapOperator, same)
    between = job.operator(relay, reads(made, ships.rebalance()))
    sink = functools.partial(SinkFunctionOperator, counted.consume)
    job.operator(sink, reads(between, ships.rebalance()))
    return 2


def same(record: Record) -> Record:
    return record


@pytest.mark.parametrize("shape", [here_and_there, behind_a_task_that_is_held_up])
def test_what_is_in_flight_to_a_slow_consumer_is_bounded_in_time(
    make_exchange: MakeExchange, shape: Callable[[Job, int, Counted], int]
) -> None:
    counts, runs = {}, []
    for debloat in (True, False):
        settings = ExchangeSettings(
            debloat=debloat,
            debloat_target_ms=TARGET_MS,
            debloat_period_ms=10,
            debloat_samples=10,
        )
        job, counts[debloat] = Job(), Counted()
        made = job.operator(
            functools.partial(MapOperator, counts[debloat].make), job.source(range(200_000))
        )
        channels = shape(job, made, counts[debloat])
        runs.append(Run(job, make_exchange(settings), make_exchange(settings)))
        runs[-1].deploy()
    with_it, without = counts[True], counts[False]
    most = 2 * IN_TARGET * channels
    # On a busy machine a look may be late, and sizes follow later.
    eventually(
        lambda: (
            len(with_it.in_flight) > CONSUMED < len(without.in_flight)
            and with_it.lately() <= most
            and without.lately() >= 3 * with_it.lately()
        ),
        "little in flight with debloating, much without",
        60,
    )
    sizes = [max(figures.buffer_size for figures in run.figures().values()) for run in runs]
    for run in runs:
        run.close()
        assert not run.errors
    assert sizes[0] > 0 == sizes[1], "off means that nobody looks"
