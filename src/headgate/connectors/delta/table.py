"""Delta tables as the library opens them, and which of them Headgate can write.

Law: what the library raises becomes TableUnfit, if every attempt would meet it, or TableUnready;
tables with features that a data file would have to know of are refused, never written wrongly.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headgate.base.errors import TableUnfit, TableUnready
from headgate.connectors.libraries import library, reason, words

OpenTable: TypeAlias = Any
"""``deltalake.DeltaTable``."""

_HARMLESS: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""Features of writers that ask nothing of a file of new rows, if no column or setting uses them."""
RETENTION: Final = "delta.setTransactionRetentionDuration"
NOTES_KEPT: Final = "interval 30 days"
"""For tables that are created here: others keep a note of every task that ever wrote."""
_UNITS_MS: Final = {
    "week": 7 * 24 * 3_600_000,
    "day": 24 * 3_600_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1_000,
    "milli": 1,
}
_COLUMN_RULES: Final = ("delta.generationExpression", "delta.identity.start", "delta.invariants")


@dataclass(frozen=True)
class TableAddress:
    """Where a table is, and how it is reached; travels with the sink or source."""

    uri: str
    user: str
    """Who asks, for messages: ``DeltaSink``."""
    options: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.user}: the Delta table at {self.uri}"

    def load(self, version: int | None = None) -> OpenTable:
        """The table as of now, or as of a version."""
        table = self.find(version)
        if table is None:
            raise TableUnfit(
                f"{self.user}: there is no Delta table at {self.uri}; check the path, or create "
                f"the table first"
            )
        return table

    def find(self, version: int | None = None) -> OpenTable | None:
        """The table as of now, or as of a version; None: there is none."""
        delta = self.library()
        try:
            return delta.DeltaTable(self.uri, version=version, storage_options=self._options)
        except delta.exceptions.TableNotFoundError:
            return None
        except Exception as error:
            if version is not None and "version" in str(error).lower():
                raise TableUnfit(
                    f"{self.user}: {self.uri} has no version {version}, or its log has lost it: "
                    f"{words(error)}"
                ) from error
            raise self.unready("cannot be opened", error) from error

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Others may create it at the same time: then theirs is there."""
        delta = self.library()
        try:
            own_schema = delta.Schema.from_arrow(schema)
        except Exception as error:
            raise TableUnfit(
                f"{self.user}: Delta has no such columns: {words(error)}; declare other types"
            ) from error
        try:
            delta.DeltaTable.create(
                self.uri,
                own_schema,
                mode="ignore",
                partition_by=list(partition_by),
                configuration={RETENTION: NOTES_KEPT},
                storage_options=self._options,
            )
        except Exception as error:
            if self.find() is None:
                raise self.unready("cannot be created", error) from error

    def unready(self, what: str, error: BaseException) -> TableUnready:
        return TableUnready(
            f"{self.where} {what}: {reason(error, 'check the address, its rights and space')}"
        )

    def library(self) -> Any:
        """``deltalake``."""
        delta = library("deltalake", "delta", self.user)
        library("deltalake.exceptions", "delta", self.user)
        return delta

    @property
    def _options(self) -> dict[str, str] | None:
        return None if self.options is None else dict(self.options)


def table_schema(table: OpenTable) -> pa.Schema:
    """In Arrow's words."""
    return pa.schema(table.schema().to_arrow())


def table_id(table: OpenTable) -> str:
    """Made when the table was created: another table in the same place has another one."""
    return str(table.metadata().id)


def notes_kept_ms(table: OpenTable) -> int | None:
    """How long the table remembers application transactions; None: for ever."""
    text = table.metadata().configuration.get(RETENTION)
    if text is None:
        return None
    found = re.findall(r"(\d+)\s*(week|day|hour|minute|second|milli)", text.lower())
    return sum(int(count) * _UNITS_MS[unit] for count, unit in found)


def why_unwritable(table: OpenTable) -> str | None:
    """What keeps Headgate from adding data files to a table; None: nothing does."""
    configuration = table.metadata().configuration
    mapping = configuration.get("delta.columnMapping.mode") or "none"
    if mapping != "none":
        return f"maps its columns (delta.columnMapping.mode={mapping})"
    for key in configuration:
        if key.startswith("delta.constraints."):
            return f"checks rows ({key})"
    for column in table.schema().fields:
        for rule in _COLUMN_RULES:
            if rule in (column.metadata or {}):
                return f"has a rule for its column {column.name!r} ({rule})"
    unknown = set(table.protocol().writer_features or ()) - _HARMLESS
    if unknown:
        return f"has the feature {min(unknown)}"
    return None
