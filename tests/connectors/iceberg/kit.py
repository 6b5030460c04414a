"""Iceberg tables in a catalog on SQLite: made, read with the library, and file by file.

What `tests/connectors/lakes` asks of a format has the same name in the kit of Delta.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.utils.concurrent import ExecutorFactory

from headgate.connectors.iceberg.catalog import IcebergAddress, table_schema
from headgate.connectors.iceberg.data_files import IcebergStage
from headgate.connectors.iceberg.sink import IcebergSink, IcebergTarget
from headgate.connectors.iceberg.source import IcebergSource

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])
NAME = "shop.sales"
KIND = "Iceberg table "
MISSING = "the catalog has no table 'shop.sales'"
Target = IcebergTarget


def begin(place: Path) -> None:
    """Threads of the library begin with its first use and last to the end."""
    pool = ExecutorFactory.get_or_create()
    count = pool._max_workers  # type: ignore[attr-defined]
    together = threading.Barrier(count)
    for future in [pool.submit(together.wait, 30) for _ in range(count)]:
        future.result()


def settings(place: Path) -> dict[str, str]:
    return {
        "name": "test",
        "type": "sql",
        "uri": f"sqlite:///{place}/catalog.db",
        "warehouse": f"file://{place}/warehouse",
    }


@contextmanager
def catalog(place: Path) -> Iterator[Catalog]:
    properties = settings(place)
    opened = load_catalog(properties.pop("name"), **properties)
    try:
        yield opened
    finally:
        opened.close()


def make_table(place: Path, schema: pa.Schema = SCHEMA) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    with catalog(place) as opened:
        opened.create_namespace_if_not_exists("shop")
        opened.create_table(NAME, schema)
    return place


@contextmanager
def table(place: Path) -> Iterator[Any]:
    with catalog(place) as opened:
        yield opened.load_table(NAME)


def sink(place: Path, **options: Any) -> IcebergSink:
    return IcebergSink(settings(place), NAME, **options)


def source(place: Path, **options: Any) -> IcebergSource:
    return IcebergSource(settings(place), NAME, **options)


def target(
    place: Path, keys: Sequence[str], kind: type[IcebergTarget] = IcebergTarget
) -> IcebergTarget:
    address = IcebergAddress(NAME, settings(place), "IcebergSink")
    return kind(address, address.open(), keys)


def add(place: Path, *numbers: int) -> None:
    found = pa.table({"n": pa.array(numbers, pa.int64()), "word": [f"w{n}" for n in numbers]})
    with table(place) as opened:
        opened.append(found)


def delete(place: Path, condition: str) -> None:
    with table(place) as opened:
        opened.delete(condition)


def drop(place: Path) -> None:
    with catalog(place) as opened:
        opened.drop_table(NAME)


def remove_unnamed(place: Path) -> None:
    for path in files(place) - named_files(place):
        path.unlink()


def forget_first(place: Path) -> None:
    with table(place) as opened:
        first = opened.snapshots()[0].snapshot_id
        opened.maintenance.expire_snapshots().by_id(first).commit()
        assert len(opened.refresh().snapshots()) == 1


def schema(place: Path) -> pa.Schema:
    with table(place) as opened:
        return table_schema(opened, "tests")


def lots(place: Path) -> list[tuple[str, int]]:
    """Writers and the numbers of their lots, as commits have noted them."""
    with table(place) as opened:
        about = [each.summary.additional_properties for each in opened.snapshots()]
    noted = dict.fromkeys(each["headgate.lots"] for each in about if "headgate.lots" in each)
    pairs = [lot.split(":") for text in noted for lot in text.split(",")]
    return [(writer, int(number)) for writer, number in pairs]


@contextmanager
def reading(place: Path) -> Iterator[Callable[[], list[int]]]:
    with catalog(place) as opened:
        yield lambda: numbers_in(opened.load_table(NAME))


def rows(place: Path) -> list[dict[str, Any]]:
    """As the library reads them."""
    with table(place) as opened:
        found: list[dict[str, Any]] = opened.scan().to_arrow().to_pylist()
        return found


def numbers(place: Path) -> list[int]:
    with table(place) as opened:
        return numbers_in(opened)


def numbers_in(opened: Any) -> list[int]:
    return [row["n"] for row in _rows_by_files(opened)]


def rows_by_files(place: Path) -> list[dict[str, Any]]:
    """As the manifests have it, each file read by Arrow alone: without the library's scan."""
    with table(place) as opened:
        return _rows_by_files(opened)


def _rows_by_files(opened: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path, count in _named_files(opened):
        some = pq.read_table(pa.BufferReader(local(path).read_bytes())).to_pylist()
        assert len(some) == count
        found += some
    return found


def named_files(place: Path) -> set[Path]:
    return {local(path) for path, _ in file_counts(place)}


def file_counts(place: Path) -> list[tuple[str, int]]:
    with table(place) as opened:
        return _named_files(opened)


def _named_files(opened: Any) -> list[tuple[str, int]]:
    snapshot = opened.current_snapshot()
    if snapshot is None:
        return []
    return [
        (entry.data_file.file_path, entry.data_file.record_count)
        for manifest in snapshot.manifests(opened.io)
        for entry in manifest.fetch_manifest_entry(opened.io)
        if entry.status != ManifestEntryStatus.DELETED
    ]


def local(uri: str) -> Path:
    return Path(unquote(urlparse(uri).path))


def files(place: Path) -> set[Path]:
    """Data files in the table's place, whether or not a snapshot names them."""
    return set((place / "warehouse").rglob("*.parquet"))


def properties(place: Path) -> dict[str, str]:
    with table(place) as opened:
        return dict(opened.properties)


# Jobs that are killed; see tests/connectors/lake_kit.py.


def prepare(place: Path) -> None:
    make_table(place)


def append_sink(place: Path) -> IcebergSink:
    return sink(place)


def upsert_sink(place: Path) -> IcebergSink:
    return sink(place, mode="upsert", keys=["n"])


def job_numbers(place: Path) -> list[int]:
    return numbers(place)


def record(number: int) -> tuple[int, str]:
    return number, f"word {number}"


COMMIT_STEPS = [
    (IcebergTarget, "write"),
    (SqlCatalog, "commit_table"),
    (SqlCatalog, "_write_metadata"),
]
JOBS = {
    "append": (
        append_sink,
        record,
        [(IcebergStage, "write"), *COMMIT_STEPS, (_SnapshotProducer, "_manifests")],
    ),
    "upsert": (
        upsert_sink,
        record,
        [(IcebergStage, "write"), *COMMIT_STEPS, (IcebergTarget, "discard")],
    ),
}
