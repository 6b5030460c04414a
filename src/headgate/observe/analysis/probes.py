"""What samples of stacks and counts of keys say about a task that limits its job.

Law: pure functions of the answers to inspections; a probe that found nothing changes no diagnosis.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.base.inspections import (
    KeyCounts,
    SampledActivity,
    SampledStack,
    StackSamples,
)

STATE_CODE: Final = ("(headgate/core/state/", "(headgate/host/rocksdb/", "(rocksdict/")
"""Where the code of keyed state lives, as it stands in the text of a frame."""
TURNS_CODE: Final = "(headgate/host/net/baton.py"
"""Where a thread waits for its turn."""
MOSTLY: Final = 0.5
"""A deeper frame is named as well if so many of the samples are in it."""
SHOWN_KEYS: Final = 5


@dataclass(frozen=True, slots=True)
class Probes:
    """What was asked of the task that limits the job; None: nothing, or nobody answered."""

    stacks: StackSamples | None = None
    keys: KeyCounts | None = None

    @property
    def line(self) -> str:
        """The line of the user's code where the task's busy time goes."""
        return costliest_line(self.busy_stacks)

    @property
    def innermost(self) -> str:
        """Where that line leads, if most of its samples are in one deeper frame; else nothing."""
        return innermost_frame(self.busy_stacks, self.line)

    @property
    def line_share(self) -> float:
        """The part of the busy samples in that line."""
        stacks = self.busy_stacks
        total = sum(stack.count for stack in stacks)
        inside = sum(stack.count for stack in stacks if _user_frame(stack) == self.line)
        return inside / total if total and self.line else 0.0

    @property
    def state_share(self) -> float:
        """The part of the busy samples within the code of keyed state."""
        stacks = self.busy_stacks
        total = sum(stack.count for stack in stacks)
        inside = sum(
            stack.count
            for stack in stacks
            if any(place in frame for frame in stack.frames for place in STATE_CODE)
        )
        return inside / total if total else 0.0

    @property
    def busy_stacks(self) -> list[SampledStack]:
        """Without those that wait for other tasks of the process."""
        stacks = () if self.stacks is None else self.stacks.stacks
        return [
            stack
            for stack in stacks
            if stack.activity is SampledActivity.BUSY and TURNS_CODE not in stack.frames[-1]
        ]


def costliest_line(stacks: Sequence[SampledStack]) -> str:
    """The frame of the user's function that most samples have; nothing: none has one."""
    counts: Counter[str] = Counter()
    for stack in stacks:
        counts[_user_frame(stack)] += stack.count
    counts.pop("", None)
    return counts.most_common(1)[0][0] if counts else ""


def innermost_frame(stacks: Sequence[SampledStack], line: str) -> str:
    """The frame below a user's line that most of its samples end in."""
    counts: Counter[str] = Counter()
    for stack in stacks:
        if line and _user_frame(stack) == line:
            counts[stack.frames[-1]] += stack.count
    if not counts:
        return ""
    frame, count = counts.most_common(1)[0]
    return frame if frame != line and count >= MOSTLY * counts.total() else ""


def hot_keys(counts: KeyCounts | None, subtask_share: float) -> tuple[tuple[str, float], ...]:
    """Keys and their shares of all records of the vertex; the largest first.

    ``subtask_share``: the part of the vertex's records that the looked-at subtask has taken.
    """
    if counts is None or not counts.sampled:
        return ()
    return tuple(
        (key.key, key.count / counts.sampled * subtask_share) for key in counts.keys[:SHOWN_KEYS]
    )


def _user_frame(stack: SampledStack) -> str:
    return stack.frames[stack.user_at] if 0 <= stack.user_at < len(stack.frames) else ""
