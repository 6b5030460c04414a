"""Files of Iceberg tables on local disks, flushed to them before anybody names them.

The library writes data files, manifests and metadata through a ``FileIO``, and flushes none. Law: a
file of this one is on disk, with its name, when it is closed, so a catalog never points at what a
power cut can take away. Loaded by the library by name; ``catalog`` says for which tables.
"""

import io
import os
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from headgate.connectors.paths import settle_folder


class SettledFileIO(PyArrowFileIO):
    """The library's own, but for files of this machine."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return SettledFile(location, path, self.fs_by_scheme(scheme, netloc))


class SettledFile(PyArrowFile):
    """A file to write, as the library asks for it."""

    def create(self, overwrite: bool = False) -> Any:
        new = _missing_folders(self._path)
        super().create(overwrite).close()  # with the folders that it needs
        return SettledStream(self._path, new)


class SettledStream(io.BufferedWriter):
    """On disk when it is closed."""

    def __init__(self, path: str, new_folders: list[str]) -> None:
        super().__init__(io.FileIO(path, "wb"))
        self._folders = [os.path.dirname(path), *map(os.path.dirname, new_folders)]

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        for folder in self._folders:
            settle_folder(folder)


def _missing_folders(path: str) -> list[str]:
    """The folders above a file that have to be made, the innermost first."""
    missing = []
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing
