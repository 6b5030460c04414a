"""Routers choose channels: in turn, by key, by the user's word. Rows 20, 23."""

import os
import subprocess
import sys
import uuid
from collections import Counter, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate.core.egress.router as router_module
from headgate.base.elements import Bundle, Record
from headgate.base.errors import StateBroken, UserFunctionFailed
from headgate.base.fields import TUPLES, RecordFields, Same
from headgate.base.shapes import field_shape
from headgate.core.egress.router import (
    MEMO_KEYS,
    MEMO_MISSES,
    Broadcast,
    ChannelMemo,
    CustomPartitioner,
    Forward,
    Global,
    KeyGroupPartitioner,
    Rescale,
    RoundRobin,
    Router,
    Shuffle,
    split_bundle,
    split_by,
)
from headgate.core.state.keys import key_group, stable_hash
from tests.base.kit import bundles_apart
from tests.base.shape_kit import Slots


def set_up(router: Router, channels: int) -> Router:
    router.set_up(channels)
    return router


ROUTERS = {
    "round robin": lambda: RoundRobin(first=5),
    "rescale": Rescale,
    "shuffle": lambda: Shuffle(seed=3),
    "global": Global,
    "keyed": lambda: KeyGroupPartitioner(lambda record: record % 7),
    "custom": lambda: CustomPartitioner(lambda key, channels: key * 3 % channels),
}


@pytest.mark.parametrize("name", ROUTERS)
@given(
    batches=st.lists(st.lists(st.integers(0, 100), max_size=12), max_size=4),
    channels=st.integers(1, 5),
    timed=st.booleans(),
)
def test_a_split_is_what_picking_one_by_one_would_be(
    name: str, batches: list[list[int]], channels: int, timed: bool
) -> None:
    router, single = (set_up(ROUTERS[name](), channels) for _ in range(2))
    for batch in batches:
        times = [record + 1000 for record in batch] if timed else None
        expected: dict[int, list[int]] = {}
        for record in batch:
            expected.setdefault(single.pick(record), []).append(record)
        split = [part for part in router.split(batch, times) if part[1]]
        assert {channel: part for channel, part, _ in split} == expected
        assert len(split) == len(expected)
        for _, part, part_times in split:
            assert part_times == ([record + 1000 for record in part] if timed else None)


TUPLE_ROUTERS = {
    "round robin": lambda: RoundRobin(first=5),
    "shuffle": lambda: Shuffle(seed=3),
    "global": Global,
    "first item": lambda: KeyGroupPartitioner(lambda record: record[0]),
    "last item": lambda: KeyGroupPartitioner(lambda record: record[-1]),
    "two items": lambda: KeyGroupPartitioner(lambda record: (record[-1], record[0])),
    "computed": lambda: KeyGroupPartitioner(lambda record: repr(record)),
}


@pytest.mark.parametrize("name", TUPLE_ROUTERS)
@given(bundles=st.lists(bundles_apart(), max_size=3), channels=st.integers(1, 4))
def test_tuples_that_are_taken_apart_go_where_they_would_go_whole(
    name: str, bundles: list[Bundle], channels: int
) -> None:
    router, twin = (set_up(TUPLE_ROUTERS[name](), channels) for _ in range(2))
    for bundle in bundles:
        rows = bundle.copy()
        expected = [part for part in twin.split(rows.records, rows.timestamps) if part[1]]
        split = [part for part in split_bundle(router, bundle) if len(part[1])]
        seen = [(channel, len(part), part.records, part.timestamps) for channel, part in split]
        assert repr(seen) == repr([(at, len(part), part, times) for at, part, times in expected])


@pytest.mark.parametrize("keys", [["a", "b", "a"], list(range(MEMO_KEYS + 10))])
def test_the_fields_of_tuples_are_split_and_not_put_together(keys: list[object]) -> None:
    router = KeyGroupPartitioner(lambda record: record[0])
    router.set_up(2)
    for _ in range(2):
        split = split_bundle(
            router, Bundle.of_fields(RecordFields([list(keys), Same(1)], len(keys)))
        )
        assert all(part.fields is not None for _, part in split)
        found = sorted(str(key) for _, part in split for key, _ in part.records)
        assert found == sorted(map(str, keys))


@pytest.mark.parametrize(
    ("kind", "key_of"),
    [(dict, lambda record: record["name"]), (Slots, lambda record: record.name)],
)
def test_fields_of_dicts_and_instances_are_split_by_name(
    kind: type, key_of: Callable[[Any], Any]
) -> None:
    shape = field_shape(kind, ("amount", "name"))
    assert shape is not None
    router, twin = (set_up(KeyGroupPartitioner(key_of), 3) for _ in range(2))
    assert router.takes_fields(shape, 2)  # type: ignore[attr-defined]
    keys = [f"key {number}" for number in range(40)]
    fields = RecordFields([list(range(40)), list(keys)], 40, None, shape)
    expected = twin.split(fields.records(), None)
    split = split_bundle(router, Bundle.of_fields(fields))
    assert all(part.fields is not None and part.fields.shape is shape for _, part in split)
    assert [(at, part.records, None) for at, part in split] == expected
    assert not router.takes_fields(TUPLES, 2)  # type: ignore[attr-defined]


def test_tuples_with_one_key_for_all_go_together_as_they_are() -> None:
    router = set_up(KeyGroupPartitioner(lambda record: record[0]), 3)
    bundle = Bundle.of_fields(RecordFields([Same("k"), [1, 2]], 2), [7, 8])
    ((channel, part),) = split_bundle(router, bundle)
    assert channel == router.pick(("k", 1))
    assert part.fields is bundle.fields


@pytest.mark.parametrize("place", [0, -2, 1, 2, True, "a"])
def test_a_router_takes_fields_if_the_key_is_one_of_them(place: object) -> None:
    namespace: dict[str, Any] = {}
    exec(f"selector = lambda record: record[{place!r}]", namespace)
    router = KeyGroupPartitioner(namespace["selector"], reader="count")
    router.set_up(2)
    assert router.takes_fields(TUPLES, 2) == (type(place) is int and place != 2)
    bundle = Bundle.of_fields(RecordFields([["a", "b"], Same(1)], 2))
    if place in (2, "a"):
        with pytest.raises(UserFunctionFailed, match="key of a record"):
            split_bundle(router, bundle)
    else:
        assert sum(len(part) for _, part in split_bundle(router, bundle)) == 2


def test_round_robin_goes_on_where_it_stood() -> None:
    router = set_up(RoundRobin(), 3)
    assert [router.pick(None) for _ in range(4)] == [0, 1, 2, 0]
    assert router.split(["a", "b", "c", "d"], None) == [
        (1, ["a", "d"], None),
        (2, ["b"], None),
        (0, ["c"], None),
    ]
    assert router.pick(None) == 2


def test_round_robin_may_start_anywhere() -> None:
    assert set_up(RoundRobin(first=7), 4).pick(None) == 3


def test_rescale_takes_its_few_channels_in_turn() -> None:
    router = set_up(Rescale(), 2)
    assert [router.pick(None) for _ in range(3)] == [0, 1, 0]


def test_forward_has_one_channel() -> None:
    router = set_up(Forward(), 1)
    assert router.pick("x") == 0
    assert router.split(["a", "b"], [1, 2]) == [(0, ["a", "b"], [1, 2])]
    with pytest.raises(AssertionError, match="exactly one channel, not 2"):
        Forward().set_up(2)


def test_global_takes_the_first_channel_of_many() -> None:
    router = set_up(Global(), 3)
    assert [router.pick(record) for record in "abc"] == [0, 0, 0]
    assert router.split(["a", "b"], [1, 2]) == [(0, ["a", "b"], [1, 2])]


@pytest.mark.parametrize("seed", [0, 1, 2, 0xFFFFFFFF])
def test_shuffle_spreads_evenly_and_in_no_order(seed: int) -> None:
    router = set_up(Shuffle(seed), 4)
    picks = [router.pick(None) for _ in range(8000)]
    assert sorted(set(picks)) == [0, 1, 2, 3]
    pairs = Counter(pairwise(picks))
    assert len(pairs) == 16
    assert max(pairs.values()) < 1.3 * 500
    assert min(pairs.values()) > 0.7 * 500


def test_shuffle_repeats_itself_for_the_same_seed_only() -> None:
    first, again, other = (set_up(Shuffle(seed), 5) for seed in (7, 7, 8))
    picks = [[router.pick(None) for _ in range(50)] for router in (first, again, other)]
    assert picks[0] == picks[1] != picks[2]


def test_a_router_without_channels_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        RoundRobin().set_up(0)


def test_a_broadcast_record_has_no_single_channel() -> None:
    router = set_up(Broadcast(), 3)
    assert router.is_broadcast
    with pytest.raises(AssertionError, match="no single channel"):
        router.pick("x")
    assert not any(set_up(make(), 3).is_broadcast for make in ROUTERS.values())


# The user's own.


@pytest.mark.parametrize("answer", [-1, 3, "1", None, 1.0, True])
def test_a_partitioner_that_answers_no_channel_is_told_what_would_be_right(answer: object) -> None:
    router = set_up(CustomPartitioner(lambda key, channels: answer), 3)  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match=f"returned {answer!r}; it must return an int from 0 to 2"):
        router.split(["a", "b"], None)


def test_a_partitioner_sees_the_key_and_the_number_of_channels() -> None:
    seen: list[tuple[Record, int]] = []

    def partitioner(key: Record, channels: int) -> int:
        seen.append((key, channels))
        return 1

    router = set_up(CustomPartitioner(partitioner, key_of=lambda record: record["k"]), 3)
    assert router.pick({"k": "key"}) == 1
    assert seen == [("key", 3)]


# Keys.

Point = namedtuple("Point", "x y")


class Colour(Enum):
    RED = "red"


class Text(str, Enum):
    RED = "red"


class Number(IntEnum):
    FIVE = 5


@dataclass(frozen=True)
class Customer:
    name: str
    alias: str
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str


def test_equal_keys_take_the_same_channel_whatever_their_type() -> None:
    for equal in [
        [5, 5.0, Decimal("5.00"), Fraction(5), Number.FIVE],
        [1, True, 1.0],
        [0, 0.0, -0.0, False],
        [0.5, Decimal("0.50"), Fraction(1, 2)],
        [float("inf"), Decimal("Infinity")],
        ["red", Text.RED],
        [b"ab", bytearray(b"ab")],
        [(1, 2), Point(1, 2), (True, 2.0)],
        [frozenset("abc"), {"c", "b", "a"}],
        [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}],
    ]:
        assert all(key == equal[0] for key in equal)
        assert len({stable_hash(key) for key in equal}) == 1, equal


def test_equal_objects_take_the_same_channel_though_they_share_parts_differently() -> None:
    name = "".join(["some", "body"])
    other = "".join(["some", "body"])
    assert name is not other
    shared, apart = Customer(name, name), Customer(name, other)
    assert shared == apart
    assert stable_hash(shared) == stable_hash(apart)


def test_different_keys_have_different_hashes() -> None:
    keys = [
        None, "", "a", b"a", 1, -1, 2**40, 0.1, 0.2, float("inf"), float("-inf"), (1,), (1, 2),
        (2, 1), ((1,), 2), frozenset({1}), frozenset({2}), Colour.RED, "red", Customer("a", "b"),
        Customer("b", "a"), Slotted("a"), Slotted("b"), date(2024, 1, 1), date(2024, 1, 2),
        datetime(2024, 1, 1), uuid.UUID(int=1), uuid.UUID(int=2), int, str, 1j, 2j,
    ]  # fmt: skip
    hashes = [stable_hash(key) for key in keys]
    assert len(set(hashes)) == len(keys)
    assert all(0 <= value < 2**32 for value in hashes)


def test_keys_spread_evenly_over_the_channels() -> None:
    for keys in (range(8000), [f"user-{n}" for n in range(8000)]):
        router = set_up(KeyGroupPartitioner(lambda record: record), 4)
        counts = Counter(map(router.pick, keys))
        assert sorted(counts) == [0, 1, 2, 3]
        assert max(counts.values()) < 1.2 * 2000


def test_a_key_goes_by_its_group_so_that_state_can_be_rescaled() -> None:
    for channels in (1, 3, 4, 128):
        router = set_up(KeyGroupPartitioner(lambda record: record, max_parallelism=128), channels)
        for key in range(300):
            group = key_group(key, 128)
            assert 0 <= group < 128
            assert router.pick(key) == group * channels // 128


def test_more_channels_than_key_groups_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="more channels than key groups"):
        KeyGroupPartitioner(lambda record: record, max_parallelism=4).set_up(5)


def test_a_key_that_is_not_hashable_is_routed_all_the_same() -> None:
    router = set_up(KeyGroupPartitioner(lambda record: record), 4)
    assert router.pick([1, 2]) == router.pick((1, 2))
    assert router.pick({"a": [1]}) == router.pick({"a": [1]})


def test_new_keys_among_known_ones_take_the_channel_that_they_would_take_alone() -> None:
    computed: list[object] = []

    class Watched(KeyGroupPartitioner):
        def _channel_of(self, key: object) -> int:
            computed.append(key)
            return super()._channel_of(key)

    router, alone = Watched(lambda pair: pair[0]), KeyGroupPartitioner(lambda key: key)
    for some in (router, alone):
        some.set_up(3)
    words = ["a", "b", "a", ["list"], "c", "a", "c"]
    for count in (2, 3, len(words)):
        split = router.split([(word, place) for place, word in enumerate(words[:count])], None)
        assert all(alone.pick(word) == channel for channel, part, _ in split for word, _ in part)
    assert [key for key in computed if key != ["list"]] == ["a", "b", "c"], "each once"


def test_the_memo_of_keys_has_a_bound() -> None:
    router = KeyGroupPartitioner(lambda record: record)
    router.set_up(4)
    first = [router.pick(key) for key in range(MEMO_KEYS + 10)]
    assert len(router._memo) <= MEMO_KEYS
    assert [router.pick(key) for key in range(MEMO_KEYS + 10)] == first


@pytest.mark.parametrize("make", [int, str, lambda number: (number, "x"), float])
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("channels", [2, 5])
def test_more_keys_than_the_memo_holds_take_the_same_channels(
    make: Any, timed: bool, channels: int
) -> None:
    router, alone = (set_up(KeyGroupPartitioner(lambda pair: pair[0]), channels) for _ in range(2))
    router.split([(make(number), 0) for number in range(MEMO_KEYS + 1)], None)
    keys = [make(number) for number in range(MEMO_KEYS - 100, MEMO_KEYS + 100)]
    times: list[int | None] | None = list(range(len(keys))) if timed else None
    expected = {key: alone.pick((key, 0)) for key in keys}
    rows = Bundle([(key, 0) for key in keys], times)
    apart = Bundle.of_fields(RecordFields([keys, Same(0)], len(keys)), times)
    for bundle in (rows, apart):
        split = split_bundle(router, bundle)
        found = {key: channel for channel, part in split for key, _ in part.records}
        assert found == expected


@pytest.mark.parametrize(
    "keys",
    [
        [f"key {number % 300}" for number in range(500)],
        [number * 2**33 - 50 for number in range(500)],
        [*range(100), *map(str, range(100)), *map(float, range(100)), True, False],
        [*map(str, range(100)), "\ud800"],
        [*range(100), 2**70],
        [(number, "x") for number in range(100)],
    ],
)
@pytest.mark.parametrize("channels", [2, 5])
@pytest.mark.parametrize("timed", [False, True])
def test_new_keys_of_a_bundle_take_the_channels_that_each_takes_alone(
    keys: list[Any], channels: int, timed: bool
) -> None:
    times: list[int | None] | None = list(range(len(keys))) if timed else None
    rows = [(key, number) for number, key in enumerate(keys)]
    numbers = [number for _, number in rows]
    bundles = [
        Bundle(rows, times),
        Bundle.of_fields(RecordFields([[*keys], Same(0)], len(keys)), times),
        Bundle.of_fields(RecordFields([[*keys], numbers], len(keys)), times),
    ]
    expected = [set_up(KeyGroupPartitioner(lambda key: key), channels).pick(key) for key in keys]
    for bundle in bundles:
        router = set_up(KeyGroupPartitioner(lambda pair: pair[0]), channels)
        router.split([(keys[7], 0), (keys[30], 0)], None)
        found = [[key for key, _ in part.records] for _, part in split_bundle(router, bundle)]
        wanted = [
            [key for key, at in zip(keys, expected, strict=True) if at == channel]
            for channel in range(channels)
        ]
        assert found == [lane for lane in wanted if lane]


class Stopping:
    """A key that ends whatever iterates, as soon as it is compared."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        raise StopIteration(self.name)


def test_a_key_that_raises_stop_iteration_ends_no_bundle_early() -> None:
    memo = ChannelMemo(lambda key: 1)
    assert memo.picks(["a", Stopping("known")]) == [1, 1]
    with pytest.raises(StopIteration, match="known|new"):
        memo.picks(["a", Stopping("new"), "a"])


def test_many_keys_are_routed_without_numpy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    router, alone = (set_up(KeyGroupPartitioner(lambda pair: pair[0]), 3) for _ in range(2))
    router.split([(number, 0) for number in range(MEMO_KEYS + 1)], None)
    monkeypatch.setitem(sys.modules, "headgate.core.state.many_keys", None)
    monkeypatch.setattr(router_module, "_many_groups", router_module._many_groups.__wrapped__)
    records = [(number, 0) for number in range(MEMO_KEYS, MEMO_KEYS + 99)]
    split = router.split(records, None)
    assert all(alone.pick(record) == channel for channel, part, _ in split for record in part)
    assert sum(len(part) for _, part, _ in split) == 99


SCRIPT = """
import uuid
from collections import OrderedDict
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from headgate.core.state.keys import stable_hash

class Colour(Enum):
    RED = "red"

class Plain:
    def __init__(self, *values):
        self.values = values

keys = [
    "text", "", "\\ud800", b"bytes", 7, -7, 2**70, 1.5, None, True, ("a", ("b", 3)), ["a"],
    frozenset({"a", "b", "c", "d"}), {"x": {"p", "q", "r"}, "y": 2}, Colour.RED, int,
    Plain("a", frozenset("wxyz")), date(2024, 1, 1), timedelta(3), Decimal("1.1"), uuid.UUID(int=3),
    datetime(2024, 1, 1, tzinfo=timezone.utc), OrderedDict(b=1, a=2), 1j, range(3), len,
]
print(*map(stable_hash, keys))
"""


def test_hashes_are_the_same_in_every_process() -> None:
    def hashes(seed: str) -> list[str]:
        return subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()

    first = hashes("1")
    assert len(first) == 26
    assert hashes("2") == first
    assert first[:2] == [str(stable_hash("text")), str(stable_hash(""))]


def test_hashes_stay_what_they_are() -> None:
    """State is stored by key group: another hash would lose it."""
    assert [stable_hash(key) for key in ("a", 1, 1.5, b"a", ("a", 1), None)] == [
        3320656311,
        804215951,
        1522272645,
        2099290504,
        1777910294,
        821347078,
    ]


def test_split_by_keeps_order_and_leaves_out_empty_channels() -> None:
    assert split_by([2, 0, 2], 3, ["a", "b", "c"], None) == [
        (0, ["b"], None),
        (2, ["a", "c"], None),
    ]
    assert split_by([2, 0, 2], 3, ["a", "b", "c"], [1, None, 3]) == [
        (0, ["b"], [None]),
        (2, ["a", "c"], [1, 3]),
    ]


@pytest.mark.parametrize("channels", [2, 3])
def test_a_key_selector_that_fails_is_told_as_an_error_of_the_reader(channels: int) -> None:
    router = set_up(KeyGroupPartitioner(lambda record: record["id"], reader="count"), channels)
    message = "operator 'count' failed when the key of a record was selected: KeyError: 'id'"
    with pytest.raises(UserFunctionFailed, match=message) as failed:
        router.split([{"id": 1}, {}], None)
    assert isinstance(failed.value.__cause__, KeyError)
    with pytest.raises(UserFunctionFailed, match=message):
        router.pick({})


def test_a_key_without_a_stable_hash_is_told_in_the_same_way() -> None:
    class Odd:
        def __reduce_ex__(self, protocol: object) -> str:
            raise ValueError("not to be pickled")

    router = set_up(KeyGroupPartitioner(lambda record: Odd(), reader="count"), 2)
    with pytest.raises(UserFunctionFailed, match="'count' failed when the key .*not to be pickled"):
        router.split([1], None)


def test_a_key_without_a_stable_hash_fails_in_spite_of_a_policy() -> None:
    class Odd:
        def __reduce_ex__(self, protocol: object) -> str:
            raise ValueError("not to be pickled")

    router = set_up(KeyGroupPartitioner(lambda record: Odd(), 128, "count", True), 2)
    with pytest.raises(UserFunctionFailed, match="not to be pickled"):
        router.split([1], None)


def test_without_a_reader_the_error_stays_as_it_is() -> None:
    router = set_up(KeyGroupPartitioner(lambda record: record["id"]), 2)
    with pytest.raises(KeyError):
        router.split([{}], None)


@given(st.lists(st.integers(-20, 20)), st.integers(2, 5))
def test_a_record_without_a_key_goes_to_the_first_task_of_a_reader_with_a_policy(
    values: list[int], channels: int
) -> None:
    def key_of(value: int) -> object:
        return 1 // (value > 0) and value

    router = set_up(KeyGroupPartitioner(key_of, 128, "count", True), channels)
    strict = set_up(KeyGroupPartitioner(lambda value: value, 128, "count"), channels)
    expected = [strict.pick(value) if value > 0 else 0 for value in values]
    assert [router.pick(value) for value in values] == expected
    split = {channel: records for channel, records, _ in router.split(values, None)}
    for channel in range(channels):
        mine = [value for value, at in zip(values, expected, strict=True) if at == channel]
        assert split.get(channel, []) == mine


@pytest.mark.parametrize("error", [MemoryError(), StateBroken("no")])
def test_what_is_never_left_out_is_not_routed_either(error: Exception) -> None:
    def key_of(value: int) -> object:
        raise error

    router = set_up(KeyGroupPartitioner(key_of, 128, "count", True), 2)
    with pytest.raises((type(error), UserFunctionFailed)):
        router.split([1, 2], None)


def test_a_full_memo_computes_what_is_new_and_is_filled_anew_after_many_misses() -> None:
    asked: list[object] = []
    memo = ChannelMemo(lambda key: asked.append(key) or 3)  # type: ignore[func-returns-value]
    assert {memo[key] for key in range(MEMO_KEYS)} == {3}
    assert memo[-1] == 3 == memo[-1]
    assert asked[MEMO_KEYS:] == [-1, -1]
    assert len(memo) == MEMO_KEYS
    for _ in range(MEMO_MISSES):
        memo[-2]
    assert len(memo) == 1, "keys that are used now have taken the place of the others"
    assert len(asked) < MEMO_KEYS + MEMO_MISSES + 10
