"""What every backend must do with restored states whose kind or type is another one now."""

from typing import Any

import pytest

from headgate.api.row import RowKind
from headgate.api.types.types import Types
from headgate.base.errors import StateChanged
from headgate.core.state.migration import SAMPLED
from headgate.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tests.core.state.conformance import Make
from tests.core.state.kit import Lab, Sum

KINDS = {
    "value": ValueStateDescriptor("s", Types.INT()),
    "list": ListStateDescriptor("s", Types.INT()),
    "map": MapStateDescriptor("s", Types.STRING(), Types.INT()),
    "reducing": ReducingStateDescriptor("s", max, Types.INT()),
    "aggregating": AggregatingStateDescriptor("s", Sum(), Types.LIST(Types.INT())),
}
STORED = {kind: kind if kind in ("list", "map") else "value" for kind in KINDS}
OLD = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
NEW = Types.ROW_NAMED(["age", "name", "town"], [Types.LONG(), Types.STRING(), Types.STRING()])


def fill(state: Any, kind: str) -> None:
    match kind:
        case "value":
            state.update(1)
        case "map":
            state.put("a", 1)
        case _:
            state.add(1)


class MigrationConformance:
    """Tests for a class with a fixture `make`."""

    @pytest.fixture(params=[False, True], ids=["by key", "by window"])
    def old(self, make: Make, request: pytest.FixtureRequest) -> Any:
        lab = Lab(make, request.param)
        lab.at("k", "window" if request.param else None)
        yield lab
        lab.backend.close()

    @pytest.mark.parametrize("knows_shapes", [True, False])
    @pytest.mark.parametrize("had", KINDS)
    def test_a_state_keeps_its_kind(self, old: Lab, had: str, knows_shapes: bool) -> None:
        fill(old.open(KINDS[had]), had)
        new = old.restored(knows_shapes)
        for has in KINDS:
            # An older version has noted how a state is stored: a folded one as a value.
            if had == has or (not knows_shapes and STORED[had] == STORED[has]):
                continue
            with pytest.raises(StateChanged) as refused:
                new.open(KINDS[has])
            message = str(refused.value)
            assert "checkpoint 7" in message and "the state 's' of operator 'counter'" in message
            assert refused.value.had.startswith(had if knows_shapes else STORED[had])
            assert refused.value.has.startswith(f"{has} of Types.")
            assert "give it the kind and type it had, or another name" in message
        new.open(KINDS[had])
        new.backend.close()

    @pytest.mark.parametrize("knows_shapes", [True, False])
    def test_an_int_is_not_read_as_a_text(self, old: Lab, knows_shapes: bool) -> None:
        old.open(ValueStateDescriptor("s", Types.INT())).update(7)
        new = old.restored(knows_shapes)
        with pytest.raises(StateChanged, match=r"is value of Types\.STRING\(\) now"):
            new.open(ValueStateDescriptor("s", Types.STRING()))
        new.backend.close()

    def test_a_state_that_was_empty_keeps_its_type_too(self, old: Lab) -> None:
        old.open(ValueStateDescriptor("s", Types.INT()))
        new = old.restored()
        with pytest.raises(StateChanged):
            new.open(ValueStateDescriptor("s", Types.STRING()))
        new.backend.close()

    @pytest.mark.parametrize(
        ("before", "after", "written", "read"),
        [
            (Types.INT(), Types.LONG(), 7, 7),
            (Types.INT(), Types.DOUBLE(), 7, 7.0),
            (Types.FLOAT(), Types.DOUBLE(), 1.5, 1.5),
            (Types.INT(), None, 7, 7),
            (None, Types.INT(), 7, 7),
            (Types.INT(), Types.PICKLED_BYTE_ARRAY(), 7, 7),
            (OLD, NEW, *(kind.coerced({"name": "Ada", "age": 36}) for kind in (OLD, NEW))),
        ],
    )
    def test_what_loses_nothing_migrates_in_every_kind(
        self, old: Lab, before: Any, after: Any, written: Any, read: Any
    ) -> None:
        old.open(ValueStateDescriptor("v", before)).update(written)
        old.open(ListStateDescriptor("l", before)).update([written, written])
        old.open(MapStateDescriptor("m", Types.STRING(), before)).put("a", written)
        new = old.restored()
        value = new.open(ValueStateDescriptor("v", after))
        elements = new.open(ListStateDescriptor("l", after))
        items = new.open(MapStateDescriptor("m", Types.STRING(), after))
        new.at("k", "window" if old.namespaced else None)
        found = [value.value(), *elements.get(), items.get("a")]
        assert found == [read] * 4 and {*map(type, found)} == {type(read)}
        again = new.restored()
        again.open(ValueStateDescriptor("v", after))
        again.at("k", "window" if old.namespaced else None)
        assert again.open(ValueStateDescriptor("v", after)).value() == read
        again.backend.close()
        new.backend.close()

    def test_the_kind_of_a_row_stays(self, old: Lab) -> None:
        row = OLD.coerced({"name": "Ada", "age": 36})
        row.set_row_kind(RowKind.DELETE)
        old.open(ValueStateDescriptor("v", OLD)).update(row)
        new = old.restored()
        state = new.open(ValueStateDescriptor("v", NEW))
        new.at("k", "window" if old.namespaced else None)
        assert state.value().get_row_kind() is RowKind.DELETE
        new.backend.close()

    @pytest.mark.parametrize(
        ("before", "after", "written"),
        [
            (None, Types.STRING(), 7),
            (None, Types.FLOAT(), 1e300),
            (Types.LONG(), Types.INT(), 7),
            (Types.DOUBLE(), Types.FLOAT(), 1.0),
            (NEW, OLD, NEW.coerced({"name": "Ada", "age": 36})),
        ],
    )
    def test_what_could_lose_something_is_refused(
        self, old: Lab, before: Any, after: Any, written: Any
    ) -> None:
        old.open(ListStateDescriptor("l", before)).add(written)
        new = old.restored()
        with pytest.raises(StateChanged):
            new.open(ListStateDescriptor("l", after))
        new.backend.close()

    def test_a_folded_none_is_no_value_of_a_type(self, old: Lab) -> None:
        old.open(ReducingStateDescriptor("r", lambda a, b: None)).add(1)
        state = old.open(ReducingStateDescriptor("r", lambda a, b: None))
        state.add(2)
        assert state.get() is None
        new = old.restored()
        state = new.open(ReducingStateDescriptor("r", max, Types.INT()))
        new.at("k", "window" if old.namespaced else None)
        assert state.get() is None
        new.backend.close()

    def test_a_refused_state_is_refused_again(self, old: Lab) -> None:
        old.open(ValueStateDescriptor("s", Types.INT())).update(7)
        new = old.restored()
        descriptor: StateDescriptor = ValueStateDescriptor("s", Types.STRING())
        for _ in range(2):
            with pytest.raises(StateChanged):
                new.open(descriptor)
        new.backend.close()

    def test_of_unknown_types_the_first_values_are_looked_at(self, old: Lab) -> None:
        state = old.open(ValueStateDescriptor("s"))
        for number in range(SAMPLED + 10):
            old.at(number, "window" if old.namespaced else None)
            state.update(number)
        new = old.restored(knows_shapes=False)
        new.open(ValueStateDescriptor("s", Types.INT()))
        other = old.restored(knows_shapes=False)
        with pytest.raises(StateChanged, match="this is a"):
            other.open(ValueStateDescriptor("s", Types.STRING()))
        other.backend.close()
        new.backend.close()
