"""Delta tables for tests: made, read with the library, and read from the log's own words.

What `tests/connectors/lakes` asks of a format has the same name in the kit of Iceberg.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from headgate.connectors.delta.folder import DeltaFolder
from headgate.connectors.delta.sink import DeltaSink, DeltaTarget
from headgate.connectors.delta.source import DeltaSource
from headgate.connectors.delta.table import TableAddress

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])
KIND = "Delta table "
MISSING = "there is no Delta table at"
Target = DeltaTarget


def begin(place: Path) -> None:
    """The first use of the library."""
    rows(make_table(place))


def make_table(path: Path, schema: pa.Schema = SCHEMA, **options: Any) -> Path:
    DeltaTable.create(str(path), deltalake.Schema.from_arrow(schema), **options)
    return path


def sink(path: Path, **options: Any) -> DeltaSink:
    return DeltaSink(path, **options)


def source(path: Path, **options: Any) -> DeltaSource:
    return DeltaSource(path, **options)


def target(path: Path, keys: Sequence[str], kind: type[DeltaTarget] = DeltaTarget) -> DeltaTarget:
    return kind(TableAddress(str(path), "DeltaSink"), keys)


def add(path: Path, *numbers: int, **options: Any) -> None:
    found = pa.table({"n": pa.array(numbers, pa.int64()), "word": [f"w{n}" for n in numbers]})
    write_deltalake(str(path), found, mode="append", **options)


def delete(path: Path, condition: str) -> None:
    DeltaTable(str(path)).delete(condition)


def drop(path: Path) -> None:
    shutil.rmtree(path)


def remove_unnamed(path: Path) -> None:
    table = DeltaTable(str(path))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def forget_first(path: Path) -> None:
    """The log keeps its notes, whatever is removed of it."""


def schema(path: Path) -> pa.Schema:
    return pa.schema(DeltaTable(str(path)).schema().to_arrow())


@contextmanager
def reading(path: Path) -> Iterator[Callable[[], list[int]]]:
    yield lambda: numbers(path)


def rows(path: Path) -> list[dict[str, Any]]:
    """As the library reads them."""
    return DeltaTable(str(path)).to_pyarrow_table().to_pylist()


def numbers(path: Path) -> list[int]:
    """As anybody reads them who knows the protocol: no code of the library is used."""
    return [row["n"] for row in rows_by_files(path)]


def rows_by_files(path: Path) -> list[dict[str, Any]]:
    live: dict[str, dict[str, Any]] = {}
    for action in actions(path):
        if "add" in action:
            assert action["add"]["path"] not in live, "added twice"
            live[action["add"]["path"]] = action["add"]
        elif "remove" in action:
            del live[action["remove"]["path"]]
    found: list[dict[str, Any]] = []
    for add in live.values():
        file = path / unquote(add["path"])
        assert file.stat().st_size == add["size"]
        some = pq.read_table(pa.BufferReader(file.read_bytes())).to_pylist()
        if add.get("stats"):
            assert json.loads(add["stats"])["numRecords"] == len(some)
        found += [{**row, **add["partitionValues"]} for row in some]
    return found


def actions(path: Path) -> list[dict[str, Any]]:
    """Of all versions, in order."""
    log = sorted((path / "_delta_log").glob("*.json"))
    return [json.loads(line) for entry in log for line in entry.read_text().splitlines()]


def log_file(version: int) -> str:
    return f"_delta_log/{version:020}.json"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def lots(path: Path) -> list[tuple[str, int]]:
    """Writers and the numbers of their lots, as commits have noted them."""
    found = [action["txn"] for action in actions(path) if "txn" in action]
    return [(txn["appId"], txn["version"]) for txn in found]


def files(path: Path) -> set[str]:
    """Data files in the folder, whether or not the log names them."""
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet")}


def named_files(path: Path) -> set[str]:
    return {unquote(action["add"]["path"]) for action in actions(path) if "add" in action}


# Jobs that are killed; see tests/connectors/lake_kit.py.


def prepare(place: Path) -> None:
    make_table(place / "table")


def append_sink(place: Path) -> DeltaSink:
    return DeltaSink(place / "table")


def upsert_sink(place: Path) -> DeltaSink:
    return DeltaSink(place / "table", mode="upsert", keys=["n"])


def job_numbers(place: Path) -> list[int]:
    return numbers(place / "table")


def record(number: int) -> tuple[int, str]:
    return number, f"word {number}"


COMMIT_STEPS = [
    (DeltaFolder, "write"),
    (DeltaFolder, "settle_log"),
    (DeltaFolder, "remove"),
    (DeltaTarget, "write"),
]
JOBS = {
    "append": (append_sink, record, COMMIT_STEPS),
    "upsert": (upsert_sink, record, COMMIT_STEPS),
}
