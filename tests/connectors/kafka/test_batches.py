"""Batches of fetched records: joined and divided, they keep values, times and offsets together."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headgate.connectors.kafka.fetcher import JOINED_RECORDS, FetchedBatch, PartitionBuffer
from headgate.connectors.kafka.offsets import KafkaTopicPartition


def batch(offsets: Sequence[int]) -> FetchedBatch:
    """Whose values and times tell the offset."""
    raw = [b"%d" % offset for offset in offsets]
    return FetchedBatch(raw, [*offsets], offsets, sum(map(len, raw)), has_tombstones=False)


def rows(found: FetchedBatch) -> list[tuple[int, bytes, int | None]]:
    offsets = map(found.offset, range(len(found)))
    return list(zip(offsets, found.raw, found.times, strict=True))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1), st.data())
def test_joined_and_divided_batches_keep_their_rows(
    cuts: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Each cut: offsets that are missing, and how many then follow each other."""
    joined, expected, at = None, [], 0
    for gap, count in cuts:
        at += gap
        part: Sequence[int] = range(at, at + count)
        if data.draw(st.booleans()):
            part = [*part]
        at += count
        expected += rows(batch(part))
        if joined is None:
            joined = batch(part)
        else:
            joined.append(batch(part))
    assert joined is not None
    assert rows(joined) == expected
    assert joined.next_offset == at
    assert joined.bytes == sum(len(value) for _, value, _ in expected)
    cut = data.draw(st.integers(0, len(joined)))
    first, rest = joined.divided(cut)
    assert [rows(first), rows(rest)] == [expected[:cut], expected[cut:]]
    assert first.bytes + rest.bytes == joined.bytes


def test_batches_are_joined_until_they_are_long() -> None:
    buffer = PartitionBuffer(KafkaTopicPartition("orders", 0), 0)
    step = JOINED_RECORDS // 2
    for start in range(0, 3 * step, step):
        buffer.append(batch(range(start, start + step)))
    assert list(map(len, buffer.batches)) == [2 * step, step]


def test_a_joined_batch_has_the_tombstones_of_both() -> None:
    found = batch([1])
    found.append(FetchedBatch([None], [2], [2], 0, has_tombstones=True))
    found.append(batch([3]))
    assert found.has_tombstones
    assert found.raw == [b"1", None, b"3"]
