"""Functions of the broadcast state pattern: one stream goes to every task and is remembered there.

Records of the broadcast side change broadcast state, in every task in the same way; records of the
normal side read it. What either method yields for a broadcast record comes out of every task.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol

from headgate.functions.function import Function, Keyed, OnTimer, Tagged, Timed
from headgate.functions.state import (
    BroadcastState,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    StateDescriptor,
)
from headgate.functions.type_variables import IN1, IN2, KEY, MK, OUT, V


class Side(Timed, Protocol):
    """Context of both sides."""

    def current_processing_time(self) -> int:
        """Milliseconds since 1970."""

    def current_watermark(self) -> int:
        """The smallest of all times before the first watermark."""


class BroadcastReader(Side, Protocol):
    """Context of the normal side: broadcast state can be read."""

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor[MK, V]
    ) -> ReadOnlyBroadcastState[MK, V]:
        """What the broadcast side has written so far; it cannot be changed from here."""


class BroadcastWriter(Side, Protocol):
    """Context of the broadcast side: broadcast state can be changed."""

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor[MK, V]
    ) -> BroadcastState[MK, V]:
        """This task's copy; change it in a way that depends on the broadcast records alone."""


class BaseBroadcastProcessFunction(Function):
    """Base of broadcast functions with and without keys."""

    BaseContext = Side

    class Context(BroadcastWriter, Protocol):
        """What is known about a broadcast record."""

    class ReadOnlyContext(BroadcastReader, Protocol):
        """What is known about a record of the normal side."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """For a stream without keys, connected to a broadcast stream.

    ::

        RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())

        class Filter(BroadcastProcessFunction):
            def process_element(self, value, ctx):
                if value.amount > (ctx.get_broadcast_state(RULES).get(value.kind) or 0):
                    yield value

            def process_broadcast_element(self, value, ctx):
                ctx.get_broadcast_state(RULES).put(value.kind, value.limit)
    """

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: "BroadcastProcessFunction.ReadOnlyContext", /
    ) -> Iterable[OUT | Tagged] | None:
        """For records of the normal side; None: nothing."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: "BroadcastProcessFunction.Context", /
    ) -> Iterable[OUT | Tagged] | None:
        """For records of the broadcast side, in every task; None: nothing."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Joins a keyed stream with a broadcast one; the keyed side has state and timers."""

    class Context(BroadcastWriter, Protocol):
        """What is known about a broadcast record. There is no current key."""

        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], object]
        ) -> None:
            """Call ``function(key, state)`` for every key of the task that holds something."""

    class ReadOnlyContext(BroadcastReader, Keyed, Protocol):
        """What is known about a record of the normal side."""

    class OnTimerContext(BroadcastReader, OnTimer, Protocol):
        """What is known about the timer."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: "KeyedBroadcastProcessFunction.ReadOnlyContext", /
    ) -> Iterable[OUT | Tagged] | None:
        """For records of the normal side; None: nothing."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: "KeyedBroadcastProcessFunction.Context", /
    ) -> Iterable[OUT | Tagged] | None:
        """For records of the broadcast side, in every task; None: nothing."""

    def on_timer(
        self, timestamp: int, ctx: "KeyedBroadcastProcessFunction.OnTimerContext", /
    ) -> Iterable[OUT | Tagged]:
        """A timer that was registered for the current key is due. Yield, or return a list."""
        return ()
