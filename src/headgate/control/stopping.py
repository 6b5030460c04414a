"""The savepoints that people want of a run, and how one of them stops the job.

The coordinator of checkpoints takes them and tells here what becomes of them; the tasks only carry
out what follows from it (``task.life_cycle``): the barrier of a savepoint that stops the job holds
them, its completion ends them, and if it is given up they go on. Law: savepoints are begun in the
order in which they were wanted, and each that waits is begun or refused, once. From the beginning
of one that stops the job nothing else is begun, unless it is given up. It stops the job when it is
stored, and never before. If it was to drain the job, event time has ended for the tasks: given up,
it breaks the run, which cannot go on. A pair that is not in STOPS is a bug.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from headgate.base.checkpoints import Stop
from headgate.base.life_cycle import next_state


class StopState(Enum):
    """How far a job is on its way to stop."""

    RUNNING = "running"
    STOPPING = "about to stop with a savepoint"
    STOPPED = "stopped with a savepoint"
    BROKEN = "beyond the end of event time, without the savepoint that was to follow"


class StopEvent(Enum):
    """What moves a job on its way to stop."""

    BEGUN = "a savepoint that stops it is triggered"
    STORED = "that savepoint is stored"
    RELEASED = "that savepoint is given up, and the tasks may go on"
    BROKEN = "that savepoint is given up, and the tasks cannot go on"


STOPS: Final = {
    (StopState.RUNNING, StopEvent.BEGUN): StopState.STOPPING,
    (StopState.STOPPING, StopEvent.STORED): StopState.STOPPED,
    (StopState.STOPPING, StopEvent.RELEASED): StopState.RUNNING,
    (StopState.STOPPING, StopEvent.BROKEN): StopState.BROKEN,
}


@dataclass(slots=True)
class Stopping:
    """How one run is stopped. ``wanted``: savepoints that wait, and what follows each."""

    state: StopState = StopState.RUNNING
    wanted: list[tuple[str, Stop]] = field(default_factory=list)
    _savepoint: tuple[int, Stop] | None = None  # that stops the job

    @property
    def refusal(self) -> str:
        """Why no checkpoint or savepoint can be begun now; empty: it can."""
        if self.state is StopState.RUNNING:
            return ""
        is_broken = self.state is StopState.BROKEN
        return "the job is failing" if is_broken else "the job is ending with another savepoint"

    def savepoint_wanted(self, directory: str, stop: Stop) -> None:
        """Somebody wants one in a directory of its own."""
        self.wanted.append((directory, stop))

    def next_wanted(self) -> tuple[str, Stop]:
        """The one that is begun now."""
        assert not self.refusal, self.refusal
        return self.wanted.pop(0)

    def refuse_wanted(self) -> list[str]:
        """None of those that wait is begun; their directories."""
        wanted, self.wanted = self.wanted, []
        return [directory for directory, _ in wanted]

    def begun(self, checkpoint: int, stop: Stop) -> None:
        """A checkpoint or savepoint is triggered."""
        if stop.ends:
            self._move(StopEvent.BEGUN)
            self._savepoint = checkpoint, stop

    def stored(self, checkpoint: int) -> bool:
        """One is stored; says whether the job stops with it."""
        stops = self._savepoint is not None and self._savepoint[0] == checkpoint
        if stops:
            self._move(StopEvent.STORED)
        return stops

    def given_up(self, checkpoint: int) -> bool:
        """One has come to nothing; says whether the run cannot go on without it."""
        if self._savepoint is None or self._savepoint[0] != checkpoint:
            return False
        breaks = self._savepoint[1] is Stop.DRAIN
        self._move(StopEvent.BROKEN if breaks else StopEvent.RELEASED)
        self._savepoint = None
        return breaks

    def check(self) -> None:
        """The law, as far as one moment shows it."""
        names_one = self.state in (StopState.STOPPING, StopState.STOPPED)
        assert (self._savepoint is not None) == names_one
        directories = [directory for directory, _ in self.wanted]
        assert len(directories) == len(set(directories)), "a savepoint waits twice"

    def _move(self, what: StopEvent) -> None:
        self.state = next_state(STOPS, self.state, what, "a job")
