"""Checkpoints and savepoints of both backends are read as rows, without a job."""

import sys
import tarfile
from pathlib import Path

import pytest

from headgate import ListStateDescriptor, Types, ValueStateDescriptor, state
from headgate.api.row import Row
from headgate.base.errors import CheckpointCorrupt, CheckpointMissing, StateUnknown
from headgate.functions.window import TimeWindow
from headgate.host.checkpoints import metadata as module
from headgate.host.checkpoints.metadata import METADATA_FILE
from headgate.host.saved_state.loading import StandIn
from headgate.state import KeyedRow, SavedState, TimerRow
from tests.host.checkpoint_kit import flip
from tests.host.saved_kit import FOLDER
from tests.host.saved_state.kit import Order, write_people

PYTHON = (3, 11)
"""Files of a database in the archives are read by this one alone."""


@pytest.fixture
def people(tmp_path: Path) -> SavedState:
    return state.read(write_people(tmp_path / "people"))


def unpacked(name: str, folder: Path) -> SavedState:
    with tarfile.open(FOLDER / f"{name}.tar.xz") as file:
        file.extractall(folder, filter="data")
    (saved,) = [path.parent for path in folder.rglob(METADATA_FILE)]
    return state.read(str(saved))


def test_keyed_state_timers_and_operator_state_are_rows(people: SavedState) -> None:
    operator = people.operator()
    assert (operator.uid, operator.name, operator.parallelism) == ("people", "Keyed Process", 1)
    assert str(operator.key_type) == "Types.STRING()"
    assert {row.key: row.value for row in operator.keyed("total")} == {"ada": 3, "bob": 5, "eve": 7}
    assert [*operator.keyed("seen")] == [KeyedRow("ada", None, ["x", "y"])]
    (fresh,) = operator.keyed("fresh")
    assert fresh.value == 9
    assert fresh.touched_ms is not None
    assert sorted(operator.timers()) == [
        TimerRow("event", 1000, "ada", None),
        TimerRow("event", 3000, "bob", None),
        TimerRow("processing", 2000, "ada", None),
    ]
    rows = [(row.state, row.kind, row.map_key, row.value) for row in operator.operator_state()]
    assert rows[0] == ("waiting", "split list", None, 1)
    assert rows[-1] == ("rules", "broadcast map", "most", 10)


def test_states_are_counted_by_keys_and_bytes(people: SavedState) -> None:
    found = {figures.name: figures for figures in people.operator().figures(rows=1)}
    assert found["total"].keys == 3
    assert found["event-time timer"].keys == 2
    assert [str(kind) for kind in found["visits"].types] == ["Types.STRING()", "Types.LONG()"]
    assert found["total"].size_bytes > 0
    assert len(found["total"].rows) == 1


@pytest.mark.parametrize("name", ["states-savepoint", "states-rocksdb", "states-incremental"])
def test_both_backends_give_the_same_rows(name: str, tmp_path: Path) -> None:
    if name.endswith("incremental") and sys.version_info[:2] != PYTHON:
        pytest.skip("files of a database are read by one version of Python alone")
    operator = unpacked(f"0.1-{name}", tmp_path).operator("everything")
    rows = {row.key: row.value for row in operator.keyed("row")}
    assert sorted(rows) == [0, 1, 2, 3, 4, 5]
    assert rows[0] in (Row(number=12, text="12"), Row(number=15, text="15"))
    assert len({timer.key for timer in operator.timers()}) == 6
    assert {figures.kind for figures in operator.figures()} >= {"value", "list", "map", "reducing"}


def test_state_of_windows_has_its_window(tmp_path: Path) -> None:
    operator = unpacked("0.1-joins-savepoint", tmp_path).operator("joined")
    rows = [*operator.keyed("sliced windows")]
    assert {type(row.namespace) for row in rows} == {TimeWindow}
    (figures,) = operator.figures()
    assert (figures.entries, figures.keys) == (len(rows), 6)


def test_positions_of_sources_are_rows(tmp_path: Path) -> None:
    rows = [*unpacked("0.1-states-savepoint", tmp_path).operator("numbers").operator_state()]
    assert [(row.map_key, row.value) for row in rows] == [(range(40), 15), (range(40, 80), 57)]


def test_an_operator_may_be_named_by_its_name(people: SavedState) -> None:
    assert people.operator("Keyed Process").uid == "people"


def test_unknown_operators_and_states_are_answered_with_those_there_are(people: SavedState) -> None:
    with pytest.raises(StateUnknown, match=r"no operator 'counts'; those with state are 'people'"):
        people.operator("counts")
    with pytest.raises(StateUnknown, match="no keyed state 'nope'; it has 'total', 'seen'"):
        [*people.operator().keyed("nope")]


def test_several_operators_need_a_uid(tmp_path: Path) -> None:
    saved = unpacked("0.1-joins-savepoint", tmp_path)
    with pytest.raises(StateUnknown, match="which operator"):
        saved.operator()


def test_an_operator_is_found_by_a_state_that_no_other_has(tmp_path: Path) -> None:
    total, rate = (ValueStateDescriptor(name, Types.LONG()) for name in ("total", "rate"))
    names = ListStateDescriptor("names", Types.STRING())
    path = state.write(
        str(tmp_path / "two"),
        state.operator("totals").put(total, {"a": 1}).put(rate, {"a": 2}),
        state.operator("averages").put(rate, {"a": 3}),
        state.operator("lists").put_list(names, ["x"]),
    )
    saved = state.read(path)
    assert saved.operator(state="total").uid == "totals"
    assert saved.operator(state="names").uid == "lists"
    assert saved.operator("averages", "rate").uid == "averages"
    with pytest.raises(StateUnknown) as caught:
        saved.operator(state="rate")
    assert (
        "which operator? Those with a state 'rate' are 'totals' (totals), 'averages' (averages); "
        "name one by its uid: option('uid', 'totals') of a table, or --uid totals"
    ) in str(caught.value)
    with pytest.raises(StateUnknown, match=r"Those with state are 'totals' .*option\('uid', "):
        saved.operator(state="nope")


def test_a_place_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointMissing, match="there is nothing here"):
        state.read(str(tmp_path / "none"))


def test_damage_is_named(tmp_path: Path) -> None:
    path = Path(write_people(tmp_path / "people"))
    (path / METADATA_FILE).write_bytes((path / METADATA_FILE).read_bytes()[:30])
    with pytest.raises(CheckpointCorrupt, match="has 30 bytes instead of"):
        state.read(str(path))


def test_another_version_is_named(tmp_path: Path) -> None:
    path = Path(write_people(tmp_path / "people"))
    data = bytearray((path / METADATA_FILE).read_bytes())
    data[4] = 99
    header, body = bytes(data[: module._HEADER.size]), bytes(data[module._HEADER.size + 4 :])
    (path / METADATA_FILE).write_bytes(header + module._checksum(header, body) + body)
    with pytest.raises(CheckpointCorrupt, match="has the version 99"):
        state.read(str(path))


def test_missing_and_changed_pieces_are_named(tmp_path: Path) -> None:
    big = state.operator("big").put(
        ValueStateDescriptor("x"), ((key, "v" * 100) for key in range(1000))
    )
    path = Path(state.write(str(tmp_path / "big"), big))
    (file,) = path.glob("*.state")
    flip(file, file.stat().st_size - 1, 3)
    with pytest.raises(CheckpointCorrupt, match="the checksum of"):
        [*state.read(str(path)).operator().keyed("x")]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointCorrupt, match="is cut"):
        [*state.read(str(path)).operator().keyed("x")]
    file.unlink()
    with pytest.raises(CheckpointMissing, match="is not there"):
        [*state.read(str(path)).operator().keyed("x")]


def test_classes_are_loaded_only_on_demand(tmp_path: Path) -> None:
    orders = state.operator("orders").put(ValueStateDescriptor("order"), {1: Order(3, "tea")})
    path = state.write(str(tmp_path / "orders"), orders)
    saved = state.read(path)
    (row,) = saved.operator().keyed("order")
    assert isinstance(row.value, StandIn)
    assert saved.unloaded == ["tests.host.saved_state.kit.Order"]
    (row,) = state.read(path, load_classes=True).operator().keyed("order")
    assert row.value == Order(3, "tea")


def test_a_signed_savepoint_is_checked_with_its_key(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    for key in (right, wrong):
        key.write_text(f"the {key.name} key of checkpoints")
        key.chmod(0o600)
    path = write_people(tmp_path / "people", secret_file=str(right))
    assert state.read(path, secret_file=str(right)).operator().uid == "people"
    with pytest.raises(CheckpointCorrupt, match="signed with another key"):
        state.read(path, secret_file=str(wrong))
