"""Sinks of messages, run by hand: one task, and jobs whose numbers must come exactly once."""

import pickle
from collections.abc import Callable, Iterable
from typing import Any

from headgate.base.elements import Bundle
from headgate.functions.context import SnapshotMoment
from tests.core.chain.sink_lab import SinkJob, open_sink, sink_context


def written(sink: Any, *records: object, context: Any = None) -> bytes | None:
    """What the checkpoint of a task holds that has committed the records with it."""
    task = open_sink(sink, context or sink_context())
    try:
        task.process(Bundle(list(records)), 0)
        task.before_barrier(SnapshotMoment(1, 0))
        state = task.snapshot(SnapshotMoment(1, 0)).sink
        task.checkpoint_completed(1)
        return state
    finally:
        task.close()


def number_job(sink: Any, read: Callable[[], Iterable[str]]) -> SinkJob:
    """Numbers as texts, by a sink that is exactly once."""
    return SinkJob(
        lambda: pickle.loads(pickle.dumps(sink)),
        lambda: [int(word) for word in read()],
        make_record=str,
    )


def restore_rescale_and_wake(job: SinkJob) -> None:
    """Tasks are restored with another parallelism, and old ones wake, to the end of the job."""
    job.write(10)
    job.take()
    job.store(notified=1)  # the second task does not learn of it
    job.check()
    job.write(5)
    job.crash(3, frozen=True)
    job.check()
    job.write(7)
    job.wake_frozen()
    job.take()
    job.store()
    job.check()
    job.crash(1)
    job.end(40)


def go_back_twice(job: SinkJob) -> None:
    """The job is started twice from one savepoint with pending commits."""
    job.write(6)
    job.take(savepoint=True)
    job.store()
    saved = job.savepoint
    job.crash(2, savepoint=True)
    job.check()
    job.savepoint = job.complete = saved
    job.crash(1)
    job.check()
    job.end(20)
