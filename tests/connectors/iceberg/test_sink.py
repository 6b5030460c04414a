"""Rows of Iceberg tables, each once: a real catalog on SQLite, files read one by one."""

import datetime
import decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.api.row import Row, RowKind
from headgate.base.errors import (
    PlanInvalid,
    TableUnfit,
    TableUnready,
)
from headgate.control.error_classes import is_final
from tests.connectors.lake_kit import (
    checkpoint,
    feed,
    memory_folder,
    restored,
)
from tests.connectors.once_kit import written
from tests.core.chain.sink_lab import open_sink, sink_context
from tests.servers import free_port

pytest.importorskip("pyiceberg")

from pyiceberg.transforms import DayTransform

from headgate.connectors.iceberg.sink import FORGOTTEN, NOTE, IcebergSink
from tests.connectors.iceberg import kit


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return kit.make_table(tmp_path)


AT = datetime.datetime(2024, 2, 29, 12, 30, 0, 5, tzinfo=datetime.timezone.utc)
DAY = datetime.date(2024, 2, 29)
SALES = pa.schema(
    [
        ("country", pa.string()),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int32())])),
        ("sold", pa.bool_()),
        ("share", pa.float64()),
    ]
)


@pytest.mark.parametrize("partitions", [(), ("country", "day")])
def test_every_type_is_read_as_it_was_written(tmp_path: Path, partitions: tuple[str, ...]) -> None:
    sales: list[dict[str, Any]] = [
        dict(zip(SALES.names, values, strict=True))
        for values in (
            ("a b/ü%20", DAY, decimal.Decimal("1.50"), AT, ["x"], {"x": 1}, True, 0.5),
            (None, DAY, decimal.Decimal("2.50"), AT, [], {"x": 2}, False, -1.0),
        )
    ]
    options = {"schema": SALES, "create": True, "partition_by": partitions}
    written(kit.sink(tmp_path, **options), *sales, {"country": "c"})
    wanted = [*sales, {**dict.fromkeys(SALES.names), "country": "c"}]
    assert sorted(kit.rows(tmp_path), key=str) == sorted(wanted, key=str)
    with kit.table(tmp_path) as table:
        found = table.scan(row_filter="country = 'c'").to_arrow().to_pylist()
    assert found == [wanted[-1]]


def test_a_table_whose_partitions_need_another_library_is_refused_without_it(
    tmp_path: Path,
) -> None:
    kit.make_table(tmp_path, SALES)
    with kit.table(tmp_path) as table, table.update_spec() as spec:
        spec.add_field("at", DayTransform(), "at_day")
    days = [AT + datetime.timedelta(days=day) for day in (0, 1, 1)]
    records = [{"at": day} for day in days]
    if find_spec("pyiceberg_core") is None:
        with pytest.raises(PlanInvalid, match=r"has partitions by day\(at\), .* pip install"):
            written(kit.sink(tmp_path), *records)
        return
    written(kit.sink(tmp_path), *records)
    assert sorted(count for _, count in kit.file_counts(tmp_path)) == [1, 2]
    assert sorted(row["at"] for row in kit.rows(tmp_path)) == days


# Changes by keys.


CHANGES = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["x", "y's"]), st.integers(0, 9), st.booleans()),
    min_size=1,
    max_size=12,
)


def test_whatever_the_changes_the_table_has_the_last_of_each_key() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])

    @settings(max_examples=4, deadline=None)
    @given(st.lists(CHANGES, min_size=1, max_size=3))
    def merged(lots: list[list[tuple[int, str, int, bool]]]) -> None:
        with memory_folder() as place:
            kit.make_table(place, schema)
            task = open_sink(kit.sink(place, mode="upsert", keys=["a", "b"]), sink_context())
            wanted: dict[tuple[int, str], int] = {}
            for number, lot in enumerate(lots, 1):
                for a, b, v, is_deleted in lot:
                    kind = RowKind.DELETE if is_deleted else RowKind.INSERT
                    feed(task, Row.of_kind(kind, a, b, v))
                    wanted.pop((a, b), None)
                    if not is_deleted:
                        wanted[a, b] = v
                checkpoint(task, number)
                task.checkpoint_completed(number)
            task.close()
            found = [((row["a"], row["b"]), row["v"]) for row in kit.rows(place)]
            assert sorted(found) == sorted(wanted.items())

    merged()


# Others at the same table, and at the same lot.


# Notes of what was committed.


def test_notes_are_forgotten_after_a_month_and_older_commits_refused(place: Path) -> None:
    now_ms = 1_700_000_000_000
    with kit.table(place) as table, table.transaction() as transaction:
        transaction.set_properties({f"{NOTE}old": f"3@{now_ms}", f"{NOTE}new": f"4@{10**14}"})
    task = open_sink(kit.sink(place), sink_context(now_ms=lambda: now_ms))
    feed(task, (1, "a"))
    state = checkpoint(task, 1)
    task.close()
    written(kit.sink(place), (2, "b"))
    noted = kit.properties(place)
    assert f"{NOTE}old" not in noted
    assert f"{NOTE}new" in noted
    assert now_ms < int(noted[FORGOTTEN])
    with pytest.raises(TableUnfit, match="from before the table's notes begin"):
        open_sink(kit.sink(place), sink_context(restored=restored(state)))
    assert kit.numbers(place) == [2]


# What becomes of the table meanwhile.


def test_columns_may_be_renamed_and_added_meanwhile(place: Path) -> None:
    task = open_sink(kit.sink(place), sink_context())
    feed(task, (1, "a"))
    checkpoint(task, 1)
    with kit.table(place) as table, table.update_schema() as update:
        update.rename_column("word", "text")
        update.add_column("more", pa_type())
    task.checkpoint_completed(1)
    task.close()
    assert kit.rows(place) == [{"n": 1, "text": "a", "more": None}]


def pa_type() -> Any:
    from pyiceberg.types import DoubleType

    return DoubleType()


def test_partitions_that_were_changed_meanwhile_are_named(place: Path) -> None:
    task = open_sink(kit.sink(place), sink_context())
    feed(task, (1, "a"))
    checkpoint(task, 1)
    with kit.table(place) as table, table.update_spec() as spec:
        spec.add_identity("word")
    with pytest.raises(TableUnfit, match="its partitions were changed while records waited"):
        task.checkpoint_completed(1)
    task.close()


def test_a_column_that_was_dropped_while_changes_waited_ends_the_job(place: Path) -> None:
    sink = kit.sink(place, mode="upsert", keys=["n"])
    task = open_sink(sink, sink_context())
    feed(task, (1, "a"))
    state = checkpoint(task, 1)
    task.close()
    with kit.table(place) as table, table.update_schema(True) as schema:
        schema.delete_column("word")
    with pytest.raises(TableUnfit, match="its columns were changed while rows waited") as unfit:
        open_sink(sink, sink_context(restored=restored(state)))
    assert is_final(unfit.value)


# Tables and records that do not fit.


def test_a_catalog_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    sink = IcebergSink({"type": "sql", "uri": f"sqlite:///{tmp_path}/no/where.db"}, "shop.sales")
    with pytest.raises(TableUnready, match="the catalog 'default' cannot be opened"):
        open_sink(sink, sink_context())


def test_a_catalog_that_does_not_answer_is_named() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    sink = IcebergSink({"name": "far", "type": "rest", "uri": address}, "shop.sales")
    with pytest.raises(TableUnready, match="the catalog 'far' cannot be opened: ConnectionError"):
        open_sink(sink, sink_context())


def test_a_missing_table_is_said_at_the_start(place: Path) -> None:
    for name in ("shop.none", "none.none"):
        with pytest.raises(TableUnfit, match=f"the catalog has no table '{name}'"):
            open_sink(IcebergSink(kit.settings(place), name), sink_context())


def test_a_key_that_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    place = kit.make_table(tmp_path, SALES)
    with pytest.raises(TableUnfit, match="'share' is double; keys are whole numbers, texts or"):
        open_sink(kit.sink(place, mode="upsert", keys=["share"]), sink_context())


@pytest.mark.parametrize(
    ("catalog", "table", "problem"),
    [
        ("c", "sales", "give its namespace, too"),
        (5, "shop.sales", "the catalog is a int; give the name"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(
    catalog: Any, table: str, problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        IcebergSink(catalog, table)


# Whatever happens.
