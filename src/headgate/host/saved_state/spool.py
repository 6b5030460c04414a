"""Entries sorted into key groups, on disk if they are many.

Law: ``take`` gives the entries of a group in the order in which they were added; memory is bounded
by ``HELD`` entries, and by one group while it is taken. Closed by the writer of a savepoint.
"""

import pickle
import tempfile
from collections.abc import Iterator
from typing import IO, Final

from headgate.core.state.keys import key_group
from headgate.core.state.snapshot import Entry
from headgate.host.checkpoints.folder import storage_errors

HELD: Final = 200_000
"""Entries in memory at a time."""


class GroupSpool:
    """For one operator; a context manager."""

    def __init__(self, max_parallelism: int) -> None:
        self._max_parallelism = max_parallelism
        self._groups: dict[int, list[Entry]] = {}
        self._held = 0
        self._file: IO[bytes] | None = None
        self._places: dict[int, list[tuple[int, int]]] = {}

    def add(self, entry: Entry) -> None:
        """Raises StorageUnusable if the temporary folder is full."""
        group = key_group(entry[3], self._max_parallelism)
        self._groups.setdefault(group, []).append(entry)
        self._held += 1
        if self._held >= HELD:
            self._spill()

    @property
    def groups(self) -> set[int]:
        """Those that have entries."""
        return {*self._groups, *self._places}

    def take(self, group: int) -> Iterator[Entry]:
        """The entries of a group."""
        for start, length in self._places.pop(group, ()):
            assert self._file is not None
            with storage_errors(tempfile.gettempdir()):
                self._file.seek(start)
                data = self._file.read(length)
            yield from pickle.loads(data)
        yield from self._groups.pop(group, ())

    def close(self) -> None:
        """Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> "GroupSpool":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _spill(self) -> None:
        with storage_errors(tempfile.gettempdir()):
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="headgate-savepoint-")  # noqa: SIM115
            for group, entries in self._groups.items():
                data = pickle.dumps(entries, 5)
                start = self._file.seek(0, 2)
                self._file.write(data)
                self._places.setdefault(group, []).append((start, len(data)))
        self._groups, self._held = {}, 0
