"""What a job remembers over all its runs: its checkpoints, how often it has failed, and why.

Law: every failure of a run is reported here once, and answered with the pause before the next
attempt or with None; then ``problem`` says why, if that is news. A final failure is never followed
by a restart; damage of a checkpoint is followed by a restart from the next older one, and if there
is none, the job fails unless it may begin anew.

A restart strategy says after how long a failed job is started again, and when no more. It lives as
long as its job, over all attempts. Law: the same times and chances give the same answers.
"""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from headgate.base.checkpoints import SourceState
from headgate.base.messages import Failure
from headgate.base.recovery_settings import CheckpointSettings, RestartKind, RestartSettings
from headgate.control.checkpoint_coordinator import CheckpointCoordinator
from headgate.control.checkpoint_history import CheckpointHistory, CheckpointStatistics
from headgate.control.pending_checkpoint import CheckpointedJob

FAILURES_REMEMBERED: Final = 64
"""Different failures that are remembered; the one that came longest ago is forgotten first."""
_NEAR: Final = 2
"""Checkpoints that may come before a record that is met again: a new attempt begins shortly before
it. After more of them it is another record that looks the same."""
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]+")


class RestartStrategy(Protocol):
    """Decides after every failure of a job."""

    problem: str
    """After None: why there is no restart."""

    def failed(self, now_ms: float, chance: float = 0.0) -> float | None:
        """The job has failed now; ``chance`` is a number from -1 to 1."""


def restart_strategy(settings: RestartSettings) -> RestartStrategy:
    """What the settings, once settled, ask for."""
    match settings.kind:
        case RestartKind.FIXED_DELAY:
            return FixedDelay(settings.fixed_attempts, settings.fixed_delay_ms)
        case RestartKind.EXPONENTIAL_DELAY:
            return ExponentialDelay(settings)
        case RestartKind.FAILURE_RATE:
            return FailureRate(
                settings.rate_failures, settings.rate_interval_ms, settings.rate_delay_ms
            )
        case RestartKind.NONE:
            return NoRestart()
        case RestartKind.DEFAULT:
            raise AssertionError("the settings of restarts are not settled")


@dataclass(slots=True)
class NoRestart:
    """A job that fails has failed."""

    problem: str = "restart-strategy.type is none"

    def failed(self, now_ms: float, chance: float = 0.0) -> float | None:
        return None


@dataclass(slots=True)
class FixedDelay:
    """So many restarts, with the same pause before each."""

    attempts: int
    delay_ms: float
    failures: int = 0
    problem: str = ""

    def failed(self, now_ms: float, chance: float = 0.0) -> float | None:
        self.failures += 1
        if self.failures <= self.attempts:
            return self.delay_ms
        self.problem = (
            f"this is failure {self.failures}, and restart-strategy.fixed-delay.attempts is "
            f"{self.attempts}"
        )
        return None


class ExponentialDelay:
    """Each pause is longer than the last, up to a limit; a long quiet time begins anew."""

    def __init__(self, settings: RestartSettings) -> None:
        self.problem = ""
        self._settings = settings
        self._pause_ms = float(settings.exponential_initial_ms)
        self._failures = 0
        self._restarted_ms = 0.0

    def failed(self, now_ms: float, chance: float = 0.0) -> float | None:
        assert -1 <= chance <= 1, f"a chance of {chance}"
        how = self._settings
        quiet_ms = now_ms - self._restarted_ms
        if not self._failures or quiet_ms >= how.exponential_reset_ms:
            self._pause_ms, self._failures = float(how.exponential_initial_ms), 0
        else:
            longer_ms = self._pause_ms * how.exponential_multiplier
            self._pause_ms = min(longer_ms, how.exponential_max_ms)
        self._failures += 1
        if self._failures > how.exponential_attempts:
            self.problem = (
                f"this is failure {self._failures} without a quiet time, and restart-strategy."
                f"exponential-delay.attempts-before-reset-backoff is {how.exponential_attempts}"
            )
            return None
        delay_ms = self._pause_ms * (1 + chance * how.exponential_jitter)
        delay_ms = min(delay_ms, how.exponential_max_ms)
        self._restarted_ms = now_ms + delay_ms
        return delay_ms


@dataclass(slots=True)
class FailureRate:
    """Restarts with the same pause, unless failures come too often."""

    limit: int
    interval_ms: float
    delay_ms: float
    failed_ms: deque[float] = field(default_factory=deque)
    problem: str = ""

    def failed(self, now_ms: float, chance: float = 0.0) -> float | None:
        failed_ms = self.failed_ms
        while failed_ms and now_ms - failed_ms[0] > self.interval_ms:
            failed_ms.popleft()
        failed_ms.append(now_ms)
        if len(failed_ms) <= self.limit:
            return self.delay_ms
        self.problem = (
            f"it has failed {len(failed_ms)} times within {self.interval_ms:g} ms, and "
            f"restart-strategy.failure-rate.max-failures-per-interval is {self.limit}"
        )
        return None


@dataclass(slots=True)
class RepeatedFailures:
    """Failures that come again and again: the same operator, the same error, the same record.

    Such a job makes no progress, and nobody learns why while it is restarted for ever. Law: a
    failure that is the same for the ``limit``-th time is the last. What names no record counts only
    while no checkpoint was completed in between; a long quiet time starts the count anew.
    """

    limit: int
    quiet_ms: float
    seen: "dict[tuple[str, ...], _Seen]" = field(default_factory=dict)

    def failed(self, failure: Failure, completed: int, now_ms: float) -> str:
        """Why there is to be no other attempt; nothing: this failure does not say so.

        ``completed``: checkpoints of the job so far.
        """
        if not failure.traceback or failure.is_consequence or failure.is_outside:
            return ""  # not of the job's own code, or of what may be well again soon
        place = _identity(failure)
        before = self.seen.pop(place, None)
        goes_on = before is not None and (
            now_ms - before.at_ms < self.quiet_ms
            and completed - before.completed <= (_NEAR if failure.record else 0)
        )
        times = before.times + 1 if before is not None and goes_on else 1
        self.seen[place] = _Seen(times, completed, now_ms)
        if len(self.seen) > FAILURES_REMEMBERED:
            del self.seen[next(iter(self.seen))]
        if times < self.limit:
            return ""
        where = "at the same record" if failure.record else "without a checkpoint in between"
        return (
            f"it has failed {times} times in the same way {where}, and "
            f"restart-strategy.max-identical-failures is {self.limit}"
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    times: int
    completed: int
    at_ms: float


def _identity(failure: Failure) -> tuple[str, ...]:
    """A record says where it was; otherwise the message has to."""
    message = "" if failure.record else _ADDRESS.sub("", failure.message)
    return failure.operator, failure.kind, failure.record, message


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
                f"{what} (so checkpoint {restored} is skipped; what sinks have committed for "
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
