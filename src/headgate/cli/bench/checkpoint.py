"""``bench checkpoint``: how long checkpoints take under back pressure, and what they cost.

Two jobs with the same load, one after the other, tell aligned from unaligned: in the first barriers
wait behind all that is in flight, in the second they overtake it. A third has so much in flight as
is asked for; its yardstick is a plain write of as many bytes to the same disk. Then
``bench keyed-count`` runs with checkpoints every second and without, in turns.
"""

import os
import threading
import time
from statistics import median
from typing import Any, Final

from headgate.base.settings import KIB, MIB
from headgate.cli.bench.keyed_count import Counted, keyed_count_round
from headgate.cli.bench.pressure import TASKS, Load, Taken, load_of, pressed_checkpoints
from headgate.host.files.owned_folder import OwnedFolder

NONE: Final[dict[str, str]] = {}
EVERY_SECOND: Final = {"execution.checkpointing.interval": "1000"}
WARM_UP_RECORDS: Final = 200_000
PARALLELISM: Final = 2


def run_checkpoint_bench(
    in_flight_mib: int, sleep_ms: float, records: int, rounds: int
) -> dict[str, Any]:
    """Figures are medians over the rounds."""
    keyed_count_round(min(records, WARM_UP_RECORDS), PARALLELISM, EVERY_SECOND)
    usual = Load(KIB, sleep_ms)
    aligned = pressed_checkpoints(usual, unaligned=False, count=rounds)
    unaligned = pressed_checkpoints(usual, unaligned=True, count=rounds)
    full = pressed_checkpoints(load_of(in_flight_mib, 20.0), unaligned=True, count=rounds)
    return {
        **_compared(aligned, unaligned),
        **_full(full, rounds),
        **_throughput(records, rounds),
        "debloating": "off while durations are taken, on for throughput",
        "durations_from": "the coordinator's job.checkpoints.last.took_ms, trigger to stored",
        "sink_sleeps_ms": sleep_ms,
        "rounds": rounds,
    }


def _compared(aligned: list[Taken], unaligned: list[Taken]) -> dict[str, Any]:
    aligned_ms = median(one.took_ms for one in aligned)
    unaligned_ms = median(one.took_ms for one in unaligned)
    return {
        "aligned_ms": round(aligned_ms, 1),
        "unaligned_ms": round(unaligned_ms, 1),
        "unaligned_share": round(unaligned_ms / aligned_ms, 4),
        "aligned_ms_all": [round(one.took_ms, 1) for one in aligned],
        "unaligned_ms_all": [round(one.took_ms, 1) for one in unaligned],
    }


def _full(full: list[Taken], rounds: int) -> dict[str, Any]:
    in_flight_bytes = int(median(one.in_flight_bytes for one in full))
    return {
        "unaligned_full_ms": round(median(one.took_ms for one in full), 1),
        "in_flight_mib": round(in_flight_bytes / MIB, 1),
        "plain_write_ms": round(median(_plain_write(in_flight_bytes) for _ in range(rounds)), 1),
        "unaligned_full_sync_ms": round(median(one.sync_ms for one in full), 1),
        "unaligned_full_async_ms": round(median(one.async_ms for one in full), 1),
        "unaligned_full_ms_all": [round(one.took_ms, 1) for one in full],
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
    without: list[Counted] = []
    with_them: list[Counted] = []
    for number in range(2 * rounds):
        kept, settings = ((without, NONE), (with_them, EVERY_SECOND))[(number + 1) // 2 % 2]
        kept.append(keyed_count_round(records, PARALLELISM, settings))
    rates = [median(one.records_per_s for one in each) for each in (without, with_them)]
    costs = [median(one.cpu_ns_per_record for one in each) for each in (without, with_them)]
    return {
        "throughput_share": round(rates[1] / rates[0], 3),
        "cpu_share": round(costs[1] / costs[0], 3),
        "checkpoints": sum(one.checkpoints for one in with_them),
        "records_per_s": round(rates[0]),
        "checkpointed_records_per_s": round(rates[1]),
        "records": records,
        "records_per_s_all": [round(one.records_per_s) for one in without],
        "checkpointed_records_per_s_all": [round(one.records_per_s) for one in with_them],
    }
