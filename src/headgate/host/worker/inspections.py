"""Inspections of the tasks of a task manager: questions of the driver, each answered once.

A question is taken by the thread of the task manager and answered by another one, so that neither
the tasks nor the driver's orders wait for it. Law: whatever an inspection raises is its answer; it
never fails a task. What the user's code does while a record is shown may take for ever: the number
of threads is bounded, and at the end of the process nobody waits for them.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from headgate.base.inspections import (
    MAX_CHANNELS,
    MAX_ENTRIES,
    ChannelFigures,
    ChannelTable,
    CountKeys,
    Found,
    KeyCounts,
    PeekRecords,
    ReadChannels,
    ReadState,
    SampleStacks,
    StackSamples,
    WaitingRecords,
)
from headgate.base.messages import Inspect, Inspected
from headgate.core.task.waiting import CopyLimits
from headgate.host.shipping.failures import shown
from headgate.host.worker.deployment import Deployment, InspectionRefused
from headgate.host.worker.stack_sampler import StackSampler
from headgate.host.worker.state_line import StateQuestions
from headgate.host.worker.waiting_records import count_keys, waiting_records

log = logging.getLogger(__name__)

INSPECTION_THREADS: Final = "headgate-inspection"
MAX_THREADS: Final = 4
PEEKED: Final = CopyLimits(1024 * 1024)
COUNTED: Final = CopyLimits(4 * 1024 * 1024, shared=True)


class Inspections:
    """Questions to one task manager; its thread calls, ``send`` is called from any."""

    def __init__(self, send: Callable[[Inspected], None], reads: StateQuestions) -> None:
        """``reads`` answers questions about state: the tasks themselves do, no other thread."""
        self._send = send
        self._reads = reads
        self._sampler = StackSampler()
        self._lock = threading.Lock()
        self._under_way = 0  # threads; guarded by the lock

    def asked(self, question: Inspect, run: str, tasks: Deployment | None) -> None:
        """Answer a question, now or later; ``run`` and ``tasks`` are the present ones."""
        try:
            if tasks is None or question.run != run:
                self._refuse(question, "the run has ended")
                return
            what, task = question.what, question.task
            match what:
                case SampleStacks():
                    self._sample(question, what, tasks)
                case PeekRecords():
                    self._begin(question, partial(_peek, tasks, task, what))
                case CountKeys():
                    self._begin(question, partial(_count_keys, tasks, task, what))
                case ReadChannels():
                    self._begin(question, partial(_read_channels, tasks, task, what))
                case ReadState():
                    self._reads.asked(question)
        except Exception as error:
            self._failed(question, error)

    def close(self) -> None:
        """The process is about to end: answer what is under way."""
        self._reads.close()
        self._sampler.close()

    def _sample(self, question: Inspect, how: SampleStacks, tasks: Deployment) -> None:
        task = tasks.sampled_task(question.task)
        if isinstance(task, str):
            self._refuse(question, task)
            return

        def answer(samples: StackSamples) -> None:
            self._answer(question, samples)

        self._sampler.sample(task, how, answer, lambda problem: self._refuse(question, problem))

    def _begin(self, question: Inspect, look: Callable[[], Found]) -> None:
        with self._lock:
            is_full = self._under_way >= MAX_THREADS
            self._under_way += not is_full
        if is_full:
            self._refuse(
                question,
                f"its task manager is still busy with {MAX_THREADS} other inspections; try again "
                "later, and if that does not help, see whether repr() of a record returns",
            )
            return
        try:
            name = f"{INSPECTION_THREADS} of {question.task}"
            threading.Thread(
                target=self._look, args=(question, look), name=name, daemon=True
            ).start()
        except BaseException:
            self._ended()
            raise

    def _look(self, question: Inspect, look: Callable[[], Found]) -> None:
        try:
            self._answer(question, look())
        except BaseException as error:  # the user's code may raise anything
            self._failed(question, error)
        finally:
            self._ended()

    def _ended(self) -> None:
        with self._lock:
            self._under_way -= 1

    def _failed(self, question: Inspect, error: BaseException) -> None:
        if isinstance(error, InspectionRefused):
            self._refuse(question, str(error))
            return
        log.debug("inspection %d failed", question.id, exc_info=error)
        self._refuse(question, shown(error))

    def _answer(self, question: Inspect, found: Found) -> None:
        self._send(Inspected(question.run, question.id, question.task, found))

    def _refuse(self, question: Inspect, problem: str) -> None:
        text = problem.encode("utf-8", "backslashreplace").decode()
        self._send(Inspected(question.run, question.id, question.task, None, text))


def _peek(tasks: Deployment, task: str, how: PeekRecords) -> WaitingRecords:
    copied = tasks.copy_waiting(task, how.gate, how.channel, PEEKED)
    return waiting_records(copied, _within(how.limit, MAX_ENTRIES))


def _count_keys(tasks: Deployment, task: str, how: CountKeys) -> KeyCounts:
    gates = tasks.copy_keyed(task, COUNTED)
    if not gates:
        raise InspectionRefused("its records have no keys: its first operator does not work by key")
    return count_keys(gates, _within(how.limit, MAX_ENTRIES))


def _read_channels(tasks: Deployment, task: str, how: ReadChannels) -> ChannelTable:
    rows = tasks.channel_figures(task, how.gate)
    rows.sort(key=_waiting, reverse=True)
    return ChannelTable(len(rows), tuple(rows[: _within(how.limit, MAX_CHANNELS)]))


def _waiting(row: ChannelFigures) -> int:
    """Buffers at both ends; a producer in the same process has them all."""
    return (
        max(row.backlog, row.queued_buffers) if row.is_local else row.backlog + row.queued_buffers
    )


def _within(limit: int, most: int) -> int:
    return max(0, min(limit, most))
