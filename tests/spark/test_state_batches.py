"""Parts of a state become Arrow batches: the same rows as those that are read one by one."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headgate import Types, ValueStateDescriptor, state
from headgate.api.row import Row
from headgate.base.errors import SettingsInvalid, StateBroken
from headgate.core.state.snapshot import NONE
from headgate.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig
from headgate.functions.time import Time
from headgate.functions.window import TimeWindow
from headgate.spark.state_table.source import StateDataSource
from headgate.spark.state_table.tables import KEYED_TABLE, StateTable
from tests.host.saved_state.kit import write_people

KEY = ("key", "string")
VALUE = ("value", "bigint")


def timed(descriptor: Any) -> Any:
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    return descriptor


def batches(path: str, schema: StructType, **options: str) -> list[dict[str, Any]]:
    """The rows of all partitions, read here instead of in Spark's workers."""
    reader = StateDataSource({"path": path, **options}).reader(schema)
    read = (batch for part in reader.partitions() for batch in reader.read(part))
    return [row for batch in read for row in batch.to_pylist()]


def fields(**types: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def test_a_row_as_value_is_a_struct_whatever_the_order_of_its_names(tmp_path: Path) -> None:
    point = StructType([StructField("x", LongType()), StructField("y", StringType())])
    descriptor = ValueStateDescriptor("point")
    rows = {"a": Row(x=1, y="one"), "b": Row(y="two", x=2), "c": (3, None), "d": Row(4, "four")}
    path = state.write(str(tmp_path / "points"), state.operator("points").put(descriptor, rows))
    found = {
        row["key"]: row["value"] for row in batches(path, fields(key=StringType(), value=point))
    }
    assert found == {
        "a": {"x": 1, "y": "one"},
        "b": {"x": 2, "y": "two"},
        "c": {"x": 3, "y": None},
        "d": {"x": 4, "y": "four"},
    }
    shown = batches(path, fields(value=StringType()), state="point")
    assert {"value": "Row(x=1, y='one')"} in shown
    assert {"value": "<Row(4, 'four')>"} in shown


def test_states_of_one_operator_do_not_mix(tmp_path: Path) -> None:
    path = write_people(tmp_path / "people")
    schema = fields(key=StringType(), value=LongType())
    found = batches(path, schema, state="total", partitionBytes="1")
    assert sorted((row["key"], row["value"]) for row in found) == [
        ("ada", 3),
        ("bob", 5),
        ("eve", 7),
    ]


def test_what_a_time_to_live_keeps_beside_values_is_not_shown(tmp_path: Path) -> None:
    entries = state.write(
        str(tmp_path / "timed"),
        state.operator("timed")
        .put(timed(ValueStateDescriptor("value", Types.LONG())), {"a": 1})
        .put(timed(ListStateDescriptor("list", Types.LONG())), {"a": [1, 2], "b": [3]})
        .put(
            timed(MapStateDescriptor("map", Types.STRING(), Types.LONG())),
            [("a", "x", 1), ("a", "y", 2)],
        ),
    )
    long, text = LongType(), StringType()
    assert batches(entries, fields(key=text, value=long), state="value") == [
        {"key": "a", "value": 1}
    ]
    assert {row["value"] for row in batches(entries, fields(value=text), state="list")} == {
        "[1, 2]",
        "[3]",
    }
    found = batches(entries, fields(key=text, map_key=text, value=long), state="map")
    assert sorted(map(tuple, map(dict.values, found))) == [("a", "x", 1), ("a", "y", 2)]


def test_a_result_of_none_and_a_window_are_shown() -> None:
    table = StateTable(
        KEYED_TABLE,
        (KEY, ("window_start", "bigint"), ("window_end", "bigint"), ("namespace", "string"), VALUE),
        "sum",
    )
    window = TimeWindow(5, 9)
    entries = [
        ("value", "sum", window, "a", NONE),
        ("value", "other", window, "a", 3),
        ("value", "sum", None, "b", 4),
    ]
    assert [list(column) for column in table.values(entries)] == [
        ["a", "b"],
        [5, None],
        [9, None],
        [window, None],
        [None, 4],
    ]
    assert [list(column) for column in table.values([])] == [[]] * 5


def test_a_state_in_two_forms_is_refused() -> None:
    table = StateTable(KEYED_TABLE, (KEY, VALUE), "sum")
    with pytest.raises(StateBroken, match="'sum' is stored as list and as value; leave out"):
        table.values([("value", "sum", None, "a", 1), ("list", "sum", None, "a", [1])])


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("loadClasses", "maybe", "is 'maybe'; give true or false"),
        ("partitionBytes", "0", "is '0'; give a number of bytes"),
        ("path", "", "is not given; name a checkpoint"),
    ],
)
def test_options_that_say_nothing_are_refused(option: str, value: str, words: str) -> None:
    with pytest.raises(SettingsInvalid, match=words):
        StateDataSource({"path": "savepoints/first", option: value}).schema()
