"""A folder whose machine can crash: what was not settled is undone, as far as the test wants it.

Contents that were not settled may be cut or garbled after the settled length; names that were not
settled, new, changed or removed, may be as they were before. Of each folder, changes are undone
from the last one on, as journals do it.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from headgate.connectors.files.part_folder import LocalFolder, PartFile

MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where files cost little: a crash is played, so none has to outlive one."""


@dataclass
class Disk:
    """What one machine knows of its files; ``places`` of the same disk share it."""

    settled: dict[int, int] = field(default_factory=dict)
    """By inode: so many bytes outlive a crash."""
    undo: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    """By folder: how to take back each change of names since it was settled."""
    removed: int = 0
    trash: str = field(default_factory=lambda: tempfile.mkdtemp(dir=MEMORY))

    def changed(self, path: str, undo: Callable[[], None]) -> None:
        self.undo.setdefault(os.path.dirname(path), []).append(undo)

    def crash(self, root: str, torn: Callable[[int], int], undone: Callable[[int], int]) -> None:
        """``torn`` of so many unsettled bytes are there, the last one garbled; ``undone`` of so
        many changes in a folder are taken back. No process is alive.
        """
        for folder, _, files in os.walk(root):
            for file in files:
                path = os.path.join(folder, file)
                size, kept = os.stat(path).st_size, self.settled.get(os.stat(path).st_ino, 0)
                if size > kept:
                    left = kept + torn(size - kept)
                    os.truncate(path, left)
                    if left > kept:
                        with open(path, "r+b") as torn_file:
                            torn_file.seek(left - 1)
                            torn_file.write(b"\0")
        for changes in self.undo.values():
            for _ in range(undone(len(changes))):
                changes.pop()()
            changes.clear()


class CrashingFolder(LocalFolder):
    """Tells its disk what it does; settles without waiting for a real one."""

    disk = Disk()

    def create(self, name: str, replace: bool = False) -> PartFile:
        path = self.shown(name)
        is_new = not os.path.exists(path)
        file = super().create(name, replace)
        if is_new:
            self.disk.changed(path, lambda: _remove(path))
        return file

    def settle(self, file: PartFile) -> None:
        file.flush()
        found = os.fstat(file.fileno())
        self.disk.settled[found.st_ino] = found.st_size

    def settle_names(self, folder: str) -> None:
        while True:
            self.disk.undo.pop(self.shown(folder), None)
            if not folder:
                return
            folder = os.path.dirname(folder)

    def rename(self, name: str, new: str) -> None:
        source, target = self.shown(name), self.shown(new)
        assert not os.path.exists(target), f"{target} is replaced"
        super().rename(name, new)
        self.disk.changed(source, lambda: os.rename(target, source))

    def remove(self, name: str) -> None:
        path = self.shown(name)
        if os.path.exists(path):
            self.disk.removed += 1
            spare = os.path.join(self.disk.trash, f"{self.disk.removed}")
            os.link(path, spare)
            self.disk.changed(path, lambda: os.rename(spare, path))
        super().remove(name)

    def names(self, deep: bool) -> Iterator[str]:
        yield from sorted(super().names(deep))


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.remove(path)
