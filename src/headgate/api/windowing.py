"""What every kind of windows can be told: trigger, evictor, lateness; checked where it is written.

Windowed streams, window joins and co-groups share it. Law: a combination that cannot work is
refused here, before anything runs.
"""

from typing import TYPE_CHECKING, Any, TypeVar

from headgate.api.event_time import surely_untimed
from headgate.base.errors import PlanInvalid
from headgate.core.window.assigners import MergingWindowAssigner, WindowAssigner
from headgate.core.window.evictors import Evictor
from headgate.core.window.spec import Contents, WindowCall, WindowPlan
from headgate.core.window.triggers import Trigger

if TYPE_CHECKING:
    from headgate.api.datastream import DataStream
    from headgate.api.draft import KeyOf
    from headgate.api.environment import StreamExecutionEnvironment

_Self = TypeVar("_Self", bound="Windowing")


class Windowing:
    """Windows of some streams; every method returns the object itself."""

    _caller = "window"

    def __init__(self, assigner: WindowAssigner[Any, Any], *streams: "DataStream") -> None:
        example = "TumblingEventTimeWindows.of(Time.seconds(5))"
        check_kind(assigner, self._caller, WindowAssigner, example)
        self._assigner = assigner
        self._environment = streams[0].get_execution_environment()
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any, Any] | None = None
        self._lateness_ms = 0
        if assigner.is_event_time():
            for stream in streams:
                _refuse_untimed(stream, assigner)

    def trigger(self: _Self, trigger: Trigger[Any, Any]) -> _Self:
        """When windows fire, instead of the assigner's own rule."""
        check_kind(trigger, "trigger", Trigger, "CountTrigger.of(100)")
        if self._merges and not trigger.can_merge():
            raise PlanInvalid(
                f"trigger() was given {type(trigger).__name__}, which cannot merge, on "
                f"{type(self._assigner).__name__}, whose windows merge; write its can_merge() and "
                f"on_merge(), or take windows that do not merge"
            )
        self._trigger = trigger
        return self

    def evictor(self: _Self, evictor: Evictor[Any, Any]) -> _Self:
        """What leaves a window before or after it fires; until then all its records are kept."""
        check_kind(evictor, "evictor", Evictor, "CountEvictor.of(10)")
        self._evictor = evictor
        return self

    def allowed_lateness(self: _Self, time_ms: object) -> _Self:
        """How long after its end an event-time window still takes late records and fires again.

        Milliseconds, a ``Time`` or a ``Duration``. Windows in processing time have no late records.
        """
        self._lateness_ms = _span_ms(time_ms)
        return self

    def get_execution_environment(self) -> "StreamExecutionEnvironment":
        return self._environment

    @property
    def _merges(self) -> bool:
        return isinstance(self._assigner, MergingWindowAssigner)

    def _plan(
        self,
        key_of: "KeyOf",
        contents: Contents,
        function: WindowCall | None,
        late_tag: str | None = None,
    ) -> WindowPlan:
        """As it stands now; what is said later holds for later operators only."""
        trigger = self._trigger or self._assigner.get_default_trigger(self._environment)
        return WindowPlan(
            key_of,
            self._assigner,
            trigger,
            contents,
            function,
            evictor=self._evictor,
            lateness_ms=self._lateness_ms,
            late_tag=late_tag,
        )


def check_kind(given: object, caller: str, kind: type, example: str) -> None:
    """An object of this kind; the class itself is a slip."""
    if isinstance(given, type) and issubclass(given, kind):
        raise PlanInvalid(
            f"{caller}() was given the class {given.__name__}; give an object, such as {example}"
        )
    if not isinstance(given, kind):
        raise PlanInvalid(
            f"{caller}() was given {given!r}; give a {kind.__name__}, such as {example}"
        )


def _span_ms(span: Any) -> int:
    for method in ("to_milliseconds", "to_millis"):
        if hasattr(span, method):
            span = getattr(span, method)()
    if type(span) is not int or span < 0:
        raise PlanInvalid(
            f"allowed_lateness() was given {span!r}; give milliseconds, 0 or more, or a Duration"
        )
    return span


def _refuse_untimed(stream: "DataStream", assigner: object) -> None:
    if surely_untimed(stream):
        raise PlanInvalid(
            f"{type(assigner).__name__} are windows in event time, and the records of this stream "
            f"have no timestamps; call assign_timestamps_and_watermarks() before, or take windows "
            f"in processing time"
        )
