"""``bench checkpoint``: how long checkpoints take under back pressure, and what they cost.

Two jobs with the same load, one after the other, compare aligned with unaligned: in the first
barriers wait behind all that is in flight, in the second they overtake it. A third has as much in
flight as is asked for; its yardstick is a plain write of as many bytes to the same disk. Then
``bench keyed-count`` runs with checkpoints every second and without, in turns.

The jobs under back pressure are payloads → rebalance → sleeping sink: all buffers in between are
full. Debloating is off, for it would leave little in flight for a barrier to wait behind. Law: only
checkpoints count that were triggered after the queues had stopped growing; how long they took is
the coordinator's own word (``job.checkpoints.last.took_ms``).
"""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from benchmarks.keyed_count import CountResult, keyed_count_round
from benchmarks.measured_job import bench_environment
from headgate.api.job import JobClient
from headgate.base.settings import KIB, MIB, ExchangeSettings
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Sink, SinkWriter
from headgate.functions.source import Source, SplitReader
from headgate.host.files.owned_folder import OwnedFolder

TASKS: Final = 2
INTERVAL_MS: Final = 500
FIGURES_MS: Final = 100
LOOK_S: Final = 0.01
STEADY_S: Final = 1.0
"""The queues must not have grown for this long."""
PATIENCE_S: Final = 120.0
EVERY_SECOND: Final = {"execution.checkpointing.interval": "1000"}
WARM_UP_RECORDS: Final = 200_000


@dataclass(frozen=True, slots=True)
class PressedCheckpoint:
    """A checkpoint that is complete."""

    took_ms: float
    in_flight_bytes: int
    sync_ms: float
    async_ms: float


def run_checkpoint_bench(
    in_flight_mib: int, sleep_ms: float, records: int, rounds: int
) -> dict[str, Any]:
    """Figures are medians over the rounds."""
    keyed_count_round(min(records, WARM_UP_RECORDS), TASKS, EVERY_SECOND)
    usual = Load(KIB, sleep_ms)
    aligned = pressed_checkpoints(usual, unaligned=False, count=rounds)
    unaligned = pressed_checkpoints(usual, unaligned=True, count=rounds)
    full = pressed_checkpoints(load_in_flight(in_flight_mib, 20.0), unaligned=True, count=rounds)
    return {
        **_compared(aligned, unaligned),
        **_full(full, rounds),
        **_throughput(records, rounds),
        "debloating": "off while durations are taken, on for throughput",
        "durations_from": "the coordinator's job.checkpoints.last.took_ms, trigger to stored",
        "sink_sleeps_ms": sleep_ms,
        "rounds": rounds,
    }


def _compared(
    aligned: list[PressedCheckpoint], unaligned: list[PressedCheckpoint]
) -> dict[str, Any]:
    aligned_ms = median(checkpoint.took_ms for checkpoint in aligned)
    unaligned_ms = median(checkpoint.took_ms for checkpoint in unaligned)
    return {
        "aligned_ms": round(aligned_ms, 1),
        "unaligned_ms": round(unaligned_ms, 1),
        "unaligned_share": round(unaligned_ms / aligned_ms, 4),
        "aligned_ms_all": [round(checkpoint.took_ms, 1) for checkpoint in aligned],
        "unaligned_ms_all": [round(checkpoint.took_ms, 1) for checkpoint in unaligned],
    }


def _full(full: list[PressedCheckpoint], rounds: int) -> dict[str, Any]:
    in_flight_bytes = int(median(checkpoint.in_flight_bytes for checkpoint in full))
    return {
        "unaligned_full_ms": round(median(checkpoint.took_ms for checkpoint in full), 1),
        "in_flight_mib": round(in_flight_bytes / MIB, 1),
        "plain_write_ms": round(median(_plain_write(in_flight_bytes) for _ in range(rounds)), 1),
        "unaligned_full_sync_ms": round(median(checkpoint.sync_ms for checkpoint in full), 1),
        "unaligned_full_async_ms": round(median(checkpoint.async_ms for checkpoint in full), 1),
        "unaligned_full_ms_all": [round(checkpoint.took_ms, 1) for checkpoint in full],
    }


def _plain_write(count: int) -> float:
    """Milliseconds to write so many bytes and sync them, a file for each worker, all at once."""
    block = bytes(MIB)

    def write(path: str) -> None:
        with open(path, "wb", buffering=0) as out:
            for _ in range(count // TASKS // len(block)):
                out.write(block)
            os.fsync(out.fileno())

    with OwnedFolder("bench") as owned:
        folder = str(owned)
        names = [os.path.join(folder, str(number)) for number in range(TASKS)]
        threads = [threading.Thread(target=write, args=(name,)) for name in names]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (time.monotonic() - began) * 1000


def _throughput(records: int, rounds: int) -> dict[str, Any]:
    without: list[CountResult] = []
    with_them: list[CountResult] = []
    for number in range(2 * rounds):
        kept, settings = ((without, {}), (with_them, EVERY_SECOND))[(number + 1) // 2 % 2]
        kept.append(keyed_count_round(records, TASKS, settings))
    rates = [median(result.records_per_s for result in each) for each in (without, with_them)]
    costs = [median(result.cpu_ns_per_record for result in each) for each in (without, with_them)]
    return {
        "throughput_share": round(rates[1] / rates[0], 3),
        "cpu_share": round(costs[1] / costs[0], 3),
        "checkpoints": sum(result.checkpoints for result in with_them),
        "records_per_s": round(rates[0]),
        "checkpointed_records_per_s": round(rates[1]),
        "records": records,
        "records_per_s_all": [round(result.records_per_s) for result in without],
        "checkpointed_records_per_s_all": [round(result.records_per_s) for result in with_them],
    }


@dataclass(frozen=True)
class Load:
    """What fills the buffers, and how slowly they are emptied."""

    record_bytes: int
    sleep_ms: float
    floating: int = 0
    """Buffers that a gate and a partition have to share; 0: as the settings say."""

    def settings(self) -> dict[str, str]:
        """Those of the exchange."""
        if not self.floating:
            return {}
        usual = ExchangeSettings()
        memory = max(usual.memory_min_bytes, (2 * self.floating + 256) * usual.segment_bytes)
        return {
            "taskmanager.network.memory.floating-buffers-per-gate": str(self.floating),
            "taskmanager.memory.network.min": str(memory),
            "taskmanager.memory.network.max": str(memory),
        }


def load_in_flight(in_flight_mib: int, sleep_ms: float) -> Load:
    """One that has about so much on its way, half of it at the producers."""
    # A buffer more at both ends of all tasks; those by reference hold somewhat more than a segment.
    each = ExchangeSettings().segment_bytes * 2 * TASKS * 6 // 5
    return Load(16 * KIB, sleep_ms, max(1, in_flight_mib * MIB // each))


def pressed_checkpoints(load: Load, unaligned: bool, count: int) -> list[PressedCheckpoint]:
    """Run the job until so many checkpoints were complete under pressure."""
    settings = {
        **load.settings(),
        "execution.checkpointing.interval": str(INTERVAL_MS),
        "execution.checkpointing.unaligned.enabled": str(unaligned).lower(),
        "taskmanager.network.memory.buffer-debloat.enabled": "false",
        "metrics.interval": str(FIGURES_MS),
    }
    env = bench_environment(TASKS, settings)
    payloads = env.from_source(PayloadSource(load.record_bytes), None, "payloads")
    payloads.rebalance().sink_to(SleepingSink(load.sleep_ms / 1000))
    client = env.execute_async("bench checkpoint")
    try:
        _await_pressure(client)
        return _follow(client, count)
    finally:
        client.cancel().result()


def _await_pressure(client: JobClient) -> None:
    """Until something waits, and no more for a while."""
    most, since = 0, time.monotonic()
    deadline = since + PATIENCE_S
    while not most or time.monotonic() - since < STEADY_S:
        waiting = sum(
            int(str(value))
            for name, value in _looked(client, deadline).items()
            if name.endswith((".queued_in", ".queued_out"))
        )
        if waiting > most:
            most, since = waiting, time.monotonic()


def _follow(client: JobClient, count: int) -> list[PressedCheckpoint]:
    """The checkpoints that are triggered from now on."""
    deadline = time.monotonic() + PATIENCE_S * count
    before = int(str(client.get_metrics().get("job.checkpoints.triggered", 0)))
    taken: dict[int, PressedCheckpoint] = {}
    while len(taken) < count:
        metrics = _looked(client, deadline)
        last: dict[str, Any] = {
            key: metrics.get(f"job.checkpoints.last.{key}", 0)
            for key in ("checkpoint", "took_ms", "in_flight_bytes", "sync_ms", "async_ms")
        }
        number = last.pop("checkpoint")
        if number > before:
            taken[number] = PressedCheckpoint(**last)
    return list(taken.values())


def _looked(client: JobClient, deadline: float) -> Mapping[str, object]:
    """Figures of a job that runs, a moment later."""
    time.sleep(LOOK_S)
    status = client.get_job_status().result()
    if status.is_terminal_state():
        client.get_job_execution_result().result()  # raises what made it fail
    if time.monotonic() > deadline:
        raise TimeoutError(f"the job is {status.name} and gets nowhere")
    return client.get_metrics()


class PayloadSource(Source):
    """Without an end: numbered payloads, each an object of its own."""

    def __init__(self, record_bytes: int) -> None:
        self.record_bytes = record_bytes

    def splits(self, parallelism: int) -> Sequence[int]:
        return range(parallelism)

    def open(self, split: object, position: Any, context: ConnectorContext) -> "PayloadReader":
        return PayloadReader(self.record_bytes, position or 0)


class PayloadReader(SplitReader):
    """As many as it is asked for."""

    gives_away = True

    def __init__(self, record_bytes: int, sent: int) -> None:
        self._padding = bytes(record_bytes - 8)
        self._sent = sent

    def poll(self, limit: int) -> list[bytes]:
        first, self._sent = self._sent, self._sent + limit
        return [number.to_bytes(8, "little") + self._padding for number in range(first, self._sent)]

    def position(self) -> int:
        return self._sent


class SleepingSink(Sink):
    """Takes a while for each record."""

    def __init__(self, sleep_s: float) -> None:
        self.sleep_s = sleep_s

    def create_writer(self, context: ConnectorContext) -> "SleepingWriter":
        return SleepingWriter(self.sleep_s)


class SleepingWriter(SinkWriter):
    def __init__(self, sleep_s: float) -> None:
        self._sleep_s = sleep_s

    def write(self, records: list[Any]) -> None:
        for _ in records:
            time.sleep(self._sleep_s)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""
