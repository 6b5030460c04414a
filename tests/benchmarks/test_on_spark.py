"""The benchmarks that run on Spark, small: they measure real jobs and check what these counted."""

import time

import pytest
from pyspark.sql import SparkSession

from benchmarks.arrow import (
    CountedKeys,
    SliceReader,
    count_round,
    picked_table,
    run_arrow_bench,
    run_dataframe_bench,
)
from benchmarks.calls import MEANINGS as CALLS_MEANINGS
from benchmarks.calls import CallMeter, run_calls_bench
from benchmarks.keyed_count import (
    VOCABULARY,
    WordReader,
    WordSource,
    expected_counts,
    picked_words,
    run_keyed_count_bench,
)
from benchmarks.latency import LatencyMeter, StampReader, run_latency_bench
from benchmarks.observe import observed_round
from benchmarks.peers.compared import COMPARED
from benchmarks.point_reads import POINT_MEANINGS, points_section
from benchmarks.programs import ALL_PROGRAMS, COLUMNS, check_program, run_programs_bench
from benchmarks.startup import first_record_at, tree_cpu_s
from benchmarks.state import AmountReader, run_state_bench
from benchmarks.windows import (
    SENSORS,
    BatchedReadings,
    ReadingReader,
    ReadingSource,
    expected_sums,
    run_windows_bench,
)


def test_keyed_count_counts_every_word(spark: SparkSession) -> None:
    result = run_keyed_count_bench(records=30_001, parallelism=2, rounds=1)
    assert result["records"] == 30_001
    for name in ("records_per_s", "cpu_ns_per_record"):
        assert result[name] > 0 and result[f"process_{name}"] > 0


def test_expected_counts_are_those_of_the_words_that_readers_give() -> None:
    words: dict[str, int] = {}
    for split in WordSource(300_000).splits(2):
        reader = WordReader(*split)
        while (found := reader.poll(1000)) is not None:
            for word in found:
                words[word] = words.get(word, 0) + 1
    assert words == expected_counts(300_000, 2)
    assert sum(words.values()) == 300_000


def test_words_follow_zipf() -> None:
    words = picked_words()
    assert len(set(words)) <= VOCABULARY
    assert words.count("word-0") > 5 * words.count("word-9") > 0


def test_windows_add_up_every_reading(spark: SparkSession) -> None:
    result = run_windows_bench(records=30_001, parallelism=2, rounds=1)
    assert result["records"] == 30_001
    assert 0 < result["results"] <= SENSORS
    assert result["records_per_s"] > 0
    assert result["columns_per_s"] > 0


def test_batches_hold_the_readings_that_readers_give() -> None:
    for split in ReadingSource(150_000).splits(2):
        records, batches = ReadingReader(*split), BatchedReadings(*split)
        rows: list[tuple[str, int, int]] = []
        while (found := batches.poll(9)) is not None:
            rows += [tuple(row.values()) for batch in found for row in batch.to_pylist()]
        expected: list[tuple[str, int, int | None]] = []
        while (bundle := records.poll(777)) is not None:
            times = bundle.timestamps or []
            expected += [(*pair, at) for pair, at in zip(bundle.records, times, strict=True)]
        assert rows == expected


def test_counts_on_columns_count_every_row(spark: SparkSession) -> None:
    result = run_arrow_bench(rows=300_001, parallelism=2, rounds=1)
    assert result["rows"] == 300_001
    assert 0 < result["exchange_share"] < 1
    assert count_round(70_000, 2, "number") > 0


def test_readers_of_columns_give_so_many_rows_and_the_last_counts_are_kept() -> None:
    reader, rows = SliceReader(600_000), 0
    while (found := reader.poll(9)) is not None:
        rows += found[0].num_rows
    assert rows == 600_000 - reader.position()
    table = picked_table().select(["word"]).slice(0, 300)
    counted = CountedKeys()
    assert counted.report() == {"counts": {}}
    for total in range(1, 100):
        counts = table.append_column("count", [[total] * 300])
        counted.take(counts.combine_chunks().to_batches())
    assert set(counted.report()["counts"].values()) == {99}
    assert counted.report()["counts"].keys() == set(table["word"].to_pylist())


def test_dataframes_through_columns_are_compared_with_those_through_spark(
    spark: SparkSession,
) -> None:
    result = run_dataframe_bench(rows=20_000, parallelism=2, rounds=1)
    assert result["ratio"] == pytest.approx(
        result["rows_per_s"] / result["map_in_arrow_rows_per_s"], abs=0.02
    )


def test_expected_sums_are_those_of_the_readings_that_readers_give() -> None:
    sums: dict[str, int] = {}
    last_ms = 0
    for split in ReadingSource(300_000).splits(2):
        reader = ReadingReader(*split)
        while (found := reader.poll(777)) is not None:
            assert found.timestamps is not None
            assert len(found.timestamps) == len(found.records)
            last_ms = max(last_ms, max(time for time in found.timestamps if time is not None))
            for sensor, value in found.records:
                sums[sensor] = sums.get(sensor, 0) + value
    assert sums == expected_sums(300_000, 2)
    assert last_ms == 299  # a thousand readings of both sources in a millisecond


def test_latency_is_measured_for_every_record_after_the_warm_up(spark: SparkSession) -> None:
    result = run_latency_bench(rate=2000, seconds=0.5, timeouts_ms=(1,))
    assert result["timeout_ms"] == 1
    assert 0 < result["p50_ms"] <= result["p99_ms"] <= result["max_ms"]


def test_stamps_come_at_the_rate_and_never_ahead_of_it() -> None:
    reader = StampReader(rate=1_000_000, count=5_000)
    stamps: list[tuple[int, int]] = []
    while (found := reader.poll(700)) is not None:
        assert len(found) <= 700
        stamps += found
    assert len(stamps) == 5_000
    elapsed_ns = stamps[-1][1] - stamps[0][1]
    assert elapsed_ns >= 4_999 * 1000 * 0.9


def test_latency_meter_tells_percentiles() -> None:
    meter = LatencyMeter()
    meter.take([(0, 0)])
    assert meter.report() == {
        "records": 1,
        "p50_ms": 0.0,
        "p99_ms": 0.0,
        "p999_ms": 0.0,
        "max_ms": 0.0,
    }


def test_startup_is_measured_to_the_first_record(spark: SparkSession) -> None:
    called, first = first_record_at()
    assert first > called
    assert tree_cpu_s() > time.process_time(), "Spark's JVM is a child of this process"


def test_state_is_measured_in_memory_and_in_rocksdb(spark: SparkSession) -> None:
    result = run_state_bench(keys=500, records=1_700, rounds=1)
    assert result["records"] == 1_500, "every user comes equally often"
    assert result["many_keys"] == 5_000
    for name in ("memory", "rocksdb", "rocksdb_many_keys", "plain_loop"):
        assert result[f"{name}_records_per_s"] > 0
    assert result["rocksdb_rss_mib"] > 10


def test_amounts_visit_every_user_before_any_comes_again() -> None:
    for keys in (1, 10, 1_000_003):
        reader = AmountReader(keys, min(3 * keys, 30_000))
        users = []
        while (found := reader.poll(700)) is not None:
            users += [user for user, _ in found]
        assert len(users) == min(3 * keys, 30_000)
        assert len({*users[:keys]}) == min(keys, 30_000)
        assert users[keys : 2 * keys] == users[:keys] or keys > 30_000


def test_a_job_is_looked_at_while_it_is_measured(spark: SparkSession) -> None:
    result = observed_round("flames", records=6_000_000)
    assert result.seen.updates > 0 and result.seen.scrapes > 0 and result.seen.flame_graphs > 0
    assert result.records_per_s > 0 and result.cpu_ns > result.worker_ns > 0


def test_keys_are_read_while_the_job_is_measured(spark: SparkSession) -> None:
    result = points_section(rows=400_000, rounds=1)
    assert result["point_records"] == 1_200_000 and result["point_throughput_share"] > 0
    assert result.keys() >= POINT_MEANINGS.keys()


@pytest.mark.parametrize("name", sorted({*ALL_PROGRAMS, *COMPARED}))
def test_ordinary_programs_give_what_their_plain_loops_give(spark: SparkSession, name: str) -> None:
    check_program(name, {**ALL_PROGRAMS, **COMPARED}[name])


def test_programs_are_measured_beside_their_plain_loops(spark: SparkSession) -> None:
    result = run_programs_bench(["alarms"], rounds=1, scale=0.02)
    assert result["alarms"].keys() == COLUMNS.keys()
    assert all(figure > 0 for figure in result["alarms"].values())


def test_calls_answer_every_record_within_the_limit_of_the_server(spark: SparkSession) -> None:
    result = run_calls_bench(seconds=0.6, limit=40)
    assert result.keys() >= CALLS_MEANINGS.keys()
    assert result["limited_refused"] == 0
    assert 0 < result["limit_share"] < 1.5
    assert result["batched_requests"] < 0.6 * 20_000 / 10
    assert result["p50_ms"] > 20


def test_the_meter_of_calls_knows_the_slowest_of_a_hundred() -> None:
    meter = CallMeter()
    now_ns = time.monotonic_ns()
    meter.take([(2, now_ns)] * 99)
    meter.take([(4, now_ns - 5_000_000_000)])
    report = meter.report()
    assert (report["records"], report["sum"]) == (100, 202)
    assert report["first_ns"] == now_ns - 5_000_000_000
    assert report["p50_ms"] < 5000 < report["last_ns"] - report["first_ns"]
