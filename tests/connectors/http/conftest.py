"""An HTTP server for each test."""

from collections.abc import Iterator

import pytest

pytest.importorskip("urllib3")

from tests.connectors.http.kit import Endpoint


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()
