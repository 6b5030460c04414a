"""State in RocksDB: it does what every backend does, in bounded memory, and leaves no file."""

import gc
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headgate.base.errors import StateUnstorable
from headgate.base.settings import MIB, StateCompression, StateSettings
from headgate.core.state.backend import StateSpec
from headgate.core.state.memory import MemoryBackend
from headgate.host.rocksdb.backend import RocksBackend, RocksBackends
from tests.core.state.conformance import (
    GROUPS,
    LIST,
    MAP,
    VALUE,
    WINDOW_LIST,
    BackendConformance,
    Make,
    at,
    machine,
    written,
)
from tests.core.state.migration_conformance import MigrationConformance
from tests.core.state.reading_conformance import ReadingConformance
from tests.core.state.ttl_conformance import TtlConformance
from tests.host.rocksdb_kit import NO_OBJECTS, SMALL, OwnFolder


@pytest.fixture
def backends() -> Iterator[RocksBackends]:
    backends = RocksBackends(SMALL)
    yield backends
    backends.close()


@pytest.fixture
def backend(backends: RocksBackends) -> Iterator[RocksBackend]:
    backend = backends.keyed("op", range(GROUPS), GROUPS)
    yield backend
    backend.close()


class TestRocks(BackendConformance, TtlConformance, MigrationConformance, ReadingConformance):
    """With the cache of objects: most values are never written before the snapshot."""

    @pytest.fixture
    def make(self, backends: RocksBackends) -> Make:
        return lambda groups, most: backends.keyed("op", groups, most)


class TestRocksWithoutCache(BackendConformance, ReadingConformance):
    """Every value goes to the database and comes from there."""

    @pytest.fixture
    def make(self) -> Iterator[Make]:
        backends = RocksBackends(NO_OBJECTS)
        yield lambda groups, most: backends.keyed("op", groups, most)
        backends.close()


class Unreadable:
    """Can be pickled, but whoever unpickles it fails."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_the_keys_of_a_map_are_read_without_its_values(backend: RocksBackend) -> None:
    state = backend.map_state(MAP)
    backend.cursor.key = "k"
    for inner in ("b", 1, (2, "x"), frozenset({3})):
        state.put(inner, Unreadable())
    assert set(state) == set(state.keys()) == {"b", 1, (2, "x"), frozenset({3})}
    with pytest.raises(ValueError, match="no number"):
        state.get("b")


TestAgainstDictionaries = machine(OwnFolder(SMALL), examples=12, steps=15)
TestAgainstDictionariesWithoutCache = machine(OwnFolder(NO_OBJECTS), examples=6, steps=15)


def test_a_value_that_was_read_or_written_is_not_shared(backend: RocksBackend) -> None:
    state = backend.value_state(VALUE)
    at(backend, "a")
    given = [1]
    state.update(given)
    given.append(2)
    assert state.value() == [1]
    state.value().append(3)
    assert state.value() == [1]
    elements, items = backend.list_state(LIST), backend.map_state(MAP)
    elements.add(given)
    items.put("x", given)
    given.clear()
    assert elements.get() == [[1, 2]]
    assert items.get("x") == [1, 2]


def test_equal_keys_are_one_key_though_they_look_different(backend: RocksBackend) -> None:
    value, items = backend.value_state(VALUE), backend.map_state(MAP)
    for key in (1, 1.0, True):
        at(backend, key)
        value.update((value.value() or 0) + 1)
        items.put(key, "last")
    assert value.value() == 3
    assert items.items() == [(1, "last")]


def test_a_map_refuses_keys_that_are_not_hashable(backend: RocksBackend) -> None:
    state = backend.map_state(MAP)
    at(backend, "a")
    for act in (lambda: state.put([1], 2), lambda: state.get([1]), lambda: state.contains([1])):
        with pytest.raises(TypeError, match="unhashable type: 'list'"):
            act()


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_a_value_that_cannot_be_pickled_fails_where_it_is_written(
    backend: RocksBackend, kind: str
) -> None:
    at(backend, "a")
    lock = threading.Lock()
    write: dict[str, Callable[[], None]] = {
        "value": lambda: backend.value_state(VALUE).update(lock),
        "list": lambda: backend.list_state(LIST).add(lock),
        "map": lambda: backend.map_state(MAP).put("x", lock),
    }
    with pytest.raises(TypeError, match="cannot pickle"):
        write[kind]()


def test_state_may_be_much_larger_than_its_memory(backend: RocksBackend) -> None:
    value, elements = backend.value_state(VALUE), backend.list_state(LIST)
    for key in range(3000):
        at(backend, key)
        value.update(os.urandom(5000))
        value.update(f"{key}:" + "x" * 5000)
        elements.add(os.urandom(5000))
    cache = value._cache  # type: ignore[attr-defined]
    assert cache.weight <= 2 * MIB
    assert len(cache) < 500
    for key in range(3000):
        at(backend, key)
        assert value.value().startswith(f"{key}:")
        assert [len(element) for element in elements.get()] == [5000]


def test_the_size_of_the_state_is_estimated_and_grows_with_it(backend: RocksBackend) -> None:
    random = Random(7)  # so that it cannot be compressed
    state, before = backend.list_state(LIST), backend.size_bytes()
    assert before is not None
    for number in range(300):
        at(backend, number)
        state.add(random.randbytes(10_000))
    grown = backend.size_bytes()
    assert grown is not None
    assert grown - before > 1_000_000
    backend.close()
    assert backend.size_bytes() is None


def test_a_long_list_keeps_its_order_and_can_be_cleared(backend: RocksBackend) -> None:
    state = backend.list_state(WINDOW_LIST)
    for number in range(5000):
        at(backend, number % 2, ("w", 0))
        state.add(number)
    assert state.get() == [*range(1, 5000, 2)]
    state.clear()
    assert state.get() == []
    at(backend, 0, ("w", 0))
    assert state.get() == [*range(0, 5000, 2)]


def test_readers_keep_to_their_range_whatever_happens_beside_them(backend: RocksBackend) -> None:
    # RocksDB reads the end of a range from memory that its options own.
    for key in range(50):
        at(backend, key)
        backend.map_state(MAP).put_all(dict.fromkeys(range(5), key))
    codec, database = backend._codec, backend._database
    for _ in range(20):
        readers = [database.items(codec.address(0, key, None).prefix) for key in range(50)]
        first = [next(reader) for reader in readers]
        junk = [bytes([number % 256]) * (8 + number % 40) for number in range(5000)]
        assert len(first) + len(junk) == 5050
        assert [len([*reader]) for reader in readers] == [4] * 50


def test_a_list_may_be_replaced_by_what_is_read_from_it(backend: RocksBackend) -> None:
    state = backend.list_state(LIST)
    at(backend, "a")
    state.add_all([1, 2, 3])
    state.update(element for element in state.get() if element != 2)
    assert state.get() == [1, 3]


def test_a_snapshot_is_written_while_the_task_goes_on(backends: RocksBackends) -> None:
    backend = backends.keyed("op", range(GROUPS), GROUPS)
    value, elements = backend.value_state(VALUE), backend.list_state(LIST)
    for key in range(2000):
        at(backend, key)
        value.update([key])
        elements.add(key)
    snapshot = backend.snapshot()
    groups: dict[int, bytes] = {}
    writer = threading.Thread(target=lambda: groups.update(snapshot.groups()))
    writer.start()
    for key in range(4000):
        at(backend, key)
        value.update(["later"])
        elements.add("later")
        if key % 3 == 0:
            elements.clear()
    writer.join()
    snapshot.close()
    again = MemoryBackend(range(GROUPS), GROUPS)
    again.restore(groups.items())
    value, elements = again.value_state(VALUE), again.list_state(LIST)
    for key in range(4000):
        at(again, key)
        assert value.value() == ([key] if key < 2000 else None)
        assert list(elements.get()) == ([key] if key < 2000 else [])
    backend.close()


def test_a_snapshot_outlives_its_backend(backends: RocksBackends) -> None:
    backend = backends.keyed("op", range(GROUPS), GROUPS)
    at(backend, "a")
    backend.value_state(VALUE).update(1)
    backend.list_state(LIST).add(2)
    expected = written(backend)
    snapshot = backend.snapshot()
    backend.close()
    assert dict(snapshot.groups()) == expected
    snapshot.close()


def test_a_deleted_value_stays_deleted_in_a_snapshot(backend: RocksBackend) -> None:
    state = backend.value_state(VALUE)
    at(backend, "a")
    state.update(1)
    list(backend.places(VALUE))  # written
    state.clear()
    assert written(backend) == {}
    assert list(backend.places(VALUE)) == []


# Files


def folders() -> list[Path]:
    return [*Path(tempfile.gettempdir()).glob("headgate-state-*")]


def test_each_backend_has_a_folder_that_goes_with_it(backends: RocksBackends) -> None:
    assert folders() == []
    first, other = (backends.keyed(name, range(GROUPS), GROUPS) for name in ("one", "other"))
    (folder,) = folders()
    assert len([*folder.glob("state-*")]) == 2
    first.close()
    assert len([*folder.glob("state-*")]) == 1
    other.close()
    assert [*folder.glob("state-*")] == []
    backends.close()
    assert folders() == []


def test_what_a_lost_task_has_left_goes_with_the_task_manager(backends: RocksBackends) -> None:
    backend = backends.keyed("op", range(GROUPS), GROUPS)
    backends.close()
    assert folders() == []
    backend.close()


def test_the_setting_names_the_folder(tmp_path: Path) -> None:
    place = tmp_path / "fast disk"
    place.mkdir()
    backends = RocksBackends(StateSettings(rocksdb_folder=str(place)))
    backend = backends.keyed("op", range(GROUPS), GROUPS)
    assert len([*place.glob("headgate-state-*/state-0")]) == 1
    backend.close()
    backends.close()
    assert [*place.iterdir()] == []


def test_a_folder_that_is_not_there_is_named_with_its_setting(tmp_path: Path) -> None:
    backends = RocksBackends(StateSettings(rocksdb_folder=str(tmp_path / "nowhere")))
    with pytest.raises(StateUnstorable, match=r"nowhere.*state\.backend\.rocksdb\.localdir"):
        backends.keyed("op", range(GROUPS), GROUPS)
    backends.close()


def test_a_database_that_cannot_be_opened_leaves_nothing(backends: RocksBackends) -> None:
    first = backends.keyed("op", range(GROUPS), GROUPS)
    (folder,) = folders()
    (folder / "state-1").write_text("no folder")
    with pytest.raises(StateUnstorable, match="operator 'second' cannot be kept in"):
        backends.keyed("second", range(GROUPS), GROUPS)
    first.close()


FULL = """
import resource, sys
from headgate.base.errors import StateUnstorable
from headgate.base.settings import StateSettings
from headgate.core.state.backend import StateSpec
from headgate.host.rocksdb.backend import RocksBackends

backends = RocksBackends(StateSettings(rocksdb_memory_bytes=8 << 20, rocksdb_folder=sys.argv[1]))
backend = backends.keyed("op", range(4), 4)
state = backend.list_state(StateSpec("l", "list"))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
backend.cursor.key = "a"
try:
    for number in range(3000):
        state.add(bytes(9_000))
except StateUnstorable as error:
    print(type(error).__name__, error)
backend.close()
backends.close()
"""


def test_a_disk_that_takes_no_more_is_told_with_folder_and_setting(tmp_path: Path) -> None:
    # A limit for the size of files stands for a full disk; both fail the write of a file.
    code = FULL.replace("bytes(9_000)", "__import__('os').urandom(9_000)")
    completed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert completed.returncode == 0, completed.stderr
    assert "StateUnstorable the state of operator 'op' cannot be kept in" in completed.stdout
    assert "state.backend.rocksdb.localdir" in completed.stdout
    assert [*tmp_path.glob("headgate-*")] == []


@pytest.mark.parametrize("compression", [*StateCompression])
def test_every_compression_reads_what_it_wrote(compression: StateCompression) -> None:
    backends = RocksBackends(
        StateSettings(
            rocksdb_memory_bytes=8 * MIB, rocksdb_compression=compression, rocksdb_threads=1
        )
    )
    backend = backends.keyed("op", range(GROUPS), GROUPS)
    state: Any = backend.list_state(StateSpec("l", "list"))
    for number in range(2000):
        at(backend, number % 10)
        state.add("text " * 1000)
    at(backend, 3)
    assert state.get() == ["text " * 1000] * 200
    backend.close()
    backends.close()


def test_closed_databases_give_their_files_back(backends: RocksBackends) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        backend = backends.keyed("op", range(GROUPS), GROUPS)
        at(backend, "a")
        backend.value_state(VALUE).update(1)
        snapshot = backend.snapshot()
        next(snapshot.groups())
        backend.close()
        snapshot.close()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 1, "the lock of the folder"
