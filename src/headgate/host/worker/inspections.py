"""Inspections of the tasks of a task manager: questions of the driver, each answered once.

A question is taken by the thread of the task manager and answered by another one, so that neither
the tasks nor the driver's orders wait for it. Law: whatever an inspection raises is its answer; it
never fails a task. What the user's code does while a record is shown may take for ever: the number
of threads is bounded, and at the end of the process nobody waits for them.
"""

import logging
from collections.abc import Callable

from headgate.base.inspections import Found, SampleStacks, StackSamples
from headgate.base.messages import Inspect, Inspected
from headgate.host.worker.deployment import Deployment
from headgate.host.worker.stack_sampler import StackSampler

log = logging.getLogger(__name__)


class Inspections:
    """Of one task manager; its thread calls, ``send`` is called from any."""

    def __init__(self, send: Callable[[Inspected], None]) -> None:
        self._send = send
        self._sampler = StackSampler()

    def asked(self, question: Inspect, run: str, tasks: Deployment | None) -> None:
        """Answer a question, now or later; ``run`` and ``tasks`` are the present ones."""
        try:
            if tasks is None or question.run != run:
                self._refuse(question, "the run has ended")
            elif isinstance(question.what, SampleStacks):
                self._sample(question, question.what, tasks)
            else:
                self._refuse(question, "this cannot be inspected")
        except Exception as error:
            log.debug("inspection %d failed", question.id, exc_info=True)
            self._refuse(question, f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """The process is about to end: answer what is under way."""
        self._sampler.close()

    def _sample(self, question: Inspect, how: SampleStacks, tasks: Deployment) -> None:
        task = tasks.sampled_task(question.task)
        if isinstance(task, str):
            self._refuse(question, task)
            return

        def answer(samples: StackSamples) -> None:
            self._answer(question, samples)

        self._sampler.sample(task, how, answer, lambda problem: self._refuse(question, problem))

    def _answer(self, question: Inspect, found: Found) -> None:
        self._send(Inspected(question.run, question.id, question.task, found))

    def _refuse(self, question: Inspect, problem: str) -> None:
        text = problem.encode("utf-8", "backslashreplace").decode()
        self._send(Inspected(question.run, question.id, question.task, None, text))
