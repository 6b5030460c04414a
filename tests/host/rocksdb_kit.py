"""RocksDB backends with little memory."""

from headgate.base.settings import MIB, StateBackendKind, StateSettings
from headgate.host.rocksdb.backend import RocksBackend, RocksBackends

SMALL = StateSettings(backend=StateBackendKind.ROCKSDB, rocksdb_memory_bytes=8 * MIB)


NO_OBJECTS = StateSettings(
    backend=StateBackendKind.ROCKSDB, rocksdb_memory_bytes=8 * MIB, rocksdb_objects_fraction=0
)


class OwnFolder:
    """Backends for a stateful test, which has no fixture; the folder goes with the last of them."""

    def __init__(self, settings: StateSettings) -> None:
        self._settings = settings

    def __call__(self, groups: range, max_parallelism: int) -> RocksBackend:
        backends = RocksBackends(self._settings)
        backend = backends.keyed("op", groups, max_parallelism)
        close = backend.close

        def close_all() -> None:
            close()
            backends.close()

        backend.close = close_all  # type: ignore[method-assign]
        return backend
