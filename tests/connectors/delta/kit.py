"""Delta tables for tests: made, read with the library, and read from the log's own words."""

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from headgate.connectors.delta.folder import DeltaFolder
from headgate.connectors.delta.sink import DeltaSink, DeltaTarget

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])


def make_table(path: Path, schema: pa.Schema = SCHEMA, **options: Any) -> Path:
    DeltaTable.create(str(path), deltalake.Schema.from_arrow(schema), **options)
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    """As the library reads them."""
    return DeltaTable(str(path)).to_pyarrow_table().to_pylist()


def numbers(path: Path) -> list[int]:
    """As anybody reads them who knows the protocol: no code of the library is used."""
    return [row["n"] for row in rows_by_log(path)]


def rows_by_log(path: Path) -> list[dict[str, Any]]:
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


def transactions(path: Path) -> list[tuple[str, int]]:
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
