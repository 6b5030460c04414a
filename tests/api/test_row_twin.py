"""A row, whatever is done with it, is its names, its values and its kind."""

import copy
import pickle
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.api.row import make_row, names_of, rows_with, values_of
from headgate.base.values import own
from headgate.common import Row, RowKind

NAMES = st.sampled_from(["a", "b", "_c", "as_dict", "_list", "__dict__", "f0"])
VALUES = st.none() | st.integers(0, 3) | st.text(max_size=1) | st.lists(st.integers(), max_size=1)
KINDS = st.sampled_from(RowKind)


def outcome(action: Any) -> object:
    """What comes out of it, or the kind of its error."""
    try:
        return action()
    except Exception as error:
        return type(error)


class RowTwin(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] | None = None
        self.values: list[Any] = []
        self.kind = RowKind.INSERT
        self.row = Row()

    @rule(pairs=st.dictionaries(NAMES, VALUES, max_size=4))
    def made_by_names(self, pairs: dict[str, Any]) -> None:
        self.row, self.kind = Row(**pairs), RowKind.INSERT
        self.names, self.values = list(pairs) or None, list(pairs.values())

    @rule(values=st.lists(VALUES, max_size=3))
    def made_by_position(self, values: list[Any]) -> None:
        self.row, self.kind = Row(*values), RowKind.INSERT
        self.names, self.values = None, list(values)

    @rule(names=st.none() | st.lists(NAMES, max_size=4), values=st.lists(VALUES, max_size=4))
    def made_of_parts(self, names: list[str] | None, values: list[Any]) -> None:
        self.row, self.kind = make_row(names, values, RowKind.INSERT), RowKind.INSERT
        self.names, self.values = names, list(values)

    @rule(names=st.lists(NAMES, max_size=4), values=st.lists(VALUES, max_size=4))
    def made_with_others(self, names: list[str], values: list[Any]) -> None:
        self.row, twin = rows_with(names, [values, values])
        assert twin == self.row
        self.names, self.values, self.kind = names, list(values), RowKind.INSERT

    @rule(names=st.lists(NAMES, max_size=4))
    def names_are_set(self, names: list[str]) -> None:
        self.row.set_field_names(names)
        self.names = names

    @rule(kind=KINDS)
    def kind_is_set(self, kind: RowKind) -> None:
        self.row.set_row_kind(kind)
        self.kind = kind

    @rule(at=st.integers(-5, 4), value=VALUES)
    def value_is_set_by_position(self, at: int, value: Any) -> None:
        found = outcome(lambda: self.row.__setitem__(at, value))
        assert found == outcome(lambda: self.values.__setitem__(at, value))

    @rule(start=st.integers(0, 3), values=st.lists(VALUES, max_size=3))
    def slice_is_set(self, start: int, values: list[Any]) -> None:
        self.row[start : start + 2] = values
        self.values[start : start + 2] = values

    @rule(name=NAMES | st.just("absent"), value=VALUES)
    def value_is_set_by_name(self, name: str, value: Any) -> None:
        place = None if self.names is None or name not in self.names else self.names.index(name)
        found = outcome(lambda: self.row.__setitem__(name, value))
        if place is None:
            assert found is KeyError
        elif place < len(self.values):
            self.values[place] = value
        else:
            assert found is IndexError

    @rule(values=st.lists(VALUES, max_size=3))
    def list_is_changed_as_in_pyflink(self, values: list[Any]) -> None:
        self.row._values.extend(values)
        self.values += values

    @rule(how=st.sampled_from([copy.copy, copy.deepcopy, own]), level=st.integers(0, 5))
    def copied(self, how: Any, level: int) -> None:
        twin = how(self.row)
        assert twin == self.row and (twin.get_row_kind() is self.kind)
        self.row = pickle.loads(pickle.dumps(twin, level))

    @rule(name=NAMES)
    def fields_cannot_be_set_or_deleted_as_attributes(self, name: str) -> None:
        for action in (lambda: setattr(self.row, "a", 1), lambda: delattr(self.row, "a")):
            with pytest.raises(AttributeError):
                action()

    @precondition(lambda self: self.names)
    @rule()
    def read_by_name(self) -> None:
        assert self.names is not None
        members = dir(Row)
        for name in self.names:
            place = self.names.index(name)
            expected = outcome(lambda place=place: self.values[place])  # type: ignore[misc]
            assert outcome(lambda name=name: self.row[name]) == expected  # type: ignore[misc]
            if name not in members:
                assert outcome(lambda name=name: getattr(self.row, name)) == expected  # type: ignore[misc]
        assert callable(self.row.as_dict)
        assert self.row.as_dict() == dict(zip(self.names, self.values, strict=False))

    @rule(at=st.integers(-5, 4) | st.slices(4))
    def read_by_position(self, at: Any) -> None:
        assert outcome(lambda: self.row[at]) == outcome(lambda: self.values[at])

    @rule(other=st.dictionaries(NAMES, VALUES, max_size=3))
    def compared(self, other: dict[str, Any]) -> None:
        row = Row(**other)
        is_equal = self.kind is RowKind.INSERT and (self.names or None) == (list(other) or None)
        is_equal = is_equal and self.values == list(other.values())
        if self.names and other and len({*self.names}) == len(self.names) == len(self.values):
            is_equal = self.kind is RowKind.INSERT and other == self.row.as_dict()
        if self.names != []:  # a row of no names has other names than one without
            assert (self.row == row) == (row == self.row) == is_equal
        if self.row == row and outcome(lambda: hash(row)) is not TypeError:
            assert hash(self.row) == hash(row)

    @invariant()
    def it_is_its_parts(self) -> None:
        row = self.row
        assert (row.get_field_names(), names_of(row), row._fields) == (self.names,) * 3
        assert [*row] == values_of(row) == self.values
        assert (len(row), row.get_row_kind()) == (len(self.values), self.kind)
        assert "a" in row if self.names is not None and "a" in self.names else True
        assert "absent" not in row
        with pytest.raises(AttributeError):
            _ = row.absent
        kind, values = self.names, tuple(self.values)
        assert row.__reduce__()[1] == (kind, values, self.kind)


TestRowTwin = RowTwin.TestCase
