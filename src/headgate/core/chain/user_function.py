"""A user function within an operator, and the base of operators that hold user functions and state.

A function is a plain callable or an object with a method (``map``, ``filter`` …) and perhaps
``initialize_state(context)``, ``open(runtime_context)`` and ``close()``. Law: ``close`` is called
once if ``open`` was begun. ``initialize_state`` finds what the same function of an earlier run had
at the checkpoint. At a checkpoint functions first bring their state up to date, then everything is
taken at once; nothing stays open if one of them fails.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headgate.base.checkpoints import FUNCTION
from headgate.base.elements import Record
from headgate.core.chain.context import OperatorContext, OperatorRuntimeContext
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import OperatorSnapshot, pack_parts, restored_parts
from headgate.core.state.opening import StateOpener
from headgate.core.state.operator_state import OperatorStates
from headgate.core.state.reading import StateReader
from headgate.functions.context import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    RuntimeContext,
    SnapshotMoment,
)

PIECE: Final = 4096
"""A function that makes many records out of one sends them on in pieces of this many."""


class UserFunction:
    """Wraps one user object; ``call`` is the bound method to use per record.

    ``name`` distinguishes its state from that of other functions of the operator.
    """

    def __init__(self, function: object, method: str, name: str = "function") -> None:
        self.function = function
        self.method = method
        self.name = name
        self.states = OperatorStates()
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
        runtime = OperatorRuntimeContext(context, opener)
        self.initialize(context, runtime)
        begin = getattr(self.function, "open", None)
        if begin is not None:
            begin(runtime)

    def initialize(self, context: OperatorContext, runtime: RuntimeContext) -> None:
        """Restore the state of an earlier run, and call ``initialize_state``."""
        parts, task = restored_parts(context.restored, self.name), context.task
        self.states.compare_with(context.shapes, f"{FUNCTION}{self.name}")
        self.states.restore(parts, task.subtask, task.parallelism)
        initialize = getattr(self.function, "initialize_state", None)
        if initialize is not None:
            is_restored = context.restored is not None
            initialize(FunctionInitializationContext(self.states, runtime, is_restored))

    def snapshot(self, moment: SnapshotMoment) -> bytes | None:
        """Its state without keys, after it has brought that up to date; None: it has none."""
        prepare = getattr(self.function, "snapshot_state", None)
        if prepare is not None:
            prepare(FunctionSnapshotContext(moment.checkpoint, moment.timestamp_ms))
        return None if self.states.is_empty else self.states.snapshot()

    def checkpoint_completed(self, checkpoint: int) -> None:
        """Notify the function, if it has the method for it."""
        tell = getattr(self.function, "notify_checkpoint_complete", None)
        if tell is not None:
            tell(checkpoint)

    def checkpoint_aborted(self, checkpoint: int) -> None:
        """Notify the function, if it has the method for it."""
        tell = getattr(self.function, "notify_checkpoint_aborted", None)
        if tell is not None:
            tell(checkpoint)

    def close(self) -> None:
        if self._opened:
            self._opened = False
            closer = getattr(self.function, "close", None)
            if closer is not None:
                closer()


class StatefulOperator(Operator):
    """Says what it holds; what becomes of that at a checkpoint is the same for all."""

    _function: UserFunction | None = None
    """The only one, of most operators; closed before the keyed state."""
    _keyed: KeyedContext | None = None
    """State by key; None: there is none."""

    def user_functions(self) -> Iterable[UserFunction]:
        """The user functions of the operator, each with a name of its own."""
        return () if self._function is None else (self._function,)

    def waiting(self) -> Mapping[str, bytes]:
        """What else is to be kept, by name."""
        return {}

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        parts: dict[str, bytes] = {}
        is_own = True
        for function in self.user_functions():
            state = function.snapshot(moment)
            if state is not None:
                parts[function.name] = state
                is_own = is_own and not function.states.has_unions
        parts.update(self.waiting())
        shapes = self.context.shapes.all()
        if self._keyed is None:
            return OperatorSnapshot(plain=pack_parts(parts), plain_is_own=is_own, shapes=shapes)
        parts.update(self._keyed.plain_parts())
        plain = pack_parts(parts)
        increment = moment.checkpoint if moment.incremental else None
        keyed = self._keyed.backend.snapshot(increment)
        return OperatorSnapshot(keyed, plain, is_own, shapes=shapes)

    def checkpoint_completed(self, checkpoint: int) -> None:
        if self._keyed is not None:  # first: a function may fail
            self._keyed.backend.checkpoint_completed(checkpoint)
        for function in self.user_functions():
            function.checkpoint_completed(checkpoint)

    def checkpoint_aborted(self, checkpoint: int) -> None:
        if self._keyed is not None:
            self._keyed.backend.checkpoint_aborted(checkpoint)
        for function in self.user_functions():
            function.checkpoint_aborted(checkpoint)

    def state_bytes(self) -> int | None:
        return None if self._keyed is None else self._keyed.backend.size_bytes()

    def state_reader(self) -> StateReader | None:
        return None if self._keyed is None else self._keyed.reader

    def key_ended(self) -> None:
        assert self._keyed is not None
        self._keyed.key_ended()

    def close(self) -> None:
        try:
            if self._function is not None:
                self._function.close()
        finally:
            if self._keyed is not None:
                self._keyed.close()


def iterable(found: Record, who: str) -> Iterable[Record]:
    """What a function returned, if it can be iterated; otherwise an error that says so."""
    if found is None or not hasattr(found, "__iter__"):
        raise TypeError(
            f"{who} must return an iterable (a list, or use yield), not {type(found).__name__}"
        )
    return found  # type: ignore[no-any-return]
