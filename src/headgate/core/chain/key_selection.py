"""Key selection: the keys of a bundle's records, in the form that cursor and state want.

Law: every key is hashable (one that is not is frozen), and equal keys stay equal. An error of the
user's key selector names the operator on the keyed stream and says that it was the selector.
"""

from collections import deque
from collections.abc import Callable
from itertools import chain

from headgate.base.elements import Key, Record
from headgate.base.errors import HeadgateError, UserFunctionFailed
from headgate.core.state.cursor import PLAIN, seen
from headgate.core.state.freezing import go_by_identity


class KeySelection:
    """Of one input of one operator; the loop over records only sets ``cursor.key``."""

    __slots__ = ("_key_of", "_operator")

    def __init__(self, key_of: Callable[[Record], Key], operator: str) -> None:
        self._key_of = key_of
        self._operator = operator

    def keys(self, records: list[Record]) -> list[Key]:
        """A key for each record."""
        key_of = self._key_of
        try:
            return hashable([key_of(record) for record in records])
        except HeadgateError:
            raise
        except (Exception, SystemExit) as error:
            raise UserFunctionFailed(
                self._operator, error, "when the key of a record was selected"
            ) from error


def hashable(keys: list[Key]) -> list[Key]:
    """The same keys, those that are not hashable by what they hold frozen."""
    kinds = set(map(type, keys))
    if kinds <= PLAIN:
        has_nan = float in kinds and any(key != key for key in keys)
        return [seen(key) for key in keys] if has_nan else keys
    if kinds == {tuple} and PLAIN.issuperset(map(type, chain.from_iterable(keys))):
        return keys
    try:
        deque(map(hash, keys), maxlen=0)  # whether they can be hashed, not what comes out
    except TypeError:
        return [seen(key) for key in keys]
    return [seen(key) for key in keys] if go_by_identity(keys) else keys
