"""The job's code, pickled for the workers, and what to report if it cannot be pickled.

Functions and classes of the user's ``__main__`` are pickled by value. Records, however, are pickled
by reference between workers, so classes of ``__main__`` are put into the worker's own ``__main__``,
where plain pickle looks for them. Submodules that the driver has imported, and that functions find
as attributes of their packages, are imported there. Law: what is unshipped behaves as what was
shipped; a function that cannot be pickled is refused in the driver, with its operator and the
object it holds. The source text of functions travels too, so that workers can inline them; where it
cannot be read, the function is called.
"""

import functools
import io
import linecache
import logging
import pickle
import socket
import sys
import warnings
from abc import ABCMeta
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from types import (
    CodeType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

import cloudpickle

from headgate.base.errors import CodeUnloadable, FunctionUnpicklable
from headgate.core.chain.spec import OperatorSpec
from headgate.core.loops.definitions import Definition, definitions_in, plain_function
from headgate.plan.job_graph import JobVertex

Functions: TypeAlias = Mapping[int, Sequence[tuple[str, object]]]
"""The user's objects of each operator, by role, as the nodes of the stream graph have them."""

_NO_FUNCTIONS: Final[Functions] = {}
_DEPTH: Final = 20

_LIVES_IN_DRIVER: Final = "it lives in the driver"
_ROWS_OF_SPARK: Final = (
    "read rows as a stream with env.from_dataframe(df) and connect() it, with broadcast() if every "
    "task needs all of them, or collect() them before and let the function hold the list"
)
_OF_SPARK: Final = {
    "SparkSession": _ROWS_OF_SPARK,
    "SparkContext": _ROWS_OF_SPARK,
    "DataFrame": _ROWS_OF_SPARK,
    "RDD": _ROWS_OF_SPARK,
    "Broadcast": "let the function hold its value, or connect() with a broadcast() stream",
    "UserDefinedFunction": (
        "call the function that it was made of, without udf(), or apply it to columns before "
        "env.from_dataframe(df)"
    ),
    "Accumulator": "count with a counter of get_metrics_group() of the runtime context",
}
"""What works instead of classes of Spark that are of no use in a worker, even if pickled."""
_OF_THE_JVM: Final = (
    "do with DataFrames what needs it, before env.from_dataframe(df) or after to_dataframe(), "
    "or write the same in Python"
)
"""Columns, readers, grouped data and others hold such an object."""
_CONNECT: Final = "connect in open() and disconnect in close()"
_ADVICE: Final[tuple[tuple[type, str], ...]] = (
    (socket.socket, _CONNECT),
    (io.IOBase, "open it in open() and close it in close()"),
    (GeneratorType, "make a list of it, or start it in open()"),
    (logging.Handler, "log with logging.getLogger(name): the driver gets the lines of all tasks"),
)
Read: TypeAlias = dict[str, dict[int, list[Definition]]]
"""The definitions of every file that was read, by the line that they begin in."""

METHODS: Final = (
    *("map", "map1", "map2", "flat_map", "flat_map1", "flat_map2", "filter", "reduce"),
    *("process_element", "process_element1", "process_element2", "process_broadcast_element"),
)
"""Methods of function objects that are called for each record by loops which can inline them."""


def ship(vertices: Mapping[int, JobVertex], functions: Functions = _NO_FUNCTIONS) -> bytes:
    """The vertices of a job as bytes; raises FunctionUnpicklable."""
    try:
        return pickled(dict(vertices))
    except Exception as error:
        raise _unpicklable(vertices, functions, error) from error


def pickled(thing: object) -> bytes:
    """An object with functions of the user's, for ``unpickled`` in another process."""
    target = io.BytesIO()
    pickler = ShippingPickler(target)
    pickler.dump(thing)
    pickler.dump(pickler.classes)  # the same pickler: classes stay identical
    pickler.dump([sys.modules[name] for name in sorted(pickler.submodules)])
    return target.getvalue()


def unship(code: bytes) -> dict[int, JobVertex]:
    """Load the vertices in a worker; raises CodeUnloadable."""
    try:
        vertices: dict[int, JobVertex] = unpickled(io.BytesIO(code))
    except ModuleNotFoundError as error:
        raise CodeUnloadable(f"{type(error).__name__}: {error}", error.name or "") from error
    except (Exception, SystemExit) as error:  # a module that it imports may call exit()
        raise CodeUnloadable(f"{type(error).__name__}: {error}") from error
    return vertices


def unpickled(source: BinaryIO) -> Any:
    """The object that ``pickled`` was given; what it needs is in ``__main__``, or imported."""
    unpickler = pickle.Unpickler(source)
    thing = unpickler.load()
    classes: dict[str, type] = unpickler.load()
    unpickler.load()  # this imports the submodules
    _adopt(classes)
    return thing


class ShippingPickler(cloudpickle.CloudPickler):  # type: ignore[misc] # it has no types
    """Pickles by value what workers cannot import, and collects what has to come along."""

    def __init__(self, target: io.BytesIO) -> None:
        super().__init__(target, protocol=5)
        self.classes: dict[str, type] = {}
        """Classes of ``__main__``, by their names."""
        self.submodules: set[str] = set()
        """What functions find as attributes of packages."""

    def reducer_override(self, thing: Any) -> Any:
        if _of_spark(thing) is not None:
            raise pickle.PicklingError(_LIVES_IN_DRIVER)
        if isinstance(thing, type) and thing.__module__ == "__main__":
            self._collect(thing)
        reduced = super().reducer_override(thing)
        if type(thing) in (type, ABCMeta) and reduced is not NotImplemented:
            _keep_slots(thing, reduced)
        if isinstance(thing, FunctionType) and reduced is not NotImplemented:  # by value
            self.submodules |= _submodules_of(thing)
        return reduced

    def _collect(self, kind: type) -> None:
        """A nested class is found through the class around it, so that one comes along."""
        path = kind.__qualname__.split(".")
        owner = kind if len(path) == 1 else getattr(_main(), path[0], None)
        if isinstance(owner, type):
            self.classes.setdefault(path[0], owner)
            self.classes.setdefault(kind.__qualname__, kind)


def _keep_slots(kind: type, reduced: tuple[Any, ...]) -> None:
    """Let a class that goes by value be made with its slots.

    cloudpickle makes it without, so that instances have a ``__dict__`` and take any attribute.
    """
    namespace = next((part for part in reduced[1] if isinstance(part, dict)), None)
    if NamedTuple in getattr(kind, "__orig_bases__", ()):
        return  # it says itself how its subclasses are made
    if "__slots__" in vars(kind) and namespace is not None:
        slots = [
            name
            for name, held in vars(kind).items()
            if isinstance(held, MemberDescriptorType)
            and (held.__objclass__, held.__name__) == (kind, name)  # else another name for a slot
        ]
        slots += [name for name in ("__dict__", "__weakref__") if name in vars(kind)]
        namespace["__slots__"] = tuple(slots)


def _submodules_of(function: FunctionType) -> set[str]:
    """Imported modules that a function, or code nested in it, can reach through their packages.

    cloudpickle looks only into the outermost code, not into lambdas and comprehensions.
    """
    packages = {
        f"{part.__name__}."
        for _, part in _parts_of_function(function, "")
        if isinstance(part, ModuleType) and hasattr(part, "__path__")
    }
    if not packages:
        return set()
    names = set(_names_in(function.__code__))
    return {
        module
        for module in list(sys.modules)
        for package in packages
        if module.startswith(package) and names.issuperset(module[len(package) :].split("."))
    }


def _names_in(code: CodeType) -> Iterator[str]:
    """Globals and attributes that code uses, with those of the code nested in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


_adopted: dict[str, type] = {}
"""Classes that earlier jobs have left in this worker's ``__main__``."""


def _adopt(classes: Mapping[str, type]) -> None:
    main = _main()
    for name, kind in classes.items():
        if "." in name:
            kind.__qualname__ = name  # cloudpickle drops it; pickle looks classes up by it
            continue
        present = getattr(main, name, None)
        # The worker's own classes stay: its program needs them.
        if present is None or present is _adopted.get(name):
            setattr(main, name, kind)
            _adopted[name] = kind


def _main() -> ModuleType:
    return sys.modules["__main__"]


def _pickling_error(thing: object) -> Exception | None:
    """None: it can be pickled."""
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
                if (problem := _pickling_error(function)) is not None:
                    return _refused(operator.name, role, function, problem)
            if (problem := _pickling_error(operator)) is not None:
                # An operator's own parts are named after the user's object that they hold.
                return _refused(operator.name, "function", operator, problem)
    names = ", ".join(vertex.name for vertex in vertices.values())
    return FunctionUnpicklable(names, "function", "something that it holds", _words(error))


def _refused(operator: str, role: str, function: object, problem: Exception) -> FunctionUnpicklable:
    culprit, part = _find_culprit(function)
    if (advice := _of_spark(part)) is not None:
        return FunctionUnpicklable(operator, role, culprit, _LIVES_IN_DRIVER, advice)
    if (advice := _advice(part)) is not None:
        return FunctionUnpicklable(operator, role, culprit, _words(problem), advice)
    return FunctionUnpicklable(operator, role, culprit, _words(problem))


def _of_spark(thing: object) -> str | None:
    """What works instead of an object of Spark's driver; None: it is no such object."""
    for kind in type(thing).__mro__:
        package = kind.__module__.partition(".")[0]
        if package == "pyspark" and kind.__name__ in _OF_SPARK:
            return _OF_SPARK[kind.__name__]
        if package == "py4j":
            return _OF_THE_JVM
    return None


def _advice(thing: object) -> str | None:
    """What to do about an object that cannot be pickled, if more can be said than of any other."""
    if "connection" in type(thing).__name__.lower():
        return _CONNECT
    return next((words for kind, words in _ADVICE if isinstance(thing, kind)), None)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _find_culprit(thing: object) -> tuple[str, object]:
    """The innermost part that cannot be pickled, such as ``attribute 'lock' of Parser (a lock)``.

    The search goes into closures, globals, defaults and attributes, always into a part that cannot
    be pickled itself, and no further than to one that users know what to do about.
    """
    path = [f"{_name(thing)} itself"]
    seen = [thing]
    while len(path) < _DEPTH and not (_of_spark(seen[-1]) or _advice(seen[-1])):
        found = _first_bad_part(seen[-1], seen)
        if found is None:
            break
        words, part = found
        path.append(f"{words} ({_article(type(part).__name__)})")
        seen.append(part)
    if len(path) < 3:
        return path[-1], seen[-1]
    holder = path[-2] if isinstance(thing, OperatorSpec) else path[1]  # what the user has written
    return f"{path[-1]}, which {holder} holds,", seen[-1]


def _first_bad_part(thing: object, seen: list[object]) -> tuple[str, object] | None:
    for words, part in _parts(thing):
        if not any(part is known for known in seen) and _pickling_error(part) is not None:
            return words, part
    return None


def _parts(thing: object) -> Iterator[tuple[str, object]]:
    """What an object holds, each part with a description."""
    name = _name(thing)
    if isinstance(thing, FunctionType):
        yield from _parts_of_function(thing, name)
    elif isinstance(thing, MethodType):
        yield f"the object of method {name}", thing.__self__
        yield f"method {name}", thing.__func__
    elif isinstance(thing, functools.partial):
        yield f"function of {name}", thing.func
        yield from (
            (f"argument {index} of {name}", value) for index, value in enumerate(thing.args)
        )
        yield from ((f"argument {key!r} of {name}", value) for key, value in thing.keywords.items())
    elif isinstance(thing, Mapping):
        yield from ((f"the value of key {key!r}", value) for key, value in thing.items())
        yield from ((f"key {key!r}", key) for key in thing)
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from ((f"element {index}", value) for index, value in enumerate(thing))
    elif isinstance(thing, type):
        yield from ((f"{key!r} of class {name}", value) for key, value in vars(thing).items())
    else:
        yield from _parts_of_object(thing, name)


def _parts_of_function(function: FunctionType, name: str) -> Iterator[tuple[str, object]]:
    for variable, cell in zip(
        function.__code__.co_freevars, function.__closure__ or (), strict=True
    ):
        try:
            yield f"closure variable {variable!r} of {name}", cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    for variable in dict.fromkeys(_names_in(function.__code__)):
        if variable in function.__globals__:
            yield f"global variable {variable!r} of {name}", function.__globals__[variable]
    for default in function.__defaults__ or ():
        yield f"a default argument of {name}", default
    for argument, default in (function.__kwdefaults__ or {}).items():
        yield f"the default of argument {argument!r} of {name}", default


def _parts_of_object(thing: object, name: str) -> Iterator[tuple[str, object]]:
    attributes = dict(getattr(thing, "__dict__", {}))
    if is_dataclass(thing):
        attributes |= {f.name: getattr(thing, f.name, None) for f in fields(thing)}
    for kind in type(thing).__mro__:
        slots = vars(kind).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, slot):
                attributes.setdefault(slot, getattr(thing, slot))
    yield from ((f"attribute {key!r} of {name}", value) for key, value in attributes.items())
    yield f"class {type(thing).__name__}", type(thing)


def _name(thing: object) -> str:
    own = getattr(thing, "__qualname__", None)
    return str(own) if own else type(thing).__name__


def _article(word: str) -> str:
    return f"an {word}" if word[0].lower() in "aeio" else f"a {word}"


def with_definitions(
    vertices: Mapping[int, JobVertex], functions: Mapping[int, Sequence[tuple[str, object]]]
) -> dict[int, JobVertex]:
    """These vertices, whose operators have the definitions of their functions."""
    read: Read = {}
    found = {}
    for number, vertex in vertices.items():
        operators = tuple(
            replace(
                operator,
                definitions=tuple(
                    definition
                    for _, function in functions.get(operator.id, ())
                    for definition in _definitions_of(function, read)
                ),
            )
            for operator in vertex.chain.operators
        )
        found[number] = replace(vertex, chain=replace(vertex.chain, operators=operators))
    return found


def _definitions_of(function: object, read: Read) -> Iterator[Definition]:
    """The definitions that begin where the function, or one of its methods, does."""
    for candidate in (function, *(_method_of(function, name) for name in METHODS)):
        plain = plain_function(candidate)
        if plain is None:
            continue
        file, line = plain.__code__.co_filename, plain.__code__.co_firstlineno
        if file not in read:
            read[file] = _read(file)
        yield from read[file].get(line, ())


def _method_of(function: object, name: str) -> object:
    try:
        return getattr(function, name, None)
    except Exception:  # a property may do anything; who calls it will see
        return None


def _read(file: str) -> dict[int, list[Definition]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user has seen them when the file was loaded
            return _definitions_in(tuple(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


@lru_cache(maxsize=16)
def _definitions_in(lines: tuple[str, ...]) -> dict[int, list[Definition]]:
    """To read a module takes many milliseconds, and a job is planned again when it restarts."""
    return definitions_in(list(lines))
