"""Splits that are found while a job runs: handed out, checkpointed, restored; bad enumerators."""

import logging
import signal
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.base.checkpoints import Metadata, Stop
from headgate.base.errors import StateBroken
from headgate.base.messages import SplitsAssigned
from headgate.control.life_cycle import JobState
from headgate.core.chain.operator import PollResult
from headgate.core.operators.source import SourceOperator
from headgate.core.operators.split_discovery import pickled_splits
from headgate.host.driver.checkpoint_setup import plan_run
from headgate.host.driver.control_server import ControlServer
from headgate.host.shipping.code import ship
from headgate.plan.job_graph import JobGraph
from tests.core.chain.kit import context, open_operator
from tests.core.chain.restore_kit import restored, stored_state
from tests.host.control_rig import SECRET, SETTINGS, TIMES, ended, workers
from tests.host.discovery_kit import (
    INTERVAL,
    Shelf,
    ShelfJob,
    Singles,
    Threads,
    lines_in,
    notes,
    on_shelf,
    put,
    shelf_job,
    shelf_jobs,
)
from tests.host.jobs import vertices_of
from tests.host.recovering_kit import completed
from tests.host.rig import eventually

RARELY = {INTERVAL: "60 s"}
NO_RESTART = {"restart-strategy.type": "none"}
NAMES = [f"{letter}{number}" for letter in "abc" for number in range(5)]


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    made = tmp_path / "shelf"
    made.mkdir()
    return made


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def opened(shelf: Path, attempt: int = 0) -> dict[str, str]:
    """Split to the subtask that has opened it from its beginning, in this attempt."""
    lines = [line.split() for line in notes(shelf) if line.endswith(" None")]
    found = [(split, subtask) for at, subtask, split, _ in lines if int(at) == attempt]
    assert len(dict(found)) == len(found), "a split was opened twice"
    return dict(found)


def test_splits_that_appear_while_the_job_runs_are_read(shelf: Path, out: Path) -> None:
    there = put(shelf, "a", "b", "c")
    with shelf_jobs(shelf_job(Shelf(shelf), out), shelf.parent) as job:
        run = job.begin()
        eventually(lambda: len(lines_in(out)) == len(there), "what was there is read")
        there += put(shelf, "d", "e", "f", "g")
        eventually(lambda: len(lines_in(out)) == len(there), "what has come is read")
        there += put(shelf, "h")
        (shelf.parent / "end").touch()
        assert ended(run).state is JobState.FINISHED
    assert sorted(there) == lines_in(out)
    assert notes(shelf).count("closed") == 2  # the one that was asked for at planning, too


@pytest.mark.parametrize("looks", [True, False])
def test_a_slow_reader_does_not_hold_the_others_up(shelf: Path, out: Path, looks: bool) -> None:
    there = put(shelf, "0slow", *NAMES)
    (shelf.parent / "end").touch()
    graph = shelf_job(Shelf(shelf, looks=looks), out)
    with shelf_jobs(graph, shelf.parent, **RARELY) as job:  # a blocked task holds up barriers
        run = job.begin()
        eventually(lambda: len(opened(shelf)) == len(NAMES) + 1, "all others are read meanwhile")
        (shelf.parent / "go on").touch()
        assert ended(run).state is JobState.FINISHED
    assert len(set(opened(shelf).values())) == 2
    assert sorted(there) == lines_in(out)


def test_ten_thousand_splits_are_read(shelf: Path, out: Path) -> None:
    graph = shelf_job(Singles(10_000), out, parallelism=2)
    with shelf_jobs(graph, shelf.parent, **{INTERVAL: "200 ms"}) as job:
        assert job.finish().state is JobState.FINISHED
    assert lines_in(out) == sorted(map(str, range(10_000)))


def test_a_batch_job_hands_out_its_splits_too(shelf: Path, out: Path) -> None:
    there = put(shelf, *NAMES)
    graph = shelf_job(Shelf(shelf, looks=False), out, batch=True)
    code, threads = ship(vertices_of(graph)), Threads()
    with ControlServer(times=TIMES) as server:
        plan = lambda key: plan_run(str(key), graph, code, key.generation)  # noqa: E731
        server.open_job("x", SECRET, plan)
        run = server.begin("x")
        threads.serve(server.contact("x", SETTINGS), 2)
        assert ended(run).state is JobState.FINISHED
    threads.join()
    assert sorted(there) == lines_in(out)


@pytest.mark.parametrize("looks", [True, False])
def test_a_restart_in_place_reads_every_record_once(shelf: Path, out: Path, looks: bool) -> None:
    there = put(shelf, *NAMES)
    (shelf.parent / "end").touch()
    with shelf_jobs(shelf_job(Shelf(shelf, looks=looks), out), shelf.parent) as job:
        run = job.begin()
        eventually(lambda: completed(job.job) >= 1, "a checkpoint")
        (shelf.parent / "fail").touch()
        assert ended(run).state is JobState.FINISHED
    assert sorted(there) == lines_in(out)


def test_the_splits_of_a_lost_worker_are_read_by_the_next_one(shelf: Path, out: Path) -> None:
    there = put(shelf, *NAMES, "0quiet", "1quiet")
    with ExitStack() as end:
        job = ShelfJob(end, shelf_job(Shelf(shelf), out), shelf.parent)
        processes = end.enter_context(workers(2))
        run = job.job.begin()
        for slot, process in enumerate(processes):
            process.serve(job.job.contact(), slot)
        eventually(lambda: completed(job.job) >= 2 and len(opened(shelf)) > 3, "checkpoints")
        processes[0].signal(signal.SIGKILL)
        assert ended(run).restart_in_ms is not None
        assert job.job.keeper.settled().wait(20)
        there += put(shelf, "z")
        for name in ("go on", "end"):
            (shelf.parent / name).touch()
        assert ended(job.begin("again")).state is JobState.FINISHED
    assert sorted(there) == lines_in(out)


def saved(job: ShelfJob, folder: Path) -> tuple[Path, Metadata]:
    """Stop with a savepoint; where it is, and what it holds."""
    run = job.begin()
    eventually(lambda: completed(job.job) >= 1, "a checkpoint")
    eventually(lambda: any(line.endswith("None") for line in notes(folder / "shelf")), "reading")
    stored: list[Metadata] = []
    store = job.job.keeper.storage.store
    setattr(  # noqa: B010 - mypy forbids to assign to a method
        job.job.keeper.storage,
        "store",
        lambda effect: (stored.append(effect.metadata), store(effect)),
    )
    path = run.savepoint(str(folder / "savepoint"), Stop.SUSPEND).result(20)
    assert ended(run).state is JobState.FINISHED
    return Path(path), stored[-1]


@pytest.mark.parametrize(
    ("looks", "parallelism"), [(True, 3), (True, 1), (False, 3), (False, len(NAMES) + 1)]
)
def test_a_savepoint_holds_what_no_task_has_yet(
    shelf: Path, out: Path, looks: bool, parallelism: int
) -> None:
    """With more tasks than splits, a list of splits is dealt out at the start again."""
    there = put(shelf, "0quiet", *NAMES)
    graph = shelf_job(Shelf(shelf, looks=looks), out, parallelism=1)
    with shelf_jobs(graph, shelf.parent) as job:
        path, metadata = saved(job, shelf.parent)
    ((state,), (task, *_)) = metadata.sources, metadata.tasks
    assert (state.uid, state.name) == ("shelf", "shelf")
    assert state.splits and task.operators[0].source is not None
    for name in ("go on", "end"):
        (shelf.parent / name).touch()
    restored = {"execution.savepoint.path": str(path), "pipeline.job-id": "y"}
    again = shelf_job(Shelf(shelf, looks=looks), out, parallelism=parallelism)
    with shelf_jobs(again, shelf.parent, **restored) as job:
        assert job.finish().state is JobState.FINISHED
    assert sorted(there) == lines_in(out)


class UndeclaredShelf(Shelf):
    """Does not say whether other splits are new data."""

    finds_more = None


@pytest.mark.parametrize("names", [["0quiet"], ["0quiet", *NAMES]], ids=["dealt out", "by demand"])
def test_a_source_that_gets_an_enumerator_reads_what_is_new_and_nothing_again(
    shelf: Path, out: Path, names: list[str]
) -> None:
    """With another parallelism too: what an enumerator finds is never old data cut anew."""
    there = put(shelf, *names)
    with shelf_jobs(shelf_job(UndeclaredShelf(shelf, looks=False), out, 1), shelf.parent) as job:
        path, _ = saved(job, shelf.parent)
    for name in ("go on", "end"):
        (shelf.parent / name).touch()
    there += put(shelf, "z")
    restored = {"execution.savepoint.path": str(path), "pipeline.job-id": "y"}
    with shelf_jobs(shelf_job(UndeclaredShelf(shelf), out), shelf.parent, **restored) as job:
        run = job.begin()
        eventually(lambda: completed(job.job) >= 1, "a checkpoint")
        assert ended(run).state is JobState.FINISHED
    assert sorted(there) == lines_in(out)


@pytest.mark.parametrize("looks", [False, True], ids=["list", "enumerator"])
def test_only_splits_of_a_list_may_be_old_data_cut_anew(
    shelf: Path, out: Path, looks: bool
) -> None:
    put(shelf, "a")
    before = head_of(shelf_job(UndeclaredShelf(shelf, looks=False), out, 1))
    open_operator(before)
    states = [stored_state(before)]
    before.close()
    put(shelf, *NAMES)
    task = head_of(shelf_job(UndeclaredShelf(shelf, looks=looks), out, 2))
    within = replace(context(parallelism=2), restored=restored(states, 1, 2))
    open_operator(task, within=within)
    found = tuple(pickled_splits(NAMES[:1]))
    task.obey(SplitsAssigned("run", "task", found, backlog=False, no_more=True))
    with closing(task), nullcontext() if looks else pytest.raises(StateBroken, match="finds_more"):
        assert task.poll() is PollResult.RECORDS


def head_of(graph: JobGraph) -> SourceOperator:
    operator = graph.vertices[0].chain.operators[0].make()
    assert isinstance(operator, SourceOperator)
    return operator


def test_a_job_that_goes_on_reads_what_it_has_while_nothing_can_be_found(
    shelf: Path, out: Path
) -> None:
    there = put(shelf, "0quiet", *NAMES)
    with shelf_jobs(shelf_job(Shelf(shelf), out, 1), shelf.parent) as job:
        path, _ = saved(job, shelf.parent)
    for name in ("go on", "raise"):
        (shelf.parent / name).touch()
    restored = {"execution.savepoint.path": str(path), "pipeline.job-id": "y", **NO_RESTART}
    with shelf_jobs(shelf_job(Shelf(shelf), out), shelf.parent, **restored) as job:
        run = job.begin()
        eventually(lambda: len(lines_in(out)) == len(there), "what is known is read")
        run.cancel("enough")
        assert ended(run).state is JobState.CANCELLED


# Enumerators that misbehave.


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raise", "the shelf has fallen down"),
        ("exit", "SystemExit"),
        ("lock", "splits must be picklable"),
    ],
)
def test_a_first_look_that_fails_fails_the_job(
    shelf: Path, out: Path, how: str, words: str
) -> None:
    graph = shelf_job(Shelf(shelf), out)
    (shelf.parent / how).touch()
    with shelf_jobs(graph, shelf.parent, **NO_RESTART) as job:
        outcome = job.finish()
    assert outcome.state is JobState.FAILED
    assert words in outcome.failure.message and "shelf" in outcome.failure.message
    assert notes(shelf) == ["closed", "closed"]


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_later_look_that_fails_is_warned_of_and_tried_again(
    shelf: Path, out: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    there = put(shelf, "a")
    with shelf_jobs(shelf_job(Shelf(shelf), out), shelf.parent) as job:
        run = job.begin()
        eventually(lambda: bool(opened(shelf)), "the first split")
        with caplog.at_level(logging.WARNING):
            (shelf.parent / how).touch()
            eventually(lambda: "cannot look for new splits" in caplog.text, "a warning")
        there += put(shelf, "b")
        (shelf.parent / how).unlink()
        (shelf.parent / "end").touch()
        assert ended(run).state is JobState.FINISHED
    assert "'shelf'" in caplog.text
    assert sorted(there) == lines_in(out)


def test_a_look_that_hangs_holds_up_neither_checkpoints_nor_the_end(shelf: Path, out: Path) -> None:
    there = put(shelf, "a", "b")
    with shelf_jobs(shelf_job(Shelf(shelf), out), shelf.parent) as job:
        run = job.begin()
        eventually(lambda: len(lines_in(out)) == len(there), "both are read")
        (shelf.parent / "hang").touch()
        before = completed(job.job)
        eventually(lambda: completed(job.job) > before + 1, "more checkpoints")
        run.cancel("enough")
        assert ended(run).state is JobState.CANCELLED
    (shelf.parent / "hang").unlink()
    eventually(lambda: notes(shelf).count("closed") == 2, "it is closed when it comes back")


def test_splits_that_no_task_has_are_counted(shelf: Path, out: Path) -> None:
    put(shelf, "0slow", *NAMES)
    graph = shelf_job(Shelf(shelf), out, parallelism=1)
    with shelf_jobs(graph, shelf.parent, **RARELY) as job:
        run = job.begin()
        eventually(
            lambda: sum(task.unassigned_splits for task in run.figures) == len(NAMES), "all but one"
        )
        for name in ("go on", "end"):
            (shelf.parent / name).touch()
        assert ended(run).state is JobState.FINISHED
        assert len(on_shelf(shelf)) == len(opened(shelf))
