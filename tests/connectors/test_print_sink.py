"""Records as PyFlink prints them."""

import io
import pickle

import pytest

from headgate.api.row import Row, RowKind
from headgate.base.elements import Record
from headgate.connectors.blackhole import DiscardSink
from headgate.connectors.print_sink import PrintSink, format_line
from tests.connectors.kit import task_context


@pytest.mark.parametrize(
    ("identifier", "subtask", "parallelism", "line"),
    [
        (None, 0, 1, "x"),
        (None, 0, 2, "1> x"),
        (None, 3, 4, "4> x"),
        ("words", 0, 1, "words> x"),
        ("words", 1, 2, "words:2> x"),
    ],
)
def test_the_prefix_tells_sink_and_task(
    identifier: str | None, subtask: int, parallelism: int, line: str
) -> None:
    assert format_line(identifier, subtask, parallelism, "x") == line


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ("a b", "a b"),
        (1, "1"),
        (("a", 1), "('a', 1)"),
        (b"a", "b'a'"),
        (Row("a", 1), "+I[a,1]"),
        (Row(word="a", count=1), "+I[a,1]"),
        (Row.of_kind(RowKind.DELETE, "a", Row(1, None)), "-D[a,+I[1,None]]"),
    ],
)
def test_a_record_is_its_text(record: Record, text: str) -> None:
    assert format_line(None, 0, 1, record) == text


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
    assert stream.getvalue() == "2> a\n2> +I[b,2]\n"
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
