"""Which settings nobody knows, and what their author may have meant.

A key is known if it is Headgate's own, or one of PyFlink's or Spark's that Headgate passes over on
purpose (``flink_keys``). Of the latter letters may be large or small: names of environment
variables do not keep them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from headgate.base.flink_keys import FORMER, KEYS, SECTIONS
from headgate.base.settings import describe_settings

ALIKE: Final = 0.75
"""How much of a key must be right for a suggestion, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class UnknownSetting:
    """A key that has no effect."""

    key: str
    suggestion: str = ""
    """The known key that comes nearest; empty: none comes near."""

    def __str__(self) -> str:
        if self.suggestion:
            return f"{self.key} is no setting; did you mean {self.suggestion}?"
        return f"{self.key} is no setting of Headgate's, PyFlink's or Spark's."


def unknown_settings(keys: Iterable[str]) -> list[UnknownSetting]:
    """Those of the keys that nobody knows, in their order."""
    return [UnknownSetting(key, suggestion_for(key)) for key in keys if not is_known(key)]


def is_known(key: str) -> bool:
    """Whether the key is ours, or is passed over on purpose."""
    small = key.lower()
    return key in _own_keys() or small in _PASSED_OVER or small.startswith(SECTIONS)


def suggestion_for(key: str) -> str:
    """The known key that comes nearest; empty if none comes near."""
    small = key.lower()
    found = get_close_matches(small, [*_own_keys(), *KEYS], 1, ALIKE)
    return FORMER.get(small) or (found[0] if found else "")


@lru_cache(maxsize=1)
def _own_keys() -> tuple[str, ...]:
    return tuple(key for key, _, _ in describe_settings())


_PASSED_OVER: Final = frozenset(key.lower() for key in KEYS)
