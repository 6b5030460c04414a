"""The source protocol, held up to the connectors that implement it."""

import pytest

from headgate.connectors.generator import NumberSequenceSource
from headgate.functions.source import Source, SplitReader
from tests.core.chain.kit import context


def read(reader: SplitReader, limit: int) -> list[int]:
    found: list[int] = []
    while (some := reader.poll(limit)) is not None:
        found += some  # type: ignore[arg-type]
    reader.close()
    return found


@pytest.mark.parametrize("parallelism", [1, 3])
def test_all_splits_together_are_the_whole_source(parallelism: int) -> None:
    source: Source = NumberSequenceSource(1, 100)
    found = [
        number
        for split in source.splits(parallelism)
        for number in read(source.open(split, None, context()), 7)
    ]
    assert sorted(found) == list(range(1, 101))


def test_a_new_reader_goes_on_where_the_last_one_stood() -> None:
    source: Source = NumberSequenceSource(1, 20)
    (split,) = source.splits(1)
    reader = source.open(split, None, context())
    begun = list(reader.poll(8))  # type: ignore[arg-type]
    rest = read(source.open(split, reader.position(), context()), 5)
    assert begun + rest == list(range(1, 21))
