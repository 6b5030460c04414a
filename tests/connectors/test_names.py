"""Sources and sinks are called by what they are and where they read or write."""

from pathlib import Path
from typing import Any

import pytest

from headgate.api.environment import StreamExecutionEnvironment
from headgate.common import Encoder, Types
from headgate.connectors.paths import short_folder, short_place
from headgate.datastream.connectors import (
    CsvSink,
    DataGeneratorSource,
    DbApiSink,
    JsonLinesSink,
    NumberSequenceSource,
    ParquetSink,
    SocketTextSource,
    SqliteSink,
    TextFileSink,
    TextFileSource,
)
from headgate.datastream.connectors.file_system import FileSink

SCHEMA = Types.ROW_NAMED(["n"], [Types.LONG()])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("sink", "name"),
    [
        (lambda: TextFileSink("out"), "files out/"),
        (lambda: TextFileSink(Path.cwd() / "out" / "x"), "files out/x/"),
        (lambda: FileSink.for_row_format("out", Encoder.simple_string_encoder()).build(), None),
        (lambda: CsvSink("/data/totals"), "CSV files /data/totals/"),
        (lambda: JsonLinesSink("s3://me:secret@shop/out"), "JSON files s3://shop/out/"),
        (lambda: ParquetSink("out", schema=SCHEMA), "Parquet files out/"),
        (lambda: DbApiSink(print, "insert INTO shop.sales VALUES (?)"), "table shop.sales"),
        (lambda: SqliteSink("sales.db", "UPDATE sales SET n = ?"), "table sales"),
        (lambda: DbApiSink(print, "CALL note(?)"), "database"),
    ],
)
def test_sinks_are_named_by_their_kind_and_target(sink: Any, name: str | None) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    written = env.from_collection([1]).sink_to(sink())
    assert written.get_name() == (name or "files out/")
    assert env.get_stream_graph().nodes[2].title == f"Sink: {written.get_name()}"
    assert written.name("mine").get_name() == "mine"
    env.close()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (lambda: TextFileSource("logs", "more", "most"), "files logs and 2 more"),
        (lambda: NumberSequenceSource(1, 10), "numbers 1 to 10"),
        (lambda: SocketTextSource("localhost", 9999), "socket localhost:9999"),
        (lambda: DataGeneratorSource(abs, 3), "generator"),
    ],
)
def test_sources_without_a_name_are_named_by_what_they_read(source: Any, name: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    assert env.from_source(source()).get_name() == name
    assert env.from_source(source(), None, "mine").get_name() == "mine"
    env.close()


def test_places_are_short_and_tell_no_secrets(tmp_path: Path) -> None:
    assert short_place(str(tmp_path / "a")) == "a"
    assert short_place("/far/away") == "/far/away"
    assert short_folder("hdfs://user@host/x?token=1") == "hdfs://host/x/"
    long = short_place("/" + "deep/" * 20 + "end")
    assert len(long) == 40 and long.startswith("…") and long.endswith("deep/end")
