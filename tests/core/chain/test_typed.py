"""Declared types in a chain: coerced before anybody sees them, and only where declared."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest

from headgate.base.elements import (
    Bundle,
    LatencyMarker,
    PickleSerializer,
    Serializer,
    StreamStatus,
    Watermark,
)
from headgate.base.errors import UserFunctionFailed
from headgate.base.fields import TUPLES, FieldShape, RecordFields, Same
from headgate.base.shapes import field_shape
from headgate.common import Row, Types
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.outputs import PassedNone, TypedOutput, typed
from headgate.core.chain.spec import ChainSpec, OperatorSpec, OutputTypes, ToOperator
from headgate.core.operators.one_input import MapOperator, ProcessOperator
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.functions.context import TaskInfo
from headgate.functions.function import OutputTag
from tests.core.chain.kit import NOW_MS, KeptOutput, StrictLoan

PICKLE = PickleSerializer()


class Text:
    """A type of the tests: whatever comes becomes its text, None is refused."""

    def coercer(self) -> Callable[[list[Any]], list[Any]]:
        return lambda records: [self._text(record) for record in records]

    def fields_coercer(self) -> None:
        return None

    def serializer(self) -> Serializer | None:
        return PICKLE

    def _text(self, record: Any) -> str:
        if record is None:
            raise TypeError("None is no text")
        return str(record)


def run_chain(*specs: OperatorSpec, records: list[Any]) -> None:
    chain = Chain(ChainSpec(specs), (), StrictLoan(lent=True))
    info = TaskInfo("job", "vertex", 0, 1)
    try:
        chain.open(lambda spec: OperatorContext(spec.name, info, lambda: NOW_MS))
        chain.process(Bundle(records, [7] * len(records)), 0)
        chain.finish()
    finally:
        chain.close()


def test_the_next_chained_operator_sees_what_the_type_says() -> None:
    seen: list[Any] = []
    run_chain(
        OperatorSpec(
            1, "one", "u1", lambda: MapOperator(abs), (ToOperator(1),), types=OutputTypes(Text())
        ),
        OperatorSpec(2, "two", "u2", lambda: SinkFunctionOperator(seen.append)),
        records=[-1, 2],
    )
    assert seen == ["1", "2"]


def test_a_record_that_does_not_fit_is_the_fault_of_the_operator_that_emits_it() -> None:
    def emit(record: Any, context: Any) -> list[Any]:
        return [None]

    class Emits:
        process_element = staticmethod(emit)

    with pytest.raises(UserFunctionFailed, match="None is no text") as caught:
        run_chain(
            OperatorSpec(1, "one", "u1", lambda: MapOperator(abs), (ToOperator(1),)),
            OperatorSpec(
                2, "two", "u2", lambda: ProcessOperator(Emits()), (ToOperator(2),),
                types=OutputTypes(Text()),
            ),
            OperatorSpec(3, "three", "u3", lambda: SinkFunctionOperator(print)),
            records=[1],
        )  # fmt: skip
    assert caught.value.operator == "two"


def test_each_side_output_has_its_own_type() -> None:
    class Sides:
        def process_element(self, record: Any, context: Any) -> list[Any]:
            return [record, (OutputTag("text"), record), (OutputTag("plain"), record)]

    seen: dict[str, list[Any]] = {"main": [], "text": [], "plain": []}
    tags = [None, "text", "plain"]
    run_chain(
        OperatorSpec(
            1, "one", "u1", lambda: ProcessOperator(Sides()),
            tuple(ToOperator(at + 1, tag=tag) for at, tag in enumerate(tags)),
            types=OutputTypes(sides=(("text", Text()),)),
        ),
        *(
            OperatorSpec(at + 2, name, name, partial(SinkFunctionOperator, kept.append))
            for at, (name, kept) in enumerate(seen.items())
        ),
        records=[1, 2],
    )  # fmt: skip
    assert seen == {"main": [1, 2], "text": ["1", "2"], "plain": [1, 2]}


def test_an_output_without_types_is_not_wrapped() -> None:
    kept = KeptOutput()
    assert typed(kept, None) is kept
    assert typed(kept, OutputTypes()) is kept
    assert typed(kept, OutputTypes(Text(), is_kept=True)) is kept
    assert isinstance(typed(kept, OutputTypes(Text())), TypedOutput)


def test_kept_main_records_are_not_looked_at_though_sides_are() -> None:
    kept = KeptOutput()
    output = typed(kept, OutputTypes(Text(), (("side", Text()),), is_kept=True))
    output.collect(Bundle([1]))
    output.collect_side("side", Bundle([1]))
    assert (kept.records, kept.side_records("side")) == ([1], ["1"])


def test_timestamps_stay_and_other_elements_pass() -> None:
    kept = KeptOutput()
    output = typed(kept, OutputTypes(Text()))
    output.collect(Bundle([1], [5]))
    output.emit_watermark(Watermark(9))
    output.emit_status(StreamStatus(False))
    output.emit_marker(LatencyMarker(1, 2, 3))
    assert kept.timed == [("1", 5)]
    assert kept.elements == [Watermark(9), StreamStatus(False), LatencyMarker(1, 2, 3)]
    assert output.watermark_ms == 9
    output.watermark_ms = 11
    assert kept.watermark_ms == 11


def test_serializers_are_those_of_the_declared_types() -> None:
    types = OutputTypes(None, (("side", Text()),))
    assert types.serializer(None) is None
    assert types.serializer("side") is PICKLE
    assert types.serializer("other") is None
    assert OutputTypes(Text()).serializer(None) is PICKLE


class KeptFields(KeptOutput):
    """Takes records of one shape apart."""

    def __init__(self, shape: FieldShape) -> None:
        super().__init__()
        self.takes_fields = lambda asked, count: asked == shape


PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
SHAPE = field_shape(Row, ("name", "age"))
assert SHAPE is not None


def test_records_go_on_as_fields_to_an_output_that_takes_them() -> None:
    kept = KeptFields(SHAPE)
    output = typed(kept, OutputTypes(PERSON))
    output.collect(Bundle([Row(name="a", age=1), Row(age=2, name="b")], [5, 6]))
    output.collect(Bundle([Row("c", 3)]))
    assert [bundle.fields is not None for bundle in kept.bundles] == [True, True]
    assert kept.timed == [
        (Row(name="a", age=1), 5), (Row(name="b", age=2), 6), (Row(name="c", age=3), None)
    ]  # fmt: skip
    assert [record.get_field_names() for record in kept.records] == [["name", "age"]] * 3


def test_records_go_on_as_records_to_an_output_that_does_not_take_fields() -> None:
    row, kept = Row(name="a", age=1), KeptOutput()
    typed(kept, OutputTypes(PERSON)).collect(Bundle([row]))
    assert kept.bundles[0].fields is None and kept.records[0] is row


def test_fields_of_tuples_become_those_of_rows() -> None:
    kept = KeptFields(SHAPE)
    output = typed(kept, OutputTypes(PERSON))
    assert output.takes_fields(TUPLES, 2) and not output.takes_fields(TUPLES, 3)  # type: ignore[attr-defined]
    output.collect(Bundle.of_fields(RecordFields([["a", "b"], Same(1)], 2)))
    assert kept.bundles[0].fields is not None
    assert kept.records == [Row(name="a", age=1), Row(name="b", age=1)]


def test_fields_are_taken_only_if_the_next_output_takes_those_of_the_type() -> None:
    output = typed(KeptFields(TUPLES), OutputTypes(PERSON))
    assert not output.takes_fields(TUPLES, 2)  # type: ignore[attr-defined]
    only_sides = typed(KeptFields(TUPLES), OutputTypes(None, (("side", Text()),)))
    assert only_sides.takes_fields(TUPLES, 2)  # type: ignore[attr-defined]
    assert not typed(KeptFields(TUPLES), OutputTypes(Text())).takes_fields(TUPLES, 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize("apart", [False, True])
def test_what_does_not_fit_is_told_with_its_place_though_fields_are_taken(apart: bool) -> None:
    kept = KeptFields(SHAPE)
    output = typed(kept, OutputTypes(PERSON))
    bundle = Bundle([Row(name="a", age=1), Row(name="b", age="x")])
    if apart:
        bundle = Bundle.of_fields(RecordFields([["a", "b"], [1, "x"]], 2, None, SHAPE))
    with pytest.raises(TypeError, match="field 'age' is 'x'"):
        output.collect(bundle)
    assert not kept.bundles


def test_numbers_of_numpy_are_coerced_in_fields() -> None:
    kept = KeptFields(SHAPE)
    typed(kept, OutputTypes(PERSON)).collect(Bundle([Row(name="a", age=numpy.int64(7))]))
    assert kept.bundles[0].fields is not None
    assert [type(record.age) for record in kept.records] == [int]


def test_none_passes_inside_a_chain_though_fields_are_taken() -> None:
    kept, passed = KeptFields(SHAPE), PassedNone()
    output = typed(kept, OutputTypes(PERSON), None, passed, True)
    output.collect(Bundle([Row(name="a", age=1), None]))
    assert kept.records == [Row(name="a", age=1), None] and passed.has_passed
