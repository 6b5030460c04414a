"""What becomes of records that a function fails for, and of bytes that are no record.

An operator has a policy: fail (the default), skip and count, or emit a dead letter to a side
output. Law: a dead letter is a record like any other. It is picklable, belongs to its receiver, and
its texts and raw bytes are bounded.
"""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, NamedTuple

from headgate.base.elements import Key, Record
from headgate.functions.context import TimeDomain
from headgate.functions.function import OutputTag
from headgate.functions.window import Window


class OnError(str, Enum):
    """The choices for a record that fails."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTERS = "dead letters"


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """The policy for records that an operator's function fails for; see ``on_error``.

    ::

        rejected = OutputTag("rejected")
        parsed = lines.map(parse).on_error(ErrorPolicy.dead_letters(rejected))
        parsed.get_side_output(rejected).sink_to(...)
    """

    on_error: OnError = OnError.FAIL
    tag: str | None = None
    """The id of the side output of the dead letters."""
    most_in_a_row: int = 0
    """The job fails once a task has left out so many records one after the other; 0: never."""

    FAIL: ClassVar["ErrorPolicy"]
    """The job fails, and its restart strategy says what follows."""
    SKIP: ClassVar["ErrorPolicy"]
    """The record is left out and counted; the log says so."""

    @staticmethod
    def dead_letters(tag: OutputTag) -> "ErrorPolicy":
        """Emit a ``DeadLetter`` to the side output of this tag, and go on."""
        if not isinstance(tag, OutputTag):
            raise TypeError(
                f"dead_letters() was given {tag!r}; give an OutputTag, by which get_side_output() "
                f"reads them"
            )
        return ErrorPolicy(OnError.DEAD_LETTERS, tag.tag_id)


ErrorPolicy.FAIL = ErrorPolicy()
ErrorPolicy.SKIP = ErrorPolicy(OnError.SKIP)


class DeadLetter(NamedTuple):
    """A record that an operator could not process, or bytes that a source could not read."""

    record: Record
    """The record as it was when the function had failed; a FailedTimer or a FailedWindow if no
    record was at hand; a pair for a join; None: see ``raw``."""
    raw: bytes | None
    """What a source has read, at most 64 KiB of it; None: see ``record``."""
    operator: str
    """The operator's name."""
    subtask: int
    """Which of its tasks it was, from 0."""
    reason: str
    """The message of the exception."""
    error_class: str
    """The class of the exception, with its module unless it is one of Python's own."""
    timestamp_ms: int | None = None
    """The event time of the record; None: it has none."""
    cut: str = ""
    """What was cut off ``raw`` or ``reason``, or why ``record`` is missing; empty: nothing."""


class FailedTimer(NamedTuple):
    """Stands for the record in a dead letter if ``on_timer`` has failed."""

    key: Key
    time_ms: int
    domain: TimeDomain


class FailedWindow(NamedTuple):
    """Stands for the record in a dead letter if a window could not answer; it is not kept."""

    key: Key
    window: Window
