"""Rows that wait in the task and in its checkpoints, until a commit writes them (``commits``).

Law: at most ``max_pending_bytes`` of rows wait in a task, which bounds memory and checkpoints.
Before a commit the server knows nothing of them, so a failure leaves nothing there.
"""

import pickle
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError
from headgate.connectors.postgres.table import TableRows
from headgate.functions.context import SnapshotMoment
from headgate.functions.sink import CommittingSinkWriter


@dataclass(frozen=True, slots=True)
class InsertLot:
    """Rows that wait for their transaction; what the sink keeps in checkpoints."""

    writer: str
    number: int
    """Lots of a writer are counted from 1, and are committed in this order."""
    columns: tuple[str, ...]
    batches: tuple[bytes, ...]
    """Lists of rows, pickled."""


class InsertWriter(CommittingSinkWriter):
    """Keeps rows as bytes until a checkpoint takes them."""

    def __init__(
        self, whose: str, maker: TableRows, columns: tuple[str, ...], batch_rows: int, limit: int
    ) -> None:
        self._whose = whose
        self._maker = maker
        self._columns = columns
        self._batch_rows = batch_rows
        self._limit = limit
        self._rows: list[Sequence[Any]] = []
        self._batches: list[bytes] = []
        self._bytes = 0
        self._writer = secrets.token_hex(8)
        self._number = 0

    def write(self, records: list[Record]) -> None:
        self._rows += self._maker.inserts(records)
        if len(self._rows) >= self._batch_rows:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        batch = pickle.dumps(self._rows, 5)
        self._bytes += len(batch)
        if self._bytes > self._limit:
            raise ConnectorError(
                f"{self._whose}: rows of more than {self._limit} bytes wait for the next "
                f"checkpoint; take checkpoints more often (execution.checkpointing.interval), "
                f"raise max_pending_bytes, or let them wait in the server with mode='prepare'"
            )
        self._batches.append(batch)
        self._rows = []

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[InsertLot]:
        if not self._batches:
            return ()
        self._number += 1
        batches, self._batches, self._bytes = tuple(self._batches), [], 0
        return [InsertLot(self._writer, self._number, self._columns, batches)]
