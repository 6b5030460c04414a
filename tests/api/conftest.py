"""Programs of these tests meet an outside that needs no Spark."""

from collections.abc import Iterator

import pytest

import headgate
from headgate.api.runtime import set_outside
from headgate.datastream import StreamExecutionEnvironment
from tests.api.kit import OneTaskOutside


@pytest.fixture(autouse=True)
def outside() -> Iterator[OneTaskOutside]:
    ours = OneTaskOutside()
    set_outside(lambda: ours)
    yield ours
    set_outside(headgate._open_outside)


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()
