"""Output tags and the sorting of what process functions yield. Row 13."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.chain.tags import OutputTag, Sorter
from tests.core.chain.kit import KeptOutput


def test_tags_with_the_same_id_are_the_same() -> None:
    assert OutputTag("late") == OutputTag("late", int)
    assert OutputTag("late") != OutputTag("early")
    assert OutputTag("late") != "late"
    assert len({OutputTag("late"), OutputTag("late")}) == 1
    assert repr(OutputTag("late")) == "OutputTag('late')"


def test_a_tag_needs_an_id() -> None:
    with pytest.raises(ValueError, match="not empty"):
        OutputTag("")


yields = st.lists(
    st.one_of(st.integers(), st.tuples(st.sampled_from("ab").map(OutputTag), st.integers())),
    max_size=6,
)
calls = st.lists(st.tuples(yields, st.none() | st.integers(0, 9)), max_size=12)


@given(calls, st.integers(1, 5))
def test_every_value_goes_where_its_tag_says_in_order_with_its_time(
    called: list[tuple[list[object], int | None]], piece: int
) -> None:
    output = KeptOutput()
    sorter = Sorter(output, piece=piece)
    for found, timestamp in called:
        sorter.take(found, timestamp)
    sorter.flush()
    main = [(v, t) for found, t in called for v in found if not isinstance(v, tuple)]
    assert output.timed == main
    for tag in "ab":
        expected = [
            (v[1], t)
            for found, t in called
            for v in found
            if isinstance(v, tuple) and v[0] == OutputTag(tag)
        ]
        got = [
            (bundle.records[0], bundle.timestamps and bundle.timestamps[0])
            for name, bundle in output.side
            if name == tag
        ]
        assert got == expected
    assert all(len(bundle.records) <= piece for bundle in output.bundles)


def test_nothing_is_nothing() -> None:
    output = KeptOutput()
    sorter = Sorter(output)
    sorter.take(None, 1)
    sorter.flush()
    assert not output.bundles


def test_a_plain_pair_is_no_side_output() -> None:
    output = KeptOutput()
    sorter = Sorter(output)
    sorter.take([("late", 1)], None)
    sorter.flush()
    assert output.records == [("late", 1)]
    assert not output.side


def test_what_was_yielded_is_the_receivers_own() -> None:
    kept: list[int] = []

    def growing() -> object:
        for number in range(3):
            kept.append(number)
            yield kept
            yield OutputTag("side"), kept

    output = KeptOutput()
    sorter = Sorter(output)
    sorter.take(growing(), None)  # type: ignore[arg-type]
    sorter.flush()
    assert output.records == [[0], [0, 1], [0, 1, 2]]
    assert output.side_records("side") == [[0], [0, 1], [0, 1, 2]]
