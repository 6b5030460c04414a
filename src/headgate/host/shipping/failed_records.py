"""The record that a user's function could not take, found after the function has raised.

Functions are called in comprehensions, so that nothing is noted for each record. The frames of the
traceback still hold what they were at: the loop its record, the user's function its argument. Law:
what is shown is a record of the bundle at hand, or nothing; making the text is bounded, raises
nothing, and changes nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from inspect import CO_GENERATOR
from itertools import islice
from reprlib import Repr
from types import FrameType
from typing import Any, Final

from headgate.base.elements import Bundle
from headgate.host.shipping.tracebacks import is_ours, root_of

SHOWN_CHARS: Final = 300
_OLDEST: Final = 8
"""So many frames of ours above the user's function are looked at."""
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


def record_of(error: BaseException) -> str:
    """In short, for people; empty: it is not known, or the function was not at a record."""
    try:
        ours, theirs = _frames(root_of(error))
        found = _found(ours, theirs)
        return shown(found[0]) if found else ""
    except Exception:  # frames are the interpreter's own; a message is worth no second failure
        return ""


def shown(record: object) -> str:
    """The text of a record, at most ``SHOWN_CHARS`` long, the same for equal records."""
    try:
        text = _ShortRepr().repr(record)
    except BaseException as error:  # a user's __repr__ may do anything
        text = f"<{type(record).__qualname__} whose repr() raises {type(error).__name__}>"
    text = _ADDRESS.sub("", text.encode(errors="backslashreplace").decode())
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


class _ShortRepr(Repr):
    """Looks into what may be large, instead of asking it for a text that is cut afterwards."""

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


_LARGE_BITS: Final = 1024
_SORTED_ITEMS: Final = 100
"""What has more items is not sorted before it is cut."""


def _head_of(thing: Any) -> Any:
    """Enough of a large container, or of one of a class of the user's, as a plain one."""
    if isinstance(thing, dict) and (type(thing) is not dict or len(thing) > _SORTED_ITEMS):
        return dict(islice(dict.items(thing), _SORTED_ITEMS))
    kinds: tuple[Any, ...] = (list, tuple, set, frozenset)
    for plain in kinds:
        if isinstance(thing, plain) and (type(thing) is not plain or len(thing) > _SORTED_ITEMS):
            return plain(islice(plain.__iter__(thing), _SORTED_ITEMS))
    return thing


def _named_parts(thing: Any) -> tuple[str, list[tuple[str, Any]]] | None:
    """Of rows, named tuples and dataclasses: their name, and their parts by name."""
    name = type(thing).__name__
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return name, list(zip(thing._fields, thing, strict=False))
    if type(thing).__module__ == "headgate.api.types.row" and hasattr(thing, "get_field_names"):
        names = thing.get_field_names() or map(str, range(len(thing)))
        return name, list(zip(names, thing, strict=False))
    if is_dataclass(thing) and not isinstance(thing, type):
        return name, [(one.name, getattr(thing, one.name, None)) for one in fields(thing)]
    return None


def _frames(error: BaseException) -> tuple[list[FrameType], FrameType | None]:
    """Ours from the innermost on, down to the user's function, and that if it is Python's."""
    ours: list[FrameType] = []
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if is_ours(frame.f_code.co_filename):
            ours.append(frame)
        elif ours:  # what stands above is whoever runs us
            return ours[::-1], frame
        trace = trace.tb_next
    return ours[::-1], None


def _found(ours: list[FrameType], theirs: FrameType | None) -> tuple[object] | None:
    records = _records_at(ours[:_OLDEST])
    if not records:
        return None
    if len(records) == 1:
        return (records[0],)
    candidates: list[object] = []
    if theirs is None or not theirs.f_code.co_flags & CO_GENERATOR:
        # Whoever draws from a generator has records of its own: those that it was given.
        candidates += [frame.f_locals["record"] for frame in ours[:1] if "record" in frame.f_locals]
    candidates += _arguments(theirs)
    for candidate in candidates:
        if any(candidate is record for record in records):
            return (candidate,)
    return None


def _records_at(frames: list[FrameType]) -> list[object]:
    """Of the bundle that the frames are at; of a router, which has none, its records."""
    for frame in frames:
        bundle = frame.f_locals.get("bundle")
        if isinstance(bundle, Bundle):
            return bundle.records
    found = (frame.f_locals.get("records") for frame in frames)
    return next((records for records in found if isinstance(records, list)), [])


def _arguments(frame: FrameType | None) -> Iterator[object]:
    """What a function was called with, unless it has given its names to something else."""
    if frame is not None:
        code = frame.f_code
        for name in code.co_varnames[: code.co_argcount]:
            if name in frame.f_locals:
                yield frame.f_locals[name]
