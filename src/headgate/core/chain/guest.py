"""A user's function within an operator: what is called for each record, and open and close around.

A function may be a plain callable or an object with a method (``map``, ``filter`` …) and perhaps
``open(runtime_context)`` and ``close()``. Law: ``close`` is called once if ``open`` was begun.
"""

from collections.abc import Callable

from headgate.base.elements import Record
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.runtime import RuntimeContext


class Guest:
    """Wraps one user object; ``call`` is the bound method to use per record."""

    def __init__(self, function: object, method: str) -> None:
        self.function = function
        self.method = method
        self._opened = False

    @property
    def call(self) -> Callable[..., Record]:
        """What to call for each record; look it up once per ``open``, not per record."""
        bound = getattr(self.function, self.method, None)
        if bound is None:
            assert callable(self.function), f"{self.function!r} has no {self.method}"
            return self.function
        return bound  # type: ignore[no-any-return]

    def open(self, context: OperatorContext) -> None:
        self._opened = True
        opener = getattr(self.function, "open", None)
        if opener is not None:
            opener(RuntimeContext(context))

    def close(self) -> None:
        if self._opened:
            self._opened = False
            closer = getattr(self.function, "close", None)
            if closer is not None:
                closer()
