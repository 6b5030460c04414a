"""Incremental snapshots of RocksDB: little is written, everything comes back, nothing is lost."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from rocksdict import Options, Rdict

from headgate.base.checkpoints import Piece
from headgate.base.errors import StateBroken
from headgate.core.state.backend import KeyedBackend, StateSpec
from headgate.core.state.keys import groups_of, key_group
from headgate.core.state.memory import MemoryBackend
from headgate.host.rocksdb import backend as rocksdb_backend
from headgate.host.rocksdb.backend import RocksBackend, RocksBackends
from headgate.host.rocksdb.codec import AddressCodec, pack
from headgate.host.rocksdb.snapshots import (
    CATALOG_FILE,
    UNWRITTEN_FILE,
    DatabaseCatalog,
    Increments,
    pieces_in,
    read_catalog,
)
from headgate.host.saved_state.loading import SafeLoader
from tests.core.state.conformance import (
    GROUPS,
    KEYS,
    VALUE,
    BackendConformance,
    BackendMachine,
    Make,
    at,
    written,
)
from tests.host.increments_kit import Shelf, new_shared
from tests.host.rocksdb_kit import NO_OBJECTS, SMALL, OwnFolder

CONFORMANCE = BackendConformance()
ALL = range(GROUPS)


@pytest.fixture(params=[0, rocksdb_backend.FLUSHED], ids=["beside", "flushed"])
def flushed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How much of the caches goes to the database in a snapshot: nothing, or all there is."""
    monkeypatch.setattr(rocksdb_backend, "FLUSHED", request.param)
    return int(request.param)


@pytest.fixture
def backends() -> Iterator[RocksBackends]:
    backends = RocksBackends(SMALL)
    yield backends
    backends.close()


@pytest.fixture
def make(backends: RocksBackends) -> Iterator[Callable[[range], RocksBackend]]:
    made: list[RocksBackend] = []

    def make(owned: range = ALL) -> RocksBackend:
        made.append(backends.keyed("op", owned, GROUPS))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "chk")


def keys_in(owned: range) -> list[Any]:
    return [key for key in KEYS if key_group(key, GROUPS) in owned]


# What the storage has.


def piece(name: str) -> Piece:
    return Piece(f"shared/{name}", 0, 1, 1)


def bring(increments: Increments, checkpoint: int, *names: str) -> dict[str, str]:
    """A snapshot with these files of data; where each is named."""
    increment = increments.begin(checkpoint)
    for name in names:
        increment.named[name] = increment.known.get(name) or piece(f"{checkpoint}-{name}")
    return {name: found.path.removeprefix("shared/") for name, found in increment.named.items()}


def test_a_file_is_named_again_when_its_checkpoint_is_complete() -> None:
    increments = Increments()
    assert bring(increments, 1, "a.sst", "b.sst") == {"a.sst": "1-a.sst", "b.sst": "1-b.sst"}
    assert bring(increments, 2, "a.sst") == {"a.sst": "2-a.sst"}, "1 may still come to nothing"
    increments.aborted(2)
    increments.completed(1)
    assert bring(increments, 3, "b.sst", "c.sst") == {"b.sst": "1-b.sst", "c.sst": "3-c.sst"}


def test_what_only_an_older_checkpoint_has_is_not_named_while_a_newer_one_may_take_its_place() -> (
    None
):
    increments = Increments()
    bring(increments, 1, "a.sst")
    bring(increments, 2, "a.sst")  # brings its own: 1 was not known to be complete
    increments.completed(1)
    assert bring(increments, 3, "a.sst") == {"a.sst": "3-a.sst"}, "with 2, 1 is dropped"
    increments.completed(2)
    increments.aborted(3)
    assert bring(increments, 4, "a.sst") == {"a.sst": "2-a.sst"}


def test_words_that_come_late_or_not_at_all_do_no_harm() -> None:
    increments = Increments()
    bring(increments, 1, "a.sst")
    bring(increments, 2, "a.sst", "b.sst")
    increments.completed(2)
    increments.completed(1)
    increments.completed(7)
    increments.aborted(1)
    increments.aborted(8)
    assert bring(increments, 9, "a.sst", "b.sst") == {"a.sst": "2-a.sst", "b.sst": "2-b.sst"}


def test_only_files_of_data_of_a_restored_database_are_named_again() -> None:
    increments = Increments()
    increments.restored({"a.sst": piece("5-a.sst"), "CURRENT": piece("5-c")})
    assert increments.begin(6).known == {"a.sst": piece("5-a.sst")}


# To the storage and back.


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.usefixtures("flushed")
def test_everything_comes_back_with_any_number_of_tasks(
    make: Callable[..., RocksBackend], shelf: Shelf, parallelism: int
) -> None:
    filled = make()
    CONFORMANCE.fill(filled)
    metadata = shelf.take(1, filled)
    assert {"CURRENT", CATALOG_FILE} <= set(metadata.tasks[0].operators[0].files)
    tasks = []
    for task in range(parallelism):
        owned = groups_of(task, parallelism, GROUPS)
        backend = make(owned)
        shelf.restore(1, backend, owned)
        CONFORMANCE.check_filled(backend, keys_in(owned))
        assert set(written(backend)) <= set(owned), "a task has taken a group that it does not own"
        tasks.append(backend)
    shelf.take(2, *tasks)
    for count in (1, 2):
        owned = groups_of(0, count, GROUPS)
        together = make(owned)
        shelf.restore(2, together, owned)
        CONFORMANCE.check_filled(together, keys_in(owned))


@pytest.mark.usefixtures("flushed")
def test_state_in_memory_goes_on_from_files_of_a_database(
    make: Callable[..., RocksBackend], shelf: Shelf
) -> None:
    backend = make()
    CONFORMANCE.fill(backend)
    shelf.take(1, backend)
    for task in range(2):
        owned = groups_of(task, 2, GROUPS)
        memory = MemoryBackend(owned, GROUPS)
        shelf.restore(1, memory, owned)
        CONFORMANCE.check_filled(memory, keys_in(owned))
    assert list(Path(tempfile.gettempdir()).glob("headgate-fetched-*")) == []


@pytest.mark.usefixtures("flushed")
def test_a_snapshot_is_of_the_moment_when_it_was_taken(
    make: Callable[..., RocksBackend], shelf: Shelf
) -> None:
    backend = make()
    CONFORMANCE.fill(backend)
    first = backend.snapshot(1)
    value, elements, items = CONFORMANCE.all_three(backend)
    for key in KEYS:
        at(backend, key)
        value.update("later")
        elements.add("later")
        items.put("later", 1)
        backend.event_timers.register(99, key if type(key) is str else "b", None)
    at(backend, "b")
    backend.forget_key()
    second = backend.snapshot(2)
    shelf.write(2, second)
    shelf.write(1, first)
    for number in (1, 2):
        shelf.complete(number)
    again, after = make(), make()
    shelf.restore(1, again, ALL)
    CONFORMANCE.check_filled(again, KEYS)
    shelf.restore(2, after, ALL)
    at(after, "a")
    assert after.value_state(VALUE).value() == "later"
    at(after, "b")
    assert after.value_state(VALUE).value() is None


class Space(NamedTuple):
    name: str


class OtherSpace(NamedTuple):
    name: str


@pytest.mark.usefixtures("flushed")
def test_databases_that_have_numbered_things_differently_are_joined(
    make: Callable[..., RocksBackend], shelf: Shelf
) -> None:
    parts = []
    for task, (names, spaces) in enumerate(
        ((("x", "y"), (Space, OtherSpace)), (("y", "x"), (OtherSpace, Space)))
    ):
        backend = make(groups_of(task, 2, GROUPS))
        for name, space in zip(names, spaces, strict=True):
            state = backend.value_state(StateSpec(name, "value", True))
            for key in keys_in(groups_of(task, 2, GROUPS)):
                at(backend, key, space("s"))
                state.update((name, space.__name__))
        parts.append(backend)
    shelf.take(1, *parts)
    together = make()
    shelf.restore(1, together, ALL)
    for name, first, second in (("x", Space, Space), ("y", OtherSpace, OtherSpace)):
        state = together.value_state(StateSpec(name, "value", True))
        for key in KEYS:
            space = first if key in keys_in(groups_of(0, 2, GROUPS)) else second
            at(together, key, space("s"))
            assert state.value() == (name, space.__name__)
            assert [type(namespace) for namespace in {space("s")}] == [space]
    spaces_held = {type(space) for space, _ in together.places(StateSpec("x", "value", True))}
    assert spaces_held == {Space}


def test_lists_go_on_behind_their_last_element(
    make: Callable[..., RocksBackend], shelf: Shelf
) -> None:
    backend = make()
    state = backend.list_state(StateSpec("l", "list"))
    at(backend, "a")
    state.add_all(range(300))
    shelf.take(1, backend)
    again = make()
    shelf.restore(1, again, ALL)
    at(again, "a")
    restored = again.list_state(StateSpec("l", "list"))
    restored.add("new")
    assert list(restored.get()) == [*range(300), "new"]


def test_an_empty_backend_leaves_a_database_without_data(
    make: Callable[..., RocksBackend], shelf: Shelf
) -> None:
    backend = make()
    CONFORMANCE.all_three(backend)
    metadata = shelf.take(1, backend)
    assert new_shared(metadata) == 0
    again = make()
    shelf.restore(1, again, ALL)
    CONFORMANCE.check_filled(again, [])


def test_a_restored_state_keeps_its_kind(make: Callable[..., RocksBackend], shelf: Shelf) -> None:
    backend = make()
    CONFORMANCE.fill(backend)
    shelf.take(1, backend)
    again = make()
    shelf.restore(1, again, ALL)
    with pytest.raises(ValueError, match="'value' is there as a value"):
        again.map_state(StateSpec("value", "map"))
    other = make()
    other.map_state(StateSpec("value", "map"))
    with pytest.raises(StateBroken, match="'value' is there as a map"):
        shelf.restore(1, other, ALL)


def test_files_of_another_job_or_python_are_refused(
    backends: RocksBackends, make: Callable[..., RocksBackend], shelf: Shelf, tmp_path: Path
) -> None:
    backend = make()
    CONFORMANCE.fill(backend)
    shelf.take(1, backend)
    wider = backends.keyed("op", range(GROUPS * 2), GROUPS * 2)
    with pytest.raises(StateBroken, match="maximum parallelism of 16, the job has 32"):
        shelf.restore(1, wider, ALL)
    wider.close()
    data = DatabaseCatalog(GROUPS, {}, {}, (), 0).pack()
    for wrong, words in (
        (data.replace(b"python\xa4", b"python\xa4x")[:-1], "no tables"),
        (b"", "no tables"),
        (data.replace(b"3.", b"2."), "written by Python 2"),
        (data.replace(b"version\x02", b"version\x03"), "version 3, this side reads 2"),
    ):
        (tmp_path / CATALOG_FILE).write_bytes(wrong)
        with pytest.raises(StateBroken, match=words):
            read_catalog(tmp_path)


@pytest.mark.parametrize("forged", ["key", "value"])
def test_bytes_that_would_end_the_process_are_read_as_damage(tmp_path: Path, forged: str) -> None:
    """A tuple that holds a set that holds the tuple, as marshal would take it."""
    harm = bytes.fromhex("a9 01 3c 01000000 72 00000000")
    key = AddressCodec(GROUPS).address(0, "a", None).prefix
    key = key if forged == "value" else key[:4] + harm + key[-2:]
    database = Rdict(str(tmp_path / "forged"), Options(raw_mode=True))
    database[key] = harm if forged == "value" else pack(1)
    database.close()
    catalog = DatabaseCatalog(GROUPS, {"total": 0}, {"total": VALUE.kind}, (), 0)
    with pytest.raises(StateBroken, match="begins with 0xa9, as none does"):
        [*pieces_in(tmp_path / "forged", catalog, ALL, SafeLoader())]


# How much is written, and what is kept.


def fill_many(backend: KeyedBackend, count: int, word: str) -> None:
    state = backend.value_state(VALUE)
    for number in range(count):
        backend.cursor.key = number
        state.update((number, word * 5))


def test_the_second_checkpoint_writes_little_if_little_has_changed(
    make: Callable[..., RocksBackend], shelf: Shelf
) -> None:
    backend = make()
    fill_many(backend, 10_000, "before")
    first = shelf.take(1, backend)
    whole = first.state_bytes
    assert shelf.bytes_of[1] >= whole > 100_000
    fill_many(backend, 20, "after")
    second = shelf.take(2, backend)
    assert new_shared(second) == 1
    assert shelf.bytes_of[2] < whole / 10
    assert second.state_bytes > whole, "all of it is named"
    third = shelf.take(3, backend)
    assert new_shared(third) == 0
    assert shelf.bytes_of[3] < 3_000


def test_a_run_that_goes_on_from_a_checkpoint_names_its_files_again(
    make: Callable[..., RocksBackend], shelf: Shelf
) -> None:
    backend = make()
    fill_many(backend, 10_000, "before")
    shelf.take(1, backend)
    again = make()
    shelf.restore(1, again, ALL)
    fill_many(again, 20, "after")
    second = shelf.take(2, again)
    assert new_shared(second) == 1 and shelf.bytes_of[2] < shelf.bytes_of[1] / 10
    elsewhere = make()
    shelf.restore(1, elsewhere, ALL, is_shared=False)
    third = shelf.take(3, elsewhere)
    assert shelf.bytes_of[3] > shelf.bytes_of[1] / 2, "files of another job may go with it"
    shelf.drop(1)
    shelf.drop(3)
    assert new_shared(third) > 0 and shelf.shared_names() == shelf.named([2])
    last = make()
    shelf.restore(2, last, ALL)
    last.cursor.key = 10
    assert last.value_state(VALUE).value() == (10, "after" * 5)
    last.cursor.key = 9_999
    assert last.value_state(VALUE).value() == (9_999, "before" * 5)


def test_what_does_not_fit_into_the_moment_is_written_by_each_checkpoint_until_its_turn(
    make: Callable[..., RocksBackend], shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_backend, "FLUSHED", 400)
    backend = make()
    fill_many(backend, 1000, "w")
    late = [
        shelf.take(number, backend).tasks[0].operators[0].files.get(UNWRITTEN_FILE)
        for number in (1, 2, 3)
    ]
    assert [piece is not None for piece in late] == [True, True, False]
    assert late[0] is not None and late[1] is not None and late[0].length > 2 * late[1].length
    for number in (1, 2, 3):
        again = make()
        shelf.restore(number, again, ALL)
        state = again.value_state(VALUE)
        for key in range(1000):
            again.cursor.key = key
            assert state.value() == (key, "w" * 5)


def test_a_snapshot_leaves_no_links_and_an_aborted_one_no_files(
    make: Callable[..., RocksBackend], shelf: Shelf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backend = make()
    fill_many(backend, 100, "w")
    state_folder = Path(backend._database._path).parent
    before = set(state_folder.iterdir())
    snapshot = backend.snapshot(1)
    assert set(state_folder.iterdir()) > before
    snapshot.close()
    snapshot.close()
    assert set(state_folder.iterdir()) == before
    shelf.write(2, backend.snapshot(2))
    assert shelf.shared_names()
    shelf.discard(2)
    backend.checkpoint_aborted(2)
    assert shelf.shared_names() == set()
    shelf.take(3, backend)
    again = make()
    shelf.restore(3, again, ALL)
    again.cursor.key = 7
    assert again.value_state(VALUE).value() == (7, "w" * 5)


def test_a_full_snapshot_is_still_self_contained(
    make: Callable[..., RocksBackend], shelf: Shelf
) -> None:
    backend = make()
    CONFORMANCE.fill(backend)
    shelf.take(1, backend)
    whole = backend.snapshot()
    metadata = shelf.write(2, whole)
    assert metadata.tasks[0].operators[0].files == {} and shelf.named([2]) == set()
    again = make()
    again.restore(written(backend).items())
    CONFORMANCE.check_filled(again, KEYS)


# Any order of events.


class CheckpointMachine(BackendMachine):
    """Checkpoints are taken, written, completed, told of late, aborted and dropped; any that is
    kept can be gone on from, by any number of tasks."""

    new_backend: Make

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headgate-test-"))
        self.shelf = Shelf(self.folder)
        self.number = 0
        self.open: dict[int, tuple[Any, Any]] = {}
        self.kept: dict[int, Any] = {}
        super().__init__()

    def make(self, groups: range, max_parallelism: int) -> KeyedBackend:
        return type(self).new_backend(groups, max_parallelism)

    def model_now(self) -> Any:
        copied = {place: self.copied(held) for place, held in self.model.items()}
        return copied, tuple(set(timers) for timers in self.timers)

    def copied(self, held: Any) -> Any:
        if isinstance(held, list):
            return [self.copied(value) for value in held]
        if isinstance(held, dict):
            return {name: self.copied(value) for name, value in held.items()}
        return held

    @precondition(lambda self: len(self.open) < 3)
    @rule()
    def take_snapshot(self) -> None:
        self.number += 1
        self.open[self.number] = self.backend.snapshot(self.number), self.model_now()

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 2), comes_to_nothing=st.booleans(), told=st.booleans())
    def write_snapshot(self, which: int, comes_to_nothing: bool, is_reported: bool) -> None:
        number = sorted(self.open)[which % len(self.open)]
        snapshot, model = self.open.pop(number)
        self.shelf.write(number, snapshot)
        if comes_to_nothing or any(other > number for other in self.kept):
            self.shelf.discard(number)
            if is_reported:
                self.backend.checkpoint_aborted(number)
            return
        self.shelf.complete(number)
        self.kept[number] = model
        if is_reported:
            self.backend.checkpoint_completed(number)
        for old in sorted(self.kept)[:-2]:
            self.shelf.drop(old)
            del self.kept[old]

    @precondition(lambda self: self.kept)
    @rule()
    def tell_late(self) -> None:
        self.backend.checkpoint_completed(max(self.kept))

    @precondition(lambda self: self.kept)
    @rule(which=st.integers(0, 1), parallelism=st.integers(1, 3), recover=st.booleans())
    def go_on(self, which: int, parallelism: int, recover: bool) -> None:
        number = sorted(self.kept)[which % len(self.kept)]
        parts: dict[int, bytes] = {}
        for task in range(parallelism):
            owned = groups_of(task, parallelism, GROUPS)
            backend = self.make(owned, GROUPS)
            self.shelf.restore(number, backend, owned)
            parts |= written(backend)
            backend.close()
        again = self.make(ALL, GROUPS)
        again.restore(parts.items())
        self.compare(again, self.kept[number])
        again.close()
        if recover and number == max(self.kept):
            for snapshot, _ in self.open.values():
                snapshot.close()
            self.open.clear()
            self.backend.close()
            self.start(self.make(ALL, GROUPS))
            self.shelf.restore(number, self.backend, ALL)
            self.model, self.timers = self.kept[number]
            self.model, self.timers = self.model_now()

    def compare(self, backend: KeyedBackend, model: Any) -> None:
        now = self.backend, self.model, self.timers
        self.start(backend)
        self.model, self.timers = model
        self.everything_is_as_in_the_model()
        self.start(now[0])
        _, self.model, self.timers = now

    @invariant()
    def what_is_kept_has_its_files(self) -> None:
        assert self.shelf.named(self.kept) <= self.shelf.shared_names()

    def teardown(self) -> None:
        for snapshot, _ in self.open.values():
            snapshot.close()
        super().teardown()
        shutil.rmtree(self.folder)


def checkpoint_machine(make: Make, examples: int) -> Any:
    class Driven(CheckpointMachine):
        new_backend = staticmethod(make)

    case = Driven.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return case


TestCheckpoints = checkpoint_machine(OwnFolder(SMALL), 8)
TestCheckpointsWithoutCache = checkpoint_machine(OwnFolder(NO_OBJECTS), 5)
