"""Tests that use ``inlining`` run twice: with functions that are called, and with inlined ones."""

from collections.abc import Iterator

import pytest

from tests.core.chain.kit import INLINING


@pytest.fixture(scope="module", params=["called", "inlined"])
def inlining(request: pytest.FixtureRequest) -> Iterator[None]:
    INLINING["on"] = request.param == "inlined"
    yield
    INLINING["on"] = False
