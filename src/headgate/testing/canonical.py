"""Texts of records, by which two runs, also of two processes, are compared.

Law: equal records have the same text, whatever the order of their sets and dictionaries; numbers
that differ by rounding only, as sums in another order do, have the same text.
"""

import math
import pickle
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

DIGITS: Final = 9
"""Digits of floating-point numbers that are compared."""
LONGEST: Final = 160
DEPTH: Final = 12


def text_of(value: object, depth: int = 0) -> str:
    """The value as text, by its parts and not by its identity."""
    kind = type(value)
    if kind in (int, str, bytes, bool, type(None)):
        return repr(value)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value:.{DIGITS}g}" if value else "0"
    if depth > DEPTH:
        return "…"
    if isinstance(value, Mapping):
        pairs = sorted(f"{_text(k, depth)}: {_text(v, depth)}" for k, v in value.items())
        return f"{_name(kind)}{{{', '.join(pairs)}}}"
    if isinstance(value, set | frozenset):
        return f"{_name(kind)}{{{', '.join(sorted(_text(part, depth) for part in value))}}}"
    if isinstance(value, list | tuple):
        parts = ", ".join(_text(part, depth) for part in value)
        return f"[{parts}]" if kind is list else f"{_name(kind)}({parts})"
    return _text_of_object(value, depth)


def _text_of_object(value: Any, depth: int) -> str:
    kind = type(value)
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:
        return repr(value)
    if isinstance(reduced, str):
        return f"{_name(kind)}.{reduced}"
    parts = [part for part in reduced[1:3] if part]
    if any(part is value for part in parts):
        return repr(value)
    return f"{_name(kind)}{' '.join(_text(part, depth) for part in parts)}"


def _text(value: object, depth: int) -> str:
    return text_of(value, depth + 1)


def _name(kind: type) -> str:
    return "" if kind in (dict, set, tuple) else kind.__qualname__


def short_text(text: str) -> str:
    """The text, cut to the length that a message may have."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def counted(records: Iterable[object]) -> "Counter[str]":
    """How often each record is there."""
    return Counter(map(text_of, records))


def difference(expected: "Counter[str]", found: "Counter[str]") -> str:
    """What is missing and what is too much, in words; empty: nothing."""
    missing, extra = expected - found, found - expected
    words = []
    if missing:
        words.append(f"missing {_some_of(missing)}")
    if extra:
        words.append(f"unexpected {_some_of(extra)}")
    return "; ".join(words)


def _some_of(records: "Counter[str]") -> str:
    shown = [
        short_text(text) + (f" ({times} times)" if times > 1 else "")
        for text, times in sorted(records.items())[:3]
    ]
    rest = len(records) - len(shown)
    return ", ".join(shown) + (f" and {rest} others" if rest > 0 else "")


def copied(value: Any) -> Any:
    """A copy of the value, by pickle."""
    return pickle.loads(pickle.dumps(value))
