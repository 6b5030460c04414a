"""The ledger notices what is wrong at the first item that is."""

import pytest

from headgate.base.elements import Bundle, Watermark
from headgate.base.events import END_OF_SUPERSTEP
from headgate.base.ids import PartitionId
from headgate.sim.worker import CheckFailed
from tests.sim.ledger import Ledger, Position, item_of, items_of

P = PartitionId("p")
ITEMS = [("a", None), ("b", 5), Watermark(3), END_OF_SUPERSTEP, ("c", None)]


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.opened(P, 1)
    for item in ITEMS:
        ledger.wrote(P, 0, item)
    return ledger


@pytest.fixture
def position() -> Position:
    return Position("reader", P, 0)


def test_what_comes_as_it_was_written_is_fine(ledger: Ledger, position: Position) -> None:
    for item in ITEMS:
        ledger.got(position, item)
    ledger.ended(position)
    assert ledger.items_read == len(ITEMS)


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        ([0, 2], "lost or reordered"),
        ([0, 0], "doubled"),
        ([1], "lost or reordered"),
        ([0, 1, 2, 3, 4, 4], "doubled"),
    ],
)
def test_a_wrong_order_is_told(
    ledger: Ledger, position: Position, order: list[int], problem: str
) -> None:
    for index in order[:-1]:
        ledger.got(position, ITEMS[index])
    with pytest.raises(CheckFailed, match=problem):
        ledger.got(position, ITEMS[order[-1]])


def test_a_damaged_record_is_told(ledger: Ledger, position: Position) -> None:
    with pytest.raises(CheckFailed, match="damaged"):
        ledger.got(position, ("A", None))


def test_an_early_end_tells_how_much_is_lost(ledger: Ledger, position: Position) -> None:
    ledger.got(position, ITEMS[0])
    with pytest.raises(CheckFailed, match="4 items are lost"):
        ledger.ended(position)


def test_nothing_comes_after_the_end(ledger: Ledger, position: Position) -> None:
    for item in ITEMS:
        ledger.got(position, item)
    ledger.ended(position)
    with pytest.raises(CheckFailed, match="after the end"):
        ledger.got(position, ITEMS[0])
    with pytest.raises(CheckFailed, match="twice"):
        ledger.ended(position)


def test_a_bundle_counts_record_by_record() -> None:
    assert list(items_of(Bundle(["a", "b"], [None, 5]))) == [("a", None), ("b", 5)]
    assert list(items_of(Bundle(["a"]))) == [("a", None)]
    assert list(items_of(Watermark(3))) == [Watermark(3)]
    assert item_of(END_OF_SUPERSTEP) == END_OF_SUPERSTEP
