"""Restored states that have another kind or type now, in memory."""

import pytest

from headgate.core.state.memory import MemoryBackend
from tests.core.state.conformance import Make
from tests.core.state.migration_conformance import MigrationConformance


class TestMemory(MigrationConformance):
    @pytest.fixture
    def make(self) -> Make:
        return MemoryBackend
