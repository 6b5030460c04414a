"""The cursor: for which key, and for which namespace, state and timers are meant at this moment.

An operator sets it before it calls the user's function. Namespaces tell the windows of a key apart;
state of a function has the namespace None.
"""

from collections.abc import Hashable
from typing import Final, TypeAlias

from headgate.base.elements import Key
from headgate.core.state.keys import Frozen, freeze

Namespace: TypeAlias = Hashable


class Cursor:
    """One for each operator on a keyed stream; shared by its states, timers and contexts."""

    __slots__ = ("key", "namespace")

    def __init__(self) -> None:
        self.key: Key = NO_KEY
        """Hashable: ``seen`` has frozen it if need be."""
        self.namespace: Namespace = None

    @property
    def plain_key(self) -> Key:
        """The key as the selector has returned it."""
        key = self.key
        return key.key if type(key) is Frozen else key


class _NoKey:
    """Stands for the key where there is none: in ``open``, ``close`` and on a broadcast side.

    No state takes it as a key: whoever hashes or pickles it learns why.
    """

    def __repr__(self) -> str:
        return "no key"

    def __hash__(self) -> int:
        raise RuntimeError(_NO_KEY_HERE)

    def __reduce__(self) -> str:
        raise RuntimeError(_NO_KEY_HERE)


_NO_KEY_HERE: Final = (
    "there is no current key here, so there is no keyed state and there are no timers; use them "
    "where a record with a key or a timer is handled, not in open() or close() and not for records "
    "of a broadcast stream"
)


NO_KEY: Final = _NoKey()

PLAIN: Final = frozenset({str, int, bytes, float, bool, type(None)})
"""Kinds of keys that are surely hashable; of others it must be tried."""


def seen(key: Key) -> Key:
    """What the cursor is set to for a key."""
    return key if type(key) in PLAIN and key == key else freeze(key)
