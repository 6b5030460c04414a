"""A user's function within an operator: what is called for each record, and open and close around.

A function may be a plain callable or an object with a method (``map``, ``filter`` …) and perhaps
``open(runtime_context)`` and ``close()``, and ``initialize_state(context)`` before them. Law:
``close`` is called once if ``open`` was begun.
"""

from collections.abc import Callable
from typing import TypeVar

from headgate.base.elements import Record
from headgate.core.chain.checkpointed import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.runtime import RuntimeContext
from headgate.core.state.opening import StateOpener
from headgate.core.state.operator_state import OperatorStateStore


class Guest:
    """Wraps one user object; ``call`` is the bound method to use per record."""

    def __init__(self, function: object, method: str) -> None:
        self.function = function
        self.method = method
        self.states = OperatorStateStore()
        """State of the function without keys; empty unless it asks in ``initialize_state``."""
        self._opened = False

    @property
    def call(self) -> Callable[..., Record]:
        """What to call for each record; look it up once per ``open``, not per record."""
        bound = getattr(self.function, self.method, None)
        if bound is None:
            assert callable(self.function), f"{self.function!r} has no {self.method}"
            return self.function
        return bound  # type: ignore[no-any-return]

    @property
    def opens(self) -> bool:
        """Whether the function has a method of its own where it can ask for state."""
        if hasattr(self.function, "initialize_state"):
            return True
        begin = getattr(self.function, "open", None)
        return begin is not None and not getattr(begin, "does_nothing", False)

    def open(self, context: OperatorContext, opener: StateOpener | None = None) -> None:
        """``opener``: what gives out keyed state, on a keyed stream."""
        self._opened = True
        runtime = RuntimeContext(context, opener)
        initialize = getattr(self.function, "initialize_state", None)
        if initialize is not None:
            initialize(FunctionInitializationContext(self.states, runtime))
        begin = getattr(self.function, "open", None)
        if begin is not None:
            begin(runtime)

    def snapshot_state(self, checkpoint_id: int, timestamp_ms: int) -> bytes:
        """The state without keys, after the function has brought it up to date."""
        prepare = getattr(self.function, "snapshot_state", None)
        if prepare is not None:
            prepare(FunctionSnapshotContext(checkpoint_id, timestamp_ms))
        return self.states.snapshot()

    def close(self) -> None:
        if self._opened:
            self._opened = False
            closer = getattr(self.function, "close", None)
            if closer is not None:
                closer()


_Method = TypeVar("_Method", bound=Callable[..., None])


def does_nothing(method: _Method) -> _Method:
    """Marks the ``open`` of a base class: a function that only inherits it needs no state."""
    method.does_nothing = True  # type: ignore[attr-defined] # a note on the function object
    return method
