"""Programs of these tests run on an exchange in this process; nothing may be left of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.base.settings import StateSettings
from headgate.core.state.backend import Backends
from headgate.datastream import StreamExecutionEnvironment
from tests.api.conftest import env, local_runtime
from tests.host.conftest import MakeExchange, make_exchange, no_leaks
from tests.semantics.lab import Lab

__all__ = ["env", "local_runtime", "make_exchange", "no_leaks"]


@pytest.fixture
def backends() -> Backends | None:
    """State is in memory, unless a module says otherwise."""
    return None


@pytest.fixture(params=["in memory", "on disk"])
def both_backends(
    request: pytest.FixtureRequest, tmp_path: Path, no_leaks: None
) -> Iterator[Backends | None]:
    """For modules whose programs keep much state: ``backends = both_backends``."""
    if request.param == "in memory":
        yield None
        return
    pytest.importorskip("rocksdict")
    from headgate.host.rocksdb.backend import RocksBackends

    on_disk = RocksBackends(StateSettings(rocksdb_folder=str(tmp_path)))
    yield on_disk
    on_disk.close()


@pytest.fixture
def lab(
    env: StreamExecutionEnvironment, make_exchange: MakeExchange, backends: Backends | None
) -> Lab:
    """Programs with two tasks for each operator."""
    return Lab(env.set_parallelism(2), make_exchange, backends)
