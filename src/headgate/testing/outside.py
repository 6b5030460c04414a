"""What is outside of a simulated job, as a database or a topic is: it survives every crash.

Law: functions travel to the tasks by value, but what is defined here travels by reference: every
task, in every attempt, meets the same object.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

Held = TypeVar("Held")

_numbers = count(1)
_living: "WeakValueDictionary[int, ByReference]" = WeakValueDictionary()


class _Mode:
    by_value = False


class ByReference:
    """Base: within this process a pickle of it is a number, and loads the object itself."""

    def __new__(cls, *args: object, **named: object) -> "Any":
        made = super().__new__(cls)
        made._number = next(_numbers)
        _living[made._number] = made
        return made

    _number: int

    def __reduce__(self) -> tuple[Any, ...]:
        if _Mode.by_value:
            return self._anew()
        return _found, (self._number,)

    def _anew(self) -> tuple[Any, ...]:
        """How another process makes an equal one, without contents."""
        raise TypeError(f"{type(self).__name__} does not leave its process")


@contextmanager
def pickled_by_value() -> Iterator[None]:
    """For another process: there everything outside begins empty."""
    _Mode.by_value = True
    try:
        yield
    finally:
        _Mode.by_value = False


class External(ByReference, Generic[Held]):
    """Stands for a system outside of the job, such as a database; begins empty in every run.

    ::

        orders = External(dict)

        class Upsert(SinkFunction):
            def invoke(self, value, context):
                orders.value[value["id"]] = value

    ``simulate`` compares what it holds at the end of a run with what it holds after a calm one.
    """

    def __init__(
        self, factory: Callable[[], Held], name: str = "", *, compared: bool = True
    ) -> None:
        """``compared``: False: what it holds may differ from run to run."""
        self.name = name or f"external {getattr(factory, '__name__', 'object')}"
        self.factory = factory
        self.compared = compared
        self.value = factory()

    def reset(self) -> None:
        """Begin anew, empty."""
        self.value = self.factory()

    def _anew(self) -> tuple[Any, ...]:
        return partial(External, compared=self.compared), (self.factory, self.name)


def externals() -> "list[External[Any]]":
    """All of this process, the oldest first."""
    found = [known for known in _living.values() if isinstance(known, External)]
    return sorted(found, key=lambda known: known._number)


def _found(number: int) -> ByReference:
    return _living[number]
