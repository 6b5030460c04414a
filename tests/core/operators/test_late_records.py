"""Late records go to the side together, or are counted."""

from headgate.core.operators.late_records import LateRecords
from tests.core.chain.kit import KeptOutput


def test_late_records_are_sent_in_one_bundle_or_counted() -> None:
    output = KeptOutput()
    aside, dropped = LateRecords("late", output), LateRecords(None, output)
    for late in (aside, dropped):
        late.take("a", 1)
        late.take("b", 2)
        late.flush()
        late.flush()
    assert [(tag, bundle.records) for tag, bundle in output.side] == [("late", ["a", "b"])]
    assert (aside.dropped, dropped.dropped) == (0, 2)
