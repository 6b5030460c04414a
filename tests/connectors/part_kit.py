"""Part files for tests: sinks of each format, and what they have written."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.api.types.types import Types
from headgate.connectors.files.layout import RollingPolicy
from headgate.connectors.files.parquet import ParquetSink
from headgate.connectors.files.sink import CsvSink, JsonLinesSink, PartSink, TextFileSink


def visible(folder: Path) -> list[Path]:
    return sorted(path for path in _files(folder) if path.name[0] != ".")


def hidden(folder: Path) -> list[Path]:
    return sorted(path for path in _files(folder) if path.name[0] == ".")


def _files(folder: Path) -> list[Path]:
    """As ``rglob``, which asks for each file what it is."""
    return [Path(above, name) for above, _, names in os.walk(folder) for name in names]


def read_numbers(folder: Path, kind: str) -> list[int]:
    found: list[int] = []
    for path in visible(folder):
        if kind == "parquet":
            table = pq.read_table(pa.BufferReader(path.read_bytes()))
            found += table.column("n").to_pylist()
        elif kind == "csv":
            lines = path.read_text().splitlines()
            assert lines[0] == "n,v"
            found += [int(line.split(",")[0]) for line in lines[1:]]
        else:
            lines = path.read_text().splitlines()
            found += [int(line.partition('"n":')[2].partition(",")[0] or line) for line in lines]
    return found


def make_sink(kind: str, folder: Path, policy: RollingPolicy, buckets: Any) -> PartSink:
    about: dict[str, Any] = {"rolling_policy": policy, "bucket_assigner": buckets}
    match kind:
        case "parquet":
            schema = Types.ROW_NAMED(["n", "v"], [Types.LONG(), Types.STRING()])
            return ParquetSink(folder, schema=schema, **about)
        case "csv":
            return CsvSink(folder, header=["n", "v"], **about)
        case "json":
            return JsonLinesSink(folder, **about)
    return TextFileSink(folder, **about)
