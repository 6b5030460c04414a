"""The chain: built from its tail, opened tail first, finished head first, closed always. Row 5."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, Bundle, LatencyMarker, StreamStatus, Watermark
from headgate.base.errors import RecordUncopyable, UserFunctionFailed
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator, PollResult
from headgate.core.chain.spec import ChainSpec, OperatorSpec, Selector, ToNetwork, ToOperator
from headgate.core.egress.router import RoundRobin
from headgate.core.egress.writer import RecordWriter
from headgate.core.operators.one_input import FlatMapOperator, MapOperator, ProcessOperator
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.operators.source import SourceOperator
from headgate.functions.context import TaskInfo
from headgate.functions.error_policy import ErrorPolicy
from headgate.functions.function import OutputTag
from tests.core.chain.kit import NOW_MS, LoggingOperator, StrictLoan
from tests.core.egress.kit import make_partition, readers_of
from tests.core.operators.kit import ScriptedSource

INFO = TaskInfo("job", "vertex", 0, 1)


def context_of(spec: OperatorSpec) -> OperatorContext:
    return OperatorContext(spec.name, INFO, lambda: NOW_MS)


def op(
    index: int,
    make: Callable[[], Operator],
    *outputs: ToOperator | ToNetwork,
    selectors: tuple[Selector, ...] = (),
) -> OperatorSpec:
    return OperatorSpec(index, f"op{index}", f"uid{index}", make, outputs, selectors)


def build(
    *specs: OperatorSpec, reuse: bool = False, writers: tuple[RecordWriter, ...] = ()
) -> Chain:
    return Chain(ChainSpec(specs, (), reuse), writers, StrictLoan(lent=True))


def three(log: list[str], got: list[Any], **fails: str) -> Chain:
    """a → b → sink."""
    return build(
        op(0, lambda: LoggingOperator(log, "a", fails.get("a", "")), ToOperator(1)),
        op(1, lambda: LoggingOperator(log, "b", fails.get("b", "")), ToOperator(2)),
        op(2, lambda: SinkFunctionOperator(got.append)),
    )


def test_the_life_of_a_chain() -> None:
    log: list[str] = []
    got: list[Any] = []
    chain = three(log, got)
    assert log == ["b set up", "a set up"], "built from the tail"
    chain.open(context_of)
    assert log[2:] == ["b open", "a open"], "opened from the tail"
    chain.process(Bundle([1]), 0)
    chain.end_input(0)
    chain.finish()
    assert log[4:] == [
        "a process",
        "b process",
        "a end input 0",
        "a finish",
        "b process",  # the last record of a
        "b end input 0",
        "b finish",
    ]
    assert got == [1, "last of a", "last of b"]
    chain.close()
    chain.close()
    assert log[11:] == ["b close", "a close"]


@pytest.mark.parametrize("who", ["a", "b"])
@pytest.mark.parametrize("when", ["open", "process", "finish", "close"])
def test_whatever_fails_everybody_is_closed_once_and_the_culprit_named(who: str, when: str) -> None:
    log: list[str] = []
    chain = three(log, [], **{who: when})

    def live() -> None:
        try:
            chain.open(context_of)
            chain.process(Bundle([1]), 0)
            chain.end_input(0)
            chain.finish()
        finally:
            chain.close()

    number = {"a": 0, "b": 1}[who]
    with pytest.raises(UserFunctionFailed, match=f"operator 'op{number}' failed") as caught:
        live()
    assert isinstance(caught.value.__cause__, ValueError)
    assert [line for line in log if line.endswith("close")] == ["b close", "a close"]
    if when in ("open", "close"):
        assert f"in {when}()" in str(caught.value)


def test_a_users_exit_in_close_does_not_keep_the_others_open() -> None:
    log: list[str] = []

    class Leaving(LoggingOperator):
        def close(self) -> None:
            super().close()
            raise SystemExit

    chain = build(
        op(0, lambda: LoggingOperator(log, "a"), ToOperator(1)), op(1, lambda: Leaving(log, "b"))
    )
    with pytest.raises(UserFunctionFailed, match="SystemExit"):
        chain.close()
    assert log[-2:] == ["b close", "a close"]


def test_a_chain_counts_what_passes_each_operator() -> None:
    got: list[int] = []
    chain = build(
        op(0, lambda: FlatMapOperator(lambda n: [n] * 3), ToOperator(1)),
        op(1, lambda: MapOperator(lambda n: -n), ToOperator(2)),
        op(2, lambda: SinkFunctionOperator(got.append)),
    )
    chain.open(context_of)
    chain.process(Bundle([1, 2]), 0)
    chain.watermark_advanced(Watermark(8))
    seen = [
        (operator.name, operator.records_in, operator.records_out) for operator in chain.figures()
    ]
    assert seen == [("op0", 2, 6), ("op1", 6, 6), ("op2", 6, 0)]
    assert chain.watermark_ms == 8
    assert chain.records_out_of_head == 6
    chain.close()


def test_elements_that_are_no_records_pass_through_to_the_end_of_the_chain() -> None:
    seen: list[Any] = []

    class Last(Operator):
        def watermark_advanced(self, watermark: Watermark) -> None:
            seen.append(watermark)

        def status_changed(self, status: StreamStatus) -> None:
            seen.append(status)

        def marker_received(self, marker: LatencyMarker) -> None:
            seen.append(marker)

    def never(value: Any) -> Any:
        raise AssertionError("no user function sees it")

    marker = LatencyMarker(1, 2, 3)
    chain = build(op(0, lambda: MapOperator(never), ToOperator(1)), op(1, Last))
    chain.open(context_of)
    chain.watermark_advanced(Watermark(1))
    chain.marker_received(marker)
    chain.status_changed(StreamStatus(active=False))
    assert seen == [Watermark(1), marker, StreamStatus(active=False)]
    chain.close()


@pytest.mark.parametrize("reuse", [False, True])
@given(outputs=st.lists(st.sampled_from([None, "late", "early"]), max_size=4))
def test_every_consumer_of_a_branch_gets_the_output_it_asked_for(
    outputs: list[str | None], reuse: bool
) -> None:
    got: list[list[Any]] = [[] for _ in outputs]

    def sort(value: int, ctx: Any) -> Any:
        tag = [None, "late", "early"][value % 3]
        return [value] if tag is None else [(OutputTag(tag), value)]

    chain = build(
        op(
            0,
            lambda: ProcessOperator(sort),
            *(ToOperator(index + 1, 0, tag) for index, tag in enumerate(outputs)),
        ),
        *(
            op(index + 1, lambda index=index: SinkFunctionOperator(got[index].append))
            for index in range(len(outputs))
        ),
        reuse=reuse,
    )
    chain.open(context_of)
    chain.process(Bundle(list(range(9))), 0)
    chain.close()
    for tag, received in zip(outputs, got, strict=True):
        kind = [None, "late", "early"].index(tag)
        assert received == [n for n in range(9) if n % 3 == kind]


def test_a_selector_directs_records_within_the_chain() -> None:
    got: list[list[int]] = [[], []]
    chain = build(
        op(
            0,
            lambda: MapOperator(lambda n: n),
            ToOperator(1, selected=frozenset({"odd"})),
            ToOperator(2, selected=frozenset({"even"})),
            selectors=(lambda n: ["odd" if n % 2 else "even"],),
        ),
        op(1, lambda: SinkFunctionOperator(got[0].append)),
        op(2, lambda: SinkFunctionOperator(got[1].append)),
    )
    chain.open(context_of)
    chain.process(Bundle([1, 2, 3, 4]), 0)
    chain.close()
    assert got == [[1, 3], [2, 4]]


def test_what_a_consumer_changes_neither_its_sibling_nor_the_producer_sees() -> None:
    kept: list[list[int]] = []
    got: list[list[list[int]]] = [[], []]

    def make(n: int) -> list[int]:
        kept.append([n])
        return kept[-1]

    def spoil(index: int, record: list[int]) -> list[int]:
        record.append(99)
        return record

    chain = build(
        op(0, lambda: MapOperator(make), ToOperator(1), ToOperator(2)),
        op(1, lambda: MapOperator(lambda r: spoil(0, r)), ToOperator(3)),
        op(2, lambda: SinkFunctionOperator(got[1].append)),
        op(3, lambda: SinkFunctionOperator(got[0].append)),
    )
    chain.open(context_of)
    chain.process(Bundle([1, 2]), 0)
    chain.close()
    assert got == [[[1, 99], [2, 99]], [[1], [2]]]
    assert kept == [[1], [2]]


def test_with_object_reuse_the_very_same_object_goes_through_the_chain() -> None:
    got: list[Any] = []
    record = [1]
    chain = build(
        op(0, lambda: MapOperator(lambda r: r), ToOperator(1)),
        op(1, lambda: SinkFunctionOperator(got.append)),
        reuse=True,
    )
    chain.open(context_of)
    chain.process(Bundle([record]), 0)
    chain.close()
    assert got[0] is record


def test_records_that_cannot_be_copied_name_their_reader() -> None:
    chain = build(
        op(0, lambda: MapOperator(lambda n: [lambda: n]), ToOperator(1), ToOperator(2)),
        op(1, lambda: SinkFunctionOperator(lambda r: None)),
        op(2, lambda: SinkFunctionOperator(lambda r: None)),
    )
    chain.open(context_of)
    with pytest.raises((RecordUncopyable, UserFunctionFailed), match="op[01]"):
        chain.process(Bundle([1]), 0)
    chain.close()


# Sources and networks.


def test_a_source_at_the_head_is_polled_and_ends_with_the_largest_watermark() -> None:
    got: list[int] = []
    chain = build(
        op(0, lambda: SourceOperator(ScriptedSource(), (([1, 2],),)), ToOperator(1)),
        op(1, lambda: SinkFunctionOperator(got.append)),
    )
    chain.open(context_of)
    assert chain.poll_source(10) is PollResult.RECORDS
    assert chain.poll_source(10) is PollResult.ENDED
    chain.finish()
    chain.close()
    assert got == [1, 2]
    assert chain.watermark_ms == MAX_WATERMARK_MS


def test_a_failing_source_is_named() -> None:
    class Dry(SourceOperator):
        def poll(self, limit: int = 1) -> PollResult:
            raise StopIteration("dry")

    chain = build(op(0, lambda: Dry(ScriptedSource(), ())))
    chain.open(context_of)
    with pytest.raises(UserFunctionFailed, match="operator 'op0' failed: StopIteration: dry"):
        chain.poll_source(1)
    chain.close()


def test_the_ends_of_a_chain_write_to_their_own_partitions(
    make_pool: Callable[..., GlobalPool],
) -> None:
    shelf = make_pool(16)
    partitions = [make_partition(shelf), make_partition(shelf)]
    writers = tuple(RecordWriter(partition, RoundRobin()) for partition in partitions)
    chain = build(
        op(0, lambda: MapOperator(lambda n: n), ToOperator(1), ToNetwork(1)),
        op(1, lambda: MapOperator(lambda n: -n), ToNetwork(0)),
        writers=writers,
    )
    chain.open(context_of)
    chain.process(Bundle([1, 2]), 0)
    chain.watermark_advanced(Watermark(5))
    chain.seal()
    assert len(chain.network_outputs) == 2
    for partition, expected in zip(partitions, ([-1, -2], [1, 2]), strict=True):
        partition.flush_all()
        (reader,) = readers_of(partition)
        reader.read()
        assert reader.got == [Bundle(expected), Watermark(5)]
        reader.close()
    chain.close()
    for writer in writers:
        writer.close()
        writer.partition.release()


# Checkpoints.


class Awaiting(Operator):
    awaits_checkpoint = False


def test_a_chain_awaits_a_checkpoint_if_one_of_its_operators_does() -> None:
    last = Awaiting()
    chain = build(op(0, Awaiting, ToOperator(1)), op(1, lambda: last))
    assert not chain.awaits_checkpoint
    last.awaits_checkpoint = True
    assert chain.awaits_checkpoint


def test_operators_can_be_left_out_when_the_others_are_opened() -> None:
    log: list[str] = []
    chain = three(log, [])
    chain.open(context_of, lambda spec: spec.uid == "uid1")
    assert log[2:] == ["b open"]
    chain.close()
    assert log[3:] == ["b close", "a close"], "closed are all"


def test_figures_tell_what_each_operator_has_left_out() -> None:
    got: list[Any] = []
    letters: list[Any] = []
    tag = OutputTag("dead")
    first = replace(
        op(0, lambda: MapOperator(int), ToOperator(1)), on_error=ErrorPolicy.dead_letters(tag)
    )
    second = replace(
        op(1, lambda: MapOperator(lambda n: 1 // n), ToOperator(2), ToOperator(3, tag="dead")),
        on_error=ErrorPolicy.dead_letters(tag),
    )
    chain = build(
        first,
        second,
        op(2, lambda: SinkFunctionOperator(got.append)),
        op(3, lambda: SinkFunctionOperator(letters.append)),
    )
    chain.open(context_of)
    chain.process(Bundle(["1", "x", "0", "1"]), 0)
    figures = [(each.skipped, each.dead_letters) for each in chain.figures()]
    assert figures == [(1, 0), (0, 1), (0, 0), (0, 0)], "nobody reads the letters of the first"
    assert got == [1, 1] and [letter.record for letter in letters] == [0]
    assert chain.figures()[1].records_out == 3
    chain.close()
