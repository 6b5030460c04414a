"""Parquet as a source: rows and batches, columns and filters, cuts and positions."""

import datetime
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.api.row import Row
from headgate.api.types.types import Types
from headgate.base.errors import FileGone, PathUnusable, PlanInvalid
from headgate.connectors.files import parquet_source
from headgate.connectors.files.parquet_source import ParquetColumnarRowInputFormat, ParquetSource
from headgate.connectors.files.source import FileSource
from headgate.connectors.files.splits import FileSplit
from headgate.functions.time import Duration
from tests.connectors.files_kit import read_source, read_splits
from tests.connectors.kit import read_to_end, task_context
from tests.host.leaks import descriptors, left_open

COUNT = 1000


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_source, "BATCH_ROWS", 64)
    monkeypatch.setattr(parquet_source, "FEWEST_ROWS", 10)


def numbers(path: Path, first: int = 0, count: int = COUNT, group: int = 100) -> None:
    values = range(first, first + count)
    table = pa.table({"n": values, "word": [f"w{value % 7}" for value in values]})
    with path.open("wb") as file:  # by name, pyarrow closes it some time later
        pq.write_table(table, file, row_group_size=group)


def test_rows_have_the_names_and_values_of_the_columns(tmp_path: Path) -> None:
    at = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc)
    table = pa.table(
        {
            "id": pa.array([1, None], pa.int32()),
            "when": pa.array([at, None], pa.timestamp("us", "UTC")),
            "inner": [{"x": 1, "y": "a"}, None],
            "pairs": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "word": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    with (tmp_path / "a.parquet").open("wb") as file:
        pq.write_table(table, file)
    first, second = read_source(ParquetSource(tmp_path))
    assert first == Row(id=1, when=at, inner=Row(x=1, y="a"), pairs={"k": 1}, word="a")
    assert second == Row(id=None, when=None, inner=None, pairs={}, word="b")


def test_a_file_is_cut_by_row_groups_and_nothing_stays_open(tmp_path: Path) -> None:
    numbers(tmp_path / "a.parquet")
    before = descriptors()
    source = ParquetSource(tmp_path, split_bytes=1000)
    splits = source.splits(1)
    parts = [read_splits(source, [split], 37) for split in splits]
    assert len([part for part in parts if part]) > 3
    assert [row.n for part in parts for row in part] == list(range(COUNT))
    assert left_open(before) == []


def test_only_the_columns_that_are_wanted_are_read_in_their_order(tmp_path: Path) -> None:
    numbers(tmp_path / "a.parquet", count=2)
    assert read_source(ParquetSource(tmp_path, columns=["word", "n"])) == [
        Row(word="w0", n=0),
        Row(word="w1", n=1),
    ]
    kind = Types.ROW_NAMED(["n"], [Types.DOUBLE()])
    rows = read_source(ParquetSource(tmp_path, schema=kind))
    assert [type(row.n) for row in rows] == [float, float]


@pytest.mark.parametrize(
    "row_filter",
    [
        [("n", ">=", 250), ("n", "<", 777), ("word", "!=", "w3")],
        (pc.field("n") >= 250) & (pc.field("n") < 777) & (pc.field("word") != "w3"),
    ],
)
def test_a_filter_leaves_out_rows_and_whole_row_groups(tmp_path: Path, row_filter: Any) -> None:
    numbers(tmp_path / "a.parquet")
    source = ParquetSource(tmp_path, row_filter=row_filter, columns=["n"])
    source = pickle.loads(pickle.dumps(source))
    wanted = [number for number in range(250, 777) if number % 7 != 3]
    assert read_source(source, 33) == [Row(n=number) for number in wanted]
    reader = source.open(source.splits(1)[0], None, task_context())
    assert len(reader.poll(1) or ()) == 1
    assert reader.position() == (2, 51)
    reader.close()


def test_batches_are_whole_however_few_records_the_task_takes(tmp_path: Path) -> None:
    numbers(tmp_path / "a.parquet")
    source = ParquetSource(tmp_path, as_batches=True)
    reader = source.open(source.splits(1)[0], None, task_context())
    found = read_to_end(reader, 1)
    reader.close()
    assert max(batch.num_rows for batch in found) >= 64, "as many as are decoded at a time"
    assert pa.Table.from_batches(found)["n"].to_pylist() == list(range(COUNT))


@settings(max_examples=40)
@given(
    group=st.integers(2, 20),
    limits=st.lists(st.integers(2, 20), min_size=1, max_size=5),
    pieces=st.integers(1, 3),
    kept=st.none() | st.lists(st.integers(0, 6), min_size=1, max_size=3),
)
def test_from_any_position_each_row_comes_once(
    group: int, limits: list[int], pieces: int, kept: list[int] | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        numbers(path, count=40, group=group)
        words = None if kept is None else [f"w{number}" for number in kept]
        row_filter = None if words is None else pc.field("word").isin(words)
        source = ParquetSource(
            path, row_filter=row_filter, split_bytes=max(1, path.stat().st_size // pieces)
        )
        found: list[int] = []
        for split in source.splits(1):
            position, turn = None, 0
            while True:
                reader = source.open(split, position, task_context())
                rows = reader.poll(limits[turn % len(limits)])
                position = pickle.loads(pickle.dumps(reader.position()))
                reader.close()
                turn += 1
                if rows is None:
                    break
                found += [row.n for row in rows]  # type: ignore[union-attr]
    assert found == [number for number in range(40) if kept is None or number % 7 in kept]


def test_the_lag_is_what_is_left_of_the_bytes(tmp_path: Path) -> None:
    numbers(tmp_path / "a.parquet")
    source = ParquetSource(tmp_path)
    reader = source.open(source.splits(1)[0], None, task_context())
    sizes = [reader.lag().bytes]  # type: ignore[union-attr]
    while reader.poll(100) is not None:
        sizes.append(reader.lag().bytes)  # type: ignore[union-attr]
    assert reader.lag().bytes == 0  # type: ignore[union-attr]
    assert sizes[0] == (tmp_path / "a.parquet").stat().st_size
    assert sizes == sorted(sizes, reverse=True)  # type: ignore[type-var]
    reader.close()


def test_what_is_no_parquet_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.parquet"
    numbers(path)
    whole = path.read_bytes()
    for damaged in (b"", b"text", whole[:-30], whole[:4] + bytes(3000) + whole[3004:]):
        path.write_bytes(damaged)
        with pytest.raises(PathUnusable, match="a.parquet: cannot be read as Parquet"):
            read_source(ParquetSource(path))
    with pytest.raises(FileGone, match="gone: .*every worker"):
        read_splits(ParquetSource(path), [FileSplit(str(tmp_path / "gone"))])
    patient = ParquetSource(path, skip_missing=True)
    assert read_splits(patient, [FileSplit(str(tmp_path / "gone"))]) == []
    assert "gone is not there any more; what was left of it was not read" in caplog.text


def test_a_column_that_a_file_does_not_have_is_named(tmp_path: Path) -> None:
    numbers(tmp_path / "a.parquet")
    with pytest.raises(PathUnusable, match="has no column 'm', it has n, word"):
        read_source(ParquetSource(tmp_path, columns=["n", "m"]))
    with pytest.raises(PathUnusable, match=r"cannot be read as Parquet: .*FieldRef.Name\(m\)"):
        read_source(ParquetSource(tmp_path, row_filter=[("m", "=", 1)]))
    kind = Types.ROW_NAMED(["word"], [Types.INT()])
    with pytest.raises(PathUnusable, match="cannot be read as Parquet: .*w0"):
        read_source(ParquetSource(tmp_path, schema=kind))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"columns": []}, "columns is empty"),
        ({"row_filter": "n > 3"}, "the row filter 'n > 3' cannot be read"),
        ({"schema": Types.INT()}, "Types.ROW_NAMED"),
        (
            {"schema": Types.ROW_NAMED(["n"], [Types.INT()]), "columns": ["m"]},
            "'m' is not in the schema, which has n",
        ),
    ],
)
def test_nonsense_is_refused(settings: Any, words: str) -> None:
    with pytest.raises(PlanInvalid, match=words):
        ParquetSource("a", **settings)


def test_a_file_that_is_followed_is_read_when_its_end_is_written(tmp_path: Path) -> None:
    numbers(tmp_path / "a.parquet", count=3)
    whole = (tmp_path / "a.parquet").read_bytes()
    source = ParquetSource(tmp_path, follow=True)
    finder = source.create_enumerator(1, None)
    assert [row.n for row in read_splits(source, finder.discover())] == [0, 1, 2]
    (tmp_path / "b.parquet").write_bytes(whole[:-1])
    assert finder.discover() == []
    finder = source.create_enumerator(1, pickle.loads(pickle.dumps(finder.position())))
    (tmp_path / "b.parquet").write_bytes(whole)
    assert len(read_splits(source, finder.discover())) == 3
    assert finder.discover() == []


@pytest.mark.parametrize("row_filter", [None, [("n", ">=", 0)]])
def test_a_file_that_is_rotated_while_it_is_opened_is_found_again(
    tmp_path: Path, row_filter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    numbers(path)
    source = ParquetSource(tmp_path, follow=True, row_filter=row_filter)
    splits = source.create_enumerator(1, None).discover()
    find = parquet_source.find_split

    def rotate_then(access: Any, split: FileSplit) -> str:
        found = find(access, split)
        if not (tmp_path / "rows.1.parquet").exists():
            path.rename(tmp_path / "rows.1.parquet")
            numbers(path, first=5000)
        return found

    monkeypatch.setattr(parquet_source, "find_split", rotate_then)
    assert sorted(row["n"] for row in read_splits(source, splits)) == list(range(COUNT))


def test_the_builder_speaks_pyflink(tmp_path: Path) -> None:
    numbers(tmp_path / "a.parquet", count=2)
    form = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["n"], [Types.LONG()]))
    builder = FileSource.for_bulk_file_format(form, str(tmp_path))
    assert read_source(builder.build()) == [Row(n=0), Row(n=1)]
    assert not builder.monitor_continuously(Duration.of_millis(5)).build().bounded


def test_a_name_that_is_no_utf8_is_read(tmp_path: Path) -> None:
    numbers(tmp_path / "a", count=2)
    os.rename(tmp_path / "a", os.fsencode(tmp_path) + b"/caf\xe9.parquet")
    assert len(read_source(ParquetSource(tmp_path))) == 2
