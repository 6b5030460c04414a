"""The parts of the section ``streaming`` of ``bench sources`` that need no Spark."""

import pyarrow.parquet as parquet

from benchmarks.streaming_query import FILES, ArrivedRows, tree_cpu_s, write_files


def test_files_hold_all_rows(tmp_path):
    write_files(tmp_path / "rows", 10)

    ids = parquet.read_table(tmp_path / "rows").column("id").to_pylist()
    assert sorted(ids) == list(range(10 * FILES))


def test_rates_run_from_the_first_file_to_the_last_row():
    count = ArrivedRows(10)
    count.arrived([4, 5])
    for _ in range(FILES):
        count.arrived([10])

    assert count.is_complete.is_set()
    rate, cpu_us = count.figures()
    assert rate > 0 and cpu_us >= 0


def test_the_cpu_of_the_tree_grows():
    before = tree_cpu_s()
    while tree_cpu_s() == before:
        sum(range(1000))
