"""Programs of these tests run on an exchange in this process; nothing may be left of them."""

import pytest

from headgate.datastream import StreamExecutionEnvironment
from tests.api.conftest import env, local_runtime
from tests.host.conftest import MakeExchange, make_exchange, no_leaks
from tests.windows.jobs import Program

__all__ = ["env", "local_runtime", "make_exchange", "no_leaks"]


@pytest.fixture
def program(env: StreamExecutionEnvironment, make_exchange: MakeExchange) -> Program:
    return Program(env, make_exchange)
