"""Changes of PostgreSQL tables as a stream of rows with kinds, by logical replication.

The reader never waits: a thread connects, and ``poll`` takes what the socket has. Law: the server
keeps every change until a checkpoint that covers it has completed, and a new reader goes on
after the last record, also within a transaction; so each change comes exactly once.
"""

import math
import re
import threading
import time
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from headgate.api.row import Row
from headgate.base.elements import Bundle
from headgate.base.errors import ConnectorError, DatabaseUnready, PlanInvalid
from headgate.connectors.postgres.client import check_dsn, is_unready, psycopg_module
from headgate.connectors.postgres.pgoutput import (
    METADATA,
    ChangeDecoder,
    MessageBroken,
    Place,
    ValueUnreadable,
)
from headgate.connectors.postgres.replication import ChangeStream, SlotSettings, open_stream
from headgate.connectors.postgres.table import quoted_table
from headgate.connectors.servers import repeat
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.source import Position, Source, SplitLag, SplitReader

LIFE_SIGN_S: Final = 10.0
"""How often the server hears from a reader without being asked (wal_sender_timeout is 60 s)."""
UNSAVED_S: Final = 0.5
"""Without checkpoints: how often the server is told what it may forget."""
MESSAGES: Final = 2_000
"""Messages without a record that a poll takes at most."""
QUICK_ENDS: Final = 5
"""Connections in a row that end without a message, before the job is told."""

_HEAD: Final = Struct(">xQQ").unpack_from
_LIFE: Final = Struct(">xQqB").unpack_from
_DATA, _KEEPALIVE, _BEGIN = b"wkB"


class PostgresChangesSource(Source):
    """Inserts, updates, deletes and truncates of tables, in the order of their commits.

    ::

        env.from_source(PostgresChangesSource("host=db dbname=shop", tables=["orders"]))

    Each record is a Row of the table's columns whose kind says what happened. The time of the
    commit is its event time. ``publication`` names one that is there already, or the one that is
    created for ``tables``; ``slot`` is the replication slot, which is created if it is missing and
    never dropped: give each job its own. ``metadata`` adds columns: ``table``, ``lsn``, ``xid``,
    ``committed_at``, with ``pg_`` before their names.
    """

    bounded = False
    finds_more = False

    def __init__(
        self,
        dsn: str,
        tables: Sequence[str] = (),
        *,
        publication: str | None = None,
        slot: str = "headgate",
        metadata: Sequence[str] | None = None,
        truncates: bool = True,
    ) -> None:
        user = "PostgresChangesSource"
        if isinstance(tables, str):
            raise PlanInvalid(f"{user}: tables is {tables!r}; give a list of names")
        if not tables and publication is None:
            raise PlanInvalid(f"{user}: give tables=[...], or the name of a publication")
        if not re.fullmatch(r"[a-z0-9_]{1,63}", slot):
            raise PlanInvalid(
                f"{user}: slot is {slot!r}; give small letters, digits and underscores, at most 63"
            )
        if metadata is None:
            metadata = () if len(tables) == 1 and publication is None else ("table",)
        unknown = [name for name in metadata if name not in METADATA]
        if unknown:
            raise PlanInvalid(
                f"{user}: there is no metadata {unknown[0]!r}; there are {', '.join(METADATA)}"
            )
        for table in tables:
            quoted_table(table)
        names = tuple(tables)
        self.settings = SlotSettings(check_dsn(dsn, user), slot, publication or slot, names)
        self.metadata = tuple(metadata)
        self.truncates = truncates

    @property
    def default_name(self) -> str:
        return f"changes of {', '.join(self.settings.tables) or self.settings.publication}"

    def splits(self, parallelism: int) -> Sequence[object]:
        """A slot has one reader."""
        return [self.settings.slot]

    def open(self, split: object, position: Position, context: ConnectorContext) -> SplitReader:
        psycopg_module(type(self).__name__)
        place: Any = position
        return ChangesReader(self, place, context)


class Connecting:
    """A thread that connects, tries again for a while, and hands over the stream or the error."""

    def __init__(self, settings: SlotSettings, place: Place | None, whose: str, wake: Any) -> None:
        self._settings = settings
        self._place = place
        self._whose = whose
        self._wake = wake
        self._stopped = threading.Event()
        self._done = threading.Event()
        self._result: tuple[ChangeStream, Place] | BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="headgate-pg-connect", daemon=True)
        self._thread.start()

    def result(self) -> tuple[ChangeStream, Place] | None:
        """None: not yet; raises what the thread has met."""
        if not self._done.is_set():
            return None
        self._thread.join()
        found = self._result
        assert found is not None
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        if isinstance(self._result, tuple):
            self._result[0].close()

    def _run(self) -> None:
        try:
            self._result = repeat(
                lambda: open_stream(self._settings, self._place, self._whose),
                lambda error: is_unready(error) and not self._stopped.is_set(),
                sleep=self._stopped.wait,
            )
        except BaseException as error:
            self._result = error
        self._done.set()  # first: who is woken looks at it
        self._wake()


class ChangesReader(SplitReader):
    """Reads the stream of one slot."""

    gives_away = True

    def __init__(
        self, source: PostgresChangesSource, place: Place | None, context: ConnectorContext
    ) -> None:
        self._source = source
        self._context = context
        self._whose = f"source {context.operator!r} ({context.task.name})"
        self._place = place
        self._stream: ChangeStream | None = None
        self._decoder: ChangeDecoder | None = None
        self._left: list[Row] = []
        """Records of the last message that the last poll had no room for."""
        self._taken: dict[int, int] = {}
        """Checkpoints on their way, and the LSN that each needs from the server."""
        self._confirmed = 0
        self._life_s = 0.0
        self._server_end = 0
        self._quick_ends = 0
        self._has_more = False
        self._connecting: Connecting | None = None

    def poll(self, limit: int) -> Sequence[Row] | Bundle:
        if self._stream is None and not self._connected():
            return ()
        assert self._decoder is not None
        assert self._place is not None
        if not self._context.checkpoints and time.monotonic() - self._life_s > UNSAVED_S:
            self._confirm(self._place[0])  # what was handed on is done
        if self._left:
            rows, self._left = self._left[:limit], self._left[limit:]
            times: list[int | None] = [self._decoder.commit_ms] * len(rows)
        else:
            rows, times = self._read(limit)
        lsn, index = self._decoder.place
        self._place = lsn, index - len(self._left)
        return Bundle(rows, times) if rows else ()

    def fileno(self) -> int | None:
        return None if self._stream is None else self._stream.fileno()

    def wait_ms(self) -> float:
        if self._stream is not None:
            return 0.0 if self._has_more else LIFE_SIGN_S * 1000
        return 0.0 if self._connecting is None else math.inf  # the thread wakes the task

    def position(self) -> Position:
        return self._place

    def position_at(self, moment: SnapshotMoment) -> Position:
        if self._place is not None:
            self._taken[moment.checkpoint] = self._place[0]
        return self._place

    def checkpoint_completed(self, checkpoint: int) -> None:
        lsn = self._taken.pop(checkpoint, 0)
        self._taken = {taken: at for taken, at in self._taken.items() if taken > checkpoint}
        if lsn:
            self._confirm(lsn)

    def lag(self) -> SplitLag | None:
        if self._stream is None or self._place is None:
            return None
        self._sign_of_life()
        return SplitLag(bytes=max(0, self._server_end - self._place[0]))

    def close(self) -> None:
        if self._connecting is not None:
            self._connecting.close()
        if self._stream is not None:
            self._stream.close()
        self._connecting = self._stream = None

    def _connected(self) -> bool:
        if self._connecting is None:
            self._left = []  # they come again, as they come after the place
            settings, wake = self._source.settings, self._context.wake
            self._connecting = Connecting(settings, self._place, self._whose, wake)
        found = self._connecting.result()
        if found is None:
            return False
        self._connecting = None
        self._stream, self._place = found
        source = self._source
        self._decoder = ChangeDecoder(
            self._stream.make_loader, self._place, source.metadata, source.truncates
        )
        return True

    def _read(self, limit: int) -> tuple[list[Row], list[int | None]]:
        """Records that are there; the rest of the last message is kept."""
        stream, decoder = self._stream, self._decoder
        assert stream is not None
        assert decoder is not None
        rows: list[Row] = []
        times: list[int | None] = []
        next_data, decode = stream.next_data, decoder.decode
        receives, messages = 1, 0
        psycopg = psycopg_module(self._whose)
        try:
            while len(rows) < limit and messages < limit + MESSAGES:
                size, view = next_data(1)
                if size > 0:
                    messages += 1
                    data = bytes(view)
                    if data[0] == _DATA:
                        _, self._server_end = _HEAD(data)
                        if data[25] == _BEGIN:  # another time follows
                            times += [decoder.commit_ms] * (len(rows) - len(times))
                        self._decode(decode, data, rows)
                    elif data[0] == _KEEPALIVE:
                        self._keepalive(data)
                elif size == 0:
                    if not receives:
                        break
                    receives -= 1
                    stream.receive()
                else:
                    self._ended(*stream.end_reason())
                    break
        except psycopg.OperationalError as error:
            self._ended(" ".join(str(error).split()), error.sqlstate or "")
        self._quick_ends = 0 if messages else self._quick_ends
        self._has_more = messages >= limit + MESSAGES
        times += [decoder.commit_ms] * (len(rows) - len(times))
        self._left = rows[limit:]
        del rows[limit:], times[limit:]
        return rows, times

    def _decode(self, decode: Any, data: bytes, rows: list[Row]) -> None:
        try:
            decode(data, 25, rows)
        except ValueUnreadable as error:
            self._unreadable(data[25:], error)
        except MessageBroken as error:
            raise ConnectorError(f"{self._whose}: {error}; is the server PostgreSQL?") from error

    def _unreadable(self, raw: bytes, error: Exception) -> None:
        problem = ConnectorError(f"{self._whose}: {error}; leave the column out of the publication")
        problem.__cause__ = error
        self._context.malformed(raw, problem)

    def _keepalive(self, data: bytes) -> None:
        """The server says how far it is, and may want a sign of life."""
        end, _, wants_reply = _LIFE(data)
        self._server_end = max(self._server_end, end)
        assert self._decoder is not None
        self._decoder.passed(end)
        if wants_reply:
            self._life_s = 0.0
        self._sign_of_life()

    def _sign_of_life(self) -> None:
        if time.monotonic() - self._life_s >= LIFE_SIGN_S:
            self._confirm(self._confirmed, again=True)

    def _confirm(self, lsn: int, again: bool = False) -> None:
        if self._stream is None or (lsn <= self._confirmed and not again):
            self._confirmed = max(lsn, self._confirmed)
            return
        self._confirmed = max(lsn, self._confirmed)
        self._life_s = time.monotonic()
        try:
            self._stream.confirm(self._confirmed)
        except psycopg_module(self._whose).Error:
            return  # the connection is lost, as the next poll will see

    def _ended(self, reason: str, state: str) -> None:
        """The stream is over: connect again, unless another attempt would end alike."""
        assert self._stream is not None
        self._stream.close()
        self._stream = None
        self._quick_ends += 1
        passing = not state or state[:2] in ("08", "53", "57", "58")
        if not passing:
            raise PlanInvalid(f"{self._whose}: the server ends the changes: {reason}")
        if self._quick_ends > QUICK_ENDS:
            raise DatabaseUnready(f"{self._whose}: the server ends the changes: {reason}")
