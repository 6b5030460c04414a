"""Commits staged files to a Delta table exactly once: the second phase of ``sink``.

Each commit carries Delta's own application transactions: the writer's id as the application, the
number of its lot as the version. Law: a lot and its transaction are one entry of the log, and no
lot is written whose number the log has. Delta refuses an entry whose transaction was changed since
the table was read, so anybody may repeat a commit, and two may do so at the same time. Waiting for
others who commit is bounded in time.
"""

import logging
import random
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from headgate.base.elements import Record
from headgate.base.errors import HeadgateError, PartLost, TableUnfit, TableUnready
from headgate.connectors.arrow.staged_rows import DELETED, StagedLot, last_changes
from headgate.connectors.delta.data_files import DeltaDataFile
from headgate.connectors.delta.folder import DeltaFolder
from headgate.connectors.delta.table import (
    OpenTable,
    TableAddress,
    table_id,
    table_schema,
    why_unwritable,
    words,
)
from headgate.functions.sink import Committer

log = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS: Final = 300_000
FIRST_WAIT_S: Final = 0.05
LONGEST_WAIT_S: Final = 5.0


class DeltaCommitter(Committer):
    """Adds files to the log, or merges what they hold by keys."""

    def __init__(
        self, address: TableAddress, keys: Sequence[str], timeout_ms: int = COMMIT_TIMEOUT_MS
    ) -> None:
        """``keys``: of lots that are merged; without keys they are appended."""
        self._address = address
        self._folder = DeltaFolder(address.uri, address.options)
        self._keys = tuple(keys)
        self._timeout_s = timeout_ms / 1000

    def commit(self, committables: Sequence[Record]) -> None:
        lots: list[StagedLot] = list(committables)
        if self._keys:
            for lot in lots:  # in order: the later one has the newer values
                self._enter([lot])
                for file in lot.files:
                    self._folder.remove(file.path)
        else:
            self._enter(lots)

    def _enter(self, lots: list[StagedLot]) -> None:
        """Until all of them are in the log, whoever has written them."""
        give_up = time.monotonic() + self._timeout_s
        wait_s = FIRST_WAIT_S
        while True:
            table = self._address.load()
            due = [lot for lot in lots if not _is_in(table, lot)]
            if not due:
                return
            try:
                self._check(table, due)
                self._write(table, due)
            except self._address.library().exceptions.CommitFailedError as error:
                if time.monotonic() + wait_s > give_up:
                    raise TableUnready(
                        f"{self._address.user}: others have committed to {self._address.uri} for "
                        f"{self._timeout_s:g} s without a gap ({words(error)}); let fewer jobs and "
                        f"tasks write to it, or raise commit_timeout_ms"
                    ) from error
                time.sleep(wait_s * random.uniform(0.5, 1.0))
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
                continue
            except Exception as error:
                self._raise_unless_in(due, error)
            self._folder.settle_log(table.version() + 1)
            return

    def _raise_unless_in(self, lots: list[StagedLot], error: Exception) -> None:
        """After the commit itself more may fail; or another attempt of the job was faster."""
        table = self._address.load()
        if all(_is_in(table, lot) for lot in lots):
            log.warning("%s: committed, and then: %s", self._address.uri, words(error))
        elif isinstance(error, HeadgateError):
            raise error
        else:
            raise self._address.unready("does not take a commit", error) from error

    def _check(self, table: OpenTable, lots: list[StagedLot]) -> None:
        """Nothing is added that is not there, or that the table would not read."""
        uri, user = self._address.uri, self._address.user
        problem = why_unwritable(table)
        if problem is not None:
            raise TableUnfit(f"{user}: the table at {uri} {problem}, which the sink does not write")
        own, schema = table_id(table), table_schema(table)
        types = {field.name: str(field.type) for field in schema}
        for lot in lots:
            if lot.table != own:
                raise TableUnfit(
                    f"{user}: the table at {uri} was replaced by another one (id {own}) while "
                    f"records waited for their commit (to id {lot.table}); bring the first one "
                    f"back, or start the job without its checkpoint"
                )
            for file in lot.files:
                self._check_file(file, types, list(table.metadata().partition_columns))

    def _check_file(
        self, file: DeltaDataFile, types: dict[str, str], partitions: list[str]
    ) -> None:
        for name, kind in file.columns:
            if name != DELETED and types.get(name) != kind:
                raise TableUnfit(
                    f"{self._address.user}: column {name!r} of {self._address.uri} was {kind} when "
                    f"its rows were written, and is {types.get(name, 'gone')} now; undo the change "
                    f"of the table, and start the job again"
                )
        if not self._keys and [column for column, _ in file.partition] != partitions:
            raise TableUnfit(
                f"{self._address.user}: the partitions of {self._address.uri} were changed while "
                f"records waited for their commit; undo that, and start the job again"
            )
        size = self._folder.size(file.path)
        if size != file.size:
            found = "is not there" if size is None else f"has {size} bytes instead of {file.size}"
            raise PartLost(
                self._folder.shown(file.path),
                f"{found}, and its records wait for their commit: a VACUUM or somebody else has "
                f"removed it; go on from an older checkpoint",
            )

    def _write(self, table: OpenTable, lots: list[StagedLot]) -> None:
        delta = self._address.library()
        newest = {lot.writer: lot.number for lot in lots}
        now_ms = int(time.time() * 1000)
        properties = delta.CommitProperties(
            custom_metadata={"headgate.checkpoint": str(max(lot.checkpoint for lot in lots))},
            app_transactions=[
                delta.Transaction(writer, number, now_ms) for writer, number in newest.items()
            ],
        )
        if self._keys:
            (lot,) = lots
            self._merge(table, lot, properties)
            return
        actions = library_actions(delta, [file for lot in lots for file in lot.files])
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            list(table.metadata().partition_columns),
            commit_properties=properties,
        )

    def _merge(self, table: OpenTable, lot: StagedLot, properties: Any) -> None:
        rows = pa.concat_tables([self._read(file.path) for file in lot.files])
        if len(lot.files) > 1:
            rows = last_changes(rows, self._keys)
        columns = [name for name in rows.column_names if name != DELETED]
        new = {quoted(name): f"s.{quoted(name)}" for name in columns}
        (
            table.merge(
                rows,
                " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in self._keys),
                source_alias="s",
                target_alias="t",
                commit_properties=properties,
            )
            .when_matched_delete(f"s.{quoted(DELETED)}")
            .when_matched_update(new)
            .when_not_matched_insert(new, f"NOT s.{quoted(DELETED)}")
            .execute()
        )

    def _read(self, name: str) -> pa.Table:
        with closing(self._folder.open(name)) as file:
            return parquet.read_table(file)


def library_actions(delta: Any, files: Sequence[DeltaDataFile]) -> list[Any]:
    """What makes the files part of the table."""
    return [
        delta.transaction.AddAction(
            file.path, file.size, dict(file.partition), file.written_ms, True, file.statistics
        )
        for file in files
    ]


def quoted(column: str) -> str:
    """A column's name in SQL."""
    return '"{}"'.format(column.replace('"', '""'))


def _is_in(table: OpenTable, lot: StagedLot) -> bool:
    version = table.transaction_version(lot.writer)
    return version is not None and version >= lot.number
