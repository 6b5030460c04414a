"""Exceptions as the driver reports them: a traceback, the record at hand, the exception itself.

The frames of core, host and spark that run operators are left out of tracebacks; an error that
Headgate raises on purpose says in its sentence what is wrong, and keeps frames of the user's alone.
Law: no frame of the user's is ever cut, and another error without such a frame keeps all of ours,
because then the bug may be ours.

Nothing is noted per record; the frames of the traceback still hold it: a loop as the place where
its iterator stands, the user's function as an argument. Law: what is shown is a record of the
bundle at hand, or nothing; its text is bounded, and making it raises and changes nothing.
"""

import os
import pickle
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from inspect import CO_GENERATOR
from itertools import dropwhile, islice
from operator import length_hint
from reprlib import Repr
from traceback import StackSummary, TracebackException, extract_stack
from types import FrameType
from typing import Any, Final

from headgate.base.elements import Bundle
from headgate.base.errors import HeadgateError, UserFunctionFailed
from headgate.base.messages import Failure
from headgate.base.redaction import without_secrets
from headgate.control.error_classes import is_consequence, is_damage, is_final, is_outside
from headgate.core.loops.loops import LOOPED, SOURCE

SHOWN_CHARS: Final = 300
_TEXT_CHARS: Final = 64 * 1024
_EXCEPTION_BYTES: Final = 1024 * 1024
_OLDEST: Final = 8
"""How many of our frames above the user's function are searched."""
_LARGE_BITS: Final = 1024
_SORTED_ITEMS: Final = 100
"""A container with more items is not sorted before it is cut."""
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_PYTHON: Final = os.path.join(os.path.dirname(os.__file__), "")
_MACHINERY: Final = tuple(os.path.join(_PACKAGE, room, "") for room in ("core", "host", "spark"))


def root_of(error: BaseException) -> BaseException:
    """The user's own exception, if this one only names the operator that raised it."""
    if isinstance(error, UserFunctionFailed) and error.__cause__ is not None:
        return error.__cause__
    return error


def is_ours(filename: str) -> bool:
    """Whether code in this file runs operators, rather than being a user's."""
    return filename.startswith(_MACHINERY)


def readable_traceback(error: BaseException) -> str:
    """From the user's function to where it was raised, with the user's own chain of causes."""
    root = root_of(error)
    first = TracebackException.from_exception(root, compact=True)
    cause: TracebackException | None = first
    if isinstance(root, HeadgateError):
        _keep_user_frames(first)
        cause = None
    while cause is not None:
        rest = list(dropwhile(lambda frame: is_ours(frame.filename), cause.stack))
        if rest or root is not error:
            cause.stack = StackSummary.from_list(rest)
        cause = cause.__cause__ or cause.__context__
    return without_secrets("".join(_without_empty_headers(list(first.format()))))


def _keep_user_frames(trace: TracebackException) -> None:
    """Cut the causes that have none: the sentence tells of them."""
    trace.stack = StackSummary.from_list(
        [frame for frame in trace.stack if not _is_library(frame.filename)]
    )
    if (cause := trace.__cause__ or trace.__context__) is not None:
        _keep_user_frames(cause)
        if not cause.stack and cause.__cause__ is None and cause.__context__ is None:
            trace.__cause__ = trace.__context__ = None


def _is_library(filename: str) -> bool:
    """Whether a file is of Headgate or of Python itself."""
    is_pythons = filename.startswith(_PYTHON) and "-packages" not in filename
    return is_pythons or filename.startswith(os.path.join(_PACKAGE, ""))


def where_is(thread: threading.Thread) -> str:
    """The stack of a running thread, from the user's function on."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return "it has ended\n"
    stack = extract_stack(frame)
    above = (_PACKAGE, threading.__file__)
    rest = list(dropwhile(lambda frame: frame.filename.startswith(above), stack))
    return "".join(StackSummary.from_list(rest or list(stack)).format())


def _without_empty_headers(lines: list[str]) -> list[str]:
    """An empty stack is formatted as a header with nothing below it."""
    header = "Traceback (most recent call last):\n"
    return [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if line != header or following.startswith("  File ")
    ]


def record_of(error: BaseException) -> str:
    """A short text of the failed record; empty: unknown, or the failure was at no record."""
    try:
        found = _find_record(*_frames(root_of(error)))
        return shown(found[0]) if found else ""
    except Exception:  # frames are the interpreter's own; a message is worth no second failure
        return ""


def shown(record: object) -> str:
    """The text of a record, at most ``SHOWN_CHARS`` long, the same for equal records."""
    try:
        text = _ShortRepr().repr(record)
    except BaseException as error:  # a user's __repr__ may do anything
        text = f"<{type(record).__qualname__} whose repr() raises {type(error).__name__}>"
    return cut_text(_ADDRESS.sub("", text))


def cut_text(text: str) -> str:
    """At most ``SHOWN_CHARS`` of a text, which can travel: lone surrogates are escaped."""
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


class _ShortRepr(Repr):
    """Looks into large values, instead of asking them for a text that is cut afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxstring = self.maxother = self.maxlong = 100
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 8

    def repr1(self, x: Any, level: int) -> str:
        if isinstance(x, bytes | bytearray | memoryview):
            head = bytes(x[:40])
            return repr(head) if len(head) == len(x) else f"{head!r}… ({len(x)} bytes)"
        if isinstance(x, str) and type(x) is not str:
            x = str.__str__(x)
        if type(x) is int and x.bit_length() > _LARGE_BITS:
            return f"<an int of {x.bit_length()} bits>"
        if named := _named_parts(x):
            name, parts = named
            if level <= 0:
                return f"{name}(…)"
            inner = [f"{key}={self.repr1(part, level - 1)}" for key, part in parts[: self.maxdict]]
            more = ["…"] if len(parts) > self.maxdict else []
            return f"{name}({', '.join([*inner, *more])})"
        return super().repr1(_head_of(x), level)


def _head_of(thing: Any) -> Any:
    """The first items of a large container, or of one of a user's class, in a plain one."""
    if isinstance(thing, dict) and (type(thing) is not dict or len(thing) > _SORTED_ITEMS):
        return dict(islice(dict.items(thing), _SORTED_ITEMS))
    kinds: tuple[Any, ...] = (list, tuple, set, frozenset)
    for plain in kinds:
        if isinstance(thing, plain) and (type(thing) is not plain or len(thing) > _SORTED_ITEMS):
            return plain(islice(plain.__iter__(thing), _SORTED_ITEMS))
    return thing


def _named_parts(thing: Any) -> tuple[str, list[tuple[str, Any]]] | None:
    """The name of a row, named tuple or dataclass, and its fields by name."""
    name = type(thing).__name__
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return name, list(zip(thing._fields, thing, strict=False))
    if type(thing).__module__ == "headgate.api.row" and hasattr(thing, "get_field_names"):
        names = thing.get_field_names() or map(str, range(len(thing)))
        return name, list(zip(names, thing, strict=False))
    if is_dataclass(thing) and not isinstance(thing, type):
        return name, [(part.name, getattr(thing, part.name, None)) for part in fields(thing)]
    return None


def _frames(error: BaseException) -> tuple[list[FrameType], FrameType | None]:
    """Our frames down to the user's function, the innermost first, and the frame of that."""
    ours: list[FrameType] = []
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if is_ours(frame.f_code.co_filename):
            ours.append(frame)
        elif ours:  # the frames above ours belong to whoever runs us
            return ours[::-1], frame
        trace = trace.tb_next
    return ours[::-1], None


def _find_record(ours: list[FrameType], theirs: FrameType | None) -> tuple[object] | None:
    records = _records_at(ours[:_OLDEST])
    if not records:
        return None
    if len(records) == 1:
        return (records[0],)
    for frame in (theirs, *ours[:1]):  # the function stands in the loop, or the loop calls it
        if frame is not None and (source := _source_of(frame, len(records))) is not None:
            return (records[len(records) - length_hint(source) - 1],)
    candidates: list[object] = []
    if theirs is None or not theirs.f_code.co_flags & CO_GENERATOR:
        # Code that draws from a generator has records of its own: those it was given.
        candidates += [frame.f_locals["record"] for frame in ours[:1] if "record" in frame.f_locals]
    candidates += _arguments(theirs)
    for candidate in candidates:
        if any(candidate is record for record in records):
            return (candidate,)
    return None


def _records_at(frames: list[FrameType]) -> list[object]:
    """The records of the bundle at hand; a router has no bundle, only records."""
    for frame in frames:
        bundle = frame.f_locals.get("bundle")
        if isinstance(bundle, Bundle):
            return bundle.records
    found = (frame.f_locals.get("records") for frame in frames)
    return next((records for records in found if isinstance(records, list)), [])


def _source_of(frame: FrameType, count: int) -> object | None:
    """The iterator of the records in a loop over a list of so many; None: it is no such loop."""
    records = frame.f_locals.get(LOOPED)
    if frame.f_code.co_flags & CO_GENERATOR or type(records) is not list or len(records) != count:
        return None
    return frame.f_locals.get(SOURCE)


def _arguments(frame: FrameType | None) -> Iterator[object]:
    """What a function was called with, unless it has rebound its parameters."""
    if frame is None:
        return
    for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]:
        if name in frame.f_locals:
            yield frame.f_locals[name]


def describe(error: BaseException) -> Failure:
    """An exception for the driver: as text, and pickled if it survives that."""
    return Failure(
        kind=f"{type(error).__module__}.{type(error).__qualname__}",
        message=_shortened(without_secrets(_text(error))),
        operator=str(getattr(error, "operator", None) or ""),
        traceback=_shortened(readable_traceback(error)),
        exception=_pickled(root_of(error)) or _pickled(error),
        is_consequence=is_consequence(error),
        is_final=is_final(error),
        is_damage=is_damage(error),
        is_outside=is_outside(error),
        record=record_of(error),
    )


def revive(failure: Failure) -> BaseException | None:
    """The exception, in the driver; None if it cannot be unpickled. Only from proven peers."""
    if failure.exception is None:
        return None
    try:
        error = pickle.loads(failure.exception)
    except (Exception, SystemExit):
        return None
    return error if isinstance(error, BaseException) else None


def _pickled(error: BaseException) -> bytes | None:
    # An exception with its own constructor often cannot be unpickled; find that out here.
    for form in (error, _PastConstructor(error)):
        with suppress(Exception):
            data = pickle.dumps(form, protocol=5)
            if len(data) <= _EXCEPTION_BYTES and type(pickle.loads(data)) is type(error):
                return data
    return None


class _PastConstructor:
    """Pickles an exception as its arguments and fields, as HeadgateError does."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[object, ...]:
        error = self._error
        return _made, (type(error), error.args), error.__dict__


def _made(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    return kind.__new__(kind, *args)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as other:
        return f"str() of it raises {type(other).__name__}"


def _shortened(text: str) -> str:
    # No message could carry a lone surrogate.
    text = text.encode(errors="backslashreplace").decode()
    half = _TEXT_CHARS // 2
    return text if len(text) <= _TEXT_CHARS else f"{text[:half]}\n…\n{text[-half:]}"
