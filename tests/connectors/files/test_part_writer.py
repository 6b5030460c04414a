"""Part files with checkpoints: each record in one visible file, once, whatever happens."""

import logging
import os
import pickle
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from headgate.api.row import Row
from headgate.base.elements import Bundle
from headgate.base.errors import PartLost, PathUnusable
from headgate.connectors.files import part_commits, part_writer
from headgate.connectors.files.layout import RollingPolicy
from headgate.connectors.files.part_commits import PartCommit
from headgate.connectors.files.part_folder import LocalFolder, PartFolder
from headgate.connectors.files.remote_folder import ArrowFolder
from headgate.connectors.files.sink import (
    Encoder,
    FileSink,
    PartSink,
    TextFileSink,
)
from headgate.control.error_classes import is_final
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.functions.context import SnapshotMoment, TaskInfo
from tests.connectors.part_kit import hidden, make_sink, read_numbers, visible
from tests.core.chain.kit import NOW_MS
from tests.core.chain.sink_lab import STEPS, TOTAL, SinkJob, open_sink, run_job, sink_context

NEVER = RollingPolicy.default_rolling_policy()


def texts(folder: Path) -> list[str]:
    return [line for path in visible(folder) for line in path.read_text().splitlines()]


def feed(task: TwoPhaseSinkOperator, *records: Any) -> None:
    task.process(Bundle(list(records)), 0)


def restored(checkpoint: int, *states: bytes | None) -> OperatorRestored:
    return OperatorRestored(checkpoint, sinks=tuple(state for state in states if state is not None))


def test_a_part_appears_when_its_checkpoint_is_complete(tmp_path: Path) -> None:
    task = open_sink(TextFileSink(tmp_path), sink_context(2, 4))
    feed(task, "a", "b")
    task.snapshot(SnapshotMoment(1, 0))
    feed(task, "c")
    assert visible(tmp_path) == []
    task.checkpoint_completed(1)
    assert texts(tmp_path) == ["a", "b"]
    (part,) = visible(tmp_path)
    assert part.name.startswith("part-2-") and part.name.endswith("-0.txt")
    task.snapshot(SnapshotMoment(2, 0))
    task.checkpoint_completed(2)
    task.finish()
    assert not task.awaits_checkpoint
    task.close()
    assert texts(tmp_path) == ["a", "b", "c"]
    assert hidden(tmp_path) == []


def test_a_part_goes_on_over_checkpoints_until_it_is_full_or_old(tmp_path: Path) -> None:
    now = [0]
    policy = RollingPolicy.default_rolling_policy(10, 1000, 400)
    about = sink_context(now_ms=lambda: now[0])
    task = open_sink(TextFileSink(tmp_path, rolling_policy=policy), about)

    def checkpoint(number: int) -> list[str]:
        task.snapshot(SnapshotMoment(number, now[0]))
        task.checkpoint_completed(number)
        return texts(tmp_path)

    feed(task, "a")
    assert checkpoint(1) == []
    now[0] = 300
    feed(task, "b" * 10)  # full
    feed(task, "c")
    assert checkpoint(2) == ["a", "b" * 10]
    now[0] = 699
    assert checkpoint(3) == ["a", "b" * 10]
    now[0] = 700  # not written to for long
    assert sorted(checkpoint(4)) == ["a", "b" * 10, "c"]
    for now[0] in range(1000, 2001, 250):
        feed(task, "d")
        assert "d" not in texts(tmp_path)
        found = checkpoint(now[0])
    assert found.count("d") == 5  # old
    task.close()


def test_a_new_run_shows_what_a_checkpoint_holds_of_a_part_that_was_going_on(
    tmp_path: Path,
) -> None:
    sink = TextFileSink(tmp_path, rolling_policy=NEVER)
    task = open_sink(sink, sink_context())
    feed(task, "a")
    state = task.snapshot(SnapshotMoment(1, 0)).sink
    task.checkpoint_completed(1)
    feed(task, "lost")
    task.snapshot(SnapshotMoment(2, 0))
    for _ in range(2):  # also if the new run fails at once
        again = open_sink(sink, sink_context(attempt=1, restored=restored(1, state)))
        assert texts(tmp_path) == ["a"]
        assert hidden(tmp_path) == []
        again.close()
    feed(task, "late" * 10_000)  # a frozen task wakes
    task.snapshot(SnapshotMoment(3, 0))
    task.close()
    assert texts(tmp_path) == ["a"]


@pytest.mark.parametrize("policy", [NEVER, RollingPolicy.on_checkpoint_rolling_policy()])
def test_a_savepoint_needs_its_parts_though_the_job_goes_back_before_it(
    tmp_path: Path, policy: RollingPolicy
) -> None:
    sink = TextFileSink(tmp_path, rolling_policy=policy)
    task = open_sink(sink, sink_context())
    feed(task, "a")
    task.snapshot(SnapshotMoment(1, 0))  # holds it as well, and comes to nothing
    state = task.snapshot(SnapshotMoment(2, 0, is_savepoint=True)).sink
    task.close()
    open_sink(sink, sink_context(attempt=1)).close()
    assert texts(tmp_path) == []
    open_sink(sink, sink_context(restored=restored(2, state))).close()
    assert texts(tmp_path) == ["a"]
    assert hidden(tmp_path) == []


def test_what_dead_attempts_have_left_is_removed_by_the_task_that_got_their_state(
    tmp_path: Path,
) -> None:
    sink = TextFileSink(tmp_path, rolling_policy=NEVER, bucket_assigner=lambda text: text[0])
    tasks = [open_sink(sink, sink_context(subtask, 4)) for subtask in range(4)]
    for task in tasks:
        feed(task, "x")
        task.snapshot(SnapshotMoment(1, 0))
        task.close()
    other = tmp_path / "x" / ".part-1-0123abcd-0.txt.inprogress-01234567"
    other.touch()
    assert len(hidden(tmp_path)) == 5
    open_sink(sink, sink_context(1, 3, attempt=1)).close()
    assert len(hidden(tmp_path)) == 4
    open_sink(sink, sink_context(0, 3, attempt=1)).close()
    open_sink(sink, sink_context(2, 3, attempt=1)).close()
    assert hidden(tmp_path) == [other]


def test_a_part_that_is_gone_under_both_names_is_an_error(tmp_path: Path) -> None:
    task = open_sink(TextFileSink(tmp_path), sink_context())
    feed(task, "a")
    state = task.snapshot(SnapshotMoment(1, 0)).sink
    task.checkpoint_completed(1)
    task.close()
    (part,) = visible(tmp_path)
    part.unlink()
    with pytest.raises(PartLost, match=f"{part}: is not there, and neither is .* empty file"):
        open_sink(TextFileSink(tmp_path), sink_context(restored=restored(1, state)))
    part.touch()  # as the message says
    open_sink(TextFileSink(tmp_path), sink_context(restored=restored(1, state))).close()


@pytest.mark.parametrize("bucket", ["", "b/"])
def test_a_folder_that_is_away_is_no_lost_part(tmp_path: Path, bucket: str) -> None:
    """With all that it is in, as of a mount; a folder that alone is gone was removed."""
    mount, away = tmp_path / "mount", tmp_path / "away"
    out = mount / "out"
    out.mkdir(parents=True)
    commit = PartCommit(str(out), f"{bucket}.part-0.inprogress", f"{bucket}part-0")
    with pytest.raises(PartLost):
        part_commits.PartCommitter().commit_again([commit])
    mount.rename(away)
    with pytest.raises(PathUnusable) as raised:
        part_commits.PartCommitter().commit_again([commit])
    assert not is_final(raised.value)
    away.rename(mount)
    out.rmdir()
    for attempt in ("commit", "commit_again"):
        with pytest.raises(
            PathUnusable, match=f"has removed the folder {out}, and with it"
        ) as gone:
            getattr(part_commits.PartCommitter(), attempt)([commit])
        assert is_final(gone.value)


@pytest.mark.parametrize("built", [False, True])
def test_readers_may_take_parts_if_the_sink_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, built: bool
) -> None:
    sink: PartSink = TextFileSink(tmp_path, readers_take_parts=True)
    if built:
        builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        sink = builder.with_readers_taking_parts().build()
    task = open_sink(sink, sink_context())
    feed(task, "a")
    state = task.snapshot(SnapshotMoment(1, 0, is_savepoint=True)).sink
    task.checkpoint_completed(1)
    task.close()
    (part,) = visible(tmp_path)
    part.unlink()
    with caplog.at_level(logging.WARNING):
        open_sink(sink, sink_context(restored=restored(1, state))).close()
    assert f"{part} is not there any more: a reader took it" in caplog.text


@pytest.mark.parametrize("evicts", [False, True])
def test_a_part_that_was_ended_after_a_checkpoint_had_named_it_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evicts: bool
) -> None:
    """Its task closes before the next checkpoint, and the run goes on from the one before."""
    monkeypatch.setattr(part_writer, "MOST_OPEN", 1)
    policy = RollingPolicy.default_rolling_policy(part_size=1000 if evicts else 10)
    buckets = (lambda text: text[0]) if evicts else None
    sink = TextFileSink(tmp_path, rolling_policy=policy, bucket_assigner=buckets)
    task = open_sink(sink, sink_context())
    feed(task, "named")
    state = task.snapshot(SnapshotMoment(1, 0)).sink
    task.checkpoint_completed(1)
    feed(task, "and then ended")  # full, or put out by another bucket
    feed(task, "unnamed")
    task.close()
    assert len(hidden(tmp_path)) == 1
    open_sink(sink, sink_context(attempt=1, restored=restored(1, state))).close()
    assert texts(tmp_path) == ["named"]
    assert hidden(tmp_path) == []


def test_a_whole_part_that_was_cut_is_an_error(tmp_path: Path) -> None:
    sink = TextFileSink(tmp_path)
    task = open_sink(sink, sink_context())
    feed(task, "abc")
    state = task.snapshot(SnapshotMoment(1, 0)).sink
    task.close()
    os.truncate(hidden(tmp_path)[0], 2)
    with pytest.raises(PartLost, match="has 2 bytes, and the checkpoint says 4"):
        open_sink(sink, sink_context(restored=restored(1, state)))
    assert visible(tmp_path) == []


def test_a_part_of_the_first_version_is_read(tmp_path: Path) -> None:
    old = PartCommit.__new__(PartCommit)
    old.__setstate__([str(tmp_path), ".part.inprogress-0", "part", "", False, 2])
    (tmp_path / old.hidden).write_text("a\nb\n")
    assert old.is_open
    part_commits.PartCommitter().commit_again([old, pickle.loads(pickle.dumps(old))])
    assert texts(tmp_path) == ["a"]
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("is_moved", [False, True])
def test_parts_of_a_complete_savepoint_stay_and_those_of_an_aborted_one_go(
    tmp_path: Path, is_moved: bool
) -> None:
    sink = TextFileSink(tmp_path / "out")
    states, places = [], []
    task = open_sink(sink, sink_context())
    for number, text in enumerate(("complete", "aborted"), 1):
        places.append(tmp_path / f"savepoint-{number}")
        places[-1].mkdir()
        feed(task, text)
        about = SnapshotMoment(number, 0, is_savepoint=True, directory=str(places[-1]))
        states.append(task.snapshot(about).sink)
        if text == "complete":
            (places[-1] / "_metadata").touch()
            task.close()
            task = open_sink(sink, sink_context(attempt=1))
    task.close()
    assert len(hidden(tmp_path)) == 4
    open_sink(sink, sink_context(attempt=2)).close()
    assert [len(path.read_bytes()) for path in hidden(tmp_path)] == [len("complete\n"), 0]
    if is_moved:
        places[0].rename(tmp_path / "elsewhere")
        open_sink(sink, sink_context(attempt=3)).close()
    open_sink(sink, sink_context(restored=restored(1, states[0]))).close()
    assert texts(tmp_path / "out") == ["complete"]
    assert hidden(tmp_path) == []


def test_hidden_files_of_others_are_not_touched(tmp_path: Path) -> None:
    sink = TextFileSink(tmp_path)
    other_job = TaskInfo("job", "sink", 0, 1, job_id="job-2")
    other_folder = TaskInfo("job", "sink", 0, 1, job_id="job-1", checkpoint_folder="elsewhere")
    others = [
        sink_context(),
        replace(sink_context(), uid="another-sink"),
        replace(sink_context(), task=other_job),
        replace(sink_context(), task=other_folder),
        sink_context(now_ms=lambda: NOW_MS + 1),  # a successor of the one that cleans
    ]
    tasks = [open_sink(sink, context) for context in others]
    for task in tasks:
        feed(task, "a")
        task.snapshot(SnapshotMoment(1, 0))
    assert len(hidden(tmp_path)) == 5
    open_sink(sink, sink_context(attempt=1)).close()
    assert len(hidden(tmp_path)) == 4
    for task in tasks[1:]:
        task.checkpoint_completed(1)
    with pytest.raises(PartLost, match="cannot be committed: .* is gone"):
        tasks[0].checkpoint_completed(1)
    for task in tasks:
        task.close()
    assert texts(tmp_path) == ["a"] * 4


def test_no_start_writes_into_the_hidden_part_of_a_savepoint(tmp_path: Path) -> None:
    """Without checkpoints parts have the same names in each run; hidden ones do not."""
    sink = TextFileSink(tmp_path)
    task = open_sink(sink, sink_context(checkpoints=False))
    feed(task, "saved")
    state = task.snapshot(SnapshotMoment(1, 0, is_savepoint=True)).sink
    task.close()
    second = open_sink(sink, sink_context(checkpoints=False))
    feed(second, "other")
    second.close()
    open_sink(sink, sink_context(checkpoints=False, restored=restored(1, state))).close()
    assert texts(tmp_path) == ["saved"]


def test_what_cannot_be_removed_stays_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def remove(place: LocalFolder, name: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    task = open_sink(TextFileSink(tmp_path), sink_context())
    feed(task, "a")
    task.snapshot(SnapshotMoment(1, 0))
    task.close()
    monkeypatch.setattr(LocalFolder, "remove", remove)
    open_sink(TextFileSink(tmp_path), sink_context(attempt=1)).close()
    assert "what dead attempts have left stays for now: [Errno 1]" in caplog.text


def test_a_prepared_part_that_vanishes_before_its_commit_is_an_error(tmp_path: Path) -> None:
    task = open_sink(TextFileSink(tmp_path), sink_context())
    feed(task, "a")
    task.snapshot(SnapshotMoment(1, 0))
    hidden(tmp_path)[0].unlink()
    with pytest.raises(PathUnusable, match="part-0-.*: cannot be committed: .* is gone"):
        task.checkpoint_completed(1)
    task.close()


def test_the_file_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    task = open_sink(TextFileSink(tmp_path), sink_context())
    feed(task, "a")
    state = task.snapshot(SnapshotMoment(1, 0)).sink
    name = hidden(tmp_path)[0].name[1:].partition(".inprogress")[0]
    (tmp_path / name).write_text("other\n")
    with pytest.raises(PathUnusable, match="exists already and is of somebody else"):
        task.checkpoint_completed(1)
    task.close()
    with pytest.raises(PathUnusable, match="exists already and is of somebody else"):
        open_sink(TextFileSink(tmp_path), sink_context(restored=restored(1, state)))
    assert texts(tmp_path) == ["other"]


def test_a_part_that_was_cut_from_outside_is_an_error(tmp_path: Path) -> None:
    sink = TextFileSink(tmp_path, rolling_policy=NEVER)
    task = open_sink(sink, sink_context())
    feed(task, "abc")
    state = task.snapshot(SnapshotMoment(1, 0)).sink
    task.close()
    os.truncate(hidden(tmp_path)[0], 2)
    with pytest.raises(PathUnusable, match="has 2 bytes, and the checkpoint says 4"):
        open_sink(sink, sink_context(restored=restored(1, state)))
    assert visible(tmp_path) == []


def test_a_full_disk_fails_the_checkpoint_and_then_the_task(tmp_path: Path) -> None:
    if not Path("/dev/full").is_char_device():
        pytest.skip("there is no /dev/full")
    task = open_sink(TextFileSink(tmp_path), sink_context())
    feed(task, "a")
    task._writer._open[""].file.close()  # type: ignore[union-attr]
    with open("/dev/full", "wb") as full:
        task._writer._open[""].file = full  # type: ignore[union-attr]
        task._writer._open[""].encoder._file = full  # type: ignore[union-attr]
        feed(task, "b")
        with pytest.raises(PathUnusable, match="No space left"):
            task.snapshot(SnapshotMoment(1, 0))
        with pytest.raises(PathUnusable, match="No space left"):
            feed(task, "c")
        task.close()


def test_a_part_that_cannot_even_be_begun_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(form: part_writer.Lines, file: part_writer.PartFile) -> part_writer.LineEncoder:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(part_writer.Lines, "begin", begin)
    task = open_sink(TextFileSink(tmp_path), sink_context())
    with pytest.raises(PathUnusable, match="No space left"):
        feed(task, "a")
    task.close()
    assert list(tmp_path.iterdir()) == []


def test_only_so_many_parts_are_open_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "MOST_OPEN", 2)
    task = open_sink(TextFileSink(tmp_path, bucket_assigner=lambda text: text), sink_context())
    for text in "aabcabc":
        feed(task, text)
        assert len(task._writer._open) <= 2  # type: ignore[union-attr]
    task.snapshot(SnapshotMoment(1, 0))
    task.checkpoint_completed(1)
    task.close()
    assert sorted(texts(tmp_path)) == sorted("aabcabc")
    assert {path.parent.name for path in visible(tmp_path)} == set("abc")


class Remote(ArrowFolder):
    """The path that remote file systems take, on the one of this machine."""

    def __init__(self, root: str) -> None:
        os.makedirs(root, exist_ok=True)
        super().__init__(fs.LocalFileSystem(), root, f"remote:{root}")


POLICIES = st.sampled_from(
    [
        RollingPolicy.on_checkpoint_rolling_policy(),
        RollingPolicy.default_rolling_policy(),
        RollingPolicy.default_rolling_policy(part_size=30),
    ]
)


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("text", LocalFolder),
        ("text", Remote),
        ("csv", LocalFolder),
        ("json", LocalFolder),
        ("parquet", LocalFolder),
        ("parquet", Remote),
    ],
)
def test_whatever_happens_each_record_is_in_one_part(
    kind: str, place: type[PartFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "open_folder", place)
    monkeypatch.setattr(part_commits, "open_folder", place)
    monkeypatch.setattr(LocalFolder, "settle", lambda self, file: file.flush())
    monkeypatch.setattr(LocalFolder, "settle_names", lambda self, folder: None)

    @settings(max_examples=20 if kind == "parquet" else 50, deadline=None)
    @given(STEPS, POLICIES, st.booleans())
    def once(steps: list[tuple[Any, ...]], policy: RollingPolicy, bucketed: bool) -> None:
        def record(number: int) -> Any:
            return number if kind == "text" else Row("n", "v")(number, "x" * (number % 3))

        buckets: Any = (lambda n: f"b{n % 2}") if kind == "text" else ["v"]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            job = SinkJob(
                lambda: make_sink(kind, folder, policy, buckets if bucketed else None),
                lambda: read_numbers(folder, kind),
                record,
            )
            run_job(job, steps, TOTAL)

    once()
