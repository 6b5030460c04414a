"""Records as PyFlink prints them."""

import io
import pickle

import pytest

from headgate.api.row import Row, RowKind
from headgate.api.types.types import TypeInformation
from headgate.base.elements import Record
from headgate.common import Types
from headgate.connectors.blackhole import DiscardSink
from headgate.connectors.print_sink import PrintSink, format_prefix
from tests.connectors.kit import task_context


@pytest.mark.parametrize(
    ("identifier", "subtask", "parallelism", "prefix"),
    [
        (None, 0, 1, ""),
        (None, 0, 2, "1> "),
        (None, 3, 4, "4> "),
        ("words", 0, 1, "words> "),
        ("words", 1, 2, "words:2> "),
    ],
)
def test_the_prefix_tells_sink_and_task(
    identifier: str | None, subtask: int, parallelism: int, prefix: str
) -> None:
    assert format_prefix(identifier, subtask, parallelism) == prefix


def printed(type_info: TypeInformation | None, *records: Record) -> list[str]:
    stream = io.StringIO()
    sink = PrintSink(stream=stream).for_type(type_info)
    sink.create_writer(task_context()).write([*records])
    return stream.getvalue().splitlines()


def test_a_record_of_no_type_is_printed_as_python_does() -> None:
    records = [True, 1e10, ["a", "b"], {"k": 1}, ("a", 1), "text", b"a", None]
    rows = [Row("a", 1), Row(x=1, y="b"), Row.of_kind(RowKind.DELETE, "a")]
    lines = ["True", "10000000000.0", "['a', 'b']", "{'k': 1}", "('a', 1)", "text", "b'a'", "None"]
    of_rows = ["<Row('a', 1)>", "Row(x=1, y='b')", "<Row('a')>"]
    for type_info in (None, Types.PICKLED_BYTE_ARRAY()):
        assert printed(type_info, *records, *rows) == lines + of_rows


def test_a_record_of_a_type_is_printed_as_java_does() -> None:
    assert printed(Types.BOOLEAN(), True, False) == ["true", "false"]
    assert printed(Types.LIST(Types.DOUBLE()), [1e10, 0.5]) == ["[1.0E10, 0.5]"]
    assert printed(Types.TUPLE([Types.STRING(), Types.INT()]), ("a", 1)) == ["(a,1)"]


def test_a_row_of_a_type_is_printed_with_its_kind_and_fields_as_python_does() -> None:
    row = Types.ROW([Types.STRING(), Types.BOOLEAN(), Types.ROW_NAMED(["x"], [Types.INT()])])
    records = [Row("a", True, Row(x=1)), Row.of_kind(RowKind.UPDATE_AFTER, None, False, Row(x=2))]
    assert printed(row, *records) == ["+I[a,True,Row(x=1)]", "+U[None,False,Row(x=2)]"]


class CountingStream(io.StringIO):
    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def test_a_list_is_printed_in_one_write() -> None:
    stream = CountingStream()
    writer = PrintSink(stream=stream).create_writer(task_context(1, 2))
    writer.write(["a", Row("b", 2)])
    writer.flush()
    writer.close()
    assert stream.getvalue() == "2> a\n2> <Row('b', 2)>\n"
    assert stream.writes == 1


def test_standard_output_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    sink = pickle.loads(pickle.dumps(PrintSink("words")))
    sink.create_writer(task_context()).write(["a"])
    assert capsys.readouterr().out == "words> a\n"


def test_a_discarding_sink_takes_everything() -> None:
    writer = pickle.loads(pickle.dumps(DiscardSink())).create_writer(task_context())
    writer.write(["a", None])
    writer.flush()
    writer.close()
