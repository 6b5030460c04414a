"""Rows: names, equality, hashes, texts, copies."""

import copy
import pickle

import pytest

from headgate.api.row import named_row, names_of, rows_of, values_of
from headgate.base.values import own
from headgate.common import Row, RowKind
from headgate.core.operators.reduce import field_of, with_field
from headgate.core.state.keys import freeze, key_bytes, stable_hash


def test_keywords_keep_the_order_in_which_they_are_written() -> None:
    row = Row(name="Ada", age=36)
    assert list(row) == ["Ada", 36]
    assert row[0] == "Ada"
    assert repr(row) == "Row(name='Ada', age=36)"
    assert Row.of_kind(RowKind.DELETE, b=1, a=2).get_field_names() == ["b", "a"]


def test_rows_with_names_are_equal_in_any_order_and_have_equal_hashes() -> None:
    row, turned = Row(name="Ada", age=36), Row(age=36, name="Ada")
    assert row == turned
    assert hash(row) == hash(turned)
    assert row != Row(name=36, age="Ada")
    assert row != Row(name="Ada", years=36)
    assert Row.of_kind(RowKind.DELETE, name="Ada", age=36) != row
    short, other = Row("Ada", 36, 1), Row(36, "Ada", 2)
    short.set_field_names(["name", "age"])
    other.set_field_names(["age", "name"])
    assert short != other
    assert key_bytes(short) != key_bytes(other)


def test_values_are_read_by_their_names() -> None:
    row = Row(name="Ada", age=36, city="London")
    assert row.get_fields_by_names(["city", "name"]) == ["London", "Ada"]
    assert row.get_fields_by_names(["name", "age", "city"]) == ["Ada", 36, "London"]
    assert Row("Ada", 36).get_fields_by_names(["any", "names"]) == ["Ada", 36]
    with pytest.raises(KeyError, match="planet"):
        row.get_fields_by_names(["planet"])


def test_kind_of_a_row_is_written_by_its_sign() -> None:
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]
    assert f"{RowKind.DELETE}" == "-D"


def test_row_without_names_prints_its_values_only() -> None:
    assert repr(Row("a", 2)) == "<Row('a', 2)>"


def test_row_without_names_never_equals_one_with_names() -> None:
    assert Row(1, 2) != Row(f0=1, f1=2)
    assert Row(1, 2) == Row(1, 2)
    assert Row(1, 2) != (1, 2)


def test_row_without_names_hashes_like_its_tuple() -> None:
    assert hash(Row("a", 1)) == hash(("a", 1))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Row([1]))


def test_equal_rows_are_one_key_in_every_process() -> None:
    row, turned = Row(a=1, b="x"), Row(b="x", a=1)
    assert stable_hash(row) == stable_hash(turned)
    assert stable_hash((1, [row])) == stable_hash((1, [turned]))
    assert key_bytes(row) == key_bytes(turned)
    assert key_bytes(row) != key_bytes(Row(a="x", b=1))
    assert freeze(Row(a=[1], b=2)) == freeze(Row(b=2, a=[1]))


def test_row_of_names_makes_rows_in_that_order() -> None:
    person = Row("name", "age")
    ada = person("Ada", 36)
    assert repr(ada) == "Row(name='Ada', age=36)"
    assert ada.get_field_names() == ["name", "age"]
    with pytest.raises(ValueError, match="2 names"):
        person("Ada", 36, "London")


def test_fields_are_read_and_written_by_position_and_name() -> None:
    row = Row(name="Ada", age=36)
    assert (row[0], row["name"], row.age, row[-1], row[0:2]) == ("Ada", "Ada", 36, 36, ["Ada", 36])
    row["age"] = 37
    row[0] = "Bea"
    assert row == Row(name="Bea", age=37)


def test_unknown_fields_are_told_by_name() -> None:
    row = Row(name="Ada")
    with pytest.raises(KeyError, match="city"):
        row["city"]
    with pytest.raises(AttributeError, match="city"):
        _ = row.city
    with pytest.raises(KeyError, match="no names"):
        Row(1)["name"]
    with pytest.raises(AttributeError, match=r"row\['name'\] = value"):
        row.name = "Bea"


def test_names_are_contained_and_values_only_if_there_are_no_names() -> None:
    row = Row(name="Ada")
    assert "name" in row
    assert "Ada" not in row
    assert "city" not in row
    assert "Ada" in Row("Ada")


def test_row_becomes_a_dict() -> None:
    row = Row(key=1, value=Row(name="a"), more=[Row(n=1)], by={"k": Row(n=2)})
    assert row.as_dict()["value"] == Row(name="a")
    assert row.as_dict(recursive=True) == {
        "key": 1,
        "value": {"name": "a"},
        "more": [{"n": 1}],
        "by": {"k": {"n": 2}},
    }
    with pytest.raises(TypeError, match="set_field_names"):
        Row(1).as_dict()


def test_names_can_be_given_later() -> None:
    row = Row(1, 2)
    row.set_field_names(["a", "b"])
    assert row == Row(a=1, b=2)


def test_kind_travels_and_tells_rows_apart() -> None:
    row = Row.of_kind(RowKind.DELETE, a=1)
    assert row != Row(a=1)
    assert pickle.loads(pickle.dumps(row)).get_row_kind() is RowKind.DELETE
    assert [kind.short for kind in RowKind] == ["+I", "-U", "+U", "-D"]


def test_copies_are_equal_and_independent() -> None:
    row = Row(a=1, b=[2])
    for twin in (copy.copy(row), copy.deepcopy(row), pickle.loads(pickle.dumps(row))):
        assert twin == row
        twin["a"] = 9
        assert row.a == 1


def test_parts_can_be_set_as_pyflink_names_them() -> None:
    row = Row(1, 2)
    row._fields = ["a", "b"]
    row._values = [3, 4]
    row._row_kind = RowKind.DELETE
    assert row == Row.of_kind(RowKind.DELETE, a=3, b=4)


def test_values_and_named_values_do_not_mix() -> None:
    with pytest.raises(ValueError, match="not both"):
        Row(1, a=2)


def test_aggregations_read_and_replace_fields_of_rows() -> None:
    row = Row(a=1, b=2)
    changed = with_field(row, "b", 5)
    assert (field_of(row, "b"), changed, row) == (2, Row(a=1, b=5), Row(a=1, b=2))
    assert with_field(row, 0, 7) == Row(a=7, b=2)


def test_rows_are_made_of_columns() -> None:
    names = ["b", "a"]
    rows = rows_of(names, [[1, 2], ["x", "y"]])
    assert rows == [named_row(names, [1, "x"]), named_row(names, [2, "y"])]
    assert rows_of(names, [[], []]) == []
    assert values_of(rows[0]) == [1, "x"] and names_of(rows[0]) == names
    assert names_of(Row(1)) is None


def test_row_is_owned_without_sharing_what_can_be_changed() -> None:
    inner = Row(x=[1])
    row = Row.of_kind(RowKind.DELETE, a=1, b=[2], c={"k": inner})
    twin = own(row)
    assert twin == row and twin is not row
    twin["b"].append(3)
    twin["c"]["k"].x.append(2)
    twin["a"] = 5
    assert row.b == [2] and row.a == 1 and inner.x == [1]


def test_a_field_may_be_called_like_a_method() -> None:
    row = Row(as_dict=1, b=2)
    assert (row["as_dict"], row.b, row.as_dict()) == (1, 2, {"as_dict": 1, "b": 2})
    assert named_row(["as_dict", "b"], [1, 2]) == row == rows_of(["as_dict", "b"], [[1], [2]])[0]


def test_fields_are_not_deleted() -> None:
    row = Row(a=1)
    with pytest.raises(AttributeError, match="without the field"):
        del row.a
    assert row == Row(a=1)


def test_a_list_of_values_asked_for_stays_that_of_the_row() -> None:
    row = Row(a=1, b=2)
    row._values[0] = 5
    assert (row.a, row["a"], row[0], list(row)) == (5, 5, 5, [5, 2])
    assert row == Row(a=5, b=2) and hash(row) == hash(Row(b=2, a=5))
    own_list = Row(a=1).get_fields_by_names(["a"])
    own_list[0] = 7
    assert Row(a=1)[0] == 1
