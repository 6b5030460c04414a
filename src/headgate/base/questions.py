"""Questions of people to the driver of a job, and its answers, in msgpack.

Whoever knows the job's secret may ask instead of registering as a task manager, and gets one
answer. An answer says in ``problem`` why there is no other one.
"""

from typing import TypeAlias

import msgspec

from headgate.base.checkpoints import Stop
from headgate.base.inspections import ShownState


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


class StateAsked(msgspec.Struct, frozen=True, tag=True):
    """What does a keyed state hold at these keys?"""

    operator: str
    """Its uid or name."""
    state: str
    keys: list[str]
    """As people type them."""
    key_type: str = ""
    """What they are, if the program does not say so."""
    timeout_s: float = 5.0


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


class StateShown(msgspec.Struct, frozen=True, tag=True):
    """What is there, in JSON's words where there are any."""

    found: ShownState | None
    problem: str = ""


Question: TypeAlias = JobQuestion | SavepointAsked | CancelAsked | StateAsked
Answer: TypeAlias = JobAnswer | SavepointAnswer | StateShown
