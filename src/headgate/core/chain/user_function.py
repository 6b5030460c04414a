"""A user's function within an operator: what is called for each record, and open and close around.

A function may be a plain callable or an object with a method (``map``, ``filter`` …) and perhaps
``open(runtime_context)`` and ``close()``, and ``initialize_state(context)`` before them. Law:
``close`` is called once if ``open`` was begun. What ``initialize_state`` finds is what the same
function of an earlier run had when the checkpoint was taken.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from headgate.base.elements import Record
from headgate.base.state_shapes import FUNCTION
from headgate.core.chain.checkpointed import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.runtime import RuntimeContext
from headgate.core.chain.snapshots import SnapshotMoment, restored_parts
from headgate.core.state.opening import StateOpener
from headgate.core.state.operator_state import OperatorStateStore

PIECE: Final = 4096
"""A function that makes many records out of one sends them on in pieces of this many."""


class UserFunction:
    """Wraps one user object; ``call`` is the bound method to use per record.

    ``name`` tells its state from that of other functions of the same operator.
    """

    def __init__(self, function: object, method: str, name: str = "function") -> None:
        self.function = function
        self.method = method
        self.name = name
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
        self.initialize(context, runtime)
        begin = getattr(self.function, "open", None)
        if begin is not None:
            begin(runtime)

    def initialize(self, context: OperatorContext, runtime: RuntimeContext) -> None:
        """Give back what an earlier run has left, and let the function ask for it."""
        left, task = restored_parts(context.restored, self.name), context.task
        self.states.compare_with(context.shapes, f"{FUNCTION}{self.name}")
        self.states.restore(left, task.subtask, task.parallelism)
        initialize = getattr(self.function, "initialize_state", None)
        if initialize is not None:
            is_restored = context.restored is not None
            initialize(FunctionInitializationContext(self.states, runtime, is_restored))

    def left(self, moment: SnapshotMoment) -> bytes | None:
        """What the function leaves at a checkpoint; None: it has no state of its own."""
        data = self.snapshot_state(moment.checkpoint, moment.timestamp_ms)
        return None if self.states.is_empty else data

    def snapshot_state(self, checkpoint_id: int, timestamp_ms: int) -> bytes:
        """The state without keys, after the function has brought it up to date."""
        prepare = getattr(self.function, "snapshot_state", None)
        if prepare is not None:
            prepare(FunctionSnapshotContext(checkpoint_id, timestamp_ms))
        return self.states.snapshot()

    def checkpoint_completed(self, checkpoint: int) -> None:
        """Tell a function that listens."""
        tell = getattr(self.function, "notify_checkpoint_complete", None)
        if tell is not None:
            tell(checkpoint)

    def checkpoint_aborted(self, checkpoint: int) -> None:
        """Tell a function that listens."""
        tell = getattr(self.function, "notify_checkpoint_aborted", None)
        if tell is not None:
            tell(checkpoint)

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


def iterable(found: Record, who: str) -> Iterable[Record]:
    """What a function returned, if it can be iterated; otherwise an error that says so."""
    if found is None or not hasattr(found, "__iter__"):
        raise TypeError(
            f"{who} must return an iterable (a list, or use yield), not {type(found).__name__}"
        )
    return found  # type: ignore[no-any-return]
