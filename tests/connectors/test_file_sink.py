"""Part files: whole or not there, of one attempt alone, in three formats."""

import json
import os
import pickle
import stat
from pathlib import Path

import pytest

from headgate.api.row import Row
from headgate.api.source import Sink
from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, PathUnusable, PlanInvalid
from headgate.connectors.file_sink import (
    CsvSink,
    Encoder,
    FileSink,
    JsonLinesSink,
    OutputFileConfig,
    RollingPolicy,
    TextFileSink,
)
from headgate.connectors.files import TextFileSource
from tests.connectors.kit import task_context


def write(sink: Sink, *bundles: list[Record], subtask: int = 0, attempt: int = 0) -> None:
    """A task that reads its whole input."""
    writer = sink.create_writer(task_context(subtask, 4, attempt))
    for bundle in bundles:
        writer.write(bundle)
    writer.flush()
    writer.close()


def test_each_task_writes_a_part_of_its_own(tmp_path: Path) -> None:
    sink = TextFileSink(tmp_path, "lines", ".log")
    write(sink, ["one", 2], [Row(a=1, b="x")], subtask=0)
    write(sink, ["three"], subtask=3)
    assert sorted(os.listdir(tmp_path)) == ["lines-0.log", "lines-3.log"]
    assert (tmp_path / "lines-0.log").read_text() == "one\n2\n+I[1,x]\n"


def test_the_folder_is_made(tmp_path: Path) -> None:
    write(TextFileSink(tmp_path / "a" / "b"), ["x"])
    assert (tmp_path / "a" / "b" / "part-0.txt").read_text() == "x\n"


def test_a_task_without_records_writes_no_part(tmp_path: Path) -> None:
    write(TextFileSink(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_part_is_not_seen_before_the_end_of_the_input(tmp_path: Path) -> None:
    writer = TextFileSink(tmp_path).create_writer(task_context())
    writer.write(["x"])
    assert TextFileSource(tmp_path).splits(1) == []
    writer.flush()
    assert TextFileSource(tmp_path).splits(1) == [str(tmp_path / "part-0.txt")]
    writer.flush()
    writer.close()
    assert os.listdir(tmp_path) == ["part-0.txt"]


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = TextFileSink(tmp_path).create_writer(task_context())
    writer.write(["x"])
    writer.close()
    writer.close()
    assert os.listdir(tmp_path) == []


def test_a_new_attempt_replaces_what_the_one_before_had_finished(tmp_path: Path) -> None:
    sink = TextFileSink(tmp_path)
    write(sink, ["old"], subtask=0)
    write(sink, ["old"], subtask=1)
    write(sink, ["new"], subtask=0, attempt=1)
    write(sink, subtask=1, attempt=1)
    assert (tmp_path / "part-0.txt").read_text() == "new\n"
    assert os.listdir(tmp_path) == ["part-0.txt"]


def test_a_late_attempt_cannot_write_into_the_next_ones_part(tmp_path: Path) -> None:
    sink = TextFileSink(tmp_path)
    late = sink.create_writer(task_context(attempt=0))
    late.write(["late"])
    write(sink, ["new"], attempt=1)
    late.write(["later"])
    with pytest.raises(PathUnusable, match="part-0.txt: cannot be written"):
        late.flush()
    late.close()
    assert (tmp_path / "part-0.txt").read_text() == "new\n"
    assert os.listdir(tmp_path) == ["part-0.txt"]


def test_what_another_job_has_written_is_kept_unless_it_may_be_replaced(tmp_path: Path) -> None:
    write(TextFileSink(tmp_path), ["old"])
    with pytest.raises(PathUnusable, match=r"part-0\.txt: exists already; give the sink another"):
        TextFileSink(tmp_path).create_writer(task_context())
    assert (tmp_path / "part-0.txt").read_text() == "old\n"
    write(TextFileSink(tmp_path, overwrite=True), ["new"])
    assert (tmp_path / "part-0.txt").read_text() == "new\n"


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PathUnusable, match="file: cannot be written: File exists"):
        TextFileSink(tmp_path / "file").create_writer(task_context())


def test_a_full_disk_is_an_error_that_names_the_part(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not (full.exists() and stat.S_ISCHR(full.stat().st_mode)):
        pytest.skip("there is no /dev/full")
    sink = TextFileSink(tmp_path)
    (tmp_path / ".part-0.txt.inprogress-0").symlink_to(full)
    writer = sink.create_writer(task_context())
    writer.write(["x"])
    with pytest.raises(PathUnusable, match="part-0.txt: cannot be written: No space left"):
        writer.flush()
    writer.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("prefix", "suffix"), [("a/b", ""), ("part", "/x"), (".part", ""), ("_part", "")]
)
def test_names_that_nobody_would_find_are_refused(prefix: str, suffix: str) -> None:
    with pytest.raises(PlanInvalid, match="part files cannot be called"):
        TextFileSink("out", prefix, suffix)


def test_text_that_the_encoding_lacks_is_an_error(tmp_path: Path) -> None:
    writer = TextFileSink(tmp_path, encoding="latin-1").create_writer(task_context())
    with pytest.raises(ConnectorError, match="'→' does not exist in latin-1"):
        writer.write(["a → b"])
    writer.close()


def test_json_lines_hold_one_record_each(tmp_path: Path) -> None:
    records = [{"a": 1}, ["x\ny", None], "s", 2.5, Row(a=1, b=Row(c=[2])), Row(1, "x")]
    write(JsonLinesSink(tmp_path), records[:2], records[2:])
    lines = (tmp_path / "part-0.jsonl").read_text().splitlines()
    expected = [*records[:4], {"a": 1, "b": {"c": [2]}}, [1, "x"]]
    assert [json.loads(line) for line in lines] == expected


def test_a_record_without_form_in_json_is_an_error(tmp_path: Path) -> None:
    writer = JsonLinesSink(tmp_path).create_writer(task_context())
    with pytest.raises(ConnectorError, match="type complex has no form in JSON; make dicts"):
        writer.write([1j])
    writer.close()


def test_csv_has_a_header_in_each_part_and_quotes_what_needs_it(tmp_path: Path) -> None:
    sink = CsvSink(tmp_path, header=["word", "count"])
    write(sink, [("a,b", 1)], [["c", 2], Row('"', None)], subtask=0)
    write(sink, ["alone"], subtask=1)
    assert (tmp_path / "part-0.csv").read_text() == 'word,count\n"a,b",1\nc,2\n"""",\n'
    assert (tmp_path / "part-1.csv").read_text() == "word,count\nalone\n"
    with pytest.raises(PlanInvalid, match="give one character"):
        CsvSink(tmp_path, delimiter="--")


def test_the_builder_speaks_pyflink(tmp_path: Path) -> None:
    config = OutputFileConfig.builder().with_part_prefix("words").with_part_suffix(".ext").build()
    for _ in range(2):  # a second run of the same program adds its parts
        builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        builder = builder.with_output_file_config(config)
        builder = builder.with_rolling_policy(RollingPolicy.default_rolling_policy())
        write(builder.build(), ["x"])
    parts = sorted(os.listdir(tmp_path))
    assert len(parts) == 2
    assert all(part.startswith("words-") and part.endswith("-0.ext") for part in parts)


@pytest.mark.parametrize(
    "sink",
    [TextFileSink("out"), JsonLinesSink("out"), CsvSink("out", header=["a"])],
    ids=lambda sink: type(sink).__name__,
)
def test_descriptions_travel(sink: Sink) -> None:
    assert pickle.loads(pickle.dumps(sink)) == sink
