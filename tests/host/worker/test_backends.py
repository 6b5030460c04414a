"""The state backend that the settings name: chosen, handed to the tasks, closed with them."""

import functools
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import BackendMissing, StateUnstorable, UserFunctionFailed
from headgate.base.messages import TaskState
from headgate.base.settings import MIB, StateBackendKind, StateSettings
from headgate.core.operators.one_input import KeyedProcessOperator
from headgate.core.state.memory import MemoryBackends
from headgate.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from headgate.host.rocksdb.backend import RocksBackends
from headgate.host.worker.backends import check_backend, open_backends
from headgate.plan import ship_strategies as ships
from tests.host.conftest import MakeExchange
from tests.host.local_job import Job, Run, reads

ROCKSDB = StateSettings(backend=StateBackendKind.ROCKSDB, rocksdb_memory_bytes=8 * MIB)
WORDS = [f"word-{number * number % 17}" for number in range(1500)]


def itself(word: str) -> str:
    return word


class Counting:
    """Counts in all three kinds of state, and says so when they disagree."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))
        self.lengths = runtime_context.get_map_state(MapStateDescriptor("lengths"))

    def process_element(self, word: str, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if count <= 50:
            self.seen.add(count)
        self.lengths[len(word)] = (self.lengths[len(word)] or 0) + 1
        assert list(self.seen.get()) == [*range(1, min(count, 50) + 1)]
        assert dict(self.lengths.items()) == {len(word): count}
        return [(word, count)]


class Failing(Counting):
    """Fails in the middle."""

    def process_element(self, word: str, ctx: Any) -> Any:
        if (self.count.value() or 0) == 100:
            raise ValueError("enough")
        return super().process_element(word, ctx)


def counting(function: type[Counting]) -> tuple[Job, list[Any]]:
    job = Job()
    words = job.source(WORDS)
    ship = ships.hash_by(itself)
    make = functools.partial(_operator, function)
    return job, job.collect(job.operator(make, reads(words, ship), parallelism=2))


def _operator(function: type[Counting]) -> KeyedProcessOperator:
    return KeyedProcessOperator(function(), itself)


def test_hashmap_is_in_memory() -> None:
    with open_backends(StateSettings()) as backends:
        assert isinstance(backends, MemoryBackends)


def test_rocksdb_is_closed_at_the_end_of_the_block() -> None:
    with open_backends(ROCKSDB) as backends:
        assert isinstance(backends, RocksBackends)
        backends.keyed("op", range(4), 4)
        assert [*Path(tempfile.gettempdir()).glob("headgate-state-*")]
    assert not [*Path(tempfile.gettempdir()).glob("headgate-state-*")]


def test_a_missing_package_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    check_backend(StateSettings())
    with pytest.raises(BackendMissing, match=r"not installed here; run pip install"):
        check_backend(ROCKSDB)
    with pytest.raises(BackendMissing, match="not installed in a worker"):
        open_backends(ROCKSDB)


@pytest.mark.parametrize("settings", [StateSettings(), ROCKSDB], ids=["hashmap", "rocksdb"])
def test_a_job_gives_the_same_with_each_backend(
    make_exchange: MakeExchange, settings: StateSettings
) -> None:
    job, found = counting(Counting)
    with open_backends(settings) as backends:
        Run(job, make_exchange(local_only=True), backends=backends).run().close()
        left = [*Path(tempfile.gettempdir()).glob("headgate-state-*/state-*")]
    assert left == [], "a task has ended and left its database"
    assert {word: max(n for w, n in found if w == word) for word, _ in found} == Counter(WORDS)
    assert len(found) == len(WORDS)


def test_a_task_that_fails_leaves_no_database(make_exchange: MakeExchange) -> None:
    job, _ = counting(Failing)
    with open_backends(ROCKSDB) as backends:
        run = Run(job, make_exchange(local_only=True), backends=backends)
        run.deploy()
        run.await_end()
        run.close()
        assert [*Path(tempfile.gettempdir()).glob("headgate-state-*/state-*")] == []
    assert any(isinstance(error, UserFunctionFailed) for error in run.errors.values())


def test_a_folder_that_cannot_be_used_fails_the_task_with_its_name(
    make_exchange: MakeExchange, tmp_path: Path
) -> None:
    job, _ = counting(Counting)
    nowhere = str(tmp_path / "nowhere")
    settings = StateSettings(backend=StateBackendKind.ROCKSDB, rocksdb_folder=nowhere)
    with open_backends(settings) as backends:
        run = Run(job, make_exchange(local_only=True), backends=backends)
        run.deploy()
        run.await_end()
        run.close()
    failed = [states[-1] for states in run.states.values()].count(TaskState.FAILED)
    assert failed >= 1
    assert any(
        "nowhere" in str(error) and "state.backend.rocksdb.localdir" in str(error)
        for error in run.errors.values()
        if isinstance(error, (StateUnstorable, UserFunctionFailed))
    )
