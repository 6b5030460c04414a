"""What is seen of a job every few seconds: processes, folders, and the output so far."""

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

MB = 1 << 20
EXECUTOR = b"CoarseGrainedExecutorBackend"
GROUPS = ("driver python", "driver jvm", "executor jvm", "worker python")


@dataclass(frozen=True)
class Sample:
    """The figures of one moment; ``is_steady``: the job had recovered from the last fault."""

    at_s: float
    is_steady: bool
    figures: dict[str, float]


@dataclass
class Usage:
    """What a group of processes takes."""

    processes: int = 0
    pss_mb: float = 0.0
    descriptors: int = 0
    threads: int = 0


def usage(pids: Iterable[int]) -> Usage:
    """Processes that end meanwhile do not count."""
    total = Usage()
    for pid in pids:
        with suppress(OSError):
            folder = Path(f"/proc/{pid}")
            pss_kb = _field((folder / "smaps_rollup").read_text(), "Pss:")
            threads = _field((folder / "status").read_text(), "Threads:")
            descriptors = len(os.listdir(folder / "fd"))
            total.processes += 1
            total.pss_mb += pss_kb / 1024
            total.descriptors += descriptors
            total.threads += threads
    return total


def _field(text: str, name: str) -> int:
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(name))


def in_groups(driver: Iterable[int], cluster: Iterable[int]) -> dict[str, list[int]]:
    """Which processes are what; daemons of the cluster, which are Spark's alone, are left out."""
    found: dict[str, list[int]] = {name: [] for name in GROUPS}
    for pid in driver:
        name = _name(pid)
        if name in ("python", "java"):
            found["driver jvm" if name == "java" else "driver python"].append(pid)
    for pid in cluster:
        name = _name(pid)
        if name == "python":
            found["worker python"].append(pid)
        elif name == "executor":
            found["executor jvm"].append(pid)
    return found


def _name(pid: int) -> str:
    """What a process runs: python, java, executor, or nothing of these."""
    with suppress(OSError):
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        program = os.path.basename(line.partition(b"\0")[0])
        if program == b"java":
            return "executor" if EXECUTOR in line else "java"
        return "python" if program.startswith(b"python") else ""
    return ""


def files_below(folder: Path) -> tuple[int, float]:
    """How many, and their MB on disk; files that are removed meanwhile do not count."""
    count, size = 0, 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_blocks * 512
                count += 1
    return count, size / MB


@dataclass
class Output:
    """Numbers that were committed. Each committed file is read once; a number comes once."""

    folder: Path
    numbers: int
    records: int = 0
    doubled: int = 0
    _seen: bytearray = field(init=False)
    _read: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._seen = bytearray(self.numbers)

    def look(self) -> int:
        """Read what is new; how many records were committed so far."""
        for path in sorted(self.folder.rglob("part-*.jsonl")):
            if path not in self._read:
                self._read.add(path)
                for line in path.read_text().splitlines():
                    number = json.loads(line)[2]
                    self.doubled += self._seen[number]
                    self._seen[number] = 1
                    self.records += 1
        return self.records

    @property
    def missing(self) -> int:
        """Numbers that did not come yet."""
        return self._seen.count(0)


@dataclass
class Sampler:
    """Takes samples; ``folders`` are counted by name, and ``groups`` tells which processes are."""

    groups: Callable[[], dict[str, list[int]]]
    folders: dict[str, Path]
    output: Output
    samples: list[Sample] = field(default_factory=list)

    def take(self, at_s: float, is_steady: bool) -> Sample:
        figures: dict[str, float] = {}
        total = Usage()
        for name, pids in self.groups().items():
            part = usage(pids)
            figures[f"{name} MB"] = part.pss_mb
            total.descriptors += part.descriptors
            total.threads += part.threads
            total.processes += part.processes
        figures["processes"] = total.processes
        figures["descriptors"] = total.descriptors
        figures["threads"] = total.threads
        for name, folder in self.folders.items():
            figures[f"{name} files"], figures[f"{name} MB"] = files_below(folder)
        figures["records"] = self.output.look()
        before = self.samples[-1] if self.samples else None
        elapsed = at_s - before.at_s if before else 0.0
        more = figures["records"] - before.figures["records"] if before else 0.0
        figures["records/s"] = more / elapsed if elapsed else 0.0
        sample = Sample(at_s, is_steady, figures)
        self.samples.append(sample)
        return sample
