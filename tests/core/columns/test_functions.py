"""Functions on tables and expressions: what they are given, and what they may return."""

import functools
import pickle
from collections.abc import Iterator
from typing import Any

import pandas
import pyarrow as pa
import pytest
from pyarrow import compute as pc

from headgate.base.errors import BatchUnfit
from headgate.core.columns.functions import BatchFunction, Projection, RowFilter, form_of
from headgate.functions.function import OutputTag

BATCH = pa.record_batch({"a": [1, 2, 3], "b": ["x", "y", "z"]})
TAG = OutputTag("odd")


def of_batch(batch: pa.RecordBatch) -> pa.RecordBatch: ...
def of_table(table: pa.Table) -> pa.Table: ...
def of_pandas(frame: pandas.DataFrame) -> pandas.DataFrame: ...
def of_text(frame: "pandas.DataFrame") -> "pandas.DataFrame": ...
def of_nobody(frame: "nowhere.Frame") -> None: ...  # type: ignore[name-defined] # noqa: F821


def of_unknown_result(frame: "pandas.DataFrame") -> "nowhere.Frame": ...  # type: ignore[name-defined] # noqa: F821
def of_two(frame: pandas.DataFrame, more: int) -> None: ...


class OfPandas:
    def __call__(self, frame: pandas.DataFrame) -> pandas.DataFrame:
        return frame


@pytest.mark.parametrize(
    ("function", "form"),
    [
        (of_batch, "batch"),
        (of_table, "table"),
        (of_pandas, "pandas"),
        (of_text, "pandas"),
        (of_nobody, "batch"),
        (functools.partial(of_two, 1), "pandas"),
        (OfPandas(), "pandas"),
        (of_unknown_result, "pandas"),
        (lambda batch: batch, "batch"),
        (print, "batch"),
    ],
)
def test_the_annotation_says_what_a_function_wants(function: Any, form: str) -> None:
    assert form_of(function) == form


def made_by(function: Any, form: Any = "batch", schema: Any = None) -> list[Any]:
    return list(BatchFunction(function, form, schema).process_element(BATCH, None))


@pytest.mark.parametrize("form", ["batch", "table", "pandas"])
def test_a_function_gets_its_form_and_may_return_it(form: str) -> None:
    seen = []

    def same(given: Any) -> Any:
        seen.append(type(given).__name__)
        return given

    (found,) = made_by(same, form)
    assert found.to_pydict() == BATCH.to_pydict()
    assert seen == [{"batch": "RecordBatch", "table": "Table", "pandas": "DataFrame"}[form]]


def test_a_function_may_return_several_tables_or_none() -> None:
    def halves(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield batch.slice(0, 1)
        yield batch.slice(0, 0)
        yield batch.slice(1)

    assert [part.num_rows for part in made_by(halves)] == [1, 2]
    assert [part.num_rows for part in made_by(lambda batch: [batch, batch])] == [3, 3]
    assert made_by(lambda batch: None) == []
    assert made_by(lambda batch: []) == []


def test_tagged_tables_are_side_outputs_of_any_schema() -> None:
    other = pa.record_batch({"c": [1]})
    assert made_by(lambda batch: (TAG, other), schema=BATCH.schema) == [(TAG, other)]
    assert made_by(lambda batch: iter([(TAG, other), batch])) == [(TAG, other), BATCH]


@pytest.mark.parametrize("made", [1, "text", {"a": [1]}, [1, 2], (1,)])
def test_what_is_no_table_is_refused(made: Any) -> None:
    with pytest.raises(BatchUnfit, match="its function returned a .*, and a table was expected"):
        made_by(lambda batch: made)


def test_another_schema_is_refused() -> None:
    with pytest.raises(BatchUnfit, match="its function returned a batch with the columns c int64"):
        made_by(lambda batch: pa.record_batch({"c": [1]}), schema=BATCH.schema)


def test_what_is_no_batch_is_refused() -> None:
    for function in (BatchFunction(len, "batch", None), RowFilter(pc.field("a") > 1)):
        with pytest.raises(BatchUnfit, match="a tuple came, and an Arrow batch was expected"):
            list(function.process_element((1, 2), None))


def test_rows_are_filtered_and_projected_by_expressions() -> None:
    kept = pickle.loads(pickle.dumps(RowFilter(pc.field("a") > 1)))
    (found,) = kept.process_element(BATCH, None)
    assert found.to_pydict() == {"a": [2, 3], "b": ["y", "z"]}
    assert list(RowFilter(pc.field("a") > 9).process_element(BATCH, None)) == []
    columns = {"b": None, "twice": pc.field("a") * 2, "one": pc.scalar(1)}
    (found,) = pickle.loads(pickle.dumps(Projection(columns))).process_element(BATCH, None)
    assert found.to_pydict() == {"b": ["x", "y", "z"], "twice": [2, 4, 6], "one": [1, 1, 1]}
    (found,) = Projection({"b": None}).process_element(BATCH, None)
    assert found.to_pydict() == {"b": ["x", "y", "z"]}


def test_expressions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BatchUnfit, match="cannot be computed on a batch with the columns a int64"):
        list(RowFilter(pc.field("z") > 1).process_element(BATCH, None))
    with pytest.raises(BatchUnfit, match="cannot be computed"):
        list(Projection({"x": pc.field("b") * 2}).process_element(BATCH, None))


class Opened:
    """A function with a life."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def open(self, context: object) -> None:
        self.log.append("open")

    def close(self) -> None:
        self.log.append("close")

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


def test_functions_with_open_and_close_are_opened_and_closed() -> None:
    inner = Opened()
    function = BatchFunction(inner, "batch", None)
    function.open(None)  # type: ignore[arg-type]
    function.close()
    BatchFunction(len, "batch", None).open(None)  # type: ignore[arg-type]
    assert inner.log == ["open", "close"]


def test_whole_numbers_beside_nulls_come_back_from_pandas_as_they_went() -> None:
    batch = pa.record_batch({"id": pa.array([2**53 + 1, None, 5])})
    function = BatchFunction(lambda frame: frame, "pandas", batch.schema)
    assert list(function.process_element(batch, None)) == [batch]


def test_an_index_of_pandas_is_a_column_like_others() -> None:
    frame = pandas.DataFrame({"user": ["a"], "n": [1]}).set_index("user")
    (batch,) = pa.Table.from_pandas(frame).to_batches()
    seen: list[Any] = []
    function = BatchFunction(lambda frame: seen.append(list(frame.columns)), "pandas", None)
    assert list(function.process_element(batch, None)) == []
    assert sorted(seen[0]) == ["n", "user"]
