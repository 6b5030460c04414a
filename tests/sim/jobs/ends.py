"""How the tasks of a simulated job may end: every end has a reason, and all its time is told."""

from collections.abc import Callable
from typing import Final

from headgate.base.errors import (
    HeadgateError,
    PartitionNotFound,
    ProducerFailed,
    TaskCancelled,
    TransportError,
    UserFunctionFailed,
)
from headgate.base.messages import TaskState
from headgate.sim.clock import Clock
from headgate.sim.jobs.task_manager import SimTask
from headgate.sim.worker import CheckFailed
from tests.sim.jobs.functions import PlannedFailure
from tests.sim.jobs.graphs import Items
from tests.sim.laws import Laws

CONSEQUENCES: Final = (PartitionNotFound, ProducerFailed, TaskCancelled, TransportError)


class Ends:
    """Looks at tasks that are over. ``calm``: nothing is to happen to them."""

    def __init__(
        self, laws: Laws, clock: Clock, calm: bool, is_cancelled: Callable[[], bool]
    ) -> None:
        self._laws = laws
        self._clock = clock
        self._calm = calm
        self._is_cancelled = is_cancelled
        self._born_ms: dict[int, float] = {}

    def began(self, deployed: SimTask) -> None:
        """It was set up just now."""
        self._born_ms[id(deployed)] = self._clock.now_ms

    def check(self, deployed: SimTask) -> None:
        """Raises CheckFailed."""
        seen = deployed.task.figures()
        lived_ms = self._clock.now_ms - self._born_ms.pop(id(deployed))
        total_ms = seen.busy_ms + seen.backpressured_ms + seen.idle_ms
        if abs(total_ms - lived_ms) > 1e-6 * max(1.0, self._clock.now_ms):
            raise CheckFailed(f"{deployed.thread.name} has lived {lived_ms} ms, but {seen}")
        error = deployed.task.lifecycle.failure or deployed.thread.error
        if seen.state is TaskState.FINISHED:
            if error is not None:
                raise CheckFailed(f"{deployed.thread.name} has finished with {error!r}") from error
        elif seen.state is TaskState.FAILED:
            self._explain(deployed, error)
        elif seen.state is TaskState.CANCELLED:
            if error is not None:
                self._explain(deployed, error)
            elif not self._is_cancelled():
                raise CheckFailed(f"{deployed.thread.name} was cancelled by nobody")
        else:
            raise CheckFailed(f"{deployed.thread.name} is over and {seen.state.value}")

    def _explain(self, deployed: SimTask, error: BaseException | None) -> None:
        """Trouble has a reason, and bugs are never taken for trouble."""
        cause = error.__cause__ if isinstance(error, UserFunctionFailed) else error
        if isinstance(cause, PlannedFailure):
            return
        if isinstance(cause, AssertionError) or not isinstance(cause, HeadgateError):
            raise CheckFailed(f"{deployed.thread.name} has met {cause!r}") from error
        if self._calm or not isinstance(cause, CONSEQUENCES):
            raise CheckFailed(
                f"nothing explains the end of {deployed.thread.name}: {cause!r}"
            ) from error
        if isinstance(cause, TransportError):
            self._laws.check_transport_error(
                deployed.thread.worker, cause.peer.split(":")[0], cause
            )


def some_of(items: Items) -> str:
    """A few of what is missing or too much, for an error."""
    shown = ", ".join(f"{item} x{count}" for item, count in list(items.items())[:3])
    return f"{shown} and so on, {items.total()} in all"
