"""Which part of a function cannot be pickled: the search that makes an error message useful.

It goes from the function into its closure, globals, defaults and attributes, always into a part
that cannot be pickled itself, until there is no such part.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import FunctionType, MethodType

_DEPTH = 20


def find_culprit(thing: object, problem_of: Callable[[object], Exception | None]) -> str:
    """In words, for instance ``attribute 'lock' of Parser (a lock)``."""
    path = [f"{_name(thing)} itself"]
    seen = [thing]
    while len(path) < _DEPTH:
        found = _first_bad_part(seen[-1], seen, problem_of)
        if found is None:
            break
        words, part = found
        path.append(f"{words} ({_article(type(part).__name__)})")
        seen.append(part)
    if len(path) > 2:
        return f"{path[-1]}, which {path[-2]} holds,"
    return path[-1]


def _first_bad_part(
    thing: object, seen: list[object], problem_of: Callable[[object], Exception | None]
) -> tuple[str, object] | None:
    for words, part in _parts(thing):
        if not any(part is known for known in seen) and problem_of(part) is not None:
            return words, part
    return None


def _parts(thing: object) -> Iterator[tuple[str, object]]:
    """What a thing holds, with the words for it."""
    name = _name(thing)
    if isinstance(thing, FunctionType):
        yield from _parts_of_function(thing, name)
    elif isinstance(thing, MethodType):
        yield f"the object of method {name}", thing.__self__
        yield f"method {name}", thing.__func__
    elif isinstance(thing, functools.partial):
        yield f"function of {name}", thing.func
        yield from ((f"argument {n} of {name}", one) for n, one in enumerate(thing.args))
        yield from ((f"argument {key!r} of {name}", one) for key, one in thing.keywords.items())
    elif isinstance(thing, Mapping):
        yield from ((f"the value of key {key!r}", one) for key, one in thing.items())
        yield from ((f"key {key!r}", key) for key in thing)
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from ((f"element {number}", one) for number, one in enumerate(thing))
    elif isinstance(thing, type):
        yield from ((f"{key!r} of class {name}", one) for key, one in vars(thing).items())
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
    for variable in function.__code__.co_names:
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
    yield from ((f"attribute {key!r} of {name}", one) for key, one in attributes.items())
    yield f"class {type(thing).__name__}", type(thing)


def _name(thing: object) -> str:
    own = getattr(thing, "__qualname__", None)
    return str(own) if own else type(thing).__name__


def _article(word: str) -> str:
    return f"an {word}" if word[0].lower() in "aeiou" else f"a {word}"
