"""What every operator on a keyed stream has beside its function: state, cursor and timers."""

from collections.abc import Callable

from headgate.core.chain.context import OperatorContext
from headgate.core.chain.timer_service import Fire, TimeDomain, TimerService
from headgate.core.state.opening import StateOpener


class KeyedRoom:
    """Made in ``Operator.open``, closed in ``Operator.close``.

    The operator sets ``cursor.key`` for each record, calls ``timers.watermark_advanced`` for each
    watermark before it hands it on, and is called back by ``fire`` for each timer, and by ``fired``
    when those of processing time that were due have fired.
    """

    def __init__(
        self,
        context: OperatorContext,
        fire: Fire | None = None,
        fired: Callable[[], None] = lambda: None,
    ) -> None:
        self.backend = context.keyed_backend()
        self.cursor = self.backend.cursor
        self.opener = StateOpener(self.backend, context.now_ms)
        self.timers = TimerService(self.backend, context, fire or _no_timers, fired)
        self.timers.restored()

    def key_ended(self) -> None:
        """Batch: the timers of the key at hand fire, and it is forgotten; time begins anew."""
        self.timers.key_ended()
        self.backend.forget_key()

    def close(self) -> None:
        """Give back the state. Idempotent."""
        self.timers.close()
        self.backend.close()


def _no_timers(time_ms: int, domain: TimeDomain) -> None:
    raise AssertionError("a timer fired in an operator that registers none")
