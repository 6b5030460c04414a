"""Rolling results by key are a plain fold for each key, and what was sent stays as it was."""

import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.row import Row
from headgate.base.elements import Bundle
from headgate.base.settings import StateSettings
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.user_function import PIECE
from headgate.core.operators.reduce import AggregateOperator, ReduceOperator, field_of, with_field
from headgate.core.state.backend import Backends, StateSpec
from headgate.core.state.memory import MemoryBackend, MemoryBackends
from headgate.functions.state import ValueStateDescriptor
from headgate.host.rocksdb.backend import RocksBackends
from tests.core.chain.kit import KeptOutput, context, cut, open_operator, run
from tests.core.chain.restore_kit import OperatorTasks, Send, StoredState

pytestmark = pytest.mark.usefixtures("inlining")

cuts = st.lists(st.integers(1, 9), max_size=12)
pairs = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), max_size=60)


def first(record: Any) -> Any:
    return record[0]


def running(
    records: list[Any], function: Callable[[Any, Any], Any], key_of: Callable[[Any], Any]
) -> list[Any]:
    """The result after each record, as a plain fold over all records of its key so far."""
    results = []
    for end, last in enumerate(records):
        same = [record for record in records[: end + 1] if key_of(record) == key_of(last)]
        results.append(reduce(function, copy.deepcopy(same)))
    return results


def finals(
    records: list[Any], function: Callable[[Any, Any], Any], key_of: Callable[[Any], Any]
) -> list[Any]:
    keys: list[Any] = []
    for record in records:
        if key_of(record) not in keys:
            keys.append(key_of(record))
    return [
        reduce(function, copy.deepcopy([record for record in records if key_of(record) == key]))
        for key in keys
    ]


def add(first: tuple[str, int], second: tuple[str, int]) -> tuple[str, int]:
    return first[0], first[1] + second[1]


def grow(first: list[Any], second: list[Any]) -> list[Any]:
    """Changes its first argument in place, as accumulators like to be."""
    first[1] += second[1]
    first.append(second[1])
    return first


@given(pairs, cuts, st.booleans())
def test_a_rolling_reduce_is_a_fold_for_each_key(
    records: list[Any], sizes: list[int], timed: bool
) -> None:
    times: list[int | None] = list(range(len(records)))
    output = run(ReduceOperator(add, first, False), cut(records, sizes, times if timed else None))
    assert output.records == running(records, add, first)
    assert [time for _, time in output.timed] == [n if timed else None for n in times]


@given(pairs, cuts)
def test_a_batch_reduce_sends_the_last_result_of_each_key(
    records: list[Any], sizes: list[int]
) -> None:
    output = run(ReduceOperator(add, first, True), cut(records, sizes))
    assert output.records == finals(records, add, first)


@given(pairs, cuts)
def test_what_was_sent_never_changes_though_the_function_changes_its_argument(
    records: list[Any], sizes: list[int]
) -> None:
    lists = [list(record) for record in records]
    output = run(ReduceOperator(grow, first, False), cut(copy.deepcopy(lists), sizes))
    assert output.records == running(lists, grow, first)


@dataclass
class Tally:
    key: str
    n: int
    last: Any = None


def add_dicts(first: Any, second: Any) -> Any:
    if second["n"] % 3 == 0:  # in place: what was sent before must not be what is kept
        first["n"] += 100
        return first
    return {"key": first["key"], "n": first["n"] + second["n"], "last": [second["n"]]}


def add_rows(first: Any, second: Any) -> Any:
    if second.n % 3 == 0:
        first["n"] += 100
        return first
    return Row(key=first.key, n=first.n + second.n, last=second.n)


def add_tallies(first: Any, second: Any) -> Any:
    if second.n % 3 == 0:
        first.n += 100
        return first
    return Tally(first.key, first.n + second.n, second.n)


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (add_dicts, lambda key, n: {"key": key, "n": n}),
        (add_rows, lambda key, n: Row(key=key, n=n)),
        (add_tallies, Tally),
    ],
)
@given(records=pairs, sizes=cuts)
def test_a_record_that_is_made_is_kept_apart_from_the_one_that_is_sent(
    function: Any, make: Any, records: list[Any], sizes: list[int]
) -> None:
    made = [make(*record) for record in records]
    key_of: Any = (lambda record: record["key"]) if function is add_dicts else attrgetter("key")
    output = run(ReduceOperator(function, key_of, False), cut(copy.deepcopy(made), sizes))
    assert output.records == running(made, function, key_of)


def test_results_that_turn_mutable_after_the_first_record_of_a_key_are_copied_too() -> None:
    def gather(first: Any, second: Any) -> Any:
        found = first[1] if isinstance(first[1], list) else [first[1]]
        found.append(second[1])
        return first[0], found

    firsts = [(key, 0) for key in range(64)]
    later = [(0, 1), (0, 2), (0, 3)]
    output = run(ReduceOperator(gather, first, False), [Bundle(firsts), Bundle(later)])
    assert output.records[-3:] == [(0, [0, 1]), (0, [0, 1, 2]), (0, [0, 1, 2, 3])]


def test_a_key_whose_value_can_be_changed_stays_safe_while_others_are_plain() -> None:
    def collect(first: Any, second: Any) -> Any:
        if isinstance(first, list):
            first.append(second)
            return first
        return first + second

    operator = ReduceOperator(collect, lambda r: isinstance(r, list) or r < 0, False)
    output = open_operator(operator)
    operator.process(Bundle([[]]), 0)
    operator.process(Bundle([1] * 96), 0)
    operator.process(Bundle([-1, -2, -3]), 0)
    assert output.records[-3:] == [[-1], [-1, -2], [-1, -2, -3]]


def test_results_that_turn_mutable_in_one_bundle_are_copied_there() -> None:
    operator = ReduceOperator(add_or_grow, first, False)
    output = open_operator(operator)
    operator.process(Bundle([("plain", 1)] * 64), 0)
    operator.process(Bundle([["list", 1], ["list", 1], ["list", 1], ["list", 1]]), 0)
    assert [record[1] for record in output.records[-4:]] == [1, 2, 3, 4]


def add_or_grow(first: Any, second: Any) -> Any:
    return grow(first, second) if isinstance(first, list) else add(first, second)


def test_the_receiver_cannot_change_what_is_kept() -> None:
    operator = ReduceOperator(grow, first, False)
    output = open_operator(operator)
    operator.process(Bundle([["a", 1]]), 0)
    output.records[0].clear()
    operator.process(Bundle([["a", 2]]), 0)
    assert output.records[1] == ["a", 3, 2]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("keeps_state", [False, True])
def test_a_result_that_is_none_is_kept_like_any_other(batch: bool, keeps_state: bool) -> None:
    class Alternating:
        def reduce(self, first: Any, second: Any) -> Any:
            return second if first is None else None

        if keeps_state:

            def open(self, runtime_context: Any) -> None:
                """So that results live behind the cursor."""

    operator = ReduceOperator(Alternating(), lambda record: 0, batch)
    output = open_operator(operator)
    operator.process(Bundle([1, 2, 3]), 0)
    operator.process(Bundle([None, 5]), 0)
    operator.finish()
    assert output.records == ([5] if batch else [1, None, 3, None, 5])


@pytest.mark.parametrize("stored", ["memory", "rocksdb"])
@pytest.mark.parametrize("restored", ["memory", "rocksdb"])
def test_a_result_that_is_none_outlives_a_checkpoint(
    tmp_path: Path, stored: str, restored: str
) -> None:
    seen: list[object] = []

    def forget(before: object, record: object) -> None:
        seen.append((before, record))

    def tasks_of(kind: str, states: Sequence[StoredState | None] | None = None) -> OperatorTasks:
        settings = StateSettings(rocksdb_folder=str(tmp_path))
        backends: Backends = RocksBackends(settings) if kind == "rocksdb" else MemoryBackends()
        make = partial(ReduceOperator, forget, lambda record: 0, False)
        return OperatorTasks(make, (lambda record: 0,), states=states, backends=backends)

    first = tasks_of(stored)
    first.apply(Send(rows=[(1, None), (2, None)], number=0))
    states = first.stored_states()
    first.close()
    second = tasks_of(restored, states)
    second.apply(Send(rows=[(3, None)], number=0))
    second.close()
    assert seen == [(1, 2), (None, 3)]


def test_with_object_reuse_results_are_handed_on_as_they_are() -> None:
    operator = ReduceOperator(grow, first, False)
    output: KeptOutput = open_operator(operator, reuse=True)
    operator.process(Bundle([["a", 1], ["a", 2]]), 0)
    assert output.records[0] is output.records[1]


class Lonely:
    """Says nothing about equality, so each object is equal to itself only."""


@pytest.mark.parametrize("warm", [0, 64])
def test_keys_of_any_kind_are_keys(warm: int) -> None:
    keys = [None, [1], [1, [2]], {"a": 1}, ("x", [3]), int, {1, 2}, "text", 7, b"b", 1.5]
    keys += [Lonely(), (1, Lonely()), float("nan")]
    operator = ReduceOperator(lambda a, b: (a[0], a[1] + b[1]), first, False)
    output = open_operator(operator)
    operator.process(Bundle([("warm", 1)] * warm), 0)
    for _ in range(3):
        operator.process(Bundle([(pickle.loads(pickle.dumps(key)), 1) for key in keys]), 0)
    counts = [count for _, count in output.records[warm:]]
    assert counts == [1] * len(keys) + [2] * len(keys) + [3] * len(keys)


def test_reduce_objects_are_opened_and_closed_once() -> None:
    log: list[str] = []

    class Adding:
        def open(self, runtime_context: Any) -> None:
            log.append("open")

        def reduce(self, first: int, second: int) -> int:
            return first + second

        def close(self) -> None:
            log.append("close")

    output = run(ReduceOperator(Adding(), lambda r: 0, False), [Bundle([1, 2, 3])])
    assert output.records == [1, 3, 6]
    assert log == ["open", "close"]


# Where the results live.


class NotDirect(MemoryBackend):
    """Like a backend on disk: nobody works on its tables."""

    def direct(self, spec: StateSpec) -> Any:
        return None


class OneBackend:
    def __init__(self, backend: MemoryBackend) -> None:
        self.backend = backend

    def keyed(self, operator: str, groups: range, max_parallelism: int) -> MemoryBackend:
        return self.backend


def within(backend: MemoryBackend) -> OperatorContext:
    return replace(context(), backends=OneBackend(backend))


@given(pairs, cuts, st.booleans())
def test_results_are_the_same_on_a_backend_that_lends_no_dictionary(
    records: list[Any], sizes: list[int], changing: bool
) -> None:
    function = grow if changing else add
    kind: Callable[[Any], Any] = list if changing else tuple
    operator = ReduceOperator(function, first, False)
    output = open_operator(operator, within=within(NotDirect(range(128), 128)))
    for bundle in cut([kind(record) for record in records], sizes):
        operator.process(bundle, 0)
    assert output.records == running([kind(record) for record in records], function, first)


@pytest.mark.parametrize("kind", [MemoryBackend, NotDirect])
def test_a_snapshot_holds_the_results_and_a_new_operator_goes_on_from_it(
    kind: type[MemoryBackend],
) -> None:
    old, new = kind(range(128), 128), kind(range(128), 128)
    operator = ReduceOperator(grow, first, False)
    open_operator(operator, within=within(old))
    operator.process(Bundle([[["k"], 1], ["a", 2], [["k"], 3]]), 0)
    snapshot = old.snapshot()
    operator.process(Bundle([[["k"], 100]]), 0)
    new.restore(snapshot.groups())
    snapshot.close()
    operator.close()
    again = ReduceOperator(grow, first, False)
    output = open_operator(again, within=within(new))
    again.process(Bundle([[["k"], 5], ["a", 5]]), 0)
    assert output.records == [[["k"], 9, 3, 5], ["a", 7, 5]]
    again.close()


class Limited:
    """Adds up to three records for each key, and counts them in state of its own."""

    def open(self, runtime_context: Any) -> None:
        self.added = runtime_context.get_state(ValueStateDescriptor("added"))

    def reduce(self, first: Any, second: Any) -> Any:
        added = self.added.value() or 0
        self.added.update(added + 1)
        return (first[0], first[1] + second[1]) if added < 2 else first


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("kind", [MemoryBackend, NotDirect])
def test_a_reduce_function_may_have_keyed_state(batch: bool, kind: type[MemoryBackend]) -> None:
    records = [("a", 1), ("b", 10), ("a", 2), ("a", 4), ("a", 8), (["c"], 1), ("b", 20), (["c"], 2)]
    operator = ReduceOperator(Limited(), first, batch)
    output = open_operator(operator, within=within(kind(range(128), 128)))
    operator.process(Bundle(records[:3]), 0)
    operator.process(Bundle(records[3:]), 0)
    operator.finish()
    operator.close()
    finals = {str(key): value for key, value in output.records}
    assert finals == {"a": 7, "b": 30, "['c']": 3}
    assert len(output.records) == (3 if batch else 8)


def test_batch_results_are_sent_once() -> None:
    operator = ReduceOperator(add, first, True)
    output = open_operator(operator)
    operator.process(Bundle([("a", 1), ("a", 2)]), 0)
    operator.finish()
    operator.finish()
    assert output.records == [("a", 3)]


# Sum, min, max and their kin.


@given(pairs, cuts)
def test_aggregations_follow_flink(records: list[tuple[str, int]], sizes: list[int]) -> None:
    numbered = [(key, value, index) for index, (key, value) in enumerate(records)]
    for kind in ("sum", "min", "max", "min_by", "max_by"):
        output = run(AggregateOperator(kind, 1, first, False), cut(numbered, sizes))  # type: ignore[arg-type]
        for end, got in enumerate(output.records):
            same = [record for record in numbered[: end + 1] if record[0] == numbered[end][0]]
            assert got == aggregated(kind, same), kind


def aggregated(kind: str, same: list[tuple[str, int, int]]) -> tuple[str, int, int]:
    key, _, index = same[0]
    fields = [value for _, value, _ in same]
    match kind:
        case "sum":
            return key, sum(fields), index
        case "min":
            return key, min(fields), index
        case "max":
            return key, max(fields), index
        case "min_by":
            return min(same, key=lambda record: record[1])
        case _:
            return max(same, key=lambda record: record[1])


def test_sums_of_rows_stay_as_they_were_sent() -> None:
    rows = [Row("a", n) for n in (1, 2, 3)]
    output = run(AggregateOperator("sum", 1, first, False), [Bundle(rows)])
    assert output.records == [Row("a", 1), Row("a", 3), Row("a", 6)]
    assert rows == [Row("a", 1), Row("a", 2), Row("a", 3)]


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Account:
    name: str
    money: int


@pytest.mark.parametrize(
    ("record", "position", "found", "changed"),
    [
        (5, 0, 5, 9),
        ("text", 0, "text", 9),
        ((1, 2), 1, 2, (1, 9)),
        ((1, 2), -1, 2, (1, 9)),
        ([1, 2], 0, 1, [9, 2]),
        ({"a": 1}, "a", 1, {"a": 9}),
        (Point(1, 2), "y", 2, Point(1, 9)),
        (Point(1, 2), 0, 1, Point(9, 2)),
        (Account("ada", 3), "money", 3, Account("ada", 9)),
        (Row(a=1, b=2), "b", 2, Row(a=1, b=9)),
    ],
    ids=repr,
)
def test_fields_go_by_index_or_name(record: Any, position: Any, found: Any, changed: Any) -> None:
    before = copy.deepcopy(record)
    assert field_of(record, position) == found
    assert with_field(record, position, 9) == changed
    assert record == before, "the record itself is not changed"


def test_a_plain_value_has_only_field_0() -> None:
    with pytest.raises(TypeError, match="int records have no field 1; give 0"):
        field_of(5, 1)


def test_in_a_batch_results_of_keys_that_ended_are_sent_in_pieces() -> None:
    operator = ReduceOperator(add, first, True)
    output = open_operator(operator)
    for key in range(PIECE + 1):
        operator.process(Bundle([(key, 1), (key, 2)]), 0)
        operator.key_ended()
    assert [len(bundle.records) for bundle in output.bundles] == [PIECE]
    operator.finish()
    assert output.records == [(key, 3) for key in range(PIECE + 1)]
    operator.close()


def test_in_a_batch_the_state_of_a_reduce_function_ends_with_its_key() -> None:
    operator = ReduceOperator(Limited(), first, True)
    output = open_operator(operator)
    for _ in range(2):
        operator.process(Bundle([("a", 1)] * 5), 0)
        operator.key_ended()
        operator.finish()
    assert output.records == [("a", 3), ("a", 3)]
    operator.close()
