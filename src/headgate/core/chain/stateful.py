"""The base of operators that have something to leave at a checkpoint: functions, keyed state.

Law: the functions bring their state up to date first, then everything is taken at once. Nothing is
left open if one of them fails.
"""

from collections.abc import Iterable, Mapping

from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import OperatorSnapshot, SnapshotMoment, pack_parts
from headgate.core.chain.user_function import UserFunction


class StatefulOperator(Operator):
    """Says what it holds; what becomes of that at a checkpoint is the same for all."""

    _keyed: KeyedContext | None = None
    """State by key; None: there is none."""

    def user_functions(self) -> Iterable[UserFunction]:
        """The user's functions in the operator, each with a name of its own."""
        return ()

    def waiting(self) -> Mapping[str, bytes]:
        """What else is to be kept, by name."""
        return {}

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        parts: dict[str, bytes] = {}
        is_own = True
        for function in self.user_functions():
            left = function.left(moment)
            if left is not None:
                parts[function.name] = left
                is_own = is_own and not function.states.has_unions
        parts.update(self.waiting())
        shapes = self.context.shapes.all()
        if self._keyed is None:
            return OperatorSnapshot(plain=pack_parts(parts), plain_is_own=is_own, shapes=shapes)
        parts.update(self._keyed.left())
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
