"""Savepoints that were written without a job hold what was asked for, and can be restored."""

import sys
from pathlib import Path
from typing import Any

import pytest

from headgate import Row, Types, ValueStateDescriptor, state
from headgate.base.errors import StateUnfit, StateUnknown, StorageUnusable
from headgate.base.settings import StateBackendKind
from headgate.core.state.keys import key_group
from headgate.datastream.state import ListStateDescriptor
from headgate.host.checkpoints.metadata import METADATA_FILE
from headgate.host.saved_state import merging
from tests.host.saved_kit import FOLDER, MEMORY, ROCKSDB, go_on, room, run_to_end
from tests.host.saved_state.kit import (
    SEEN,
    TOTAL,
    UNTYPED,
    VISITS,
    Order,
    lines_in,
    people_graph,
    with_ttl,
    write_people,
)

EXPECTED = [
    "ada 13 (['x', 'y'], [('paris', 1), ('rome', 2)], 9)",
    "ada fired 1000",
    "bob fired 3000",
    "eve 17 ([], [], None)",
    "new 10 ([], [], None)",
]


@pytest.fixture
def people(tmp_path: Path) -> str:
    return write_people(tmp_path / "people")


def rows_of(path: str, name: str = "total", uid: str = "people") -> dict[Any, Any]:
    return {row.key: row.value for row in state.read(path).operator(uid).keyed(name)}


@pytest.mark.parametrize(("backend", "parallelism"), [(MEMORY, 1), (ROCKSDB, 2)])
def test_a_job_begins_with_state_that_was_written(
    backend: StateBackendKind, parallelism: int, tmp_path: Path
) -> None:
    path = write_people(tmp_path / "people")
    settings = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.state-recovery.path": path,
    }
    with room():
        run_to_end(people_graph(tmp_path / "lines", parallelism), backend, settings)
    lines = [line for line in lines_in(tmp_path / "lines") if "fired 2000" not in line]
    assert lines == EXPECTED


@pytest.mark.parametrize("name", ["states-incremental", "windows-savepoint"])
def test_a_job_goes_on_from_a_copy_as_from_the_original(name: str) -> None:
    if name.endswith("incremental") and sys.version_info[:2] != (3, 11):
        pytest.skip("files of a database are read by one version of Python alone")

    def rewritten(saved: Path) -> Path:
        """Every key group of some operators is read and written again, as it was."""
        uids = [each.uid for each in state.read(str(saved)).operators if each.is_keyed][:2]
        same = [state.operator(uid).replace(ValueStateDescriptor("nothing"), {}) for uid in uids]
        return Path(state.write(str(saved.parent / "copy"), *same, base=str(saved)))

    written, expected = go_on(FOLDER / f"0.1-{name}.tar.xz", MEMORY, rewritten)
    assert written == expected


def test_values_of_keys_are_mended_and_others_stay(people: str, tmp_path: Path) -> None:
    changes = (
        state.operator("people")
        .put(TOTAL, {"bob": 50, "new": 1, "eve": None})
        .put(VISITS, [("ada", "rome", 20), ("ada", "paris", None)])
        .remove("seen")
        .remove_timers()
    )
    mended = state.write(str(tmp_path / "mended"), changes, base=people)
    assert rows_of(mended) == {"ada": 3, "bob": 50, "new": 1}
    assert rows_of(mended, "visits") == {"ada": {"rome": 20}, "bob": {"rome": 4}}
    operator = state.read(mended).operator("people")
    assert "seen" not in operator.state_names()
    assert [*operator.timers()] == []
    assert len([*operator.operator_state()]) == 4
    assert rows_of(people) == {"ada": 3, "bob": 5, "eve": 7}


def test_a_state_is_replaced_with_another_type(people: str, tmp_path: Path) -> None:
    other = ValueStateDescriptor("total", Types.STRING())
    changes = state.operator("people").replace(other, {"ada": "three"})
    mended = state.write(str(tmp_path / "mended"), changes, base=people)
    assert rows_of(mended) == {"ada": "three"}
    shape = state.read(mended).operator().shape("total")
    assert str(shape) == "value of Types.STRING()"


def test_single_keys_are_removed(people: str, tmp_path: Path) -> None:
    changes = state.operator("people").remove("total", ["ada", "nobody"])
    assert rows_of(state.write(str(tmp_path / "m"), changes, base=people)) == {"bob": 5, "eve": 7}


def test_what_comes_later_counts(people: str, tmp_path: Path) -> None:
    changes = state.operator("people").put(TOTAL, {"ada": 1}).remove("total").put(TOTAL, {"bob": 2})
    assert rows_of(state.write(str(tmp_path / "m"), changes, base=people)) == {"bob": 2}


def test_lists_without_keys_are_replaced(people: str, tmp_path: Path) -> None:
    changes = state.operator("people").put_list(ListStateDescriptor("waiting"), [9], union=True)
    mended = state.write(str(tmp_path / "mended"), changes, base=people)
    rows = [(row.state, row.value) for row in state.read(mended).operator().operator_state()]
    assert sorted(rows) == [("rules", 10), ("waiting", 9)]


def test_operators_are_added_and_left_out(people: str, tmp_path: Path) -> None:
    more = state.operator("more", max_parallelism=8).put(UNTYPED, {(1, "a"): 5})
    both = state.write(str(tmp_path / "both"), more, base=people)
    assert rows_of(both, "untyped", "more") == {(1, "a"): 5}
    assert rows_of(both)["ada"] == 3
    alone = state.write(str(tmp_path / "alone"), base=both, remove=["people"])
    assert state.read(alone).operator().uid == "more"


def test_many_rows_go_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ((f"user {number}", number) for number in range(1000))
    changes = state.operator("many", key_type=Types.STRING()).put(TOTAL, rows)
    monkeypatch.setattr(merging, "HELD", 64)
    path = state.write(str(tmp_path / "many"), changes)
    assert rows_of(path, uid="many") == {f"user {number}": number for number in range(1000)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (lambda it: it.put(TOTAL, {3: 1}), "a key is wrong: 3 does not fit .* a str is needed"),
        (lambda it: it.put(TOTAL, {"ada": "x"}), "the key 'ada': .* an int from"),
        (lambda it: it.put(SEEN, {"ada": 3}), "the value of a list state is a list, not 3"),
        (lambda it: it.put(VISITS, {"ada": 3}), r"\('ada', 3\) is no row of key, map_key, value"),
        (lambda it: it.put(ValueStateDescriptor("total"), {}), "it is value of Types.LONG.. there"),
        (lambda it: it.put_timers([("noon", 5, "ada")]), "is no timer; give"),
        (lambda it: it.put(UNTYPED, {"ada": lambda: 0}), "cannot be written to a snapshot"),
    ],
)
def test_wrong_rows_are_refused_and_nothing_is_left(
    changes: Any, words: str, people: str, tmp_path: Path
) -> None:
    target = tmp_path / "mended"
    with pytest.raises(Exception, match=words) as refused:
        state.write(str(target), changes(state.operator("people")), base=people)
    assert type(refused.value).__module__ == "headgate.base.errors"
    assert not target.exists()


def test_a_state_keeps_its_time_to_live(people: str, tmp_path: Path) -> None:
    plain = ValueStateDescriptor("fresh", Types.LONG())
    changes = state.operator("people").put(plain, {"ada": 1})
    with pytest.raises(StateUnfit, match="stored as a value with time to live there"):
        state.write(str(tmp_path / "mended"), changes, base=people)
    changes = state.operator("people").put(with_ttl(), {"ada": 1})
    assert rows_of(state.write(str(tmp_path / "m"), changes, base=people), "fresh") == {"ada": 1}


def test_keys_keep_their_declared_type(people: str, tmp_path: Path) -> None:
    changes = state.operator("people", key_type=Types.LONG()).put(TOTAL, {1: 1})
    with pytest.raises(StateUnfit, match=r"keys are Types.STRING\(\) there"):
        state.write(str(tmp_path / "mended"), changes, base=people)


@pytest.mark.parametrize(
    ("key_type", "key", "kept"),
    [
        (Types.FLOAT(), 0.1, 0.1),
        (Types.ROW([Types.LONG(), Types.STRING()]), Row(1, "a"), Row(1, "a")),
        (Types.ROW([Types.LONG(), Types.STRING()]), (1, "a"), Row(1, "a")),
        (Types.ROW([Types.LONG()]), Row(f0=1), Row(f0=1)),
        (Types.TUPLE([Types.FLOAT()]), (0.1,), (0.1,)),
        (Types.STRING(), None, None),
        (Types.ROW_NAMED(["x"], [Types.LONG()]), (1,), Row(x=1)),
        (Types.TUPLE([Types.LONG()]), Row(x=1), (1,)),
    ],
)
def test_a_key_is_written_as_the_job_looks_it_up(
    key_type: Any, key: Any, kept: Any, tmp_path: Path
) -> None:
    changes = state.operator("people", key_type=key_type).put(TOTAL, [(key, 5)])
    path = state.write(str(tmp_path / "written"), changes)
    (row,) = state.read(path).operator().keyed("total")
    assert row.key == kept
    assert [*state.read(path).operator().parts()[0].groups] == [key_group(kept, 128)]


def test_values_of_unloaded_classes_are_kept_only_where_they_need_not_be_read(
    tmp_path: Path,
) -> None:
    orders = state.operator("orders").put(UNTYPED, {"tea": Order(3, "tea")}).put(TOTAL, {"tea": 1})
    path = state.write(str(tmp_path / "orders"), orders)
    changes = state.operator("orders").put(TOTAL, {"tea": 2})
    with pytest.raises(StateUnfit, match="values of tests.host.saved_state.kit.Order, whose class"):
        state.write(str(tmp_path / "mended"), changes, base=path)
    mended = state.write(str(tmp_path / "mended"), changes, base=path, load_classes=True)
    (row,) = state.read(mended, load_classes=True).operator().keyed("untyped")
    assert row.value == Order(3, "tea")


@pytest.mark.parametrize(
    ("changes", "more", "problem"),
    [
        (state.operator("people").put(TOTAL, {"x": 1}), {"remove": ["people"]}, "changed and rem"),
        (state.operator("people").remove("totel"), {}, "no keyed state 'totel'; it has 'total'"),
        (state.operator("people").remove("totel", ["ada"]), {}, "no keyed state 'totel'"),
        (state.operator("new").remove("total"), {}, "there is nothing to remove"),
        (state.operator("Keyed Process").put(TOTAL, {"x": 1}), {}, "by its uid, 'people'"),
        (state.operator("new", max_parallelism=-1).put(TOTAL, {"x": 1}), {}, "from 1 to 32768"),
        (state.operator("new").put(TOTAL, {"x": 1}), {"max_parallelism": 0}, "from 1 to 32768"),
    ],
)
def test_changes_that_would_be_lost_are_refused(
    changes: Any, more: Any, problem: str, people: str, tmp_path: Path
) -> None:
    with pytest.raises((StateUnfit, StateUnknown), match=problem):
        state.write(str(tmp_path / "mended"), changes, base=people, **more)


def test_keys_to_remove_are_no_text() -> None:
    with pytest.raises(TypeError, match=r"give \[key\]"):
        state.operator("people").remove("total", "ada")


def test_a_savepoint_replaces_no_other(people: str) -> None:
    before = (Path(people) / METADATA_FILE).read_bytes()
    with pytest.raises(StorageUnusable, match="is not empty"):
        write_people(Path(people))
    assert (Path(people) / METADATA_FILE).read_bytes() == before


def test_operators_are_named_once_and_must_be_there(people: str, tmp_path: Path) -> None:
    target = str(tmp_path / "mended")
    with pytest.raises(StateUnfit, match="is given twice"):
        state.write(target, state.operator("a"), state.operator("a"))
    with pytest.raises(StateUnfit, match="'people': it is both changed and removed; name it once"):
        state.write(target, state.operator("people"), base=people, remove=["people"])
    with pytest.raises(StateUnknown, match="no operator 'nobody'; there are 'people'"):
        state.write(target, base=people, remove=["nobody"])
    with pytest.raises(StateUnfit, match="nothing to write"):
        state.write(target)
