"""Streams between a job and queries, without Spark: a query's side of an input, and its tasks."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import structs

from headgate.connectors.streaming.sink import StreamingOutput
from headgate.connectors.streaming.source import InputEnumerator, StreamingInput
from headgate.connectors.streaming.stream_log import (
    LogEntry,
    LogPart,
    StreamLog,
    StreamOwner,
    part_prefix,
    this_host,
)
from headgate.functions.source import Position
from tests.connectors.kit import read_to_end, task_context

pa.array([1])  # loads pandas, once instead of in each process that a test forks
SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.float64())])


def owner(token: str = "first", **fields: Any) -> StreamOwner:
    """A job that runs, in a process that lives: this one."""
    import os

    known = {"job": "j1", "name": "shop", "host": this_host(), "pid": os.getpid()}
    return StreamOwner(token=token, **{**known, **fields})


def attached_input(folder: Path, token: str = "first", **settings: Any) -> StreamingInput:
    source = StreamingInput("orders", settings.pop("schema", SCHEMA), **settings)
    source.stream.attach(str(folder), owner(token))
    return source


def attached_output(
    folder: Path, token: str = "first", restored: int | None = None, **settings: Any
) -> StreamingOutput:
    sink = StreamingOutput("totals", settings.pop("schema", SCHEMA), **settings)
    sink.stream.attach(str(folder), owner(token), (), restored)
    return sink


def started_output(folder: Path, token: str, restored: int | None = None) -> StreamingOutput:
    """Of a job that is started when the one before has ended."""
    log = StreamLog(str(folder))
    if (before := log.owner()) is not None:
        log.set_owner(structs.replace(before, state="CANCELED"))
    return attached_output(folder, token, restored)


def shown(folder: Path) -> list[int]:
    """The first column of what an output shows to a query that begins."""
    log, found = StreamLog(str(folder)), []
    for writer, numbers in log.entries().items():
        for number in numbers:
            entry = log.read_entry(writer, number)
            assert entry is not None
            for part in entry.parts:
                for batch in log.read_part(part.name):
                    found += batch.column(0).to_pylist()
    return found


def rows(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": n, "price": n / 2} for n in ids], SCHEMA)


def write_parts(folder: Path, query: str, number: int, *batches: pa.RecordBatch) -> list[LogPart]:
    """As the tasks of a micro-batch do, one for each batch."""
    log, parts = StreamLog(str(folder)), []
    for partition, batch in enumerate(batches):
        prefix = f"{part_prefix(query, number)}{partition}-"
        parts += log.write_parts(prefix, SCHEMA, [batch])
    return parts


def write_batch(folder: Path, query: str, number: int, *batches: pa.RecordBatch) -> bool:
    """A whole micro-batch with its commit."""
    parts = write_parts(folder, query, number, *batches)
    return StreamLog(str(folder)).append(LogEntry(query, number, tuple(parts)))


def discovered(
    source: StreamingInput, position: Position = None
) -> tuple[InputEnumerator, list[Any]]:
    """A new enumerator, and the splits that it has found."""
    enumerator = source.create_enumerator(1, position)
    return enumerator, list(enumerator.discover())


def read_ids(source: StreamingInput, splits: list[Any], position: Position = None) -> list[int]:
    """What tasks read of these splits."""
    found = []
    for split in splits:
        reader = source.open(split, position, task_context())
        try:
            found += [row.id for row in read_to_end(reader)]
        finally:
            reader.close()
    return found
