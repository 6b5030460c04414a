"""Outputs to several others: to all, or to those a selector names. Row 8-12."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, LatencyMarker, StreamStatus, Watermark
from headgate.core.chain.operator import Operator
from headgate.core.chain.outputs import (
    BroadcastingOutput,
    BundleCopyingBroadcastingOutput,
    BundleCopyingDirectedOutput,
    DirectedOutput,
    RecordCopyingOutput,
    choose_output,
    select,
)
from tests.core.chain.kit import KeptOutput, spoil, values


@given(
    st.lists(st.sampled_from([None, frozenset({"even"}), frozenset({"odd", "all"})]), max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_the_output_is_chosen_by_selectors_number_and_object_reuse(
    selections: list[frozenset[str] | None], has_selector: bool, reuse: bool
) -> None:
    outputs = [(KeptOutput(), selected) for selected in selections]
    selectors = [lambda record: ["all"]] if has_selector else []
    chosen = choose_output(outputs, selectors, reuse)
    if has_selector:
        assert type(chosen) is (BundleCopyingDirectedOutput if reuse else DirectedOutput)
    elif len(outputs) == 1:
        assert chosen is outputs[0][0]
    else:
        assert type(chosen) is (BundleCopyingBroadcastingOutput if reuse else BroadcastingOutput)


@pytest.mark.parametrize("make", [BroadcastingOutput, BundleCopyingBroadcastingOutput])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_everything_goes_to_every_output(make: type[BroadcastingOutput], count: int) -> None:
    inner = [KeptOutput() for _ in range(count)]
    output = make(inner)
    marker = LatencyMarker(1, 2, 3)
    output.collect(Bundle([1, 2], [5, 6]))
    output.collect_side("late", Bundle([3]))
    output.emit_watermark(Watermark(9))
    output.emit_status(StreamStatus(active=False))
    output.emit_marker(marker)
    for output in inner:
        assert output.timed == [(1, 5), (2, 6)]
        assert output.side_records("late") == [3]
        assert output.elements == [Watermark(9), StreamStatus(active=False), marker]
    assert output.watermark_ms == 9


def test_with_object_reuse_each_but_the_last_has_an_envelope_of_its_own() -> None:
    inner = [KeptOutput(), KeptOutput(), KeptOutput()]
    bundle = Bundle([["shared"]], [1])
    BundleCopyingBroadcastingOutput(inner).collect(bundle)
    got = [output.bundles[0] for output in inner]
    assert got[2] is bundle
    assert got[0].records is not got[1].records
    assert got[0].records is not bundle.records
    assert all(bundled.records[0] is bundle.records[0] for bundled in got), "the values are shared"


class Spoiler(Operator):
    """Changes what it is given; first it notes how it looked."""

    def __init__(self) -> None:
        self.saw = ""

    def process(self, bundle: Bundle, number: int) -> None:
        self.saw = repr(bundle.records)
        for record in bundle.records:
            spoil(record)
        bundle.records.append("spoiled")


@given(st.lists(st.lists(values, max_size=3), min_size=1, max_size=4), st.integers(2, 4))
def test_what_one_consumer_changes_no_sibling_sees(records: list[Any], count: int) -> None:
    before = repr(records)
    consumers = [Spoiler() for _ in range(count)]
    output = BroadcastingOutput([RecordCopyingOutput(consumer, "next") for consumer in consumers])
    output.collect(Bundle(records))
    assert repr(records) == before
    assert [consumer.saw for consumer in consumers] == [before] * count


# Split and select.

selections = st.lists(
    st.none() | st.frozensets(st.sampled_from(["even", "odd", "small"])), min_size=1, max_size=4
)


def parity(record: int) -> list[str]:
    return ["odd" if record % 2 else "even"]


def size(record: int) -> list[str]:
    return ["small"] if record < 10 else []


@given(
    selections,
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9))),
    st.booleans(),
    st.booleans(),
)
def test_only_named_outputs_receive_a_record_in_order_with_its_time(
    selected: list[frozenset[str] | None],
    pairs: list[tuple[int, int]],
    timed: bool,
    reuse: bool,
) -> None:
    inner = [KeptOutput() for _ in selected]
    make = BundleCopyingDirectedOutput if reuse else DirectedOutput
    output = make(list(zip(inner, selected, strict=True)), [parity, size])
    times = [time for _, time in pairs] if timed else None
    output.collect(Bundle([record for record, _ in pairs], times))
    for output, names in zip(inner, selected, strict=True):
        expected = [
            (record, time if timed else None)
            for record, time in pairs
            if names is None or names & {*parity(record), *size(record)}
        ]
        assert output.timed == expected


def test_side_outputs_and_watermarks_pass_the_selection() -> None:
    inner = [KeptOutput(), KeptOutput()]
    output = DirectedOutput([(inner[0], frozenset({"x"})), (inner[1], None)], [parity])
    output.collect_side("late", Bundle([1]))
    output.emit_watermark(Watermark(3))
    assert [output.side_records("late") for output in inner] == [[1], [1]]
    assert [output.elements for output in inner] == [[Watermark(3)]] * 2


def test_with_object_reuse_directed_bundles_have_envelopes_of_their_own() -> None:
    inner = [KeptOutput(), KeptOutput()]
    bundle = Bundle([2, 4])
    both = frozenset({"even"})
    BundleCopyingDirectedOutput([(output, both) for output in inner], [parity]).collect(bundle)
    envelopes = [output.bundles[0].records for output in inner]
    assert envelopes[0] == envelopes[1] == [2, 4]
    assert envelopes[0] is not envelopes[1]


@given(st.lists(st.tuples(st.integers(), st.booleans(), st.integers())))
def test_select_keeps_records_and_times_together(rows: list[tuple[int, bool, int]]) -> None:
    bundle = Bundle([r for r, _, _ in rows], [t for _, _, t in rows])
    chosen = [wanted for _, wanted, _ in rows]
    selected = select(bundle, chosen)
    assert selected.records == [r for r, wanted, _ in rows if wanted]
    assert selected.timestamps == [t for _, wanted, t in rows if wanted]
    assert select(Bundle(bundle.records), chosen).timestamps is None
