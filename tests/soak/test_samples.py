"""Figures of real processes and folders, and output that is read once."""

import json
import mmap
import os
import threading
from pathlib import Path

import pytest

from tests.soak.samples import Output, Sampler, files_below, in_groups, usage


def test_usage_counts_memory_descriptors_and_threads_of_a_process(tmp_path: Path) -> None:
    before = usage([os.getpid()])
    gate = threading.Event()
    block = mmap.mmap(-1, 24 << 20)  # no allocator that may keep more, or have it already
    for _ in range(24):
        block.write(os.urandom(1 << 20))
    threads = [threading.Thread(target=gate.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    files = [(tmp_path / str(number)).open("w") for number in range(5)]
    try:
        after = usage([os.getpid()])
    finally:
        gate.set()
        for thread in threads:
            thread.join()
        for file in files:
            file.close()
        block.close()
    assert after.pss_mb - before.pss_mb == pytest.approx(24, abs=6)
    assert after.descriptors - before.descriptors == 5
    assert after.threads - before.threads == 3


def test_a_process_that_has_gone_does_not_count() -> None:
    pid = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(pid, 0)
    assert usage([pid]).processes == 0
    assert in_groups([pid], [pid])["driver python"] == []


def test_processes_are_told_apart_by_what_they_run() -> None:
    groups = in_groups([os.getpid()], [os.getpid(), 1])
    assert groups["driver python"] == [os.getpid()]
    assert os.getpid() in groups["worker python"]
    assert groups["executor jvm"] == []


def test_files_in_nested_folders_count(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(os.urandom(2 << 20))
    (tmp_path / "other").write_text("x")
    count, size_mb = files_below(tmp_path)
    assert count == 2
    assert size_mb == pytest.approx(2, abs=0.1)
    assert files_below(tmp_path / "nowhere") == (0, 0)


def committed(folder: Path, name: str, *numbers: int) -> None:
    lines = [json.dumps([number % 2, 1, number]) for number in numbers]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def test_output_is_read_once_and_doubles_are_seen(tmp_path: Path) -> None:
    output = Output(tmp_path, 6)
    committed(tmp_path, "part-0", 0, 1)
    committed(tmp_path, ".part-1.inprogress", 2)
    assert (output.look(), output.look()) == (2, 2)
    committed(tmp_path, "part-1", 2, 3)
    assert (output.look(), output.doubled, output.missing) == (4, 0, 2)
    committed(tmp_path, "part-2", 3, 4)
    assert (output.look(), output.doubled, output.missing) == (6, 1, 1)


def test_throughput_is_what_came_since_the_last_sample(tmp_path: Path) -> None:
    sampler = Sampler(
        lambda: {"worker python": [os.getpid()]}, {"checkpoint": tmp_path}, Output(tmp_path, 9)
    )
    first = sampler.take(1.0, is_steady=True)
    committed(tmp_path, "part-0", 0, 1, 2, 3)
    second = sampler.take(3.0, is_steady=True)
    assert (first.figures["records/s"], second.figures["records/s"]) == (0, 2)
    assert second.figures["checkpoint files"] == 1
    assert second.figures["worker python MB"] > 1
