"""What people ask a running job through its driver, and what they are told.

Whoever knows the job's secret connects to the driver as a task manager does, proves itself, asks
one question and gets one answer. Law: an answer says in ``problem`` why there is no other one.
"""

from typing import TypeAlias

import msgspec

from headgate.base.checkpoints import Stop


class JobQuestion(msgspec.Struct, frozen=True, tag=True):
    """How is the job?"""


class SavepointAsked(msgspec.Struct, frozen=True, tag=True):
    """Take a savepoint, and perhaps end the job with it."""

    directory: str | None = None
    """It gets a folder of its own in there; None: where the job's settings say."""
    stop: Stop = Stop.NO


class CancelAsked(msgspec.Struct, frozen=True, tag=True):
    """End the job now."""

    reason: str


class JobAnswer(msgspec.Struct, frozen=True, tag=True):
    """How it is; after ``CancelAsked``, how it has ended."""

    job: str
    name: str
    state: str
    """The name of a JobStatus."""
    since_ms: int
    """When it was started, in milliseconds since 1970."""
    problem: str = ""


class SavepointAnswer(msgspec.Struct, frozen=True, tag=True):
    """Where the savepoint is, and how the job is now."""

    path: str
    state: str
    problem: str = ""


Question: TypeAlias = JobQuestion | SavepointAsked | CancelAsked
Answer: TypeAlias = JobAnswer | SavepointAnswer
