"""The value that stands for one that a database did not send with a change.

Sources of changes emit it, and sinks have to know it: it cannot be written.
"""

from typing import Final


class ValueNotSent:
    """What stands for a value that the server did not send: there is only NOT_SENT."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "NOT_SENT"

    def __repr__(self) -> str:
        return "NOT_SENT"

    def __bool__(self) -> bool:
        return False


NOT_SENT: Final = ValueNotSent()
"""A large value that an update left as it was, or a column of an old row that is no key."""
SEND_ALL: Final = (
    "ALTER TABLE … REPLICA IDENTITY FULL there, or, if it is a TRUNCATE, give the source "
    "truncates=False"
)
"""What to do where NOT_SENT cannot be written."""
