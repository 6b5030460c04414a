"""``bench observe``: what it costs to look at a job, and how quick the page is.

``bench keyed-count`` runs with everything off, with everything on, and with flame graphs on top, in
turns. On means: figures and latency markers every second, the page server and its observer, a page
that follows the job, a scrape of Prometheus every second. Shares compare rounds that stand next to
each other, because the machine's speed changes; CPU time does not depend on who else runs. The page
is measured in Chromium, with a job of 1,000 subtasks that exists only for it.
"""

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from benchmarks.keyed_count import keyed_count_round
from benchmarks.onlookers import Onlookers, Sightings
from benchmarks.page import page_figures
from headgate.api.job import JobClient
from headgate.base.ids import PartitionId
from headgate.base.messages import Metrics, TaskFigures, TaskState
from headgate.base.settings import ExchangeSettings
from headgate.control.frames import encode
from headgate.core.task.environment import Input, RemoteProducer
from headgate.host.net.exchange import Exchange
from headgate.observe.web.server import close_page_server

TASKS: Final = 2
CHANNELS: Final = 10_000
REPORTS: Final = 20
NEVER_MS: Final = "86400000"
OFF: Final = {
    "rest.enabled": "false",
    "metrics.interval": NEVER_MS,
    "metrics.latency.interval": "0",
}
ON: Final = {
    "rest.enabled": "true",
    "rest.port": "0",
    "metrics.interval": "1000",
    "metrics.latency.interval": "1000",
}
WARM_UP_RECORDS: Final = 200_000


@dataclass(frozen=True, slots=True)
class ObservedRound:
    """One job."""

    records_per_s: float
    worker_ns: float
    """CPU time of the workers for a record."""
    driver_ns: float
    """The same of the driver's Python, those who look included."""
    seen: Sightings

    @property
    def cpu_ns(self) -> float:
        return self.worker_ns + self.driver_ns


def run_observe_bench(records: int, rounds: int) -> dict[str, Any]:
    """Figures are medians over the rounds."""
    for name in ("off", "on", "flames"):
        observed_round(name, WARM_UP_RECORDS)
    found: dict[str, list[ObservedRound]] = {"off": [], "on": [], "flames": []}
    for number in range(rounds):
        names = list(found) if number % 2 == 0 else list(found)[::-1]
        for name in names:
            found[name].append(observed_round(name, records))
    return {
        **shares_of(found),
        **page_figures(),
        **report_figures(),
        "records": records,
        "rounds": rounds,
        "on": "figures and latency markers every second, the page server and its observer, a page "
        "that follows the job, a scrape every second",
    }


def observed_round(name: str, records: int) -> ObservedRound:
    """One job with everything ``off``, ``on``, or with ``flames`` on top."""
    onlookers = Onlookers(flames=name == "flames")
    driver_s = [0.0]

    @contextmanager
    def beside(client: JobClient) -> Iterator[None]:
        driver_s[0] -= time.process_time()
        with nullcontext() if name == "off" else onlookers.look(client):
            yield
        driver_s[0] += time.process_time()

    try:
        result = keyed_count_round(records, TASKS, OFF if name == "off" else ON, beside)
    finally:
        close_page_server()
    driver_ns = driver_s[0] * 1e9 / records
    return ObservedRound(result.records_per_s, result.cpu_ns_per_record, driver_ns, onlookers.seen)


def shares_of(found: dict[str, list[ObservedRound]]) -> dict[str, Any]:
    """Medians over rounds that stood next to each other, and their spread."""
    off, on, flames = found["off"], found["on"], found["flames"]
    assert all(it.seen.updates and it.seen.scrapes for it in on), "nobody looked at the job"
    assert all(it.seen.flame_graphs for it in flames), "no flame graph was taken"
    shares = {
        "throughput_share": _ratios(on, off, "records_per_s"),
        "cpu_share": _ratios(on, off, "cpu_ns"),
        "worker_cpu_share": _ratios(on, off, "worker_ns"),
        "flame_share": _ratios(flames, on, "records_per_s"),
        "flame_cpu_share": _ratios(flames, on, "cpu_ns"),
    }
    return {
        **{name: round(median(values), 3) for name, values in shares.items()},
        **{f"{name}_all": [round(it, 3) for it in values] for name, values in shares.items()},
        "driver_cpu": round(median(it.driver_ns * it.records_per_s / 1e9 for it in on), 3),
        "records_per_s": round(median(it.records_per_s for it in off)),
        "cpu_ns_per_record": round(median(it.cpu_ns for it in off)),
        "updates": sum(it.seen.updates for it in on),
        "scrapes": sum(it.seen.scrapes for it in on),
        "flame_graphs": sum(it.seen.flame_graphs for it in flames),
        "failed_requests": sum(it.seen.failures for it in (*on, *flames)),
    }


def _ratios(
    rounds: Sequence[ObservedRound], bases: Sequence[ObservedRound], figure: str
) -> list[float]:
    """Of rounds that stood next to each other."""
    return [
        getattr(it, figure) / getattr(base, figure) for it, base in zip(rounds, bases, strict=True)
    ]


def report_figures() -> dict[str, Any]:
    """What a task with 10,000 channels reports, and how long it takes: figures and encoding."""
    settings = ExchangeSettings(buffers_per_channel=1, segment_bytes=4096)
    inputs = [
        Input(PartitionId("wide"), index, RemoteProducer(("127.0.0.1", 1)))
        for index in range(CHANNELS)
    ]
    took_ms, size = [], 0
    with (
        Exchange(
            settings, secrets.token_bytes(32), segments=CHANNELS + 200, local_only=True
        ) as exchange,
        exchange.inside() as environment,
    ):
        gate = environment.create_gate("wide", inputs)
        for _ in range(REPORTS):
            began_s = time.process_time()
            task = TaskFigures("wide", 0, 0, TaskState.RUNNING, gates=(gate.statistics().figures,))
            size = len(encode(Metrics("run", [task])))
            took_ms.append((time.process_time() - began_s) * 1000)
        gate.close()
    return {"report_ms": round(median(took_ms), 1), "report_bytes": size, "channels": CHANNELS}
