"""From the settings to the state backends of a task manager."""

from contextlib import AbstractContextManager, closing, nullcontext
from importlib.util import find_spec

from headgate.base.errors import BackendMissing
from headgate.base.settings import StateBackendKind, StateSettings
from headgate.core.state.backend import Backends
from headgate.core.state.memory import MemoryBackends


def open_backends(settings: StateSettings) -> AbstractContextManager[Backends]:
    """The backends of a task manager, closed at the end of the block; raises BackendMissing."""
    if settings.backend is StateBackendKind.HASHMAP:
        return nullcontext(MemoryBackends())
    check_backend(settings, "in a worker")
    # Imported here: who keeps state in memory needs no RocksDB.
    from headgate.host.rocksdb.backend import RocksBackends  # noqa: PLC0415

    return closing(RocksBackends(settings))


def check_backend(settings: StateSettings, where: str = "here") -> None:
    """Refuse settings that this machine has no package for."""
    if settings.backend is StateBackendKind.ROCKSDB and find_spec("rocksdict") is None:
        raise BackendMissing(where)
