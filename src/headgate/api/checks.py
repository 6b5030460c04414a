"""Arguments of stream methods, checked where they are written; errors say what would be right."""

from collections.abc import Callable
from inspect import iscoroutinefunction, isgeneratorfunction
from typing import Any

from headgate.api.draft import KeyOf
from headgate.api.types.types import TypeInformation
from headgate.base.errors import PlanInvalid
from headgate.core.chain.user_function import UserFunction
from headgate.functions.function import Function, OutputTag


def check_function(function: object, method: str, kind: type[Function], caller: str = "") -> None:
    """A plain callable, or an object with this method; ``caller`` if it has another name."""
    caller = caller or method
    _refuse_class(function, caller)
    if not callable(function) and not hasattr(function, method):
        raise PlanInvalid(
            f"{caller}() was given {function!r}; give a callable or a {kind.__name__}"
        )
    called = getattr(function, method, function)
    if iscoroutinefunction(called):
        raise PlanInvalid(
            f"{caller}() was given {function!r}, which is async; give a plain function"
        )
    if method != "flat_map" and isgeneratorfunction(called):
        raise PlanInvalid(
            f"{caller}() was given {function!r}, which yields; "
            f"write return instead of yield, or use flat_map()"
        )


def check_object(function: object, caller: str, methods: tuple[str, ...], kind: type) -> None:
    """An object with these methods; a plain callable will not do."""
    _refuse_class(function, caller, object)
    if not all(hasattr(function, method) for method in methods):
        raise PlanInvalid(
            f"{caller}() was given {function!r}; give {_a(kind)}, which has {' and '.join(methods)}"
        )


def refuse_other_kinds(function: object, caller: str, kinds: tuple[type, ...]) -> None:
    """A function made for something else, though its method has the same name."""
    if isinstance(function, Function) and not isinstance(function, kinds):
        raise PlanInvalid(
            f"{caller}() was given {type(function).__name__}, which is made for another kind of "
            f"stream; derive it from {kinds[0].__name__}"
        )


def key_function(selector: object, caller: str) -> KeyOf:
    """What to call for the key of a record."""
    if hasattr(selector, "get_key") and UserFunction(selector, "get_key").opens:
        raise PlanInvalid(
            f"{caller}() was given {type(selector).__name__}, which has an open() that would never "
            f"be called: keys are taken in several tasks; prepare what it needs in __init__"
        )
    return _callable_of(
        selector,
        "get_key",
        f"{caller}() was given the key selector {selector!r}; "
        f"give a callable or a KeySelector, for instance lambda record: record[0]",
    )


def partition_function(partitioner: object) -> Callable[[Any, int], int]:
    """What to call for the task of a key."""
    return _callable_of(
        partitioner,
        "partition",
        f"partition_custom() was given the partitioner {partitioner!r}; "
        f"give a callable or a Partitioner, for instance lambda key, tasks: key % tasks",
    )


def check_type(type_info: object, caller: str) -> TypeInformation | None:
    """A type, or nothing."""
    if type_info is None or isinstance(type_info, TypeInformation):
        return type_info
    raise PlanInvalid(f"{caller}(): the type is {type_info!r}; give one such as Types.INT()")


def check_field(position: object, caller: str) -> None:
    """A field of a record, by position or name."""
    if type(position) not in (int, str):
        raise PlanInvalid(
            f"{caller}() was given {position!r}; give the position or the name of a field"
        )


def check_tag(
    tag: object, caller: str, known: OutputTag | None = None, what: str = ""
) -> OutputTag:
    """The tag of a side output; ``known`` is the one that ``what`` has already."""
    if not isinstance(tag, OutputTag):
        raise PlanInvalid(f"{caller}() was given {tag!r}; give an OutputTag")
    if known not in (None, tag):
        raise PlanInvalid(
            f"{caller}() was given {tag!r} after {known!r}; {what} have one side output only"
        )
    return tag


def check_names(names: object, what: str) -> tuple[str, ...]:
    """One name, or several."""
    found = (names,) if isinstance(names, str) else names
    if isinstance(found, (tuple, list)) and all(isinstance(name, str) for name in found):
        return tuple(found)
    raise PlanInvalid(f"{what} is {names!r}; give the name of a column, or a list of names")


def check_text(text: object, caller: str) -> str:
    """A name, uid or description."""
    if isinstance(text, str) and text:
        return text
    raise PlanInvalid(f"{caller}() was given {text!r}; give a text that is not empty")


def _callable_of(selector: object, method: str, problem: str) -> Callable[..., Any]:
    _refuse_class(selector, method)
    # A bound method travels with its object, so it can be pickled if the object can.
    found = getattr(selector, method, selector)
    if isinstance(selector, str) or not callable(found):  # a text has a method "partition"
        raise PlanInvalid(problem)
    return found


def _a(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def _refuse_class(function: object, caller: str, kind: type = Function) -> None:
    """Classes such as ``str`` are callables like any other, those of functions are a slip."""
    if isinstance(function, type) and issubclass(function, kind):
        raise PlanInvalid(
            f"{caller}() was given the class {function.__name__}; "
            f"give an object of it: {function.__name__}()"
        )
