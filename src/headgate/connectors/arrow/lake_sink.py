"""What sinks of lake tables share: what they are asked for, and commits that are made exactly once.

The table itself notes the last lot of each writer, in the same commit as the lot's files. Law: no
lot is written that the table has noted, and a commit is refused by the table (a conflict) if the
note may have changed since it was read; so anybody may repeat a commit, and two may do so at the
same time. Conflicts are tried again for a bounded time; a file that is gone ends the job. What
cannot work is refused when the program is written; what does not fit the table, when the task
starts, with the column at fault.
"""

import copy
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import pyarrow as pa

from headgate.api.types.types import RowTypeInfo, TypeInformation
from headgate.base.elements import Record
from headgate.base.errors import HeadgateError, PartLost, PlanInvalid, TableUnfit, TableUnready
from headgate.connectors.arrow.staged_rows import StagedLot
from headgate.connectors.arrow.types import arrow_schema, schema_misfit
from headgate.connectors.checks import COUNT, NAMES, check_settings, one_of
from headgate.connectors.libraries import reason, words
from headgate.connectors.servers import Sleep, repeat
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Committer, TwoPhaseCommittingSink

CHECKS: Final = {
    "mode": one_of("append", "upsert"),
    "keys": NAMES,
    "partition_by": NAMES,
    "commit_timeout_ms": COUNT,
}


@dataclass(frozen=True)
class SinkRows:
    """Which rows a sink writes, and what it does to a table for them."""

    user: str
    """The sink, for messages."""
    mode: str
    keys: Sequence[str]
    """The columns that identify a row, in mode upsert."""
    schema: Any
    """None: that of the table."""
    create: bool
    partition_by: Sequence[str]
    commit_timeout_ms: int

    def __post_init__(self) -> None:
        user = self.user
        check_settings(self, CHECKS, user)
        object.__setattr__(self, "keys", tuple(self.keys))
        object.__setattr__(self, "partition_by", tuple(self.partition_by))
        if (self.mode == "upsert") != bool(self.keys):
            raise PlanInvalid(
                f"{user}: mode='upsert' needs keys=[...], the columns that tell rows apart, and "
                f"mode='append' takes none"
            )
        if self.schema is None:
            return
        object.__setattr__(self, "schema", arrow_schema(self.schema, user))
        for what in ("keys", "partition_by"):
            for name in getattr(self, what):
                if name not in self.schema.names:
                    raise PlanInvalid(
                        f"{user}: {what} has {name!r}, and the schema has only "
                        f"{listed(self.schema.names)}"
                    )

    def for_type(self, type_info: TypeInformation | None) -> "SinkRows":
        """With the schema of a stream of this type, if the program gives none."""
        if self.schema is not None or not (self.create or _has_names(type_info)):
            return self
        if type_info is None:
            raise PlanInvalid(
                f"{self.user}(create=True) has no schema, and the stream declares no type; give "
                f"schema=..., or an output_type to the operator before it"
            )
        return replace(self, schema=type_info)

    def row_schema(self, there: pa.Schema, needed: Sequence[str], where: str) -> pa.Schema:
        """The columns of a record, with the table's types; ``needed`` must be among them."""
        problem = None if self.schema is None else schema_misfit(self.schema, there)
        names = there.names if self.schema is None else self.schema.names
        for name in (*self.keys, *needed):
            if problem is None and name not in names:
                problem = f"the records have no column {name!r}, which tells where a row belongs"
        for key in self.keys:
            if problem is None and not _is_key(there.field(key).type):
                kind = there.field(key).type
                problem = f"its column {key!r} is {kind}; keys are whole numbers, texts or dates"
        if problem is not None:
            raise TableUnfit(
                f"{where} does not fit: {problem}; change the records, or write to another table"
            )
        return pa.schema([there.field(name) for name in names])

    def check_partitions(self, found: Sequence[str], where: str) -> None:
        """Compare the partitions of the table, which may have been there before."""
        if self.partition_by and tuple(found) != self.partition_by:
            raise TableUnfit(
                f"{where} has partitions by {listed(found)}, not by {listed(self.partition_by)}; "
                f"leave partition_by out, or create another table"
            )


def listed(names: Sequence[str]) -> str:
    """Names of columns in a message."""
    return ", ".join(map(repr, names)) or "no column"


def _has_names(type_info: Any) -> bool:
    """Whether records of the type are known by names, and not by positions."""
    if not isinstance(type_info, RowTypeInfo):
        return False
    names = list(type_info.field_names)
    return names != [f"f{place}" for place in range(len(names))]


def _is_key(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        is_kind(kind)
        for is_kind in (types.is_integer, types.is_string, types.is_large_string, types.is_date)
    )


log = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS: Final = 300_000
LONGEST_WAIT_S: Final = 5.0

Sink = TypeVar("Sink", bound="LakeSink")


class CommitTarget(ABC):
    """A table as the committer sees it; ``table`` is what its library has opened."""

    where: str
    """The sink and its table, in a few words, for messages."""
    conflict: type[Exception]
    """What ``write`` raises if others have committed since the table was loaded."""

    @abstractmethod
    def load(self) -> Any:
        """The table as of now; raises TableUnfit if there is none."""

    @abstractmethod
    def table_id(self, table: Any) -> str:
        """The id of this very table: another one of the same name has another id."""

    @abstractmethod
    def has(self, table: Any, lot: StagedLot) -> bool:
        """Whether the lot was committed."""

    @abstractmethod
    def file_size(self, table: Any, file: Any) -> int | None:
        """The size of a staged file in bytes; None: it is not there."""

    @abstractmethod
    def check(self, table: Any, lots: Sequence[StagedLot]) -> None:
        """Raises TableUnfit if the table would not read their files."""

    @abstractmethod
    def write(self, table: Any, lots: Sequence[StagedLot]) -> None:
        """One commit with the files and the notes of all lots."""

    @abstractmethod
    def discard(self, table: Any, lot: StagedLot) -> None:
        """Remove the files of a lot of changes that the table holds now."""

    def shown(self, file: Any) -> str:
        """The path of a staged file in messages."""
        return str(file.path)

    def settle(self, table: Any) -> None:  # noqa: B027 - catalogs have done it
        """Make the commit durable that was made after ``load``."""

    def settle_found(self, table: Any, lots: Sequence[StagedLot]) -> None:  # noqa: B027 - as above
        """Make lots durable that the table had: their writer may have died right after."""

    def close(self) -> None:  # noqa: B027 - most keep nothing open
        """Called once, at the end."""


class LakeSink(TwoPhaseCommittingSink):
    """A sink of rows to a table of a lake; its formats say how a table is found and written."""

    def __init__(self, rows: SinkRows) -> None:
        self.rows = rows

    def for_type(self: Sink, type_info: TypeInformation | None) -> Sink:
        """The sink for a stream of this type; called by ``sink_to``."""
        typed = copy.copy(self)
        typed.rows = self.rows.for_type(type_info)
        return typed

    def create_committer(self, context: ConnectorContext) -> "StagedLotCommitter":
        rows = self.rows
        target = self.commit_target()
        return StagedLotCommitter(target, bool(rows.keys), rows.commit_timeout_ms, context.sleep)

    @abstractmethod
    def commit_target(self) -> CommitTarget:
        """The table; what is wrong with it is said here, when the job starts."""


class StagedLotCommitter(Committer):
    """Commits lots together, or one after the other if their order counts."""

    def __init__(
        self, target: CommitTarget, in_order: bool, timeout_ms: int, sleep: Sleep = time.sleep
    ) -> None:
        self._sleep = sleep
        self._target = target
        self._in_order = in_order
        self._timeout_s = timeout_ms / 1000

    def commit(self, committables: Sequence[Record]) -> None:
        lots: list[StagedLot] = list(committables)
        if not self._in_order:
            self._enter(lots)
            return
        for lot in lots:
            table = self._enter([lot])
            self._target.discard(table, lot)

    def close(self) -> None:
        self._target.close()

    def _enter(self, lots: list[StagedLot]) -> Any:
        """Until the table has all of them, whoever has written them; the table."""
        target = self._target

        def enter() -> Any:
            table = target.load()
            due = [lot for lot in lots if not target.has(table, lot)]
            if not due:
                target.settle_found(table, lots)
                return table
            try:
                self._check(table, due)
                target.write(table, due)
            except target.conflict:
                raise
            except Exception as error:
                self._raise_unless_in(due, error)
            target.settle(table)
            return table

        def is_conflict(error: Exception) -> bool:
            return isinstance(error, target.conflict)

        try:
            return repeat(enter, is_conflict, self._timeout_s, LONGEST_WAIT_S, self._sleep)
        except target.conflict as error:
            raise TableUnready(
                f"{target.where}: others have committed to it for {self._timeout_s:g} s without a "
                f"gap ({words(error)}); let fewer jobs and tasks write to it, or raise "
                f"commit_timeout_ms"
            ) from error

    def _check(self, table: Any, lots: Sequence[StagedLot]) -> None:
        target = self._target
        own = target.table_id(table)
        for lot in lots:
            if lot.table != own:
                raise TableUnfit(
                    f"{target.where}: it was replaced by another table (id {own}) while records "
                    f"waited for their commit (to id {lot.table}); bring the first one back, or "
                    f"start the job without its checkpoint"
                )
        target.check(table, lots)
        for file in (file for lot in lots for file in lot.files):
            size = target.file_size(table, file)
            if size != file.size:
                what = "is not there" if size is None else f"has {size} bytes, not {file.size}"
                raise PartLost(
                    target.shown(file),
                    f"{what}, and its records wait for their commit: a clean-up of the table or "
                    f"somebody else has taken it; go on from an older checkpoint",
                )

    def _raise_unless_in(self, lots: Sequence[StagedLot], error: Exception) -> None:
        """An answer can get lost, and what follows a commit can fail; or others were faster."""
        target = self._target
        table = target.load()
        if all(target.has(table, lot) for lot in lots):
            log.warning("%s: committed, and then: %s", target.where, words(error))
        elif isinstance(error, HeadgateError):
            raise error
        else:
            raise TableUnready(
                f"{target.where}: it does not take a commit: "
                f"{reason(error, 'check its address, rights and space')}"
            ) from error
