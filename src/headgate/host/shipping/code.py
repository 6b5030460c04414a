"""The job's code on its way to the workers, and what to say when it cannot travel.

Functions and classes of the user's ``__main__`` travel by value. Records, however, are pickled by
reference between workers, so classes of ``__main__`` are put into the worker's own ``__main__``,
where plain pickle looks for them. Law: what is unshipped behaves as what was shipped; a function
that cannot travel is refused in the driver, with its operator and the thing that it holds.
"""

import io
import pickle
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final, TypeAlias

import cloudpickle

from headgate.base.errors import CodeUnloadable, FunctionUnpicklable
from headgate.host.shipping.unpicklable import find_culprit
from headgate.plan.job_graph import JobVertex

Functions: TypeAlias = Mapping[int, Sequence[tuple[str, object]]]
"""The user's objects of each operator, by role, as the nodes of the stream graph have them."""

_NO_FUNCTIONS: Final[Functions] = {}


def ship(vertices: Mapping[int, JobVertex], functions: Functions = _NO_FUNCTIONS) -> bytes:
    """The vertices of a job as bytes; raises FunctionUnpicklable."""
    target = io.BytesIO()
    pickler = ShippingPickler(target)
    try:
        pickler.dump(dict(vertices))
        pickler.dump(pickler.classes)  # the same pickler: classes stay identical
    except Exception as error:
        raise _unpicklable(vertices, functions, error) from error
    return target.getvalue()


def unship(code: bytes) -> dict[int, JobVertex]:
    """The vertices again, in a worker; raises CodeUnloadable."""
    unpickler = pickle.Unpickler(io.BytesIO(code))
    try:
        vertices: dict[int, JobVertex] = unpickler.load()
        classes: dict[str, type] = unpickler.load()
    except ModuleNotFoundError as error:
        raise CodeUnloadable(f"{type(error).__name__}: {error}", error.name or "") from error
    except (Exception, SystemExit) as error:  # a module that is loaded for it may want to exit
        raise CodeUnloadable(f"{type(error).__name__}: {error}") from error
    _adopt(classes)
    return vertices


class ShippingPickler(cloudpickle.CloudPickler):  # type: ignore[misc] # it has no types
    """Pickles by value what workers cannot import, and keeps the classes of ``__main__``."""

    def __init__(self, target: io.BytesIO) -> None:
        super().__init__(target, protocol=5)
        self.classes: dict[str, type] = {}

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, type) and thing.__module__ == "__main__":
            self._keep(thing)
        return super().reducer_override(thing)

    def _keep(self, kind: type) -> None:
        """A class within a class is found through its owner, so that comes along."""
        path = kind.__qualname__.split(".")
        owner = kind if len(path) == 1 else getattr(_main(), path[0], None)
        if isinstance(owner, type):
            self.classes.setdefault(path[0], owner)
            self.classes.setdefault(kind.__qualname__, kind)


_adopted: dict[str, type] = {}
"""Classes that earlier jobs have left in this worker's ``__main__``."""


def _adopt(classes: Mapping[str, type]) -> None:
    main = _main()
    for name, kind in classes.items():
        if "." in name:
            kind.__qualname__ = name  # forgotten on the way; pickle goes by it
            continue
        present = getattr(main, name, None)
        # What is the worker's own stays: its program would break.
        if present is None or present is _adopted.get(name):
            setattr(main, name, kind)
            _adopted[name] = kind


def _main() -> ModuleType:
    return sys.modules["__main__"]


def _is_picklable(thing: object) -> Exception | None:
    try:
        ShippingPickler(io.BytesIO()).dump(thing)
    except Exception as error:
        return error
    return None


def _unpicklable(
    vertices: Mapping[int, JobVertex], functions: Functions, error: Exception
) -> FunctionUnpicklable:
    for vertex in vertices.values():
        for operator in vertex.chain.operators:
            for role, function in functions.get(operator.id, ()):
                if (problem := _is_picklable(function)) is not None:
                    culprit = find_culprit(function, _is_picklable)
                    return FunctionUnpicklable(operator.name, role, culprit, _words(problem))
            if (problem := _is_picklable(operator)) is not None:
                # An operator's own parts are named after the user's object that they hold.
                culprit = find_culprit(operator, _is_picklable)
                return FunctionUnpicklable(operator.name, "function", culprit, _words(problem))
    names = ", ".join(vertex.name for vertex in vertices.values())
    return FunctionUnpicklable(names, "function", "something that it holds", _words(error))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
