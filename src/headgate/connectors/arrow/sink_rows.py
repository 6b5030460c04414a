"""What sinks of lake tables are asked for, whatever the format: mode, keys, schema, partitions.

Law: what cannot work is refused when the program is written; what does not fit the table, when the
task starts, with the column at fault.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from headgate.api.types.types import RowTypeInfo, TypeInformation
from headgate.base.errors import PlanInvalid, TableUnfit
from headgate.connectors.arrow.types import arrow_schema, schema_misfit
from headgate.connectors.checks import COUNT, NAMES, check_settings, one_of

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
    """Of mode upsert."""
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
        """The same for a stream of this type."""
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
        """Of the table, which may have been there before."""
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
