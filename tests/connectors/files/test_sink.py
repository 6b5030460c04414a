"""Part files: whole or not there, of one attempt alone, in three formats."""

import json
import os
import pickle
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.api.row import Row
from headgate.api.types.types import Types
from headgate.base.elements import Bundle, Record
from headgate.base.errors import ConnectorError, PathUnusable, PlanInvalid
from headgate.connectors.files.layout import BucketAssigner, OutputFileConfig, RollingPolicy
from headgate.connectors.files.part_folder import LocalFolder
from headgate.connectors.files.sink import (
    CsvSink,
    Encoder,
    FileSink,
    JsonLinesSink,
    PartSink,
    TextFileSink,
)
from headgate.connectors.files.source import TextFileSource
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.functions.context import SnapshotMoment
from headgate.functions.sink import Sink
from tests.connectors.kit import task_context
from tests.core.chain.sink_lab import open_sink, sink_context


def begin(sink: PartSink, subtask: int = 0, attempt: int = 0) -> TwoPhaseSinkOperator:
    """A task of a job without checkpoints."""
    return open_sink(sink, sink_context(subtask, 4, attempt, checkpoints=False))


def write(sink: PartSink, *bundles: list[Record], subtask: int = 0, attempt: int = 0) -> None:
    """A task that reads its whole input."""
    operator = begin(sink, subtask, attempt)
    for bundle in bundles:
        operator.process(Bundle(bundle), 0)
    operator.finish()
    operator.close()


def test_each_task_writes_a_part_of_its_own(tmp_path: Path) -> None:
    sink = TextFileSink(tmp_path, "lines", ".log")
    write(sink, ["one", 2], [Row(a=1, b="x")], subtask=0)
    write(sink, ["three"], subtask=3)
    assert sorted(os.listdir(tmp_path)) == ["lines-0.log", "lines-3.log"]
    assert (tmp_path / "lines-0.log").read_text() == "one\n2\nRow(a=1, b='x')\n"


def test_lines_of_a_declared_type_are_written_as_java_does(tmp_path: Path) -> None:
    row = Types.ROW([Types.STRING(), Types.BOOLEAN(), Types.LIST(Types.DOUBLE()), Types.INT()])
    sink = TextFileSink(tmp_path, overwrite=True).for_type(row)
    write(pickle.loads(pickle.dumps(sink)), [Row("a", True, [1e10, 2.0], None)])
    assert (tmp_path / "part-0.txt").read_text() == "+I[a, true, [1.0E10, 2.0], null]\n"


def test_none_is_written_where_a_format_has_a_form_for_it(tmp_path: Path) -> None:
    for kind, lines in ((TextFileSink, "None\nx\n"), (JsonLinesSink, 'null\n"x"\n')):
        write(kind(tmp_path / kind.__name__, suffix=""), [None, "x"])
        assert (tmp_path / kind.__name__ / "part-0").read_text() == lines
    write(CsvSink(tmp_path / "csv", suffix=""), [None, ("a", None)])
    assert (tmp_path / "csv" / "part-0").read_text() == '""\na,\n'


def test_the_folder_is_made(tmp_path: Path) -> None:
    write(TextFileSink(tmp_path / "a" / "b"), ["x"])
    assert (tmp_path / "a" / "b" / "part-0.txt").read_text() == "x\n"


def test_a_task_without_records_writes_no_part(tmp_path: Path) -> None:
    write(TextFileSink(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_part_is_not_seen_before_the_end_of_the_input(tmp_path: Path) -> None:
    task = begin(TextFileSink(tmp_path))
    task.process(Bundle(["x"]), 0)
    assert TextFileSource(tmp_path).splits(1) == []
    task.finish()
    assert TextFileSource(tmp_path).splits(1) == [str(tmp_path / "part-0.txt")]
    task.close()
    assert os.listdir(tmp_path) == ["part-0.txt"]


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    task = begin(TextFileSink(tmp_path))
    task.process(Bundle(["x"]), 0)
    task.close()
    task.close()
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
    late = begin(sink)
    late.process(Bundle(["late"]), 0)
    write(sink, ["new"], attempt=1)
    late.process(Bundle(["later"]), 0)
    with pytest.raises(PathUnusable, match="part-0.txt: cannot be committed: .* is gone"):
        late.finish()
    late.close()
    assert (tmp_path / "part-0.txt").read_text() == "new\n"
    assert os.listdir(tmp_path) == ["part-0.txt"]


def test_what_another_job_has_written_is_kept_unless_it_may_be_replaced(tmp_path: Path) -> None:
    write(TextFileSink(tmp_path), ["old"])
    with pytest.raises(PathUnusable, match=r"part-0\.txt: exists already; give the sink another"):
        begin(TextFileSink(tmp_path))
    assert (tmp_path / "part-0.txt").read_text() == "old\n"
    write(TextFileSink(tmp_path, overwrite=True), ["new"])
    assert (tmp_path / "part-0.txt").read_text() == "new\n"


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PathUnusable, match="file: cannot be written: File exists"):
        begin(TextFileSink(tmp_path / "file"))


def test_a_full_disk_is_an_error_that_names_the_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path("/dev/full")
    if not (full.exists() and stat.S_ISCHR(full.stat().st_mode)):
        pytest.skip("there is no /dev/full")
    sink = TextFileSink(tmp_path)
    monkeypatch.setattr(LocalFolder, "create", lambda place, name: full.open("wb"))
    task = begin(sink)
    task.process(Bundle(["x"]), 0)
    with pytest.raises(PathUnusable, match="part-0.txt: cannot be written: No space left"):
        task.finish()
    task.close()
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
    with pytest.raises(ConnectorError) as caught:
        writer.write(["→" * 100_000])
    assert len(str(caught.value)) < 400
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


def test_a_job_without_checkpoints_that_stops_shows_its_part_with_the_savepoint(
    tmp_path: Path,
) -> None:
    sink = TextFileSink(tmp_path)
    task = begin(sink)
    task.process(Bundle(["x"]), 0)
    state = task.snapshot(SnapshotMoment(7, 0, is_savepoint=True)).sink
    task.process(Bundle(["y"]), 0)
    assert state is not None
    task.checkpoint_completed(7)
    task.close()
    assert os.listdir(tmp_path) == ["part-0.txt"]
    about = sink_context(0, 4, restored=OperatorRestored(7, sinks=(state,)), checkpoints=False)
    task = open_sink(sink, about)
    task.process(Bundle(["y"]), 0)
    task.finish()
    task.close()
    parts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert parts == {"part-0.txt": "x\n", "part-0-from-7.txt": "y\n"}


def test_buckets_have_parts_of_their_own_and_a_new_attempt_replaces_them(tmp_path: Path) -> None:
    sink = CsvSink(tmp_path, bucket_assigner=["k"])
    records = [Row(k="a", v=1), Row(k="b/c", v=2), Row(k=None, v=3)]
    write(sink, records)
    write(sink, records[:1], attempt=1)
    assert [path.name for path in tmp_path.rglob("*.csv")] == ["part-0.csv"]
    assert (tmp_path / "k=a" / "part-0.csv").read_text() == "a,1\n"
    with pytest.raises(PathUnusable, match="k=a/part-0.csv: exists already"):
        begin(sink)


def test_without_checkpoints_a_part_is_not_rolled(tmp_path: Path) -> None:
    policy = RollingPolicy.default_rolling_policy(part_size=1)
    sink = TextFileSink(tmp_path, rolling_policy=policy, bucket_assigner=None)
    write(sink, ["a"], ["b"])
    assert (tmp_path / "part-0.txt").read_text() == "a\nb\n"


@pytest.mark.parametrize(
    "sink",
    [
        TextFileSink("out"),
        JsonLinesSink("out", bucket_assigner=BucketAssigner.date_time_bucket_assigner()),
        CsvSink("out", header=["a"]),
    ],
    ids=lambda sink: type(sink).__name__,
)
def test_descriptions_travel(sink: Sink) -> None:
    assert pickle.loads(pickle.dumps(sink)) == sink


@pytest.mark.parametrize(
    ("sink", "records", "bad"),
    [
        (TextFileSink, ["a", "\udc80", "b"], ["\udc80"]),
        (JsonLinesSink, [1, {2, 3}, object, 4], [object]),
        (CsvSink, [("a",), ("\udc80", 1), ("b",)], [("\udc80", 1)]),
    ],
)
def test_a_record_without_a_form_is_reported_and_the_others_are_written(
    tmp_path: Path, sink: Any, records: list[Any], bad: list[Any]
) -> None:
    reported: list[object] = []
    context = replace(task_context(), malformed=lambda record, error: reported.append(record))
    writer = sink(tmp_path).create_writer(context)
    writer.write(records)
    writer.prepare_commit(None)
    (part,) = [path for path in tmp_path.iterdir() if path.is_file()]
    assert reported == bad
    assert len(part.read_text().splitlines()) == len(records) - len(bad)
    writer.close()
