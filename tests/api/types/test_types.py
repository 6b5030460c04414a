"""Types: equality, texts, and the shape that they give to single values."""

import inspect
import pickle

import pytest

from headgate.api.types.types import TypeInformation
from headgate.base.errors import PlanInvalid
from headgate.common import Row, RowKind, Types, typeinfo

PLAIN = [
    "STRING",
    "BYTE",
    "BOOLEAN",
    "SHORT",
    "INT",
    "LONG",
    "FLOAT",
    "DOUBLE",
    "CHAR",
    "BIG_INT",
    "BIG_DEC",
    "INSTANT",
    "SQL_DATE",
    "SQL_TIME",
    "SQL_TIMESTAMP",
    "PICKLED_BYTE_ARRAY",
]
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


@pytest.mark.parametrize("name", PLAIN)
def test_plain_types_are_equal_if_made_alike_and_say_how(name: str) -> None:
    make = getattr(Types, name)
    assert make() == make()
    assert repr(make()) == f"Types.{name}()"
    assert pickle.loads(pickle.dumps(make())) == make()


def test_there_are_twenty_four_factories() -> None:
    assert len([name for name, _ in inspect.getmembers(Types, inspect.isfunction)]) == 24


def test_types_of_types_are_equal_by_what_they_hold() -> None:
    assert Types.LIST(Types.INT()) == Types.LIST(Types.INT()) != Types.LIST(Types.LONG())
    assert Types.BASIC_ARRAY(Types.INT()) != Types.OBJECT_ARRAY(Types.INT())
    assert Types.PRIMITIVE_ARRAY(Types.INT()) != Types.BASIC_ARRAY(Types.INT())
    assert Types.MAP(Types.STRING(), Types.INT()) != Types.MAP(Types.INT(), Types.STRING())
    assert Types.ROW([Types.INT()]) == Types.ROW_NAMED(["f0"], [Types.INT()])
    assert {PAIR, Types.TUPLE([Types.STRING(), Types.INT()])} == {PAIR}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (PAIR, "Types.TUPLE([Types.STRING(), Types.INT()])"),
        (Types.ROW_NAMED(["a"], [Types.INT()]), "Types.ROW_NAMED(['a'], [Types.INT()])"),
        (Types.MAP(Types.CHAR(), Types.INT()), "Types.MAP(Types.CHAR(), Types.INT())"),
        (Types.LIST(Types.INT()), "Types.LIST(Types.INT())"),
    ],
)
def test_types_print_as_they_were_written(kind: TypeInformation, text: str) -> None:
    assert repr(kind) == text


def test_row_type_makes_rows_with_names() -> None:
    coerced = Types.ROW([Types.INT(), Types.STRING()]).coerced
    assert repr(coerced((1, "hi"))) == "Row(f0=1, f1='hi')"
    assert coerced([1, "hi"]) == coerced(Row(1, "hi")) == Row(f0=1, f1="hi")


def test_named_row_type_takes_fields_by_name_where_there_are_names() -> None:
    kind = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
    person = Row("name", "age")("Ada", 36)
    assert kind.coerced(Row(age=36, name="Ada")) == person
    assert kind.coerced({"age": 36, "name": "Ada"}) == person
    assert kind.coerced(Row(a="Ada", b=36)) == person
    assert kind.get_field_names() == ["name", "age"]
    assert kind.get_field_types() == [Types.STRING(), Types.INT()]


def test_kind_of_a_row_is_kept() -> None:
    kind = Types.ROW_NAMED(["a"], [Types.INT()])
    for row in (Row.of_kind(RowKind.DELETE, 1), Row.of_kind(RowKind.DELETE, a=1)):
        assert kind.coerced(row) == Row.of_kind(RowKind.DELETE, a=1)


def test_tuple_type_makes_tuples_of_lists_and_rows() -> None:
    assert PAIR.coerced(["a", 1]) == PAIR.coerced(Row("a", 1)) == ("a", 1)
    assert type(PAIR.coerced(["a", 1])) is tuple


def test_shapes_reach_into_fields_lists_and_maps() -> None:
    kind = Types.ROW([Types.LIST(PAIR), Types.MAP(Types.STRING(), PAIR), PAIR])
    coerced = kind.coerced(([["a", 1]], {"k": ["b", 2]}, None))
    assert coerced == Row(f0=[("a", 1)], f1={"k": ("b", 2)}, f2=None)


@pytest.mark.parametrize("value", [1, "ab", (1,), ("a", 1, 2)])
def test_value_of_another_shape_is_refused_with_its_type(value: object) -> None:
    with pytest.raises(TypeError, match=r"Types\.TUPLE\(\[Types\.STRING"):
        PAIR.coerced(value)


def test_factories_refuse_what_is_no_type() -> None:
    with pytest.raises(PlanInvalid, match="call the factory"):
        Types.TUPLE([int])  # type: ignore[list-item]
    with pytest.raises(PlanInvalid, match="call the factory"):
        Types.LIST(Types.INT)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="2 names and 1 types"):
        Types.ROW_NAMED(["a", "b"], [Types.INT()])


def test_types_are_instances_of_the_classes_that_pyflink_has() -> None:
    number = Types.INT()
    made = {
        typeinfo.ListTypeInfo: Types.LIST(number),
        typeinfo.BasicArrayTypeInfo: Types.BASIC_ARRAY(number),
        typeinfo.PrimitiveArrayTypeInfo: Types.PRIMITIVE_ARRAY(number),
        typeinfo.ObjectArrayTypeInfo: Types.OBJECT_ARRAY(number),
    }
    for kind, type_info in made.items():
        assert type(type_info) is kind
        assert kind(number) == type_info
        assert pickle.loads(pickle.dumps(type_info)) == type_info
    assert len({*made.values()}) == 4
    assert typeinfo.MapTypeInfo(number, number) == Types.MAP(number, number)
    assert typeinfo.TupleTypeInfo([number]) == Types.TUPLE([number])
    assert typeinfo.RowTypeInfo([number]) == Types.ROW([number])
    assert typeinfo.RowTypeInfo([number], ["n"]) == Types.ROW_NAMED(["n"], [number])
    assert typeinfo.BasicTypeInfo(typeinfo.BasicType.INT) == number
    assert typeinfo.BasicTypeInfo.INT_TYPE_INFO() == number  # type: ignore[attr-defined]
    assert typeinfo.DateTypeInfo() == typeinfo.SqlTimeTypeInfo.DATE() == Types.SQL_DATE()
    assert typeinfo.TimeTypeInfo() == typeinfo.SqlTimeTypeInfo.TIME() == Types.SQL_TIME()
    stamp = typeinfo.TimestampTypeInfo()
    assert stamp == typeinfo.SqlTimeTypeInfo.TIMESTAMP() == Types.SQL_TIMESTAMP()
    assert pickle.loads(pickle.dumps(stamp)) == stamp


def test_a_field_of_a_row_has_an_index() -> None:
    row = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    assert row.get_field_index("b") == 1
    with pytest.raises(ValueError, match="no field 'c'"):
        row.get_field_index("c")


def test_pickled_bytes_are_any_object_and_none_too() -> None:
    anything = Types.PICKLED_BYTE_ARRAY()
    assert anything.coerced(None) is None
    assert anything.coercer()([None, 1, "a"]) == [None, 1, "a"]
