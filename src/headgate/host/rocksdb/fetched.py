"""Databases that were fetched from a checkpoint, and what they hold.

Law: ``settle`` comes first, once; from then on a database holds all that the snapshot did. Entries
come in the order of their keys, so that those of a key group stand together. The folder belongs to
whoever has fetched it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
from rocksdict import AccessType, Options, Rdict, ReadOptions

from headgate.base.errors import HeadgateError, StateBroken
from headgate.host.rocksdb.codec import AddressCodec
from headgate.host.rocksdb.database import Written, batch_of
from headgate.host.rocksdb.snapshot import RocksSnapshot, SnapshotSource
from headgate.host.rocksdb.tables import UNWRITTEN_FILE, Tables, read_tables

BATCH: Final = 1000
"""Entries that are handed over at once."""


def settle(folder: Path) -> Tables:
    """Write what was on its way to the database; answers with its tables. Raises StateBroken."""
    tables = read_tables(folder)
    late = folder / UNWRITTEN_FILE
    if late.exists():
        options = Options(raw_mode=True)
        options.set_disable_auto_compactions(True)
        try:
            entries = msgspec.msgpack.decode(late.read_bytes(), type=list[Written])
            database = Rdict(str(folder), options)
            try:
                for start in range(0, len(entries), BATCH):
                    database.write(batch_of(entries[start : start + BATCH]))
                database.flush()
            finally:
                database.close()
        except Exception as error:
            raise _broken(folder, error) from error
        late.unlink()
    return tables


def entries_in(folder: Path, groups: range) -> Iterator[Sequence[Written]]:
    """What a database holds of these key groups, in batches; raises StateBroken."""
    with _opened(folder, groups) as entries:
        while batch := [*islice(entries, BATCH)]:
            yield batch


def groups_in(folder: Path, tables: Tables, groups: range) -> Iterator[tuple[int, bytes]]:
    """The same in the form that every backend reads; those that hold anything."""
    codec = AddressCodec(tables.max_parallelism)
    codec.agree(tables.classes)
    names = {number: name for name, number in tables.numbers.items()}
    moment = SnapshotSource(groups, tables.max_parallelism, names, tables.stored_as, {}, (), ())
    with _opened(folder, groups) as entries:
        try:
            yield from RocksSnapshot(moment, codec, entries).groups()
        except HeadgateError:
            raise
        except (Exception, SystemExit) as error:  # a pickle can raise anything
            raise _broken(folder, error) from error


@contextmanager
def _opened(folder: Path, groups: range) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    try:
        database = Rdict(
            str(folder), Options(raw_mode=True), access_type=AccessType.read_only(False)
        )
    except Exception as error:
        raise _broken(folder, error) from error
    try:
        yield _entries(folder, database, groups)
    finally:
        database.close()


def _entries(folder: Path, database: Rdict, groups: range) -> Iterator[tuple[bytes, bytes]]:
    first, end = (number.to_bytes(2, "big") for number in (groups.start, groups.stop))
    options: Any = ReadOptions()  # it must live as long as the reader
    options.set_iterate_upper_bound(end)
    try:
        yield from database.items(from_key=first, read_opt=options)
    except Exception as error:
        raise _broken(folder, error) from error


def _broken(folder: Path, error: BaseException) -> StateBroken:
    return StateBroken(f"the database that was fetched to {folder} cannot be read: {error}")
