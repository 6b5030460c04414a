"""One store for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.s3_kit import FaultProxy, Store, running_store


@pytest.fixture
def _leaves_nothing_behind() -> None:
    """Not checked here: both clients keep connections open, and close them when they like."""


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with running_store(tmp_path_factory.mktemp("s3") / "log") as running:
        yield running


@pytest.fixture
def proxy(store: Store) -> Iterator[FaultProxy]:
    made = FaultProxy(store.port)
    yield made
    made.close()
