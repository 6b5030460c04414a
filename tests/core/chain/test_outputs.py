"""The outputs of a chain: to the next operator and to the network. Row 1, 4, 6, 7, 13-15."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, LatencyMarker, StreamStatus, Watermark
from headgate.base.errors import PathUnusable, TaskCancelled, UserFunctionFailed, raise_user_error
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.chain.operator import Operator
from headgate.core.chain.outputs import (
    ChainedOutput,
    CountingOutput,
    NetworkOutput,
    RecordCopyingOutput,
    run_user_code,
)
from headgate.core.egress.router import CustomPartitioner, RoundRobin, Router
from headgate.core.egress.writer import STAGED_RECORDS, RecordWriter
from tests.arena import assert_all_home, plain_pool
from tests.core.chain.kit import KeptOutput, StrictLoan, spoil, values
from tests.core.egress.kit import ChannelReader, make_partition, readers_of


class Reader(Operator):
    """Keeps what it is given, or does with it what the test says."""

    def __init__(self, does: Callable[[list[Any]], None] = lambda records: None) -> None:
        self.got: list[tuple[Bundle, int]] = []
        self.elements: list[Any] = []
        self._does = does

    def process(self, bundle: Bundle, number: int) -> None:
        self.got.append((bundle, number))
        self._does(bundle.records)

    def watermark_advanced(self, watermark: Watermark) -> None:
        self.elements.append(watermark)

    def status_changed(self, status: StreamStatus) -> None:
        self.elements.append(status)

    def marker_received(self, marker: LatencyMarker) -> None:
        self.elements.append(marker)


# To the next operator.


@pytest.mark.parametrize("make", [ChainedOutput, RecordCopyingOutput])
def test_records_reach_the_right_input_and_are_counted(make: type[ChainedOutput]) -> None:
    reader = Reader()
    output = make(reader, "next", 1)
    output.collect(Bundle([1, 2], [10, 20]))
    output.collect(Bundle(["x"]))
    assert [(bundle.records, bundle.timestamps, number) for bundle, number in reader.got] == [
        ([1, 2], [10, 20], 1),
        (["x"], None, 1),
    ]
    assert output.records_in == 3


def test_with_object_reuse_the_very_same_records_are_handed_on() -> None:
    reader, bundle = Reader(), Bundle([[1], {"a": 2}])
    ChainedOutput(reader, "next").collect(bundle)
    assert reader.got[0][0] is bundle


@given(st.lists(values, min_size=1, max_size=5))
def test_what_the_next_operator_changes_is_never_seen_upstream(records: list[Any]) -> None:
    before = repr(records)
    RecordCopyingOutput(Reader(spoil_all), "next").collect(Bundle(records))
    assert repr(records) == before


def spoil_all(records: list[Any]) -> None:
    for record in records:
        spoil(record)


def test_immutable_records_are_not_copied() -> None:
    reader, bundle = Reader(), Bundle(["x", (1, "y")])
    RecordCopyingOutput(reader, "next").collect(bundle)
    assert reader.got[0][0] is bundle


@given(
    st.sampled_from([None, "late", "early"]),
    st.lists(st.tuples(st.sampled_from([None, "late", "early"]), st.integers())),
)
def test_an_output_takes_what_was_sent_for_its_tag_and_drops_the_rest(
    tag: str | None, sent: list[tuple[str | None, int]]
) -> None:
    reader = Reader()
    output = ChainedOutput(reader, "next", 0, tag)
    for target, value in sent:
        if target is None:
            output.collect(Bundle([value]))
        else:
            output.collect_side(target, Bundle([value]))
    got = [record for bundle, _ in reader.got for record in bundle.records]
    assert got == [value for target, value in sent if target == tag]


def test_what_is_no_record_goes_to_every_output_whatever_its_tag() -> None:
    reader = Reader()
    output = ChainedOutput(reader, "next", 0, "late")
    marker = LatencyMarker(1, 2, 3)
    output.emit_watermark(Watermark(5))
    output.emit_status(StreamStatus(active=False))
    output.emit_marker(marker)
    assert reader.elements == [Watermark(5), StreamStatus(active=False), marker]
    assert output.watermark_ms == 5


# Errors.


@pytest.mark.parametrize("error", [ValueError("a bad day"), StopIteration("early"), KeyError(3)])
def test_an_error_names_the_operator_and_chains_the_users_own(error: Exception) -> None:
    def fail(records: list[Any]) -> None:
        raise error

    output = ChainedOutput(Reader(fail), "double")
    with pytest.raises(UserFunctionFailed, match="operator 'double' failed") as caught:
        output.collect(Bundle([1]))
    assert caught.value.operator == "double"
    assert caught.value.__cause__ is error


def test_an_error_is_wrapped_once_by_the_output_next_to_it() -> None:
    def fail(records: list[Any]) -> None:
        raise ValueError("far down")

    last = ChainedOutput(Reader(fail), "last")
    middle = ChainedOutput(Reader(lambda records: last.collect(Bundle(records))), "middle")
    with pytest.raises(UserFunctionFailed, match="operator 'last' failed: ValueError: far down"):
        middle.collect(Bundle([1]))


def test_headgates_own_errors_pass_as_they_are() -> None:
    def cancel() -> None:
        raise TaskCancelled("enough")

    with pytest.raises(TaskCancelled, match="enough"):
        run_user_code("map", cancel)


# Counting.


def test_all_records_are_counted_whoever_takes_them() -> None:
    inner = KeptOutput()
    output = CountingOutput(inner)
    output.collect(Bundle([1, 2]))
    output.collect_side("late", Bundle([3]))
    output.emit_watermark(Watermark(4))
    assert output.records_out == 3
    assert inner.records == [1, 2]
    assert inner.side_records("late") == [3]
    assert output.watermark_ms == inner.watermark_ms == 4


# To the network.


class Network:
    """A network output, its writer and readers of every channel."""

    def __init__(
        self,
        shelf: GlobalPool,
        channels: int = 1,
        router: Router | None = None,
        tag: str | None = None,
    ) -> None:
        self.partition = make_partition(shelf, channels)
        self.writer = RecordWriter(self.partition, router or RoundRobin())
        self.loan = StrictLoan(lent=True)
        self.output = NetworkOutput(self.writer, "map", self.loan, tag)
        self.readers: list[ChannelReader] = readers_of(self.partition)

    def seal(self) -> None:
        """The end of a step: the baton is back, what waits is written."""
        assert self.loan.lent
        self.loan.regain()
        self.output.seal()
        self.loan.lend()

    def elements(self) -> list[list[Any]]:
        """All that the channels got so far, a list for each."""
        self.partition.flush_all()
        for reader in self.readers:
            reader.read()
        return [reader.got for reader in self.readers]

    def close(self) -> None:
        self.writer.close()
        for reader in self.readers:
            reader.close()
        self.partition.release()


emissions = st.lists(
    st.one_of(
        st.lists(st.integers(), min_size=1, max_size=4).map(Bundle),
        st.lists(st.tuples(st.integers(), st.integers(0, 9)), min_size=1, max_size=4).map(
            lambda pairs: Bundle([r for r, _ in pairs], [t for _, t in pairs])
        ),
        st.integers(0, 99).map(Watermark),
        st.booleans().map(StreamStatus),
        st.just(LatencyMarker(1, 2, 3)),
        st.just("seal"),
    ),
    max_size=12,
)


@given(emissions)
def test_the_network_gets_records_with_times_and_the_rest_in_order(sent: list[Any]) -> None:
    shelf = plain_pool(64)
    net = Network(shelf)
    for element in sent:
        match element:
            case Bundle():
                net.output.collect(element)
            case Watermark():
                net.output.emit_watermark(element)
            case StreamStatus():
                net.output.emit_status(element)
            case LatencyMarker():
                net.output.emit_marker(element)
            case _:
                net.seal()
    net.seal()
    assert flat(net.elements()[0]) == flat([element for element in sent if element != "seal"])
    net.close()
    assert_all_home(shelf)


def flat(elements: list[Any]) -> list[Any]:
    result: list[Any] = []
    for element in elements:
        if isinstance(element, Bundle):
            result += zip(
                element.records, element.timestamps or [None] * len(element.records), strict=True
            )
        else:
            result.append(element)
    return result


def test_records_wait_for_the_end_of_the_step(make_pool: Callable[..., GlobalPool]) -> None:
    net = Network(make_pool(8))
    net.output.collect(Bundle([1, 2]))
    assert net.writer.records_out == 0
    assert net.loan.loans == 0
    net.seal()
    assert net.writer.records_out == 2
    net.close()


def test_a_long_list_does_not_wait(make_pool: Callable[..., GlobalPool]) -> None:
    net = Network(make_pool(400))
    net.output.collect(Bundle(list(range(STAGED_RECORDS))))
    assert net.writer.records_out == STAGED_RECORDS
    assert net.loan.loans == 1
    assert net.loan.lent
    net.close()


def test_a_tagged_network_output_takes_its_side_output_only(
    make_pool: Callable[..., GlobalPool],
) -> None:
    net = Network(make_pool(8), tag="late")
    net.output.collect(Bundle([1]))
    net.output.collect_side("late", Bundle([2]))
    net.output.collect_side("early", Bundle([3]))
    net.seal()
    assert flat(net.elements()[0]) == [(2, None)]
    net.close()


def test_the_bundle_of_the_operator_is_not_changed(make_pool: Callable[..., GlobalPool]) -> None:
    net = Network(make_pool(8))
    first, second = Bundle([1], [5]), Bundle([2], [6])
    net.output.collect(first)
    net.output.collect(second)
    net.seal()
    assert (first, second) == (Bundle([1], [5]), Bundle([2], [6]))
    net.close()


def test_a_marker_goes_to_one_channel_and_the_next_one_to_the_next(
    make_pool: Callable[..., GlobalPool],
) -> None:
    net = Network(make_pool(16), channels=3)
    markers = [LatencyMarker(at_ms, 2, 1) for at_ms in range(4)]
    for marker in markers:
        net.output.emit_marker(marker)
    assert net.elements() == [[markers[2]], [markers[0], markers[3]], [markers[1]]]
    net.close()


def explode(key: Any, channels: int) -> int:
    raise StopIteration("no channel")


LATER: dict[str, Callable[[Network], None]] = {
    "seal": lambda net: net.seal(),
    "watermark": lambda net: net.output.emit_watermark(Watermark(1)),
    "marker": lambda net: net.output.emit_marker(LatencyMarker(1, 2, 3)),
}


@pytest.mark.parametrize("then", LATER.values(), ids=LATER)
def test_a_failing_partitioner_is_named_whenever_it_is_called(
    make_pool: Callable[..., GlobalPool], then: Callable[[Network], None]
) -> None:
    net = Network(make_pool(8), channels=2, router=CustomPartitioner(explode))
    net.output.collect(Bundle([1, 2, 3]))
    with pytest.raises(UserFunctionFailed, match="'map' failed when its records were routed") as e:
        then(net)
    assert isinstance(e.value.__cause__, StopIteration)
    net.close()


def test_a_record_that_cannot_be_pickled_names_its_operator(
    make_pool: Callable[..., GlobalPool],
) -> None:
    net = Network(make_pool(8))
    net.output.collect(Bundle([lambda: None]))
    with pytest.raises(UserFunctionFailed, match="operator 'map' failed when .* pickled"):
        net.seal()
    net.close()


def test_an_error_of_a_connector_learns_whose_it_is_and_keeps_its_first_owner() -> None:
    def fail() -> None:
        raise PathUnusable("part-0.txt", "exists already")

    with pytest.raises(PathUnusable, match="exists already") as caught:
        run_user_code("files", fail)
    error = caught.value
    assert error.operator == "files"
    with pytest.raises(PathUnusable, match="exists already"):
        raise_user_error(error, "another")
    assert error.operator == "files"
