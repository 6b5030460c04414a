"""What channels begin with: reassigned records, then bytes, each buffer once."""

from collections.abc import Iterator

from headgate.base.elements import Bundle, PickleSerializer
from headgate.core.buffers.buffer import bundle_bytes
from headgate.core.checkpoint.restored import RestoredInput

PICKLE = PickleSerializer()


def bytes_of(*bundles: Bundle) -> bytes:
    return b"".join(bundle_bytes(bundle, PICKLE) for bundle in bundles)


def taken(restored: RestoredInput) -> list[tuple[int, object]]:
    found: list[tuple[int, object]] = []
    while (following := restored.next()) is not None:
        channel, buffer = following
        found.append((channel, buffer.bundle or bytes(buffer.view)))
    return found


def test_without_a_restore_there_is_nothing() -> None:
    restored = RestoredInput()
    restored.add_bytes(0, [])
    restored.add_bytes(0, [b""])
    assert not restored.waits
    assert restored.next() is None
    assert restored.unread(0, PICKLE) == b""


def test_reassigned_records_come_first_and_then_each_channel_in_order() -> None:
    restored = RestoredInput()
    restored.add_bytes(1, [b"a", b"", b"b"])
    restored.add_reassigned(0, [Bundle([1]), Bundle([]), Bundle([2], [5])])
    restored.add_bytes(0, [b"c"])
    assert restored.waits
    assert taken(restored) == [
        (0, Bundle([1])),
        (0, Bundle([2], [5])),
        (1, b"a"),
        (1, b"b"),
        (0, b"c"),
    ]
    assert not restored.waits


def test_what_was_not_read_is_told_channel_by_channel_and_is_read_afterwards() -> None:
    restored = RestoredInput()
    restored.add_reassigned(0, [Bundle([1]), Bundle([2])])
    restored.add_reassigned(1, [Bundle([3])])
    restored.add_bytes(0, [b"a", b"b"])
    restored.next()
    for _ in range(2):
        assert restored.unread(0, PICKLE) == bytes_of(Bundle([2])) + b"ab"
        assert restored.unread(1, PICKLE) == bytes_of(Bundle([3]))
        assert restored.unread(2, PICKLE) == b""
    assert taken(restored) == [(0, Bundle([2])), (1, Bundle([3])), (0, b"a"), (0, b"b")]


def test_reassigned_records_are_made_when_they_are_read() -> None:
    made: list[int] = []

    def reassigned() -> Iterator[Bundle]:
        for number in range(3):
            made.append(number)
            yield Bundle([number])

    restored = RestoredInput()
    restored.add_reassigned(0, reassigned())
    assert made == []
    restored.next()
    assert made == [0]


def test_reassigned_records_that_turn_out_to_be_none_end_by_themselves() -> None:
    restored = RestoredInput()
    restored.add_reassigned(0, iter([]))
    assert restored.waits, "nobody has looked yet"
    assert restored.next() is None
    assert not restored.waits


def test_a_channel_is_held_until_all_that_it_begins_with_has_been_read() -> None:
    calls: list[tuple[str, int]] = []
    restored = RestoredInput(
        lambda channel: calls.append(("hold", channel)),
        lambda channel: calls.append(("let go", channel)),
    )
    restored.add_bytes(2, [b""])
    restored.add_reassigned(1, [Bundle([1])])
    restored.add_bytes(0, [b"a"])
    restored.add_bytes(1, [b"b"])
    assert calls == [("hold", 1), ("hold", 0), ("hold", 1)]
    calls.clear()
    for expected in ([], [], [("let go", 0)], [("let go", 0), ("let go", 1)]):
        restored.unread(1, PICKLE)
        restored.next()
        assert calls == expected
