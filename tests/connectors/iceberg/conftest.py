"""The library's own threads begin with its first use and last to the end."""

import threading

import pytest


@pytest.fixture(scope="session", autouse=True)
def _library() -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.utils.concurrent import ExecutorFactory

    pool = ExecutorFactory.get_or_create()
    count = pool._max_workers  # type: ignore[attr-defined]
    together = threading.Barrier(count)
    for future in [pool.submit(together.wait, 30) for _ in range(count)]:
        future.result()
