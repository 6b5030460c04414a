"""``bench recovery``: from a failure to the first new record, on embedded Spark.

Records come by the clock, each knows when it was due, and the sink notes when it had them. Law: a
record counts as new if it was due after the failure and an attempt has it that began after the
failure, so that neither what is replayed nor what the dying attempt still does counts. Restarts
have no delay. All times are of the monotonic clock, which the processes of a host share.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.measured_job import bench_environment
from headgate.api.job import JobClient, JobStatus
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Sink, SinkWriter
from headgate.functions.source import Source, SplitReader
from headgate.host.files.owned_folder import OwnedFolder

TASKS: Final = 2
RATE: Final = 2_000
KEYS: Final = 100
INTERVAL_MS: Final = 200
LOOK_S: Final = 0.002
PATIENCE_S: Final = 60.0
ORDER: Final = "fail"
FAILED_AT: Final = "failed"
SETTINGS: Final = {
    "execution.checkpointing.interval": str(INTERVAL_MS),
    "execution.buffer-timeout.interval": "1",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "0",
}


@dataclass(slots=True)
class RecoveryTimes:
    """Seconds since the failure, each when it was first seen."""

    new_record_s: float
    replayed_s: float
    """The new attempt had its first record, whichever it was."""
    states_s: dict[str, float] = field(default_factory=dict)
    """When the driver said that the job was in this state."""


def run_recovery_bench(rounds: int) -> dict[str, Any]:
    """Figures are medians over the rounds; the first of each kind only warms up."""
    with _running() as (client, place):
        killed = [_recover(client, place, kill_worker) for _ in range(rounds + 1)][1:]
    with _running() as (client, place):
        failed = [_recover(client, place, fail_function) for _ in range(rounds + 1)][1:]
    return {
        "killed_worker_s": _median(recovery.new_record_s for recovery in killed),
        "failed_function_s": _median(recovery.new_record_s for recovery in failed),
        "killed_worker_steps_s": _steps(killed),
        "failed_function_steps_s": _steps(failed),
        "killed_worker_s_all": [round(recovery.new_record_s, 3) for recovery in killed],
        "failed_function_s_all": [round(recovery.new_record_s, 3) for recovery in failed],
        "restart_delay_ms": 0,
        "checkpoint_interval_ms": INTERVAL_MS,
        "rounds": rounds,
    }


def _steps(all_of_them: list[RecoveryTimes]) -> dict[str, float]:
    """How far things were after how many seconds."""
    seen: dict[str, list[float]] = {}
    for recovery in all_of_them:
        for state, at_s in recovery.states_s.items():
            seen.setdefault(state, []).append(at_s)
        seen.setdefault("first record", []).append(recovery.replayed_s)
        seen.setdefault("first new record", []).append(recovery.new_record_s)
    found = {name: _median(times) for name, times in seen.items()}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _median(times: Any) -> float:
    return float(round(median(times), 3))


@contextmanager
def _running() -> "Iterator[tuple[JobClient, JobFolder]]":
    """The job, until whoever wants it is through."""
    env = bench_environment(TASKS, SETTINGS)
    with OwnedFolder("bench") as owned:
        folder = str(owned)
        place = JobFolder(folder)
        stamps = env.from_source(DueSource(), None, "due by the clock")
        passed = stamps.map(FailsOnOrder(folder)).key_by(lambda stamp: stamp[0])
        counted = passed.reduce(lambda before, stamp: stamp)
        counted.sink_to(NotingSink(folder))
        client = env.execute_async("bench recovery")
        try:
            yield client, place
        finally:
            client.cancel().result()


def _recover(client: JobClient, place: "JobFolder", fail: "Fail") -> RecoveryTimes:
    """Let the job fail when it runs and has a new checkpoint, and wait until it goes on."""
    attempt = _await(client, place.newest_attempt, "the first record")
    before = _completed(client)
    _await(client, lambda: _completed(client) > before, "a checkpoint")
    failed_ns = fail(place, attempt)
    states: dict[str, float] = {}

    def look() -> int | None:
        at_s = (time.monotonic_ns() - failed_ns) / 1e9
        states.setdefault(client.get_job_status().result().name.lower(), at_s)
        return place.first_new_ns(attempt, failed_ns)

    new_ns = _await(client, look, "a new record")
    replayed_ns = place.first_ns(attempt)
    states.pop(JobStatus.RUNNING.name.lower(), None)  # it was before the driver knew
    return RecoveryTimes((new_ns - failed_ns) / 1e9, (replayed_ns - failed_ns) / 1e9, states)


def _completed(client: JobClient) -> int:
    return int(str(client.get_metrics().get("job.checkpoints.completed", 0)))


def _await(client: JobClient, ask: Callable[[], Any], what: str) -> Any:
    """Ask until there is an answer."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := ask()):
        status = client.get_job_status().result()
        if status.is_terminal_state():
            client.get_job_execution_result().result()  # raises what made it fail
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} does not come; the job is {status.name}")
        time.sleep(LOOK_S)
    return found


# What the workers leave for the driver, in a folder of the host.


@dataclass(frozen=True, slots=True)
class Note:
    """A sink had records in this process, then, and the last of them was due at that moment."""

    pid: int
    at_ns: int
    due_ns: int


@dataclass(frozen=True, slots=True)
class JobFolder:
    """Files of the job: notes of its sinks, one for each of their tasks, and orders to fail.

    The names of notes begin with that of the attempt; later ones have greater names.
    """

    folder: str

    def newest_attempt(self) -> str:
        """The last one; empty: not all of its sinks have had a record."""
        found = [name.rpartition("-")[0] for name in self._names()]
        newest = max(found, default="")
        return newest if found.count(newest) == TASKS else ""

    def process_of(self, attempt: str) -> int:
        """That of one of its sinks."""
        return self._notes(f"{attempt}-0")[0].pid

    def first_ns(self, after: str) -> int:
        """When a later attempt had its first record."""
        return min(note.at_ns for note in self._later(after))

    def first_new_ns(self, after: str, since_ns: int) -> int | None:
        """When a later attempt first had a record that was due since then."""
        found = [note.at_ns for note in self._later(after) if note.due_ns > since_ns]
        return min(found, default=None)

    def _later(self, after: str) -> list[Note]:
        names = [name for name in self._names() if name.rpartition("-")[0] > after]
        return [note for name in names for note in self._notes(name)]

    def _names(self) -> list[str]:
        return [path.name for path in Path(self.folder).glob("note-*") if path.stat().st_size]

    def _notes(self, name: str) -> list[Note]:
        lines = Path(self.folder, name).read_text().splitlines(keepends=True)
        return [Note(*map(int, line.split())) for line in lines if line.endswith("\n")]


Fail = Callable[[JobFolder, str], int]
"""Makes an attempt of the job fail; answers when that was."""


def kill_worker(place: JobFolder, attempt: str) -> int:
    """End a worker process of the job as the kernel does when memory is short."""
    pid = place.process_of(attempt)
    failed_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    return failed_ns


def fail_function(place: JobFolder, attempt: str) -> int:
    """Let the function raise with its next record."""
    failed_at = Path(place.folder, FAILED_AT)
    failed_at.unlink(missing_ok=True)
    Path(place.folder, ORDER).touch()
    deadline = time.monotonic() + PATIENCE_S
    while not failed_at.exists():
        assert time.monotonic() < deadline, "the function does not fail"
        time.sleep(LOOK_S)
    return int(failed_at.read_text())


# The job: by the clock → a function that may fail → key_by → the newest of each key → notes.


class DueSource(Source):
    """So many records a second, (key, when it was due), for ever."""

    def splits(self, parallelism: int) -> Sequence[int]:
        return range(parallelism)

    def open(self, split: object, position: Any, context: ConnectorContext) -> "DueReader":
        return DueReader(*(position or (time.monotonic_ns(), 0)))


class DueReader(SplitReader):
    """Gives what is due; one that goes on from a checkpoint has something to catch up on."""

    gives_away = True

    def __init__(self, began_ns: int, sent: int) -> None:
        self._began_ns = began_ns
        self._sent = sent

    def poll(self, limit: int) -> list[tuple[int, int]]:
        due = (time.monotonic_ns() - self._began_ns) * RATE // 10**9
        first, self._sent = self._sent, max(self._sent, min(due, self._sent + limit))
        began_ns, each_ns = self._began_ns, 10**9 // RATE
        return [(number % KEYS, began_ns + number * each_ns) for number in range(first, self._sent)]

    def wait_ms(self) -> float:
        return 1.0

    def position(self) -> tuple[int, int]:
        return self._began_ns, self._sent


class FailsOnOrder:
    """Passes records on; raises once for each order, and reports when."""

    def __init__(self, folder: str) -> None:
        self.order = os.path.join(folder, ORDER)
        self.failed_at = os.path.join(folder, FAILED_AT)

    def __call__(self, stamp: tuple[int, int]) -> tuple[int, int]:
        if os.path.exists(self.order):
            with suppress(FileNotFoundError):  # another task was faster
                os.remove(self.order)
                Path(f"{self.failed_at}.new").write_text(str(time.monotonic_ns()))
                os.rename(f"{self.failed_at}.new", self.failed_at)
                raise RuntimeError("it was ordered to fail")
        return stamp


class NotingSink(Sink):
    """Notes when it had what."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def create_writer(self, context: ConnectorContext) -> "NotingWriter":
        task = context.task
        return NotingWriter(Path(self.folder, f"note-{task.attempt:06}-{task.subtask}"))


class NotingWriter(SinkWriter):
    def __init__(self, path: Path) -> None:
        self._out = path.open("w", buffering=1)

    def write(self, records: list[tuple[int, int]]) -> None:
        due_ns = max(due_ns for _, due_ns in records)
        self._out.write(f"{os.getpid()} {time.monotonic_ns()} {due_ns}\n")

    def flush(self) -> None:
        """Lines leave at once."""

    def close(self) -> None:
        self._out.close()
