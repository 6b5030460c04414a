"""The benchmarks of checkpoints and recovery, small: what they tell holds together."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from benchmarks import checkpoint
from benchmarks.checkpoint import Load, PayloadReader, load_in_flight
from benchmarks.commands import bench
from benchmarks.keyed_count import WordReader, WordSource
from benchmarks.recovery import DueReader, FailsOnOrder, JobFolder, NotingWriter


def test_bench_checkpoint_compares_barriers_that_wait_with_those_that_overtake(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "STEADY_S", 0.3)
    small = ("--in-flight", "4", "--sleep-ms", "0.5", "--records", "20000")
    words = ["checkpoint", "--json", "--rounds", "1", *small]
    run = CliRunner().invoke(bench, words, catch_exceptions=False)
    result = json.loads(run.stdout.splitlines()[-1])
    share = result["unaligned_ms"] / result["aligned_ms"]
    assert result["unaligned_share"] == pytest.approx(share, rel=0.05)
    assert result["unaligned_share"] < 1  # no claim about time but this: who waits is later
    assert 2 < result["in_flight_mib"] < 8
    assert result["unaligned_full_ms"] > 0
    assert result["throughput_share"] > 0
    assert "off" in result["debloating"]
    assert "took_ms" in result["durations_from"]


def test_bench_recovery_sees_new_records_after_a_kill_and_after_a_failure(
    spark: SparkSession,
) -> None:
    words = ["recovery", "--rounds", "1", "--json"]
    run = CliRunner().invoke(bench, words, catch_exceptions=False)
    result = json.loads(run.stdout.splitlines()[-1])
    for kind in ("killed_worker", "failed_function"):
        steps = result[f"{kind}_steps_s"]
        assert 0 < steps["first record"] <= steps["first new record"]
        assert result[f"{kind}_s"] == steps["first new record"]
        assert len(steps) > 2, "nobody saw the job fail"


def test_a_word_reader_goes_on_from_its_position() -> None:
    split = WordSource(3_000).splits(2)[1]
    undisturbed, reader = WordReader(*split), WordReader(*split)
    assert reader.poll(700) == undisturbed.poll(700)
    restored = WordSource(3_000).open(split, reader.position(), None)  # type: ignore[arg-type]
    assert restored.poll(4_000) == undisturbed.poll(4_000)
    assert restored.poll(1) is None


def test_a_load_has_memory_for_what_shall_be_in_flight() -> None:
    assert Load(1024, 1.0).settings() == {}
    settings = load_in_flight(256, 1.0).settings()
    buffers = int(settings["taskmanager.network.memory.floating-buffers-per-gate"])
    assert int(settings["taskmanager.memory.network.max"]) > 2 * buffers * 32 * 1024
    assert 150 * 2**20 < 2 * 2 * buffers * 32 * 1024 <= 256 * 2**20


def test_payloads_are_objects_of_their_own_which_pickling_cannot_share() -> None:
    reader = PayloadReader(100, 0)
    payloads = reader.poll(10)
    assert {len(payload) for payload in payloads} == {100}
    assert len(set(payloads)) == 10
    assert PayloadReader(100, reader.position()).poll(1) == [reader.poll(1)[0]]


def test_only_later_attempts_and_records_that_were_due_later_count(tmp_path: Path) -> None:
    place = JobFolder(str(tmp_path))
    assert place.newest_attempt() == ""
    for subtask in (0, 1):
        note(tmp_path, f"note-000000-{subtask}", due_ns=100 + subtask)
    old = place.newest_attempt()
    assert old == "note-000000"
    assert place.process_of(old) == os.getpid()
    note(tmp_path, "note-000000-2", due_ns=900)  # of the dying attempt
    assert place.first_new_ns(old, 500) is None
    note(tmp_path, "note-000001-0", due_ns=400)  # replayed
    assert place.first_new_ns(old, 500) is None
    assert place.first_ns(old) > 0
    assert place.newest_attempt() == "", "the other sink has had nothing"
    note(tmp_path, "note-000001-1", due_ns=600)
    found = place.first_new_ns(old, 500)
    assert found is not None
    assert found >= place.first_ns(old)
    (tmp_path / "note-000002-0").write_text("12 34")  # a line that is not whole
    assert place.first_new_ns("note-000001", 0) is None


def note(folder: Path, name: str, due_ns: int) -> None:
    writer = NotingWriter(folder / name)
    writer.write([(0, due_ns - 50), (1, due_ns)])
    writer.close()


def test_a_reader_by_the_clock_catches_up_after_a_restore() -> None:
    reader = DueReader(0, 0)  # begun with the clock: much is due
    first = reader.poll(3)
    began_ns, sent = reader.position()
    assert (len(first), sent) == (3, 3)
    again = DueReader(began_ns, sent).poll(2)
    assert again == reader.poll(2)
    assert again[0][1] > first[-1][1]


def test_a_function_fails_once_for_each_order_and_tells_when(tmp_path: Path) -> None:
    function = FailsOnOrder(str(tmp_path))
    assert function((1, 2)) == (1, 2)
    (tmp_path / "fail").touch()
    with pytest.raises(RuntimeError, match="ordered to fail"):
        function((1, 2))
    assert int((tmp_path / "failed").read_text()) > 0
    assert function((1, 2)) == (1, 2)
