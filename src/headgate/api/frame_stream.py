"""The rows of a DataFrame as a stream: of records, or of columns until records are asked for.

Law: the DataFrame is read in one form. Whatever takes records of this stream makes it a stream of
records; ``columns()``, and the methods that only columns have, make it one of Arrow batches.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, overload

from headgate.api.datastream import DataStream
from headgate.api.draft import Origin
from headgate.api.row import Row
from headgate.api.runtime import runtime
from headgate.base.errors import PlanInvalid
from headgate.functions.function import FilterFunction, KeySelector
from headgate.functions.type_variables import V
from headgate.functions.watermarks import WatermarkStrategy

if TYPE_CHECKING:
    from headgate.api.columns import ColumnStream, KeyedColumnStream
    from headgate.api.keyed import KeyedStream
    from headgate.api.types.types import TypeInformation


_Made = TypeVar("_Made")


class FrameStream(DataStream[Row]):
    """Made by ``from_dataframe``."""

    def __init__(self, stream: DataStream, source: Any) -> None:
        """``source`` has ``dataframe`` and ``as_batches``."""
        super().__init__(stream._draft, stream._origins, stream._type)
        self._source = source
        self._is_read = False

    def _read(self) -> tuple[Origin, ...]:
        """Decide that the DataFrame is read as records; raises PlanInvalid if it is not."""
        if self._source.as_batches:
            raise PlanInvalid(
                "the DataFrame is read as columns already, so that this stream has no records; "
                "take them from the columns with to_records()"
            )
        self._is_read = True
        return self._origins

    def columns(self, schema: object = None) -> "ColumnStream":
        """The rows as Arrow batches, for operators that work on whole columns."""
        if self._is_read:
            raise PlanInvalid(
                "the DataFrame is read as records already; take columns first, and the records "
                "from these with to_records(), or call from_dataframe() once more"
            )
        self._source.as_batches = True
        stream = DataStream(self._draft, self._origins)
        known = self._source.dataframe.schema if schema is None else schema
        return stream.columns(runtime().arrow_schema(known, "from_dataframe"))

    def map_batches(
        self, func: Callable[[Any], Any], schema: object = None, form: str | None = None
    ) -> "ColumnStream":
        """Call a function with each batch of rows; see ``ColumnStream.map_batches``."""
        return self._try(lambda columns: columns.map_batches(func, schema, form))

    def select(self, *names: str, **expressions: Any) -> "ColumnStream":
        """Some columns, and new ones; see ``ColumnStream.select``."""
        return self._try(lambda columns: columns.select(*names, **expressions))

    def with_column(self, name: str, expression: Any) -> "ColumnStream":
        """All columns and another one; see ``ColumnStream.with_column``."""
        return self._try(lambda columns: columns.with_column(name, expression))

    @overload
    def filter(  # type: ignore[overload-overlap] # a guard says more than a plain yes
        self, func: Callable[[Row], TypeGuard[V]]
    ) -> DataStream[V]: ...

    @overload
    def filter(self, func: Callable[[Row], object] | FilterFunction[Row]) -> DataStream[Row]: ...

    @overload
    def filter(self, func: Any) -> Any: ...

    def filter(self, func: Any) -> "DataStream | ColumnStream":
        """Rows for which a function of a record, or an expression over columns, is true."""
        if type(func).__module__.startswith("pyarrow."):
            return self._try(lambda columns: columns.filter(func))
        return super().filter(func)

    @overload
    def key_by(
        self,
        key_selector: Callable[[Row], V] | KeySelector[Row, V],
        key_type: "TypeInformation | None" = None,
    ) -> "KeyedStream[Row, V]": ...

    @overload
    def key_by(self, key_selector: str, *names: str) -> "KeyedColumnStream": ...

    def key_by(self, key_selector: Any, *names: Any, **more: Any) -> Any:
        """By a function of a record, or by names of columns."""
        if isinstance(key_selector, str):
            return self._try(lambda columns: columns.key_by(key_selector, *names))
        return super().key_by(key_selector, *names, **more)

    @overload
    def assign_timestamps_and_watermarks(
        self, watermark_strategy: WatermarkStrategy
    ) -> DataStream[Row]: ...

    @overload
    def assign_timestamps_and_watermarks(
        self, watermark_strategy: WatermarkStrategy, column: str
    ) -> "ColumnStream": ...

    def assign_timestamps_and_watermarks(
        self, watermark_strategy: WatermarkStrategy, column: str | None = None
    ) -> "DataStream[Row] | ColumnStream":
        """By the strategy's assigner on records, or from a column."""
        if column is not None:
            return self._try(
                lambda columns: columns.assign_timestamps_and_watermarks(watermark_strategy, column)
            )
        return super().assign_timestamps_and_watermarks(watermark_strategy)

    def _try(self, use: "Callable[[ColumnStream], _Made]") -> "_Made":
        """Use the columns; a mistake leaves the stream as it was."""
        before = self._source.as_batches
        try:
            return use(self.columns())
        except PlanInvalid:
            self._source.as_batches = before
            raise
