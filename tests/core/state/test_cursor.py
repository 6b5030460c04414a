"""The cursor: whose state is meant."""

from headgate.core.state.cursor import NO_KEY, Cursor, seen
from headgate.core.state.keys import Frozen


def test_there_is_no_key_at_first() -> None:
    cursor = Cursor()
    assert cursor.key is NO_KEY and cursor.namespace is None
    assert repr(cursor.plain_key) == "no key"


def test_a_key_that_cannot_be_hashed_is_frozen_and_given_back_as_it_was() -> None:
    cursor = Cursor()
    for key in ([1, 2], {"a": [1]}):
        cursor.key = seen(key)
        assert type(cursor.key) is Frozen and cursor.plain_key is key
    for plain in ("a", 1, None, (1, 2)):
        cursor.key = seen(plain)
        assert cursor.key is plain and cursor.plain_key is plain
