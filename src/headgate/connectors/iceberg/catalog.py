"""Iceberg tables as their catalog opens them.

Law: what the library raises becomes TableUnfit, if every attempt would meet it, or TableUnready; a
catalog that was opened is closed; files on local disks are settled before it hears of them. The
library is loaded when a table is first opened.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headgate.base.errors import PlanInvalid, TableUnfit, TableUnready
from headgate.connectors.libraries import library, reason, words

OpenTable: TypeAlias = Any
"""``pyiceberg.table.Table``."""
CatalogSettings: TypeAlias = "str | Mapping[str, str]"
"""The name of a catalog in PyIceberg's own settings, or its properties; ``name`` among them."""


FILE_IO: Final = "py-io-impl"
"""The library's property for the class that opens files."""
CREATE_ATTEMPTS: Final = 3
"""Another task may have created the namespace meanwhile, and have yet to create the table."""


@dataclass(frozen=True)
class IcebergAddress:
    """A table and its catalog; travels with the sink or source."""

    table: str
    """With its namespaces: ``shop.sales``."""
    catalog: CatalogSettings = field(repr=False)  # there may be a password in it
    user: str
    """Who asks, for messages: ``IcebergSink``."""

    def __post_init__(self) -> None:
        if "." not in str(self.table).strip("."):
            raise PlanInvalid(
                f"{self.user}: the table is {self.table!r}; give its namespace, too: 'shop.sales'"
            )
        kind = type(self.catalog)
        if not issubclass(kind, str | Mapping):
            raise PlanInvalid(
                f"{self.user}: the catalog is a {kind.__name__}; give the name of one that "
                f"PyIceberg knows, or a dict of its properties, such as type and uri"
            )

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.user}: the Iceberg table {self.table!r}"

    def open(self) -> "OpenCatalog":
        """Whoever asks closes it."""
        load = library("pyiceberg.catalog", "iceberg", self.user).load_catalog
        properties = {} if isinstance(self.catalog, str) else dict(self.catalog)
        name = self.catalog if isinstance(self.catalog, str) else properties.pop("name", "default")
        try:
            return OpenCatalog(self, load(name, **properties))
        except Exception as error:
            raise TableUnready(
                f"{self.user}: the catalog {name!r} cannot be opened: {words(error)}; check its "
                f"properties, and that its server runs"
            ) from error


class OpenCatalog:
    """Finds and creates one table."""

    def __init__(self, address: IcebergAddress, catalog: Any) -> None:
        self._address = address
        self._catalog = catalog
        self._errors = library("pyiceberg.exceptions", "iceberg", address.user)

    def load(self) -> OpenTable:
        """The table as of now."""
        table = self.find()
        if table is None:
            raise TableUnfit(
                f"{self._address.user}: the catalog has no table {self._address.table!r}; check "
                f"its name, or create it first"
            )
        return table

    def find(self) -> OpenTable | None:
        """The table as of now; None: there is none."""
        try:
            table = self._catalog.load_table(self._address.table)
            if self._settles(table.location()):
                table = self._catalog.load_table(self._address.table)
            return table
        except (self._errors.NoSuchTableError, self._errors.NoSuchNamespaceError):
            return None
        except Exception as error:
            raise self.unready("cannot be opened", error) from error

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """With its namespace; others may create it at the same time: then theirs is there."""
        for attempt in range(CREATE_ATTEMPTS):
            try:
                self._create(schema, partition_by)
                return
            except Exception as error:
                if self.find() is not None:
                    return
                if isinstance(error, TypeError | ValueError | NotImplementedError):
                    raise TableUnfit(
                        f"{self._address.user}: Iceberg has no such columns: {words(error)}; "
                        f"declare other types"
                    ) from error
                if attempt == CREATE_ATTEMPTS - 1:
                    raise self.unready("cannot be created", error) from error

    def _settles(self, location: str) -> bool:
        """Have the library flush what it writes there, from now on; False: it does so already.

        Users who have named a ``FileIO`` of their own get that.
        """
        local = "://" not in location or location.startswith("file:")
        if not local or FILE_IO in self._catalog.properties:
            return False
        files = library("headgate.connectors.iceberg.settled_files", "iceberg", self._address.user)
        self._catalog.properties[FILE_IO] = f"{files.__name__}.{files.SettledFileIO.__name__}"
        return True

    def _create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        name = self._address.table
        self._settles(str(self._catalog.properties.get("warehouse", "remote://")))
        self._catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        creation = self._catalog.create_table_transaction(name, schema)
        if partition_by:
            with creation.update_spec() as spec:
                for column in partition_by:
                    spec.add_identity(column)
        creation.commit_transaction()

    def unready(self, what: str, error: BaseException) -> TableUnready:
        return TableUnready(
            f"{self._address.where} {what}: "
            + reason(error, "check the catalog, the table's place, its rights and space")
        )

    def close(self) -> None:
        """Idempotent."""
        with suppress(Exception):
            self._catalog.close()


def table_schema(table: OpenTable, user: str) -> pa.Schema:
    """In Arrow's words."""
    convert = library("pyiceberg.io.pyarrow", "iceberg", user).schema_to_pyarrow
    schema: pa.Schema = convert(table.schema(), include_field_ids=False)
    return schema


def table_id(table: OpenTable) -> str:
    """Made when the table was created: another table of the same name has another one."""
    return str(table.metadata.table_uuid)
