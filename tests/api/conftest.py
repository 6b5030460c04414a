"""Programs of these tests meet a runtime that needs no Spark."""

from collections.abc import Iterator

import pytest

import headgate
from headgate.api.runtime import set_runtime
from headgate.datastream import StreamExecutionEnvironment
from tests.api.kit import OneTaskRuntime


@pytest.fixture(autouse=True)
def local_runtime() -> Iterator[OneTaskRuntime]:
    ours = OneTaskRuntime()
    set_runtime(lambda: ours)
    yield ours
    set_runtime(headgate._open_runtime)


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()
