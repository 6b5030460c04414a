"""What one must know to read the files of a database: its states, and classes of namespaces.

It stands beside the files of a snapshot. Law: keys and values that were written with these tables
are read with the same, by the same version of Python (see ``rocksdb_codec``).
"""

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from headgate.base.errors import StateBroken

TABLES_FILE: Final = "HEADGATE"
"""Their local name; RocksDB has no such file."""
UNWRITTEN_FILE: Final = "UNWRITTEN"
"""The local name of what was on its way to the database."""

_VERSION: Final = 1
_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


class _Stored(msgspec.Struct, frozen=True):
    version: int
    python: str
    max_parallelism: int
    numbers: dict[str, int]
    stored_as: dict[str, str]
    classes: bytes
    next_number: int


@dataclass(frozen=True, slots=True)
class Tables:
    """Of one backend, at one moment."""

    max_parallelism: int
    numbers: Mapping[str, int]
    """Of states, by their names."""
    stored_as: Mapping[str, str]
    """How they are stored, by their names."""
    classes: tuple[type, ...]
    """Of namespaces, in the order of their numbers."""
    next_number: int
    """Above that of every element of a list."""

    def pack(self) -> bytes:
        """As bytes; raises StateBroken for a class that cannot be found by its name."""
        try:
            classes = pickle.dumps(self.classes, 5)
        except Exception as error:
            raise StateBroken(
                f"classes of namespaces cannot be written to a snapshot "
                f"({type(error).__name__}: {error}); they must be found in their modules"
            ) from error
        stored = _Stored(
            _VERSION,
            _PYTHON,
            self.max_parallelism,
            dict(self.numbers),
            dict(self.stored_as),
            classes,
            self.next_number,
        )
        return msgspec.msgpack.encode(stored)


def read_tables(folder: Path) -> Tables:
    """Of a database that was fetched; raises StateBroken."""
    try:
        data = (folder / TABLES_FILE).read_bytes()
        stored = msgspec.msgpack.decode(data, type=_Stored)
    except Exception as error:  # also text that is none
        problem = f"the files of a database have no tables of its states: {error}"
        raise StateBroken(problem) from error
    if stored.version != _VERSION:
        raise StateBroken(
            f"the files of a database have the version {stored.version}, this side reads "
            f"{_VERSION}; install the Headgate that wrote them"
        )
    if stored.python != _PYTHON:
        raise StateBroken(
            f"the files of a database were written by Python {stored.python}, this is {_PYTHON}; "
            f"take a savepoint with that one, and go on from it"
        )
    try:
        classes = pickle.loads(stored.classes)
        if not isinstance(classes, tuple) or not all(isinstance(one, type) for one in classes):
            raise TypeError(f"{classes!r:.100} are no classes")
    except (Exception, SystemExit) as error:  # a pickle can raise anything
        raise StateBroken(
            f"the files of a database cannot be read ({type(error).__name__}: {error}); the "
            f"classes of namespaces must still be there under their old names"
        ) from error
    return Tables(
        stored.max_parallelism, stored.numbers, stored.stored_as, classes, stored.next_number
    )
