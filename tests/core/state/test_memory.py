"""State in memory: it does what every backend does, and its snapshots share without leaking."""

from collections.abc import Iterator
from threading import Thread
from typing import Any, ClassVar

import pytest

from headgate.base.errors import StateBroken
from headgate.core.state.keys import key_group
from headgate.core.state.memory import MemoryBackend, MemoryBackends
from tests.core.state.conformance import (
    GROUPS,
    LIST,
    MAP,
    SPACES,
    VALUE,
    WINDOW_LIST,
    WINDOW_MAP,
    WINDOW_VALUE,
    BackendConformance,
    Make,
    at,
    machine,
    written,
)


class TestMemory(BackendConformance):
    @pytest.fixture
    def make(self) -> Make:
        return MemoryBackend


TestAgainstDictionaries = machine(MemoryBackend)


def test_backends_are_made_for_a_range_of_groups() -> None:
    backend = MemoryBackends().keyed("op", range(2, 4), 8)
    assert backend.snapshot().advance(10) is False


def restored(groups: dict[int, bytes]) -> MemoryBackend:
    backend = MemoryBackend(range(GROUPS), GROUPS)
    backend.restore(groups.items())
    return backend


def test_a_value_is_the_object_that_was_put_in() -> None:
    backend = MemoryBackend(range(GROUPS), GROUPS)
    state = backend.value_state(VALUE)
    at(backend, "a")
    value = [1]
    state.update(value)
    assert state.value() is value
    with_snapshot = backend.snapshot()
    assert state.value() is not value
    kept = state.value()
    assert kept is state.value(), "one copy is enough"
    with_snapshot.close()
    assert state.value() is kept


@pytest.mark.parametrize("namespace", [None, SPACES[0]])
def test_changes_in_place_stay_out_of_a_snapshot(namespace: Any) -> None:
    backend = MemoryBackend(range(GROUPS), GROUPS)
    windowed = namespace is not None
    value = backend.value_state(WINDOW_VALUE if windowed else VALUE)
    elements = backend.list_state(WINDOW_LIST if windowed else LIST)
    items = backend.map_state(WINDOW_MAP if windowed else MAP)
    at(backend, "a", namespace)
    value.update({"deep": [1]})
    elements.add([1])
    items.put("x", [1])
    snapshot = backend.snapshot()
    value.value()["deep"].append(2)
    next(iter(elements.get())).append(2)
    items.get("x").append(2)
    again = restored(dict(snapshot.groups()))
    snapshot.close()
    assert [value.value(), *elements.get(), items["x"]] == [{"deep": [1, 2]}, [1, 2], [1, 2]]
    at(again, "a", namespace)
    assert again.value_state(WINDOW_VALUE if windowed else VALUE).value() == {"deep": [1]}
    assert list(again.list_state(WINDOW_LIST if windowed else LIST).get()) == [[1]]
    assert again.map_state(WINDOW_MAP if windowed else MAP).get("x") == [1]


def test_a_snapshot_can_be_written_in_slices_between_other_work() -> None:
    backend = MemoryBackend(range(GROUPS), GROUPS)
    state = backend.value_state(VALUE)
    for key in range(1000):
        at(backend, key)
        state.update([key])
    snapshot = backend.snapshot()
    slices = 0
    while snapshot.advance(150):
        slices += 1
        at(backend, slices)
        state.value().append("later")
    assert slices == 6
    again = restored(dict(snapshot.groups()))
    snapshot.close()
    for key in range(1000):
        at(again, key)
        assert again.value_state(VALUE).value() == [key]


def test_a_snapshot_can_be_written_by_another_thread() -> None:
    backend = MemoryBackend(range(GROUPS), GROUPS)
    value, elements = backend.value_state(VALUE), backend.list_state(WINDOW_LIST)
    for key in range(2000):
        at(backend, key, SPACES[key % 3])
        value.update({"n": [key]})
        elements.add([key])
    snapshot = backend.snapshot()
    groups: dict[int, bytes] = {}
    writer = Thread(target=lambda: groups.update(snapshot.groups()))
    writer.start()
    changes = 0
    while changes < 2000 or writer.is_alive():
        at(backend, changes % 2000, SPACES[changes % 2000 % 3])
        value.value()["n"].append("later")
        elements.add("later")
        backend.event_timers.register(changes, changes)
        changes += 1
    writer.join()
    snapshot.close()
    again = restored(groups)
    value, elements = again.value_state(VALUE), again.list_state(WINDOW_LIST)
    for key in range(2000):
        at(again, key, SPACES[key % 3])
        assert value.value() == {"n": [key]} and list(elements.get()) == [[key]]
    assert len(again.event_timers) == 0


def test_taking_a_snapshot_looks_at_no_entry() -> None:
    class Untouchable:
        def __reduce__(self) -> Any:
            raise AssertionError("pickled")

        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None  # type: ignore[assignment]

    backend = MemoryBackend(range(GROUPS), GROUPS)
    state = backend.value_state(VALUE)
    at(backend, "a")
    state.update(Untouchable())
    snapshot = backend.snapshot()
    with pytest.raises(StateBroken, match=r"'value' \(value\) of the key 'a'.*pickled"):
        dict(snapshot.groups())
    snapshot.close()


def test_a_value_that_cannot_be_copied_is_named_when_it_is_read_beside_a_snapshot() -> None:
    backend = MemoryBackend(range(GROUPS), GROUPS)
    state = backend.value_state(VALUE)
    at(backend, "a")
    state.update(number for number in range(3))
    snapshot = backend.snapshot()
    with pytest.raises(StateBroken, match="a generator in the state of the key 'a'"):
        state.value()
    snapshot.close()
    assert list(state.value()) == [0, 1, 2]


def test_a_snapshot_outlives_its_backend() -> None:
    backend = MemoryBackend(range(GROUPS), GROUPS)
    state = backend.value_state(VALUE)
    at(backend, "a")
    state.update([1])
    snapshot = backend.snapshot()
    backend.close()
    assert state.value() is None
    again = restored(dict(snapshot.groups()))
    snapshot.close()
    at(again, "a")
    assert again.value_state(VALUE).value() == [1]


def test_a_closed_snapshot_has_nothing_left_to_write() -> None:
    backend = MemoryBackend(range(GROUPS), GROUPS)
    at(backend, "a")
    backend.value_state(VALUE).update(1)
    snapshot = backend.snapshot()
    snapshot.close()
    assert dict(snapshot.groups()) == {}
    assert len(written(backend)) == 1


def test_an_empty_namespace_leaves_no_table_behind() -> None:
    backend = MemoryBackend(range(GROUPS), GROUPS)
    elements, items = backend.list_state(WINDOW_LIST), backend.map_state(WINDOW_MAP)
    value = backend.value_state(WINDOW_VALUE)
    at(backend, "a", SPACES[0])
    value.update(1)
    elements.add(1)
    items.put(1, 1)
    value.update(None)
    elements.update([])
    items.remove(1)
    for spec in (WINDOW_VALUE, WINDOW_LIST, WINDOW_MAP):
        assert list(backend._spaces[spec.name].view) == [None]
    value.update(1)
    backend.forget_key()
    assert list(backend._spaces[WINDOW_VALUE.name].view) == [None]


class Files:
    """A database in the storage."""

    groups = range(GROUPS)
    shared: ClassVar[dict[str, Any]] = {}

    def __init__(self, parts: dict[int, bytes]) -> None:
        self.parts = parts
        self.asked: list[range] = []

    def fetch(self, folder: str) -> None:
        raise AssertionError("state in memory opens no database")

    def read(self, groups: range) -> Iterator[tuple[int, bytes]]:
        self.asked.append(groups)
        yield from self.parts.items()


def test_files_of_a_database_are_read_as_key_groups() -> None:
    backend = MemoryBackend(range(GROUPS), GROUPS)
    state = backend.value_state(VALUE)
    at(backend, "a")
    state.update([1])
    files = Files(written(backend))
    own = range(key_group("a", GROUPS), GROUPS)
    again = MemoryBackend(own, GROUPS)
    again.restore_files([files])
    assert files.asked == [own]
    at(again, "a")
    assert again.value_state(VALUE).value() == [1]
    snapshot = again.snapshot(7)
    assert snapshot.files(None) == {}  # type: ignore[arg-type] # nothing is asked of the store
    snapshot.close()
    again.checkpoint_completed(7)
    again.checkpoint_aborted(8)
