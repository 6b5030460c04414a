"""Sinks of a job with a real driver: tables of lakes, a stream for Spark, and part files.

See ``driver_kit``.
"""

import os
from pathlib import Path

import pyarrow as pa

from headgate.connectors.files.sink import TextFileSink
from headgate.functions.sink import TwoPhaseCommittingSink
from tests.connectors.delta import kit as delta
from tests.connectors.iceberg import kit as iceberg
from tests.connectors.streaming.kit import attached_output

NUMBERS = pa.schema([("number", pa.int64()), ("word", pa.string())])

pa.array([1])  # loads pandas, which takes a second


def make_sinks(places: dict[str, str]) -> dict[str, TwoPhaseCommittingSink]:
    """Tables and the stream in the folder ``tables``; ``files`` may be in a store."""
    tables = Path(places["tables"])
    return {
        "delta": delta.append_sink(tables),
        "iceberg": iceberg.append_sink(tables),
        "files": TextFileSink(places["files"]),
        "stream": attached_output(
            tables / "stream", f"driver {os.getpid()}", schema=NUMBERS, most_checkpoints=1000
        ),
    }
