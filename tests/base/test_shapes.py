"""Records of one shape come back from columns as they went, in classes and order too. Row 26."""

import datetime
import enum
import math
import pickle
import sys
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import (
    RECORDS,
    SHAPED,
    TIMED_RECORDS,
    TIMED_SHAPED,
    Bundle,
    PickleSerializer,
    decode_element,
    encode_element,
)
from headgate.base.errors import ElementBroken
from headgate.base.shapes import FEWEST, MISSES, field_shape
from headgate.common import Row, RowKind
from tests.base import shape_kit as kit
from tests.core.chain.kit import values

items = st.one_of(
    values,
    st.floats(),
    st.integers(),
    st.sampled_from(
        [-0.0, math.inf, 2**64, -(2**63), True, 1, "\ud800", datetime.date(2024, 1, 1)]
    ),
)


def travelled(bundle: Bundle, serializer: PickleSerializer | None = None) -> tuple[int, Bundle]:
    prefix, body = encode_element(bundle, serializer or PickleSerializer())
    element = decode_element(prefix[-1], memoryview(bytes(body)), PickleSerializer())
    assert isinstance(element, Bundle)
    return prefix[-1], element


def seen(record: Any) -> Any:
    """With kinds, signs and order, which equality would pass over."""
    if hasattr(record, "__dict__"):
        return type(record), repr(vars(record))
    if hasattr(record, "__slots__") and not isinstance(record, tuple):
        names = [name for kind in type(record).__mro__ for name in getattr(kind, "__slots__", ())]
        return type(record), [repr(getattr(record, name, None)) for name in names]
    return type(record), repr(record)


@given(
    st.sampled_from([*kit.SHAPED, *kit.PICKLED]),
    st.lists(st.tuples(items, items), min_size=FEWEST, max_size=FEWEST + 4),
    st.booleans(),
)
def test_records_of_one_class_come_back_as_they_went(
    make: Any, fields: list[tuple[Any, Any]], timed: bool
) -> None:
    records = [make(*pair) for pair in fields]
    times: list[int | None] | None = [None, *range(1, len(records))] if timed else None
    before = [seen(record) for record in records]
    tag, after = travelled(Bundle(records, times))
    assert [seen(record) for record in after.records] == before
    assert after.timestamps == times
    assert tag in ((TIMED_SHAPED, TIMED_RECORDS) if timed else (SHAPED, RECORDS))


@given(
    st.lists(
        st.one_of(
            st.builds(kit.Plain, items, items),
            st.builds(kit.Slots, items, items),
            st.dictionaries(st.sampled_from("abc"), items, max_size=3),
            items,
        ),
        min_size=FEWEST,
        max_size=FEWEST + 4,
    )
)
def test_records_of_many_shapes_come_back_as_they_went(records: list[Any]) -> None:
    before = [seen(record) for record in records]
    _, after = travelled(Bundle(records))
    assert [seen(record) for record in after.records] == before


@pytest.mark.parametrize("make", kit.SHAPED)
def test_classes_with_a_layout_travel_as_columns(make: Any) -> None:
    if make is kit.MoreSlots and sys.version_info < (3, 11):
        pytest.skip("there a dataclass has the slots of its base twice, and is pickled")
    assert travelled(Bundle([make("a", 1)] * FEWEST))[0] == SHAPED
    assert travelled(Bundle([make("a", [1])] * FEWEST))[0] == SHAPED
    assert travelled(Bundle([make("a", 1)] * (FEWEST - 1)))[0] == RECORDS


class Evolving:
    """The name of a class that changes between two versions of a program."""


def test_records_in_flight_are_read_by_a_class_with_one_field_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = sys.modules[__name__]
    before: Any = namedtuple("Evolving", ["a", "b"])
    after: Any = namedtuple("Evolving", ["a", "b", "c"], defaults=[7])
    structs = [
        msgspec.defstruct("Evolving", fields, module=__name__)
        for fields in (["a", ("b", Any)], ["a", ("b", Any), ("c", int, 7)])
    ]
    for old, new in ((before, after), structs):
        old.__module__ = new.__module__ = __name__
        monkeypatch.setattr(module, "Evolving", old)
        bundle = Bundle([old(1, [2])] * FEWEST)
        prefix, body = encode_element(bundle, PickleSerializer())
        assert prefix[-1] == SHAPED
        monkeypatch.setattr(module, "Evolving", new)
        found = decode_element(prefix[-1], memoryview(bytes(body)), PickleSerializer())
        assert isinstance(found, Bundle)
        assert found.records == [new(1, [2], 7)] * FEWEST


@pytest.mark.parametrize("make", kit.PICKLED)
def test_classes_with_a_pickling_of_their_own_are_pickled(make: Any) -> None:
    assert travelled(Bundle([make("a", 1)] * FEWEST))[0] == RECORDS


@pytest.mark.parametrize(
    "records",
    [
        [{"a": 1}] * FEWEST + [{"b": 1}],
        [{"a": 1, "b": 2}] * FEWEST + [{"b": 2, "a": 1}],
        [{}] * FEWEST,
        [{1: "a"}] * FEWEST,
        [{"a": 1}] * FEWEST + [kit.Plain("a", 1)],
        [{"a": 2**64}] * FEWEST,
        [{"\ud800": 1}] * FEWEST,
    ],
)
def test_dicts_without_a_common_shape_are_pickled(records: list[Any]) -> None:
    tag, after = travelled(Bundle(records))
    assert tag == RECORDS
    assert [seen(record) for record in after.records] == [seen(record) for record in records]


def test_attributes_beside_the_fields_travel_too() -> None:
    records = [kit.Data("a", number) for number in range(FEWEST)]
    for record in records:
        record.note = "x"  # type: ignore[attr-defined]
    assert travelled(Bundle(records))[0] == SHAPED
    assert vars(travelled(Bundle(records))[1].records[-1])["note"] == "x"
    del records[3].note  # type: ignore[attr-defined]
    tag, after = travelled(Bundle(records))
    assert tag == RECORDS
    assert "note" not in vars(after.records[3])


def test_an_attribute_that_only_the_class_has_stays_with_the_class() -> None:
    class_wide = [Defaulted(), *(Defaulted(number) for number in range(FEWEST))]
    _, after = travelled(Bundle(class_wide))
    assert [vars(record) for record in after.records] == [vars(record) for record in class_wide]


class Defaulted:
    limit = 5

    def __init__(self, limit: int | None = None) -> None:
        self.name = "a"
        if limit is not None:
            self.limit = limit


def test_attributes_that_no_assignment_could_name_travel_too() -> None:
    records = [kit.Plain("a", 1) for _ in range(FEWEST)]
    for record in records:
        vars(record)["not a name"] = vars(record)["class"] = 5
    tag, after = travelled(Bundle(records))
    assert tag == SHAPED
    assert vars(after.records[0]) == vars(records[0])


@pytest.mark.parametrize(
    "make", [kit.Plain, kit.Data, kit.Slots, kit.Frozen, lambda a, b: {"name": a, "b": b}]
)
def test_records_stay_apart_until_somebody_asks_for_them(make: Any) -> None:
    records = [make(f"name {number}", number) for number in range(20)]
    _, after = travelled(Bundle(records, list(range(20))))
    assert after.fields is not None
    names = after.fields.places[after.fields.shape.names.index("name")]
    assert names == [f"name {number}" for number in range(20)]
    tag, again = travelled(after.part(5, 15))
    assert tag == TIMED_SHAPED and again.fields is not None
    after.add(again)
    assert after.fields is not None and len(after) == 30
    assert after.records == records + records[5:15]
    assert after.fields is None


def test_properties_are_not_run_on_the_way() -> None:
    records = [kit.Watched("a", 1) for _ in range(FEWEST)]
    kit.Watched.calls.clear()
    tag, after = travelled(Bundle(records))
    assert (tag, kit.Watched.calls) == (SHAPED, [])
    assert vars(after.records[0]) == {"name": "a", "amount": 1}


def test_records_whose_class_cannot_be_named_fail_as_before() -> None:
    class Local:
        def __init__(self) -> None:
            self.name = "a"

    with pytest.raises((AttributeError, pickle.PicklingError)):
        encode_element(Bundle([Local()] * FEWEST), PickleSerializer())


def test_a_writer_that_keeps_meeting_mixed_shapes_stops_looking() -> None:
    serializer = PickleSerializer()
    mixed = Bundle([{"a": 1}, {"b": 1}] * FEWEST)
    alike = Bundle([{"a": 1}] * FEWEST)
    for _ in range(MISSES - 1):
        assert travelled(mixed, serializer)[0] == RECORDS
    assert travelled(alike, serializer)[0] == SHAPED
    for _ in range(2):
        assert travelled(mixed, serializer)[0] == RECORDS
    assert travelled(alike, serializer)[0] == RECORDS


def test_named_rows_travel_as_fields() -> None:
    rows = [Row(user=f"u{number}", at=number, more=[number]) for number in range(FEWEST)]
    tag, found = travelled(Bundle(rows))
    assert tag == SHAPED and found.fields is not None and found.fields.shape.is_row
    assert found.records == rows
    assert [row.get_field_names() for row in found.records] == [["user", "at", "more"]] * FEWEST
    assert found.records[0].more is not rows[0].more


@pytest.mark.parametrize(
    "odd",
    [
        Row("u", 1),
        Row.of_kind(RowKind.DELETE, user="u", at=1),
        Row(at=1, user="u"),
        Row(user="u", at=1, more=2),
        Row(user="u", as_dict=1),
        Row(),
    ],
)
@pytest.mark.parametrize("count", [1, FEWEST])
def test_other_rows_are_pickled(odd: Row, count: int) -> None:
    rows = [Row(user="u", at=1)] * (FEWEST - count) + [odd] * count
    tag, found = travelled(Bundle(rows))
    is_alike = count == FEWEST and odd.get_field_names() in (["at", "user"], ["user", "at", "more"])
    assert tag == (SHAPED if is_alike and odd.get_row_kind() is RowKind.INSERT else RECORDS)
    for row, twin in zip(rows, found.records, strict=True):
        assert (row, row.get_field_names()) == (twin, twin.get_field_names())


def test_names_that_are_no_fields_of_rows_are_broken() -> None:
    kind = pickle.dumps(Row, 5)
    for names in (["as_dict"], ["a", "a"]):
        body = msgspec.msgpack.encode([kind, names, [[1]] * len(names)])
        with pytest.raises(ElementBroken):
            decode_element(SHAPED, memoryview(body), PickleSerializer())


def test_fields_of_a_row_are_found_in_every_way_it_has() -> None:
    shape = field_shape(Row, ("a", "b"))
    assert shape is not None
    assert [shape.place(name, True, 2) for name in ("a", "b", "c", 0)] == [0, 1, None, None]
    found = [shape.place(name, False, 2) for name in ("a", "b", "c", 0, 1, -1, -2, 2, -3, True)]
    assert found == [0, 1, None, 0, 1, 1, 0, None, None, None]


def test_a_serializer_of_a_declared_type_gets_records() -> None:
    class Declared(PickleSerializer):
        pass

    assert encode_element(Bundle([{"a": 1}] * FEWEST), Declared())[0][-1] == RECORDS


def test_shapes_are_written_as_the_protocol_says() -> None:
    prefix, body = encode_element(Bundle([{"a": 1, "b": "x"}] * FEWEST), PickleSerializer())
    assert (prefix + body).hex() == (
        "2300000008" + "93c0" + "92a161a162" + "92" + "98" + "01" * 8 + "98" + "a178" * 8
    )


SLOTS = pickle.dumps(kit.Slots, 5)


@pytest.mark.parametrize(
    "form",
    [
        [],
        [None, ["a"]],
        [None, [], []],
        [None, ["a"], [[1], [2]]],
        [None, ["a", "b"], [[1], [2, 3]]],
        [None, ["a", "a"], [[1], [2]]],
        [None, [1], [[1]]],
        [None, ["a"], [5]],
        [None, ["a"], [pickle.dumps(["text"])]],
        [None, ["a"], [None]],
        [None, ["a"], [None, b"no pickle"]],
        [None, ["a"], [None, pickle.dumps(5)]],
        [None, ["a"], [None, pickle.dumps(["text"])]],
        [None, ["a"], [None, pickle.dumps([])]],
        [None, ["a"], [None, pickle.dumps([[1], [2]])]],
        [5, ["a"], [[1]]],
        [b"no pickle", ["a"], [[1]]],
        [pickle.dumps(len), ["a"], [[1]]],
        [pickle.dumps(dict), ["a"], [[1]]],
        [pickle.dumps(datetime.date), ["a"], [[1]]],
        [pickle.dumps(5), ["a"], [[1]]],
        [SLOTS, ["name", "other"], [[1], [2]]],
        [None, ["a"], [[1]], [5]],
        {"a": 1},
    ],
    ids=repr,
)
def test_damaged_shapes_are_broken_elements(form: Any) -> None:
    with pytest.raises(ElementBroken):
        decode_element(SHAPED, memoryview(msgspec.msgpack.encode(form)), PickleSerializer())


@pytest.mark.parametrize("times", [[], [1, 2], ["x"], 5])
def test_times_that_do_not_fit_are_broken_elements(times: Any) -> None:
    body = msgspec.msgpack.encode([None, ["a"], [[1]], times])
    with pytest.raises(ElementBroken):
        decode_element(TIMED_SHAPED, memoryview(body), PickleSerializer())


class Unit(str, enum.Enum):
    A = "a"


@pytest.mark.parametrize("key", [Unit.A, numpy.str_("a")], ids=repr)
def test_keys_that_only_equal_texts_stay_what_they_are(key: Any) -> None:
    tag, after = travelled(Bundle([{"a": 1}] * FEWEST + [{key: 2}]))
    assert tag == RECORDS
    assert [type(name) for name in after.records[-1]] == [type(key)]


@pytest.mark.parametrize("name", ["µs", "__debug__", "ﬁ"])
def test_attributes_that_code_would_name_otherwise_keep_their_names(name: str) -> None:
    records = [kit.Plain("a", 1) for _ in range(FEWEST)]
    for record in records:
        vars(record)[name] = 5
    tag, after = travelled(Bundle(records))
    assert tag == SHAPED
    assert [*vars(after.records[0])] == ["name", "amount", name]


@pytest.mark.parametrize("make", [kit.as_dict, kit.Plain, kit.Slots])
def test_fields_that_hold_the_same_object_hold_the_same_after_the_way(make: Any) -> None:
    shared = [[number] for number in range(FEWEST)]
    tag, after = travelled(Bundle([make(held, {"held": held}) for held in shared]))
    assert tag == SHAPED
    for record in after.records:
        name, amount = record.values() if make is kit.as_dict else (record.name, record.amount)
        assert amount["held"] is name


@pytest.mark.parametrize("make", [kit.Plain, kit.Slots, kit.FrozenSlots])
def test_instances_that_hold_themselves_are_pickled_whole(make: Any) -> None:
    records = [make("a", []) for _ in range(FEWEST)]
    for record in records:
        record.amount.append(record)
    tag, after = travelled(Bundle(records))
    assert tag == RECORDS
    assert all(record.amount[0] is record for record in after.records)


def test_dicts_that_hold_themselves_are_pickled_whole() -> None:
    records: list[dict[str, Any]] = [{"name": "a"} for _ in range(FEWEST)]
    for record in records:
        record["children"] = [{"parent": record}]
    tag, after = travelled(Bundle(records))
    assert tag == RECORDS
    assert all(record["children"][0]["parent"] is record for record in after.records)


@pytest.mark.parametrize("make", [kit.as_dict, kit.Plain, kit.Slots])
def test_records_that_hold_others_of_their_shape_travel_as_columns(make: Any) -> None:
    tag, after = travelled(Bundle([make("a", [make("b", number)]) for number in range(FEWEST)]))
    assert tag == SHAPED
    assert after.records == [make("a", [make("b", number)]) for number in range(FEWEST)]


def test_attributes_in_an_order_of_their_own_keep_their_values() -> None:
    records = [kit.Plain("a", 1) for _ in range(FEWEST)]
    for record in records:
        record.__dict__ = OrderedDict(name="a", amount=1)
        record.__dict__.move_to_end("name")
    after = travelled(Bundle(records))[1]
    assert (after.records[0].name, after.records[0].amount) == ("a", 1)


class Grown:
    """A class before its program was changed, and several after that."""

    @dataclass
    class Data:
        name: Any

    @dataclass(slots=True)
    class Slots:
        name: Any

    @dataclass(frozen=True, slots=True)
    class Frozen:
        name: Any

    @dataclass
    class DataTakesState:
        name: Any
        rest: Any

        def __setstate__(self, state: Any) -> None:
            vars(self).update({"rest": "new", **state})

    @dataclass(slots=True)
    class SlotsTakeState:
        name: Any
        rest: Any

        def __setstate__(self, state: Any) -> None:
            self.name, self.rest = state[1]["name"], state[1].get("rest", "new")

    @dataclass(slots=True)
    class MoreSlots:
        name: Any
        rest: Any

    @dataclass(frozen=True, slots=True)
    class MoreFrozen:
        rest: Any
        name: Any

    @dataclass
    class Answers:
        name: Any

        def __new__(cls, *_: Any) -> Any:
            return object.__new__(cls)


@pytest.mark.parametrize(
    ("before", "after", "rest"),
    [
        (Grown.Data, Grown.DataTakesState, "new"),
        (Grown.Data, Grown.Answers, None),
        (Grown.Data, Grown.Slots, None),
        (Grown.Slots, Grown.SlotsTakeState, "new"),
        (Grown.Slots, Grown.MoreSlots, None),
        (Grown.Frozen, Grown.MoreFrozen, None),
    ],
    ids=lambda kind: getattr(kind, "__name__", repr(kind)),
)
def test_records_of_a_class_that_has_changed_since_are_read(
    before: Any, after: Any, rest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Bundle([before([number]) for number in range(FEWEST)])
    prefix, body = encode_element(written, PickleSerializer())
    assert prefix[-1] == SHAPED
    monkeypatch.setattr(Grown, before.__name__, after)
    element = decode_element(SHAPED, memoryview(body), PickleSerializer())
    assert isinstance(element, Bundle)
    assert {type(record) for record in element.records} == {after}
    assert [record.name for record in element.records] == [[number] for number in range(FEWEST)]
    assert {getattr(record, "rest", None) for record in element.records} == {rest}
