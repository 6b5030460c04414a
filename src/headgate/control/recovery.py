"""What a job remembers over all its runs: its checkpoints, how often it has failed, and why.

Law: every failure of a run is reported here once, and answered with the pause before the next
attempt or with None; then ``problem`` says why, if that is news. A final failure is never followed
by a restart; damage of a checkpoint is followed by a restart from the next older one, and if there
is none, the job fails unless it may begin anew.
"""

from collections.abc import Callable
from typing import Final

from headgate.base.checkpoints import SourceState
from headgate.base.messages import Failure
from headgate.base.recovery_settings import CheckpointSettings
from headgate.control.checkpoint_coordinator import CheckpointCoordinator
from headgate.control.checkpoint_history import CheckpointHistory
from headgate.control.checkpoint_log import CheckpointStatistics
from headgate.control.pending_checkpoint import CheckpointedJob
from headgate.control.restarts import NoRestart, RepeatedFailures, RestartStrategy


class Recovery:
    """Lives as long as its job; runs ask it, one after the other."""

    def __init__(
        self,
        settings: CheckpointSettings | None = None,
        strategy: RestartStrategy | None = None,
        history: CheckpointHistory | None = None,
        *,
        repeats: RepeatedFailures | None = None,
        in_place: bool = True,
        wall_ms: Callable[[], int] = lambda: 0,
        chance: Callable[[], float] = lambda: 0.0,
        ignores_damaged: bool = False,
    ) -> None:
        """``repeats``: ends a job that fails in the same way again and again; None: nothing does.

        ``in_place``: whether its tasks can be deployed once more to the same task managers;
        ``wall_ms``: the time since 1970; ``chance``: a number from -1 to 1, for pauses;
        ``ignores_damaged``: whether it begins anew if no checkpoint is whole.
        """
        self.settings = settings or CheckpointSettings()
        self.history = history or CheckpointHistory()
        self.in_place = in_place
        self.restarts = 0
        """So many attempts came after the first one."""
        self.problem = ""
        self._strategy = strategy or NoRestart()
        self._repeats = repeats
        self._wall_ms = wall_ms
        self._chance = chance
        self._ignores_damaged = ignores_damaged

    def checkpoints(
        self, run: str, job: CheckpointedJob, sources: Callable[[], tuple[SourceState, ...]] = tuple
    ) -> CheckpointCoordinator:
        """The coordinator of the checkpoints of a new attempt."""
        return CheckpointCoordinator(run, job, self.settings, self.history, self._wall_ms, sources)

    def failed(self, failure: Failure, restored: int | None, now_ms: float) -> float | None:
        """A run has failed that had begun with the checkpoint ``restored``, or with none."""
        self.problem = ""
        if failure.is_final:
            return None
        if failure.is_damage and restored is not None and not self.pass_over(restored):
            self.problem = (
                f"there is no complete checkpoint older than {restored}; to begin anew, without "
                f"its state, start the job with --ignore-damaged-checkpoints"
            )
            return None
        if self._repeats is not None:
            completed = self.statistics().completed
            self.problem = self._repeats.failed(failure, completed, now_ms)
            if self.problem:
                return None
        pause_ms = self._strategy.failed(now_ms, self._chance())
        if pause_ms is None:
            self.problem = self._strategy.problem if self.restarts else ""
        else:
            self.restarts += 1
        return pause_ms

    def pass_over(self, checkpoint: int) -> bool:
        """It is damaged: whether the job may go on, from an older one or from where it began."""
        has_older = self.history.damaged(checkpoint, begins_anew=self._ignores_damaged)
        return has_older or self._ignores_damaged

    def story(self, failure: Failure, restored: int | None, in_ms: float) -> str:
        """What has happened and what comes next, then the record and the user's own frames."""
        latest = self.history.latest
        start = "the beginning" if latest is None else f"checkpoint {latest.metadata.checkpoint}"
        what = failure.message.partition("\n")[0]
        if failure.is_damage and restored is not None:
            what = (
                f"{what} (so checkpoint {restored} is passed over; what sinks have committed for "
                f"it is committed again)"
            )
        record = f"\nthe record: {failure.record}" if failure.record else ""
        return (
            f"the job has failed: {what}; it goes on from {start} in {in_ms / 1000:.1f} s "
            f"(restart {self.restarts}){record}{_end_of(failure.frames)}"
        )

    def statistics(self) -> CheckpointStatistics:
        """Counts over all attempts."""
        return self.history.log.statistics()


_FRAMES_CHARS: Final = 4_000
"""So much of a traceback is told at every restart: the end, where it was raised."""


def _end_of(text: str) -> str:
    if not text:
        return ""
    return f"\n{text}" if len(text) <= _FRAMES_CHARS else f"\n…{text[-_FRAMES_CHARS:]}"
