"""The section ``postgres`` of ``bench sources``: rows to PostgreSQL and changes from it.

The server is one of its own, made for the run from the installed programs, or the one that the
environment's HEADGATE_BENCH_POSTGRES names by a DSN. Yardsticks, with psycopg in a plain loop in
the same run: for inserts ``COPY`` with a commit for some ten thousand rows, for upserts
``executemany``, for changes the function that takes them from a slot, with the same decoder. Jobs
take a checkpoint every second; inserts are exactly once, and the time ends with the last commit.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.measured_job import ReportingSink, bench_environment
from headgate.connectors.postgres.changes import PostgresChangesSource
from headgate.connectors.postgres.client import psycopg_module
from headgate.connectors.postgres.pgoutput import ChangeDecoder
from headgate.connectors.postgres.sink import PostgresSink
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Committer
from headgate.functions.source import Source, SplitReader

ROUNDS: Final = 3
RATES: Final = {"insert": 300_000, "prepare": 300_000, "upsert": 50_000, "changes": 60_000}
"""About so many rows a second are expected."""
PICKED: Final = 100_000
"""Rows that are made beforehand and given over and over."""
TRANSACTION: Final = 1_000
"""Rows that are inserted with one commit, for the changes."""
PLAIN_ROWS: Final = 50_000
"""Of a transaction of the plain loop; PICKED is a multiple of it."""
DSN: Final = "HEADGATE_BENCH_POSTGRES"

MEANINGS: Final = {
    "postgres": "why nothing was measured",
    "postgres_insert_rows_per_s": "rows to a table, exactly once, a checkpoint every second",
    "postgres_plain_insert_rows_per_s": "the same with psycopg's COPY in a plain loop",
    "postgres_insert_share": "the first against the second; the aim is 0.6",
    "postgres_prepare_rows_per_s": "the same by PREPARE TRANSACTION",
    "postgres_prepare_share": "against the plain loop with COPY; the aim is 0.6",
    "postgres_plain_prepare_rows_per_s": "COPY in a plain loop, beside it",
    "postgres_upsert_rows_per_s": "rows by key",
    "postgres_plain_upsert_rows_per_s": "the same with psycopg's executemany",
    "postgres_upsert_share": "the aim is 0.6",
    "postgres_changes_per_s": "changes of a table, a checkpoint every second",
    "postgres_plain_changes_per_s": "the same with psycopg in a plain loop",
    "postgres_changes_share": "the aim is 0.6",
}


def postgres_section(seconds: float) -> dict[str, Any]:
    """Medians of some rounds; without a server only a word."""
    with a_server() as dsn:
        if dsn is None:
            return {"postgres": "no server: install PostgreSQL, or set HEADGATE_BENCH_POSTGRES"}
        figures: dict[str, Any] = {}
        for name, job, plain in (
            ("insert", _insert_job, plain_insert),
            ("prepare", _prepare_job, plain_insert),
            ("upsert", _upsert_job, plain_upsert),
            ("changes", _changes_job, plain_changes),
        ):
            rows = max(1_000, round(seconds * RATES[name]))
            job(dsn, max(1_000, rows // 10))
            rates = [(rows / job(dsn, rows), rows / plain(dsn, rows)) for _ in range(ROUNDS)]
            figures |= _figures(name, *zip(*rates, strict=True))
    return figures


def _figures(name: str, jobs: Sequence[float], plain: Sequence[float]) -> dict[str, Any]:
    unit = "changes_per_s" if name == "changes" else f"{name}_rows_per_s"
    return {
        f"postgres_{unit}": round(median(jobs)),
        f"postgres_plain_{unit}": round(median(plain)),
        f"postgres_{name}_share": round(median(jobs) / median(plain), 2),
        f"postgres_{name}_all": [[round(rate) for rate in some] for some in (jobs, plain)],
    }


# The server.


@contextmanager
def a_server() -> Iterator[str | None]:
    """A DSN; None: no server is installed."""
    given = os.environ.get(DSN)
    places = [str(place) for place in sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    path = ":".join([*places[::-1], os.environ.get("PATH", "")])
    initdb, postgres = (shutil.which(name, path=path) for name in ("initdb", "postgres"))
    if given or initdb is None or postgres is None:
        yield given or None
        return
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        user = "postgres" if os.getuid() == 0 else None
        data = Path(folder) / "data"
        data.mkdir()
        if user:
            os.chmod(folder, 0o755)
            shutil.chown(data, user)
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "user": user}
        subprocess.run(
            [initdb, "-D", data, "-N", "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale"],
            check=True,
            **quiet,
        )
        settings = ["wal_level=logical", "max_prepared_transactions=20", "max_wal_size=4GB"]
        settings += ["listen_addresses=", f"unix_socket_directories={data}"]
        with subprocess.Popen(
            [postgres, "-D", data, *(f"--{setting}" for setting in settings)], **quiet
        ) as process:
            try:
                dsn = f"host={data} user=bench dbname=postgres"
                _wait_for(dsn)
                yield dsn
            finally:
                process.terminate()


def _wait_for(dsn: str) -> None:
    psycopg = psycopg_module("bench sources")
    give_up = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(dsn).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def _run(dsn: str, *statements: str) -> None:
    with psycopg_module("bench sources").connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def _fresh_table(dsn: str, key: str = "") -> None:
    _run(
        dsn, "DROP TABLE IF EXISTS bench", f"CREATE TABLE bench (n int8 {key}, word text, x float8)"
    )


def pick_rows() -> list[tuple[int, str, float]]:
    """As a table of readings might have them."""
    return [(number, f"reading {number}", number * 0.5) for number in range(PICKED)]


# Rows to the server.


def _insert_job(dsn: str, rows: int) -> float:
    _fresh_table(dsn)
    return _sink_job(TimedTableSink(dsn, "bench"), rows)


def _prepare_job(dsn: str, rows: int) -> float:
    _fresh_table(dsn)
    return _sink_job(TimedTableSink(dsn, "bench", mode="prepare"), rows)


def _upsert_job(dsn: str, rows: int) -> float:
    _fresh_table(dsn, "PRIMARY KEY")
    return _sink_job(TimedTableSink(dsn, "bench", keys=["n"]), rows)


def plain_insert(dsn: str, rows: int) -> float:
    """Seconds of a plain loop with COPY."""
    _fresh_table(dsn)

    def write(connection: Any, batch: list[Any]) -> None:
        with connection.cursor().copy("COPY bench FROM STDIN") as copy:
            for row in batch:
                copy.write_row(row)

    return _plain_writes(dsn, rows, write)


def plain_upsert(dsn: str, rows: int) -> float:
    """Seconds of a plain loop with executemany, which psycopg sends in pipeline mode."""
    _fresh_table(dsn, "PRIMARY KEY")
    statement = (
        "INSERT INTO bench VALUES (%s, %s, %s) ON CONFLICT (n) DO UPDATE "
        "SET word = EXCLUDED.word, x = EXCLUDED.x"
    )

    def write(connection: Any, batch: list[Any]) -> None:
        connection.cursor().executemany(statement, batch)

    return _plain_writes(dsn, rows, write)


def _plain_writes(dsn: str, rows: int, write: Callable[[Any, list[Any]], None]) -> float:
    picked = pick_rows()
    with psycopg_module("bench sources").connect(dsn) as connection:
        began_s = time.monotonic()
        for start in range(0, rows, PLAIN_ROWS):
            at = start % PICKED
            write(connection, picked[at : at + min(PLAIN_ROWS, rows - start)])
            connection.commit()
        return time.monotonic() - began_s


class TimedTableSink(PostgresSink):
    """Notes in a file when its last commit is through."""

    ended_path = ""

    def create_committer(self, context: ConnectorContext) -> Committer:
        return TimedTableCommitter(super().create_committer(context), Path(self.ended_path))


class TimedTableCommitter(Committer):
    """The end is its last commit; without any, as of upserts, when it is closed."""

    def __init__(self, committer: Committer, path: Path) -> None:
        self._committer = committer
        self._path = path

    def commit(self, committables: Sequence[Any]) -> None:
        self._committer.commit(committables)
        self._path.write_text(str(time.monotonic()))

    def close(self) -> None:
        if not self._path.exists():
            self._path.write_text(str(time.monotonic()))
        self._committer.close()


class PickedRows(Source):
    """Rows that are made before the first is given."""

    bounded = True
    untimed = True

    def __init__(self, rows: int, began_path: str) -> None:
        self.rows = rows
        self.began_path = began_path

    def splits(self, parallelism: int) -> Sequence[object]:
        return [0]

    def open(self, split: object, position: object, context: ConnectorContext) -> SplitReader:
        return PickedReader(pick_rows(), self.rows, Path(self.began_path))


class PickedReader(SplitReader):
    """Slices of what is picked."""

    gives_away = True

    def __init__(self, rows: list[Any], count: int, began_path: Path) -> None:
        self._rows = rows
        self._count = count
        self._began_path = began_path
        self._at = 0

    def poll(self, limit: int) -> list[Any] | None:
        if not self._at:
            self._began_path.write_text(str(time.monotonic()))
        at = self._at % PICKED
        found = self._rows[at : at + min(limit, self._count - self._at)]
        self._at += len(found)
        return found or None

    def position(self) -> int:
        return self._at


def _sink_job(sink: TimedTableSink, rows: int) -> float:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        began, ended = Path(folder) / "began", Path(folder) / "ended"
        sink.ended_path = str(ended)
        env = bench_environment(1, _settings(folder))
        env.from_source(PickedRows(rows, str(began)), None, "rows").sink_to(sink)
        env.execute("bench sources: postgres")
        return float(ended.read_text()) - float(began.read_text())


def _settings(folder: str) -> dict[str, str]:
    return {
        "execution.runtime-mode": "STREAMING",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"{folder}/checkpoints",
    }


# Changes from the server.


def _make_changes(dsn: str, rows: int) -> None:
    """A slot with as many inserts behind it, in transactions of some size."""
    _fresh_table(dsn, "PRIMARY KEY")
    drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
    _run(dsn, f"{drop} WHERE slot_name = 'bench'", "DROP PUBLICATION IF EXISTS bench")
    _run(dsn, "CREATE PUBLICATION bench FOR TABLE bench")
    _run(dsn, "SELECT pg_create_logical_replication_slot('bench', 'pgoutput')")
    for start in range(0, rows, TRANSACTION):
        end = min(rows, start + TRANSACTION) - 1
        numbers = f"generate_series({start}, {end}) AS n"
        _run(dsn, f"INSERT INTO bench SELECT n, 'reading ' || n, n * 0.5 FROM {numbers}")


def plain_changes(dsn: str, rows: int) -> float:
    """Seconds of a plain loop that looks into the slot and moves it on."""
    _make_changes(dsn, rows)
    psycopg = psycopg_module("bench sources")
    with psycopg.connect(dsn, autocommit=True) as connection:

        def make_loader(types: list[int]) -> Any:
            transformer = psycopg.adapt.Transformer(connection)
            transformer.set_loader_types(types, psycopg.pq.Format.TEXT)
            return transformer.load_sequence

        decoder = ChangeDecoder(make_loader, (0, 0))
        query = (
            "SELECT data FROM pg_logical_slot_get_binary_changes('bench', NULL, 10000, "
            "'proto_version', '1', 'publication_names', 'bench')"
        )
        found = 0
        began_s = time.monotonic()
        while found < rows:
            decoded: list[Any] = []
            for (data,) in connection.execute(query, binary=True):
                decoder.decode(data, 0, decoded)
            found += len(decoded)
        return time.monotonic() - began_s


class FirstChanges(PostgresChangesSource):
    """Ends after so many."""

    bounded = True
    count = 0

    def open(self, split: object, position: Any, context: ConnectorContext) -> SplitReader:
        return FirstReader(super().open(split, position, context), self.count)


class FirstReader(SplitReader):
    """A reader around a reader."""

    gives_away = True

    def __init__(self, reader: SplitReader, count: int) -> None:
        self._reader = reader
        self._left = count
        self.wait_ms = reader.wait_ms  # type: ignore[method-assign]
        self.fileno = reader.fileno  # type: ignore[method-assign]
        self.position = reader.position  # type: ignore[method-assign]
        self.position_at = reader.position_at  # type: ignore[method-assign]
        self.checkpoint_completed = reader.checkpoint_completed  # type: ignore[method-assign]
        self.close = reader.close  # type: ignore[method-assign]

    def poll(self, limit: int) -> Any:
        if not self._left:
            return None
        found: Any = self._reader.poll(min(limit, self._left))
        self._left -= len(found.records) if found else 0
        return found


class ChangeMeter:
    """Counts, and notes when the first and the last have come."""

    def __init__(self) -> None:
        self._records = 0
        self._first = self._last = 0.0

    def take(self, records: list[Any]) -> None:
        self._last = time.monotonic()
        self._first = self._first or self._last
        self._records += len(records)

    def report(self) -> dict[str, Any]:
        return {"records": self._records, "elapsed_s": self._last - self._first}


def _changes_job(dsn: str, rows: int) -> float:
    _make_changes(dsn, rows)
    source = FirstChanges(dsn, publication="bench", slot="bench", metadata=())
    source.count = rows
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        env = bench_environment(1, _settings(folder))
        sink = ReportingSink(ChangeMeter)
        env.from_source(source, None, "changes").sink_to(sink)
        env.execute("bench sources: postgres changes")
    (report,) = sink.results()
    assert report["records"] == rows, f"{rows} changes are there, {report['records']} came"
    return float(report["elapsed_s"])
