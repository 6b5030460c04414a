"""A job under full back pressure for ``bench checkpoint``: payloads → rebalance → sleeping sink.

The source gives as much as it may, the sink sleeps for each record, so that all buffers in between
are full. Debloating is off, for it would leave little in flight for a barrier to wait behind. Law:
only checkpoints count that were triggered when what waits had stopped to grow; how long they took
is the coordinator's own word (``job.checkpoints.last.took_ms``).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.api.environment import StreamExecutionEnvironment
from headgate.api.job import JobClient
from headgate.api.settings.configuration import Configuration
from headgate.api.source import Sink, SinkWriter, Source, SplitReader
from headgate.base.settings import KIB, MIB, ExchangeSettings
from headgate.core.chain.context import OperatorContext

TASKS: Final = 2
INTERVAL_MS: Final = 500
FIGURES_MS: Final = 100
LOOK_S: Final = 0.01
STEADY_S: Final = 1.0
"""So long nothing more may have come into the queues."""
PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Taken:
    """A checkpoint that is complete."""

    took_ms: float
    in_flight_bytes: int
    sync_ms: float
    async_ms: float


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


def load_of(in_flight_mib: int, sleep_ms: float) -> Load:
    """One that has about so much on its way, half of it at the producers."""
    # A buffer more at both ends of all tasks; those by reference hold somewhat more than a segment.
    each = ExchangeSettings().segment_bytes * 2 * TASKS * 6 // 5
    return Load(16 * KIB, sleep_ms, max(1, in_flight_mib * MIB // each))


def pressed_checkpoints(load: Load, unaligned: bool, count: int) -> list[Taken]:
    """Run the job until so many checkpoints were complete under pressure."""
    settings = {
        **load.settings(),
        "execution.checkpointing.interval": str(INTERVAL_MS),
        "execution.checkpointing.unaligned.enabled": str(unaligned).lower(),
        "taskmanager.network.memory.buffer-debloat.enabled": "false",
        "metrics.interval": str(FIGURES_MS),
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(TASKS)
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


def _follow(client: JobClient, count: int) -> list[Taken]:
    """The checkpoints that are triggered from now on."""
    deadline = time.monotonic() + PATIENCE_S * count
    before = int(str(client.get_metrics().get("job.checkpoints.triggered", 0)))
    taken: dict[int, Taken] = {}
    while len(taken) < count:
        told = _looked(client, deadline)
        last: dict[str, Any] = {
            key: told.get(f"job.checkpoints.last.{key}", 0)
            for key in ("checkpoint", "took_ms", "in_flight_bytes", "sync_ms", "async_ms")
        }
        number = last.pop("checkpoint")
        if number > before:
            taken[number] = Taken(**last)
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

    def open(self, split: object, position: Any, context: OperatorContext) -> "PayloadReader":
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

    def create_writer(self, context: OperatorContext) -> "SleepingWriter":
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
