"""The functions of columnar operators: a user's function on tables, and expressions of pyarrow.

They are process functions on batches, so that timestamps, side outputs and error policies hold for
them as for any other. Law: every batch that leaves has the declared schema, or that of the first.
"""

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import GeneratorType
from typing import Final, Literal, TypeAlias

import pyarrow as pa
from pyarrow import acero, compute

from headgate.base.elements import Record
from headgate.base.errors import BatchUnfit
from headgate.core.columns.batches import SchemaCheck, as_batches, batch_in, column_of
from headgate.core.columns.keys import key_column
from headgate.functions.context import RuntimeContext
from headgate.functions.function import OutputTag, ProcessFunction

TableForm: TypeAlias = Literal["batch", "table", "pandas", "polars"]
FORMS: Final = typing.get_args(TableForm)
_BY_NAME: Final[dict[tuple[str, str], TableForm]] = {
    ("pyarrow", "RecordBatch"): "batch",
    ("pyarrow", "Table"): "table",
    ("pandas", "DataFrame"): "pandas",
    ("polars", "DataFrame"): "polars",
}


def form_of(function: object) -> TableForm:
    """What the function wants, by the annotation of its first argument; a batch if it has none."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = getattr(type(function), "__call__", function)  # noqa: B004 - not whether it has
    try:
        parameters = list(inspect.signature(function).parameters.values())  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "batch"
    named = [each for each in parameters if each.name != "self"]
    kind = named[0].annotation if named else None
    if isinstance(kind, str):
        module, _, name = kind.rpartition(".")
        names = getattr(function, "__globals__", {})
        module = getattr(names.get(module.partition(".")[0]), "__name__", module)
        found = names.get(name)
        module = module or str(getattr(found, "__module__", ""))
    else:
        module, name = str(getattr(kind, "__module__", "")), getattr(kind, "__name__", "")
    return _BY_NAME.get((module.partition(".")[0], name), "batch")


class BatchFunction(ProcessFunction[Record, Record]):
    """Calls a user's function with each batch, in the form it wants, and takes what it returns."""

    def __init__(
        self,
        function: Callable[[Record], Record],
        form: TableForm,
        schema: pa.Schema | None,
        keys: Sequence[str] = (),
    ) -> None:
        """``schema``: of what it returns. ``keys``: columns by which batches were parted."""
        self._keys = tuple(keys)
        self._function = function
        self._form = form
        self._check = SchemaCheck(schema)

    @property
    def has_life_cycle(self) -> bool:
        """Whether the user's function wants to be opened or closed with its task."""
        return any(hasattr(self._function, name) for name in ("open", "close"))

    def open(self, runtime_context: RuntimeContext) -> None:
        if (open_it := getattr(self._function, "open", None)) is not None:
            open_it(runtime_context)

    def close(self) -> None:
        if (close_it := getattr(self._function, "close", None)) is not None:
            close_it()

    def process_element(self, value: Record, ctx: object) -> Iterator[Record]:
        for name in self._keys:
            key_column(value, name)
        made = self._function(self._given(batch_in(value)))
        if _is_tagged(made) or not isinstance(made, GeneratorType | list | tuple | Iterator):
            made = (made,)
        for each in made:
            yield from self._taken(each)

    def _given(self, batch: pa.RecordBatch) -> Record:
        if self._form == "batch":
            return batch
        table = pa.Table.from_batches([batch])
        if self._form == "table":
            return table
        if self._form == "pandas":
            # Whole numbers stay whole beside nulls, and columns stay columns.
            return table.to_pandas(integer_object_nulls=True, ignore_metadata=True)
        import polars  # type: ignore[import-not-found] # noqa: PLC0415 - only who wants it has it

        return polars.from_arrow(table)

    def _taken(self, made: Record) -> Iterable[Record]:
        """Batches of the main output, or tagged ones; a side output may have any schema."""
        if made is None:
            return
        tag = None
        if _is_tagged(made):
            tag, made = made
        batches = as_batches(made)
        if batches is None:
            raise BatchUnfit(
                f"its function returned a {type(made).__name__}, and a table was expected: a "
                f"RecordBatch, a Table, a DataFrame of pandas or polars, several of them, or None"
            )
        for batch in batches:
            if batch.num_rows:
                yield (
                    self._check.fit(batch, "its function returned")
                    if tag is None
                    else (
                        tag,
                        batch,
                    )
                )


def _is_tagged(made: Record) -> bool:
    return isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], OutputTag)


class RowFilter(ProcessFunction[Record, Record]):
    """Keeps the rows for which an expression is true."""

    def __init__(self, condition: compute.Expression) -> None:
        self._condition = condition

    def process_element(self, value: Record, ctx: object) -> Iterator[Record]:
        found = evaluate(value, [("filter", acero.FilterNodeOptions(self._condition))])
        yield from found.to_batches()


class Projection(ProcessFunction[Record, Record]):
    """Columns by name, each an expression over those that come."""

    def __init__(self, columns: Mapping[str, compute.Expression | None]) -> None:
        """An expression that is None is the column of that name, as it is."""
        self._columns = dict(columns)
        self._is_selection = not any(each is not None for each in columns.values())

    def process_element(self, value: Record, ctx: object) -> Iterator[Record]:
        if self._is_selection:
            arrays = [column_of(value, name) for name in self._columns]
            yield pa.RecordBatch.from_arrays(arrays, names=list(self._columns))
            return
        yield from self.project(value).to_batches()

    def project(self, batch: Record) -> pa.Table:
        """The new columns; raises BatchUnfit."""
        expressions = [
            compute.field(name) if each is None else each for name, each in self._columns.items()
        ]
        options = acero.ProjectNodeOptions(expressions, list(self._columns))
        return evaluate(batch, [("project", options)])


def evaluate(batch: Record, steps: list[tuple[str, Record]]) -> pa.Table:
    """Run steps of pyarrow's engine over one batch, on this thread; raises BatchUnfit."""
    batch = batch_in(batch)
    source = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
    plan = [acero.Declaration("table_source", source)]
    plan += [acero.Declaration(name, options) for name, options in steps]
    try:
        table = acero.Declaration.from_sequence(plan).to_table(use_threads=False)
    except (pa.ArrowException, TypeError, KeyError) as error:
        problem = str(error).partition("\n")[0]
        names = ", ".join(f"{field.name} {field.type}" for field in batch.schema)
        raise BatchUnfit(
            f"its expression cannot be computed on a batch with the columns {names} ({problem})"
        ) from None
    return table.combine_chunks()
