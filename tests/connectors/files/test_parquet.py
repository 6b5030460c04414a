"""Parquet parts: what was declared is what pyarrow reads."""

import datetime
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.api.row import Row
from headgate.api.types.types import Types
from headgate.base.elements import Bundle
from headgate.base.errors import PathUnusable, PlanInvalid, RecordUnfit
from headgate.connectors.files import parquet as parquet_sink
from headgate.connectors.files.layout import OutputFileConfig
from headgate.connectors.files.parquet import ParquetBulkWriters, ParquetSink
from headgate.connectors.files.sink import FileSink
from tests.core.chain.sink_lab import open_sink, sink_context

PAIR = Types.ROW_NAMED(["n", "word"], [Types.LONG(), Types.STRING()])


def write(sink: ParquetSink, *bundles: list[Any]) -> None:
    task = open_sink(sink, sink_context(checkpoints=False))
    try:
        for bundle in bundles:
            task.process(Bundle(bundle), 0)
        task.finish()
    finally:
        task.close()


def read(folder: Path, name: str = "part-0.parquet") -> pa.Table:
    """By way of memory: a reader of a file closes it on a thread of its own, some time later."""
    return pq.read_table(pa.BufferReader((folder / name).read_bytes()))


def test_all_declared_types_come_back(tmp_path: Path) -> None:
    moment = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456)
    kinds: list[tuple[str, Any, Any]] = [
        ("s", Types.STRING(), "ä"),
        ("b", Types.BOOLEAN(), True),
        ("i", Types.INT(), -5),
        ("l", Types.LONG(), 1 << 60),
        ("f", Types.FLOAT(), 0.5),
        ("d", Types.DOUBLE(), 0.1),
        ("m", Types.BIG_DEC(), Decimal("1.25")),
        ("day", Types.SQL_DATE(), moment.date()),
        ("time", Types.SQL_TIME(), moment.time()),
        ("at", Types.SQL_TIMESTAMP(), moment),
        ("raw", Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\0x"),
        ("list", Types.LIST(Types.INT()), [1, 2]),
        ("map", Types.MAP(Types.STRING(), Types.INT()), {"a": 1}),
        ("row", Types.ROW_NAMED(["x"], [Types.INT()]), Row(x=1)),
        ("two", Types.TUPLE([Types.INT(), Types.STRING()]), (1, "z")),
    ]
    schema = Types.ROW_NAMED([name for name, _, _ in kinds], [kind for _, kind, _ in kinds])
    values = tuple(value for _, _, value in kinds)
    write(ParquetSink(tmp_path, schema=schema), [values, (None,) * len(kinds)])
    first, second = read(tmp_path).to_pylist()
    assert set(second.values()) == {None}
    expected = dict(zip(first, values, strict=True))
    expected.update(map=[("a", 1)], row={"x": 1}, two={"f0": 1, "f1": "z"})
    assert first == expected


def test_rows_are_gathered_to_groups_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_sink, "BATCH_ROWS", 3)
    monkeypatch.setattr(parquet_sink, "GROUP_ROWS", 6)
    rows = [(number, str(number)) for number in range(20)]
    write(ParquetSink(tmp_path, schema=PAIR), rows[:2], rows[2:9], rows[9:])
    file = pq.ParquetFile(tmp_path / "part-0.parquet")
    assert file.read().column("n").to_pylist() == list(range(20))
    assert file.num_row_groups == 2
    file.close()


def test_a_record_that_does_not_fit_is_refused_with_its_column(tmp_path: Path) -> None:
    with pytest.raises(RecordUnfit, match="operator 'out': column 'n': 'x' is no whole number"):
        write(ParquetSink(tmp_path, schema=PAIR), [("x", "word")])
    assert list(tmp_path.iterdir()) == []


def test_a_schema_of_arrow_is_taken_as_it_is(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int16(), nullable=False)])
    sink = ParquetSink(tmp_path, schema=schema, compression="zstd")
    write(sink, [1, (2,), {"n": 3}])
    assert read(tmp_path).schema.field("n").type == pa.int16()
    assert read(tmp_path).column("n").to_pylist() == [1, 2, 3]
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_the_schema_is_the_type_of_the_stream_if_none_is_given(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, overwrite=True)
    write(sink.for_type(PAIR), [Row(1, "a")])
    assert read(tmp_path).to_pylist() == [{"n": 1, "word": "a"}]
    with pytest.raises(PlanInvalid, match="declares no type; give schema="):
        sink.for_type(None)
    with pytest.raises(PlanInvalid, match="the schema is Types.INT"):
        sink.for_type(Types.INT())
    assert ParquetSink(tmp_path, schema=PAIR).for_type(None).schema is not None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"schema": 7}, "the schema is 7"),
        ({"schema": Types.ROW([])}, "has no columns"),
        ({"schema": Types.ROW([Types.PICKLED_BYTE_ARRAY()])}, "column 'f0' is a .* no form"),
        ({"schema": Types.ROW([Types.BIG_INT()])}, "column 'f0' is a .* no form"),
        ({"schema": PAIR, "compression": "zip"}, "compression is 'zip'; give one of snappy"),
        ({"schema": PAIR, "rolling_policy": 3}, "give a RollingPolicy"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        ParquetSink("out", **options)


def test_the_builder_speaks_pyflink(tmp_path: Path) -> None:
    builder = FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type(PAIR))
    config = OutputFileConfig.builder().with_part_suffix(".parquet").build()
    sink = builder.with_output_file_config(config).with_bucket_assigner("word").build()
    write(sink, [Row("n", "word")(1, "a")])  # type: ignore[arg-type]
    (part,) = tmp_path.rglob("*.parquet")
    assert part.parent.name == "word=a"
    assert read(part.parent, part.name).to_pylist() == [{"n": 1, "word": "a"}]
    with pytest.raises(PlanInvalid, match="give for instance ParquetBulkWriters"):
        FileSink.for_bulk_format(str(tmp_path), "parquet")


def test_a_file_system_that_nobody_knows_is_named() -> None:
    with pytest.raises(PathUnusable, match="nosuch://host/x: .*give a path of this machine"):
        open_sink(ParquetSink("nosuch://host/x", schema=PAIR), sink_context())
