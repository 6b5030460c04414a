"""``bench state-read``: state that is read from outside the job; each section measures one way.

*Table*: savepoints with a text as key, and as value a number (a count) or a row of three fields,
read by Spark as ``headgate-state``. The yardstick is Spark reading the same rows from Parquet, as
it has written them from the table, in the same session and round. Both ways every row reaches
Spark's ``noop`` sink, so that nothing but reading is left; the first round warms up.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from benchmarks.point_reads import POINT_MEANINGS, points_section
from headgate.api.types.types import Types
from headgate.functions.state import ValueStateDescriptor

TABLE_MEANINGS: Final = {
    "table_rows_per_s": "rows a second of a state with a number for each key, read by Spark",
    "parquet_rows_per_s": "the same rows from Parquet, read by Spark in the same run",
    "table_ratio": "the first against the second; the aim is 0.3 or more",
    "struct_rows_per_s": "the same with a row of three fields for each key",
    "struct_parquet_rows_per_s": "these from Parquet",
    "struct_ratio": "the former against the latter",
}
MEANINGS: Final = {**TABLE_MEANINGS, **POINT_MEANINGS}

_FIELDS: Final = Types.ROW_NAMED(
    ["count", "total", "last"], [Types.LONG(), Types.DOUBLE(), Types.STRING()]
)
_COUNT: Final = ValueStateDescriptor("count", Types.LONG())
_CUSTOMER: Final = ValueStateDescriptor("customer", _FIELDS)


def run_state_read_bench(rows: int, rounds: int, only: str = "") -> dict[str, Any]:
    """Every section, or ``only`` one; their figures stand side by side."""
    figures: dict[str, Any] = {}
    for name, section in SECTIONS.items():
        if only in ("", name):
            figures.update(section(rows, rounds))
    return {**figures, "rows": rows, "rounds": rounds}


def table_section(rows: int, rounds: int) -> dict[str, Any]:
    """The state table against Parquet."""
    counts = ((f"customer {number}", number) for number in range(rows))
    customers = (
        (f"customer {number}", (number % 97, number / 8, f"order {number % 1000}"))
        for number in range(rows)
    )
    ours, parquet = _rates(_COUNT, counts, rows, rounds)
    struct, struct_parquet = _rates(_CUSTOMER, customers, rows, rounds)
    return {
        "table_rows_per_s": round(ours),
        "parquet_rows_per_s": round(parquet),
        "table_ratio": round(ours / parquet, 2),
        "struct_rows_per_s": round(struct),
        "struct_parquet_rows_per_s": round(struct_parquet),
        "struct_ratio": round(struct / struct_parquet, 2),
    }


def _rates(
    state: ValueStateDescriptor, values: Iterable[tuple[str, Any]], rows: int, rounds: int
) -> tuple[float, float]:
    """Rows a second of the table and of Parquet."""
    from headgate.host.saved_state.changes import OperatorChanges
    from headgate.host.saved_state.writer import write_savepoint
    from headgate.spark.session import find_session

    spark = find_session({})
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        path, parquet = str(Path(folder) / "savepoint"), str(Path(folder) / "parquet")
        write_savepoint(path, [OperatorChanges("customers", Types.STRING()).put(state, values)])
        table = spark.read.format("headgate-state").option("state", state.name).load(path)
        table.write.parquet(parquet)
        stored = spark.read.parquet(parquet)
        assert stored.count() == rows
        times: list[tuple[float, float]] = [
            (_read_s(table), _read_s(stored)) for _ in range(rounds + 1)
        ]
    ours_s, parquet_s = (median(column) for column in zip(*times[1:], strict=True))
    return rows / ours_s, rows / parquet_s


def _read_s(frame: Any) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


SECTIONS: Final[Mapping[str, Callable[[int, int], dict[str, Any]]]] = MappingProxyType(
    {"table": table_section, "points": points_section}
)
