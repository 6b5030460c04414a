"""First phases of sinks: messages that are sent at once, or wait until a commit sends them.

``StagingWriter`` keeps messages in the task and its checkpoints, for servers that know no prepared
transactions; ``DirectWriter`` sends them as they come, at least once. Law: batches of a staging
writer are counted from 1 over all its lots, so are the lots, and they are sent in this order; a
writer's id is made anew with each writer, so that batches of two runs are never taken for each
other. At most ``limit`` bytes wait, which bounds memory and checkpoints.
"""

import hashlib
import pickle
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError
from headgate.base.moved import loads
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import CommittingSinkWriter

PENDING_BYTES: Final = 256 << 20
BATCH_MESSAGES: Final = 1000
ADVICE: Final = "raise max_pending_bytes, or use DeliveryGuarantee.AT_LEAST_ONCE"

Make: TypeAlias = Callable[[list[Record]], Sequence[Any]]
"""Makes messages of records; those that cannot be written it gives to the error policy."""


class Closeable(Protocol):
    """What holds something open."""

    def close(self) -> None: ...


Client = TypeVar("Client", bound=Closeable)


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


def batches_of(lots: Sequence[MessageLot]) -> Iterator[tuple[str, int, list[Any]]]:
    """Writer, number and messages of all batches, in the order in which they are sent."""
    for lot in sorted(lots, key=lambda lot: (lot.writer, lot.first)):
        for number, messages in lot.numbered():
            yield lot.writer, number, messages


@dataclass(frozen=True, slots=True)
class WriterId:
    """One writer, as the names of what it leaves in the outside system tell it."""

    owner: str
    """A digest of the job and the sink: the same over all runs of the job."""
    subtask: int
    parallelism: int
    began_ms: int
    token: str
    """Never given before."""

    @classmethod
    def new(cls, context: ConnectorContext, whose: str, began_ms: int, chars: int) -> "WriterId":
        """``whose``: job and sink; ``chars``: the length of owner and token."""
        task = context.task
        owner = hashlib.sha256(whose.encode()).hexdigest()[:chars]
        token = secrets.token_hex(chars // 2)
        return cls(owner, task.subtask, task.parallelism, began_ms, token)

    def succeeds(self, found: re.Match[str]) -> bool:
        """Whether this writer replaces the one with these owner, subtask, began and token."""
        return (
            found["owner"] == self.owner
            and int(found["subtask"]) % self.parallelism == self.subtask
            # A writer that was suspended and resumes must not touch what its successors left.
            and int(found["began"], 16) <= self.began_ms
            and found["token"] != self.token
        )


class MessageMaker:
    """Makes messages of records; a record that is none goes the way of the error policy."""

    def __init__(self, make: Callable[[Record], Any], context: ConnectorContext) -> None:
        self._make = make
        self._malformed = context.malformed
        self._whose = whose(context)

    def messages(self, records: list[Record]) -> list[Any]:
        """The messages of the records that can be written."""
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


class Staged(NamedTuple):
    """What waits when a checkpoint is taken; a sink makes its own lot of it."""

    writer: str
    number: int
    """Lots of a writer are counted from 1."""
    first: int
    """The number of the first batch, counted over all lots."""
    batches: tuple[bytes, ...]


def message_lot(staged: Staged) -> MessageLot:
    """For sinks that need nothing else in the checkpoint."""
    return MessageLot(staged.writer, staged.first, staged.batches, 0)


class StagingWriter(CommittingSinkWriter):
    """Keeps messages as bytes until a checkpoint takes them."""

    def __init__(
        self,
        make: Make,
        context: ConnectorContext,
        limit: int,
        *,
        lot: Callable[[Staged], Record] = message_lot,
        batch_messages: int = BATCH_MESSAGES,
        batch_bytes: int | None = None,
        advice: str = ADVICE,
        writer: str = "",
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """``batch_bytes`` is for messages that are bytes; ``advice``: what to do when more than
        ``limit`` bytes wait; ``writer``: its id, which was never given before.
        """
        self._make = make
        self._whose = whose(context)
        self._limit = limit
        self._lot = lot
        self._batch_messages = batch_messages
        self._batch_bytes = batch_bytes
        self._advice = advice
        self._writer = writer or secrets.token_hex(8)
        self._close = close
        self._messages: list[Any] = []
        self._batches: list[bytes] = []
        self._bytes = 0
        self._first = 1
        self._lots = 0

    def write(self, records: list[Record]) -> None:
        self._messages += self._make(records)
        if len(self._messages) >= self._batch_messages:
            self._stage(len(self._messages) // self._batch_messages * self._batch_messages)

    def flush(self) -> None:
        self._stage(len(self._messages))

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Record]:
        if not self._batches:
            return ()
        batches, self._batches, self._bytes = tuple(self._batches), [], 0
        self._lots += 1
        lot = self._lot(Staged(self._writer, self._lots, self._first, batches))
        self._first += len(batches)
        return [lot]

    def close(self) -> None:
        self._close()

    def _stage(self, count: int) -> None:
        messages, self._messages = self._messages[:count], self._messages[count:]
        for part in cut(messages, self._batch_messages, self._batch_bytes):
            batch = pickle.dumps(part, 5)
            self._bytes += len(batch)
            if self._bytes > self._limit:
                raise ConnectorError(
                    f"{self._whose}: records of more than {self._limit} bytes wait for the next "
                    f"checkpoint; take checkpoints more often (execution.checkpointing.interval), "
                    f"{self._advice}"
                )
            self._batches.append(batch)


class DirectWriter(CommittingSinkWriter):
    """Sends messages at once; has nothing to commit later."""

    def __init__(
        self,
        make: Make,
        send: Callable[[list[Any]], None],
        close: Callable[[], None],
        *,
        batch_messages: int = 1,
        wait: Callable[[], None] = lambda: None,
        wait_at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """``batch_messages``: so many are gathered before they are sent; ``wait`` returns when all
        that was sent has arrived, as ``send`` may do.
        """
        self._make = make
        self._send = send
        self._close = close
        self._batch_messages = batch_messages
        self._wait = wait
        self._wait_at_end = wait_at_end
        self._messages: list[Any] = []

    def write(self, records: list[Record]) -> None:
        self._messages += self._make(records)
        if len(self._messages) >= self._batch_messages:
            self._send_all()

    def flush(self) -> None:
        self._send_all()
        self._wait()

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Record]:
        if moment is None:
            self._wait_at_end()
        return ()

    def close(self) -> None:
        self._close()

    def _send_all(self) -> None:
        if self._messages:
            self._send(self._messages)
            self._messages = []


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


def checked(client: Client, check: Callable[[Client], object]) -> Client:
    """The client, after a look whether it can be used; closed if that raises.

    What is wrong with a server is told when the job starts.
    """
    try:
        check(client)
    except BaseException:
        client.close()
        raise
    return client


def writer_note(context: ConnectorContext) -> str:
    """Job, sink and subtask, for people who look at what a writer has noted."""
    task = context.task
    return f"{task.job} / {context.uid or context.operator} / {task.subtask}"


def whose(context: ConnectorContext) -> str:
    """The sink and its task, as messages begin."""
    return f"sink {context.operator!r} ({context.task.name})"
