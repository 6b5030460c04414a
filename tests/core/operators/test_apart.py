"""Tuples that are taken apart stay so from a map to the operator that uses their items."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate.base.elements import MIN_WATERMARK_MS, Bundle
from headgate.base.fields import RecordFields, Same
from headgate.core.loops.apart import MOST_FORMS
from headgate.core.operators.one_input import KeyedProcessOperator, MapOperator
from headgate.core.operators.reduce import LOOKS_AT_RESULTS, ReduceOperator
from headgate.functions.state import ValueStateDescriptor
from headgate.host.shipping.failures import record_of
from tests.base.kit import apart
from tests.core.chain.kit import INLINING, KeptOutput, open_operator


@pytest.fixture(autouse=True)
def inlined() -> Iterator[None]:
    INLINING["on"] = True
    yield
    INLINING["on"] = False


def first(record: tuple[Any, ...]) -> Any:
    return record[0]


def add_second(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return a[0], a[1] + b[1]


def ones(*words: str) -> Bundle:
    return Bundle.of_fields(RecordFields([list(words), Same(1)], len(words)))


class FieldsOutput(KeptOutput):
    takes_fields = staticmethod(lambda *asked: True)


def mapped(function: Callable[[Any], Any], records: list[Any], output: KeptOutput) -> Bundle:
    operator = MapOperator(function)
    open_operator(operator, output=output)
    operator.process(Bundle(records, [7] * len(records)), 0)
    (bundle,) = output.bundles
    return bundle


@pytest.mark.parametrize(
    "function",
    [
        lambda word: (word, 1),
        lambda word: (1, word),
        lambda word: (word, word),
        lambda word: (word,),
        lambda word: (word, (1, 2), None),
    ],
)
def test_a_map_that_puts_records_into_tuples_sends_fields_where_they_are_taken(
    function: Callable[[Any], Any],
) -> None:
    records = ["a", ["b"], None]
    taken, asked = (mapped(function, records, output()) for output in (FieldsOutput, KeptOutput))
    assert taken.fields is not None
    assert asked.fields is None
    assert taken == asked == Bundle([function(record) for record in records], [7, 7, 7])


def described(word: str) -> tuple[str, int]:
    if word == "b":
        return word, 0
    size = len(word)
    return f"{word}s", size


@pytest.mark.parametrize(
    "function",
    [
        lambda word: (word, len(word)),
        lambda word: (word.upper(), [word], 7),
        lambda word: (len(word), None),
        lambda word: ((word, 1), 2),
        described,
    ],
)
@pytest.mark.parametrize("reuse", [False, True])
def test_a_map_that_makes_tuples_sends_their_items(
    function: Callable[[Any], Any], reuse: bool
) -> None:
    operator, output = MapOperator(function), FieldsOutput()
    operator.reuses_objects = reuse
    open_operator(operator, reuse, output=output)
    for records in (["a", "b"], ["ccc"]):
        operator.process(Bundle(records), 0)
    assert all(bundle.fields is not None for bundle in output.bundles)
    assert output.records == [function(word) for word in ("a", "b", "ccc")]


KEPT: list[int] = []


def keep_and_send(word: str) -> tuple[str, list[int]]:
    KEPT.append(len(word))
    return word, KEPT


def test_items_that_a_map_goes_on_to_change_are_copied_at_once() -> None:
    KEPT.clear()
    output = FieldsOutput()
    operator = MapOperator(keep_and_send)
    open_operator(operator, output=output)
    operator.process(Bundle(["a", "bb"]), 0)
    assert output.bundles[0].fields is not None
    assert output.records == [("a", [1]), ("bb", [1, 2])]


@pytest.mark.parametrize(
    "function",
    [
        lambda word: word,
        lambda word: (1, 2),
        lambda word: [word, 1],
        lambda word: (),
        lambda word: (word, 1) if word == "a" else (word, 2),
        str,
    ],
)
def test_other_maps_send_records(function: Callable[[Any], Any]) -> None:
    bundle = mapped(function, ["a", "b"], FieldsOutput())
    assert bundle.fields is None
    assert bundle.records == [function("a"), function("b")]


def unbound(word: str) -> tuple[str, int]:
    found: str
    return found, 1  # noqa: F821 # type: ignore[used-before-def]


@pytest.mark.parametrize(
    "function",
    [
        lambda *words: (words, 1),
        lambda word, **more: (word, more),
        lambda word, other: (other, 1),
        lambda word, *, other: (other, 1),
        lambda word, other=2: (other, word),
        unbound,
    ],
)
def test_only_the_record_is_taken_for_the_record(function: Callable[..., Any]) -> None:
    outcomes = []
    for output in (FieldsOutput(), KeptOutput()):
        try:
            outcomes.append(repr(mapped(function, ["a"], output).records))
        except Exception as error:
            outcomes.append(repr(error))
    assert outcomes[0] == outcomes[1]


def test_a_reduce_by_items_makes_no_tuples_of_what_comes() -> None:
    operator = ReduceOperator(add_second, first, False)
    output = open_operator(operator)
    bundles = [ones("a", "b", "a"), Bundle.of_fields(apart([("b", 5), ("a", 2)]), [1, 2])]
    for bundle in bundles:
        operator.process(bundle, 0)
        assert bundle.fields is not None, "it was put together"
    assert output.records == [("a", 1), ("b", 1), ("a", 2), ("b", 6), ("a", 4)]
    assert output.bundles[1].timestamps == [1, 2]


def test_results_that_can_be_changed_are_copied_though_others_were_scalars() -> None:
    operator = ReduceOperator(lambda a, b: (a[0], a[1]), first, False)
    output = open_operator(operator)
    operator.process(ones("a", "a"), 0)
    operator.process(Bundle.of_fields(apart([("x", [1]), ("x", [2])])), 0)
    for number in range(3):
        operator.process(ones("a", "x"), 0)
        assert output.records[-2:] == [("a", 1), ("x", [1])], number
        output.records[-1][1].append(9)  # the receiver's own


def test_a_reduce_takes_none_and_other_kinds_after_scalars() -> None:
    operator = ReduceOperator(lambda a, b: b if b[1] is None else a, first, False)
    output = open_operator(operator)
    for item in (1, None, 2, None):
        operator.process(Bundle.of_fields(RecordFields([["k"], Same(item)], 1)), 0)
    assert output.records == [("k", 1), ("k", None), ("k", None), ("k", None)]


def test_records_between_fields_are_looked_at_a_few_times_only() -> None:
    operator = ReduceOperator(add_second, first, False)
    output = open_operator(operator)
    for _ in range(LOOKS_AT_RESULTS + 2):
        operator.process(Bundle([("a", 1)]), 0)
        operator.process(ones("a"), 0)
    assert output.records == [("a", n + 1) for n in range(2 * LOOKS_AT_RESULTS + 4)]
    assert operator._looks_left == 0


def test_tuples_of_many_shapes_are_put_together() -> None:
    operator = ReduceOperator(lambda a, b: (a[0], len(b)), first, False)
    output = open_operator(operator)
    for _ in range(2):
        for more in range(MOST_FORMS + 3):
            places = [["k"], *(Same(0) for _ in range(more))]
            operator.process(Bundle.of_fields(RecordFields(places, 1)), 0)
    assert output.records[1:3] == [("k", 2), ("k", 3)]
    assert output.records[-1] == ("k", MOST_FORMS + 3)


def test_an_item_that_is_not_there_fails_as_ever_and_names_the_record() -> None:
    operator = ReduceOperator(lambda a, b: (a[0], b[2]), first, False)
    open_operator(operator)
    with pytest.raises(IndexError, match="tuple index out of range"):
        operator.process(ones("a", "a"), 0)


@pytest.mark.parametrize("items", [[1, 2, "x", 3], [1, 2, None, 3]])
def test_the_record_of_an_error_is_the_one_that_failed(items: list[Any]) -> None:
    operator = ReduceOperator(add_second, first, False)
    open_operator(operator)
    bundle = Bundle.of_fields(RecordFields([["a"] * 4, items], 4))
    with pytest.raises(TypeError) as raised:
        operator.process(bundle, 0)
    assert record_of(raised.value) == repr(("a", items[2]))
    assert "add_second" in str(raised.traceback[-1])


class Counting:
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", None))

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterator[tuple[str, int, Any]]:
        number = (self.count.value() or 0) + value[1]
        self.count.update(number)
        yield value[0], number, ctx.timestamp()


class Whole(Counting):
    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterator[Any]:
        word, count = value
        yield value, word + str(count), ctx.get_current_key()


@pytest.mark.parametrize("timed", [False, True])
def test_a_process_function_reads_items(timed: bool) -> None:
    operator = KeyedProcessOperator(Counting(), first)
    output = open_operator(operator)
    bundle = ones("a", "b", "a")
    bundle.timestamps = [1, 2, 3] if timed else None
    operator.process(bundle, 0)
    assert bundle.fields is not None, "it was put together"
    times = [1, 2, 3] if timed else [MIN_WATERMARK_MS] * 3
    assert output.records == list(zip("aba", [1, 1, 2], times, strict=True))


def test_a_process_function_that_uses_the_whole_record_gets_a_tuple() -> None:
    operator = KeyedProcessOperator(Whole(), first)
    output = open_operator(operator)
    bundle = ones("a", "b")
    operator.process(bundle, 0)
    assert bundle.fields is not None
    assert output.records == [(("a", 1), "a1", "a"), (("b", 1), "b1", "b")]


@pytest.mark.parametrize("keys", [[["a"], "b", ["a"]], [1.0, True, 1], [float("nan"), 1, 2]])
def test_keys_of_any_kind_are_found_again(keys: list[Any]) -> None:
    outcomes = []
    for is_apart in (False, True):
        operator = ReduceOperator(add_second, first, False)
        output = open_operator(operator)
        for _ in range(2):
            rows = [(key, 1) for key in keys]
            operator.process(Bundle.of_fields(apart(rows)) if is_apart else Bundle(rows), 0)
        outcomes.append(repr(output.records))
    assert outcomes[0] == outcomes[1]


class CountingPairs(Counting):
    """Reads one field; its key is made of two others."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[Any, Any, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), value[2], count


def first_two(record: tuple[Any, ...]) -> Any:
    return record[0], record[1][-1]


@pytest.mark.parametrize("places", [[["ab", "cb", "ab"]], [Same("ab")]], ids=["lists", "same"])
def test_a_process_function_reads_items_where_the_key_is_made_of_several(
    places: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = KeyedProcessOperator(CountingPairs(), first_two)
    output = open_operator(operator)
    fields = RecordFields([["a", "b", "a"], *places, [1, 2, 3]], 3)
    records = fields.records()
    monkeypatch.setattr(RecordFields, "records", lambda fields: pytest.fail("tuples were made"))
    operator.process(Bundle.of_fields(fields), 0)
    seen: dict[Any, int] = {}
    expected = []
    for record in records:
        key = first_two(record)
        seen[key] = seen.get(key, 0) + 1
        expected.append((key, record[2], seen[key]))
    assert output.records == expected


def test_not_a_number_in_a_key_of_several_items_is_one_key() -> None:
    operator = KeyedProcessOperator(CountingPairs(), lambda record: (record[0], record[1]))
    output = open_operator(operator)
    fields = RecordFields([["a", "a"], [float("nan"), float("nan")], [1, 2]], 2)
    operator.process(Bundle.of_fields(fields), 0)
    assert [count for _, _, count in output.records] == [1, 2]


def test_a_reduce_reads_items_where_the_key_is_made_of_several() -> None:
    def add_third(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return a[0], a[1], a[2] + b[2]

    operator = ReduceOperator(add_third, lambda record: (record[0], record[1]), batch=False)
    output = open_operator(operator)
    fields = RecordFields([["a", "a", "a"], ["b", "c", "b"], [1, 2, 3]], 3)
    operator.process(Bundle.of_fields(fields), 0)
    assert output.records == [("a", "b", 1), ("a", "c", 2), ("a", "b", 4)]


def test_a_key_that_cannot_be_made_fails_in_the_selector_and_names_the_record() -> None:
    operator = KeyedProcessOperator(CountingPairs(), first_two)
    open_operator(operator)
    fields = RecordFields([["a", "b"], ["x", ""], [1, 2]], 2)
    with pytest.raises(Exception, match="when the key of a record was selected"):
        operator.process(Bundle.of_fields(fields), 0)
