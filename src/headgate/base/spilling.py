"""Spill files: what is too large for memory waits on disk. The driver brings the disk."""

from typing import Protocol


class SpillFile(Protocol):
    """A file that is written once from front to back, then read."""

    def write(self, data: memoryview) -> None: ...

    def written(self) -> bytes:
        """A copy of all that was written so far; more may be written afterwards."""

    def view(self) -> memoryview:
        """All of it; nothing is written afterwards. Valid until ``close``."""

    def close(self) -> None:
        """Delete it. Every view of it must be gone."""


class SpillRoom(Protocol):
    """Makes spill files."""

    def open(self) -> SpillFile: ...
