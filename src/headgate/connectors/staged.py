"""Messages that wait in a task and its checkpoints until a commit sends them.

The first phase of sinks whose servers know no prepared transactions. Law: batches of a writer are
counted from 1 over all its lots, and are sent in this order; a writer's id is made anew with each
writer, so that batches of two runs are never taken for each other. At most ``limit`` bytes wait.
"""

import pickle
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError
from headgate.base.moved import loads
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import CommittingSinkWriter

PENDING_BYTES: Final = 256 << 20
BATCH_MESSAGES: Final = 1000


@dataclass(frozen=True, slots=True)
class MessageLot:
    """Messages of one writer that wait for a commit; what a sink keeps in checkpoints."""

    writer: str
    first: int
    """The number of its first batch."""
    batches: tuple[bytes, ...]
    """Lists of messages, pickled."""
    since: int
    """Where the outside system was when the lot before this was sent, if the sink asks that."""

    def numbered(self) -> Iterator[tuple[int, list[Any]]]:
        """Its batches with their numbers."""
        for number, batch in enumerate(self.batches, self.first):
            yield number, loads(batch)


class MessageMaker:
    """Makes messages of records; a record that is none goes the way of the error policy."""

    def __init__(self, make: Callable[[Record], Any], context: ConnectorContext) -> None:
        self._make = make
        self._malformed = context.malformed
        self._whose = whose(context)

    def messages(self, records: list[Record]) -> list[Any]:
        """Those of the records that can be written."""
        return self.pairs(records)[1]

    def pairs(self, records: list[Record]) -> tuple[list[Record], list[Any]]:
        """Records that can be written, and their messages."""
        try:
            return records, list(map(self._make, records))
        except Exception:  # the user's schema may raise anything
            return self._singly(records)

    def _singly(self, records: list[Record]) -> tuple[list[Record], list[Any]]:
        kept: list[Record] = []
        messages: list[Any] = []
        for record in records:
            try:
                messages.append(self._make(record))
                kept.append(record)
            except Exception as error:
                problem = ConnectorError(
                    f"{self._whose}: a record cannot be written: {type(error).__name__}: {error}"
                )
                problem.__cause__ = error
                self._malformed(record, problem)
        return kept, messages


class MessageStager(CommittingSinkWriter):
    """Keeps messages as bytes until a checkpoint takes them."""

    def __init__(
        self,
        maker: MessageMaker,
        context: ConnectorContext,
        limit: int,
        batch_messages: int = BATCH_MESSAGES,
        batch_bytes: int | None = None,
        since: Callable[[], int] = lambda: 0,
    ) -> None:
        """``batch_bytes`` is for messages that are bytes; ``since`` is asked with each lot."""
        self._maker = maker
        self._whose = whose(context)
        self._limit = limit
        self._batch_messages = batch_messages
        self._batch_bytes = batch_bytes
        self._since = since
        self._messages: list[Any] = []
        self._batches: list[bytes] = []
        self._bytes = 0
        self._writer = secrets.token_hex(8)
        self._next = 1

    def write(self, records: list[Record]) -> None:
        self._messages += self._maker.messages(records)
        if len(self._messages) >= self._batch_messages:
            self._stage(len(self._messages) // self._batch_messages * self._batch_messages)

    def flush(self) -> None:
        self._stage(len(self._messages))

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[MessageLot]:
        if not self._batches:
            return ()
        batches, self._batches, self._bytes = tuple(self._batches), [], 0
        lot = MessageLot(self._writer, self._next, batches, self._since())
        self._next += len(batches)
        return [lot]

    def _stage(self, count: int) -> None:
        messages, self._messages = self._messages[:count], self._messages[count:]
        for part in cut(messages, self._batch_messages, self._batch_bytes):
            batch = pickle.dumps(part, 5)
            self._bytes += len(batch)
            if self._bytes > self._limit:
                raise ConnectorError(
                    f"{self._whose}: records of more than {self._limit} bytes wait for the next "
                    f"checkpoint; take checkpoints more often (execution.checkpointing.interval), "
                    f"raise max_pending_bytes, or use DeliveryGuarantee.AT_LEAST_ONCE"
                )
            self._batches.append(batch)


def cut(messages: list[Any], most: int, most_bytes: int | None) -> Iterator[list[Any]]:
    """In parts of at most so many messages and bytes; a larger message is alone in its part."""
    if most_bytes is None:
        for start in range(0, len(messages), most):
            yield messages[start : start + most]
        return
    part: list[Any] = []
    size = 0
    for message in messages:
        if part and (len(part) == most or size + len(message) > most_bytes):
            yield part
            part, size = [], 0
        part.append(message)
        size += len(message)
    if part:
        yield part


def whose(context: ConnectorContext) -> str:
    """The sink and its task, as messages begin."""
    return f"sink {context.operator!r} ({context.task.name})"
