"""Records of removed channels: only records count, and of several readers each keeps its own."""

from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import (
    Bundle,
    Element,
    PickleSerializer,
    StreamStatus,
    Watermark,
    encode_element,
)
from headgate.base.errors import ElementBroken
from headgate.base.events import CheckpointBarrier
from headgate.core.buffers.buffer import Buffer, BufferConsumer
from headgate.core.checkpoint.restored import kept_by, reassigned_bundles
from headgate.core.egress.partition import overtake
from headgate.core.egress.router import CustomPartitioner, KeyGroupPartitioner, Router
from headgate.core.ingress.deserializer import Deserializer
from tests.base.kit import bundles_apart

PICKLE = PickleSerializer()


def stream(*elements: Element) -> bytes:
    return b"".join(part for element in elements for part in encode_element(element, PICKLE))


def test_records_come_out_and_nothing_else() -> None:
    data = stream(Bundle([1, 2], [5, None]), Watermark(9), StreamStatus(False), Bundle([3]))
    assert list(reassigned_bundles([data], Deserializer())) == [
        Bundle([1, 2], [5, None]),
        Bundle([3]),
    ]


@given(
    records=st.lists(st.binary(max_size=30), max_size=8),
    cuts=st.lists(st.integers(0, 300), max_size=6),
)
def test_pieces_may_be_cut_anywhere(records: list[bytes], cuts: list[int]) -> None:
    data = stream(*(Bundle([record]) for record in records))
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(places)]
    got = [
        record for bundle in reassigned_bundles(pieces, Deserializer()) for record in bundle.records
    ]
    assert got == records


def routers(consumers: int) -> list[Router]:
    made: list[Router] = [
        KeyGroupPartitioner(lambda record: record % 7),
        CustomPartitioner(lambda key, n: key % n),
    ]
    for router in made:
        router.set_up(consumers)
    return made


@given(
    records=st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), max_size=5),
    consumers=st.integers(1, 4),
    timed=st.booleans(),
    which=st.integers(0, 1),
)
def test_every_record_is_kept_by_the_one_reader_that_its_router_says(
    records: list[list[int]], consumers: int, timed: bool, which: int
) -> None:
    data = stream(*(Bundle(part, list(part) if timed else None) for part in records))
    router = routers(consumers)[which]
    got: list[int] = []
    for subtask in range(consumers):
        keep = kept_by(routers(consumers)[which], subtask)
        mine: list[int] = []
        for bundle in reassigned_bundles([data], Deserializer(), keep):
            assert bundle.records
            assert bundle.timestamps == (bundle.records if timed else None)
            mine += bundle.records
        every = [record for part in records for record in part]
        assert mine == [record for record in every if router.pick(record) == subtask]
        got += mine
    assert sorted(got) == sorted(record for part in records for record in part)


def test_stream_that_ends_in_the_middle_is_an_error() -> None:
    with pytest.raises(ElementBroken, match="middle of an element"):
        list(reassigned_bundles([stream(Bundle([1]))[:-1]], Deserializer()))


def test_deserializer_is_closed_at_the_end_and_when_nobody_reads_on() -> None:
    for read_all in (True, False):
        deserializer = Deserializer()
        bundles = reassigned_bundles([stream(Bundle([1]), Bundle([2]))], deserializer)
        assert next(bundles) == Bundle([1])
        assert not deserializer.is_between_elements
        if read_all:
            assert list(bundles) == [Bundle([2])]
        else:
            bundles.close()  # type: ignore[attr-defined]
        assert deserializer.is_between_elements


@given(bundles=st.lists(bundles_apart(), max_size=4), consumers=st.integers(1, 4))
def test_tuples_that_were_stored_apart_are_kept_by_their_readers(
    bundles: list[Bundle], consumers: int
) -> None:
    """Overtaken where they waited by reference, and read with another parallelism."""
    whole = [bundle.copy() for bundle in bundles]
    queue = deque(BufferConsumer.of(Buffer(b"", bundle=bundle)) for bundle in bundles)
    pieces = overtake(queue, CheckpointBarrier(1, 0, unaligned=True), PICKLE)
    router = KeyGroupPartitioner(lambda record: record[0])
    router.set_up(consumers)
    sent = [
        [record for bundle in whole for record in bundle.records if router.pick(record) == at]
        for at in range(consumers)
    ]
    kept = [
        [
            record
            for bundle in reassigned_bundles(pieces, Deserializer(), kept_by(router, subtask))
            for record in bundle.records
        ]
        for subtask in range(consumers)
    ]
    assert repr(kept) == repr(sent)
