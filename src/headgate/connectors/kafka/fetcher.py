"""One Kafka consumer for all partitions that a task reads, on a thread of its own.

librdkafka offers Python no descriptor to watch, so a thread waits for records, sorts them into a
buffer for each partition and wakes the task. Law: only this thread touches the consumer; records of
a partition stay in order; at most ``BUFFERED_RECORDS`` and ``BUFFERED_BYTES`` (and one batch) wait,
besides what librdkafka prefetches. A partition that nobody reads while others are read gives back
its place and is fetched again later. The client's messages are large, so the fields that are needed
are taken at once, by mapping its methods over the messages: three times as fast as a loop.
"""

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, Final

from headgate.base.errors import ConnectorError, KafkaUnready, OffsetsLost
from headgate.connectors.kafka.client import LOG, ClientWatch, KafkaCluster, error_words, kafka
from headgate.connectors.kafka.deserialization import KafkaRecord
from headgate.connectors.kafka.offsets import BEGINNING, KafkaTopicPartition

_STAMP: Final = itemgetter(1)
"""Takes the time of a timestamp; its first item is the kind, 0 if there is none."""


class FetchedBatch:
    """Values (or whole records), times and offsets; offsets may have gaps."""

    __slots__ = ("_offsets", "bytes", "has_tombstones", "raw", "times")

    def __init__(
        self,
        raw: list[Any],
        times: list[int | None],
        offsets: Sequence[int],
        size: int,
        has_tombstones: bool,
    ) -> None:
        self.raw = raw
        """Bytes or None of each value, or KafkaRecords."""
        self.times = times
        self._offsets = offsets
        self.bytes = size
        self.has_tombstones = has_tombstones
        """Whether ``raw`` may hold None."""

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self._offsets[-1] + 1

    def offset(self, index: int) -> int:
        return self._offsets[index]

    def append(self, other: "FetchedBatch") -> None:
        """The records that follow, which were fetched later."""
        offsets, more = self._offsets, other._offsets
        if isinstance(offsets, range) and isinstance(more, range) and offsets.stop == more.start:
            self._offsets = range(offsets.start, more.stop)
        else:
            self._offsets = [*offsets, *more]
        self.raw += other.raw
        self.times += other.times
        self.bytes += other.bytes
        self.has_tombstones |= other.has_tombstones

    def divided(self, count: int) -> tuple["FetchedBatch", "FetchedBatch"]:
        """The first ``count`` records, and the rest."""
        size = self.bytes * count // max(1, len(self))
        raw, times, offsets, gaps = self.raw, self.times, self._offsets, self.has_tombstones
        return (
            FetchedBatch(raw[:count], times[:count], offsets[:count], size, gaps),
            FetchedBatch(raw[count:], times[count:], offsets[count:], self.bytes - size, gaps),
        )

    def before(self, stop: int) -> "FetchedBatch":
        """The records with a smaller offset."""
        return self.divided(sum(offset < stop for offset in self._offsets))[0]


def timed(kind: Any, messages: list[Any]) -> tuple[list[Any], list[int | None], list[Any]]:
    """Messages with records, their times, and messages that bring errors; ``kind`` is their class.

    An error has no time, so that nobody has to ask each message for one.
    """
    stamps: list[int] = list(map(_STAMP, map(kind.timestamp, messages)))
    if min(stamps) > 0:
        return messages, [*stamps], []
    errors = [message for message in messages if message.error() is not None]
    if errors:
        messages = [message for message in messages if message.error() is None]
    return (
        messages,
        [time if known else None for known, time in map(kind.timestamp, messages)],
        errors,
    )


def batch_of(kind: Any, messages: list[Any], times: list[int | None], whole: bool) -> FetchedBatch:
    """What is needed of messages of one partition, whose times are known."""
    first, last = messages[0].offset(), messages[-1].offset()
    offsets: Sequence[int] = range(first, last + 1)
    if len(offsets) != len(messages):  # compacted, or with marks of transactions between them
        offsets = list(map(kind.offset, messages))
    raw: list[Any] = list(map(kind.value, messages))
    try:
        size, has_tombstones = sum(map(len, raw)), False
    except TypeError:  # None has no length
        size, has_tombstones = sum(map(len, filter(None, raw))), True
    if whole:
        raw = list(
            map(
                KafkaRecord,
                repeat(messages[0].topic()),
                repeat(messages[0].partition()),
                offsets,
                times,
                map(kind.key, messages),
                raw,
                [headers or () for headers in map(kind.headers, messages)],
            )
        )
    return FetchedBatch(raw, times, offsets, size, has_tombstones and not whole)


BATCH_RECORDS: Final = 500
"""Records that are taken from librdkafka at a time: they stay in the processor's caches, and are
fewer than make Python look for garbage."""
BATCHES: Final = 4
"""So many are taken at most before the task is woken."""
JOINED_RECORDS: Final = 1000
"""Batches of a partition that nobody has read yet are joined up to this length."""
BUFFERED_RECORDS: Final = 10_000
BUFFERED_BYTES: Final = 16 << 20
"""Above either nothing is taken from librdkafka, whose own queue then fills and stops as well."""

WAIT_S: Final = 0.1
"""The longest wait for records; what the task asks for is done after it."""
STALLED_S: Final = 1.0
"""A partition that was not read for so long, while others were, gives back its place."""
FIGURES_S: Final = 1.0
LAST_COMMIT_S: Final = 3.0
"""For so long the end waits for offsets to be committed."""
CLOSE_S: Final = 8.0
"""For so long the task waits for its consumer to close."""

SOURCE_KEYS: Final = frozenset(
    {"client.id.prefix", "commit.offsets.on.checkpoint", "partition.discovery.interval.ms"}
    | {"register.consumer.metrics"}
)
"""Properties of the source itself, which Flink has put beside those of the client."""

_DEFAULTS: Final = {
    "allow.auto.create.topics": False,
    "auto.offset.reset": "error",
    "fetch.max.bytes": 16 << 20,
    "fetch.queue.backoff.ms": 10,  # 1000 by default, with an empty queue for most of that time
    "heartbeat.interval.ms": 1000,
    "log.connection.close": False,
    "max.poll.interval.ms": 86_400_000,  # back pressure may last; there is no group to leave
    "queued.max.messages.kbytes": 16 << 10,
    "reconnect.backoff.max.ms": 2000,
    "session.timeout.ms": 3000,  # for so long closing waits for offsets to be committed
    "socket.keepalive.enable": True,
}

_OFFSET_GONE: Final = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"})


def create_consumer(
    cluster: KafkaCluster, watch: ClientWatch, group: str | None, forced: Mapping[str, Any]
) -> Any:
    """A consumer that joins no group; without one of the user's it has a group of its own."""
    defaults = {**_DEFAULTS, "enable.auto.commit": False}
    defaults["group.id"] = group or f"headgate-{secrets.token_hex(8)}"
    config = cluster.config(watch, defaults, forced, SOURCE_KEYS)
    if not cluster.flag("enable.auto.commit", False):
        config["enable.auto.offset.store"] = False
    return cluster.create(kafka(cluster.user).Consumer, config)


class PartitionBuffer:
    """Records of a partition that have come and were not read yet.

    The task reads, the fetcher's thread fills; both hold the fetcher's lock for it.
    """

    __slots__ = (
        "assigned",
        "batches",
        "bytes",
        "count",
        "end",
        "error",
        "high",
        "next_offset",
        "polled_s",
        "where",
    )

    def __init__(self, where: KafkaTopicPartition, offset: int) -> None:
        self.where = where
        self.next_offset = offset
        """The offset of the record that the task takes next, as far as anybody knows."""
        self.batches: deque[FetchedBatch] = deque()
        self.count = 0
        self.bytes = 0
        self.assigned = False
        self.end: int | None = None
        """The offset after the last record, when the fetcher has come there."""
        self.high: int | None = None
        """The offset after the last record that there was lately."""
        self.error: ConnectorError | None = None
        self.polled_s = time.monotonic()

    def append(self, batch: FetchedBatch) -> None:
        """Records that follow; few are joined to those before them, which makes longer bundles."""
        last = self.batches[-1] if self.batches else None
        if last is not None and len(last) + len(batch) <= JOINED_RECORDS:
            last.append(batch)
        else:
            self.batches.append(batch)


class KafkaFetcher:
    """The consumer of a task; the readers of its partitions share it."""

    def __init__(
        self,
        cluster: KafkaCluster,
        group: str | None,
        client_id: str,
        *,
        finds_ends: bool,
        whole: bool,
    ) -> None:
        """``finds_ends``: buffers are told when a partition was read to its end; ``whole``: they
        get KafkaRecords, and not only values."""
        self._cluster = cluster
        self._whole = whole
        self._watch = ClientWatch(client_id)
        self._message = kafka(cluster.user).Message
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._buffers: dict[tuple[str, int], PartitionBuffer] = {}
        self._reading: set[KafkaTopicPartition] = set()
        """What is assigned to the consumer; only the thread looks at it."""
        self._topics = 0
        """How many topics these partitions belong to."""
        self._gone: list[KafkaTopicPartition] = []
        self._commits: dict[KafkaTopicPartition, int] = {}
        self._committing = 0
        self._count = self._bytes = 0
        self._closing = False
        self._failure: BaseException | None = None
        self._wake: Callable[[], None] = _no_wake
        self._thread: threading.Thread | None = None
        self._figures_s = 0.0
        forced = {
            "client.id": client_id,
            "enable.partition.eof": finds_ends,
            "on_commit": self._committed,
        }
        self._consumer = create_consumer(cluster, self._watch, group, forced)

    # Called by the task.

    def add(self, where: KafkaTopicPartition, offset: int) -> PartitionBuffer:
        """Read one more partition from an offset on."""
        buffer = PartitionBuffer(where, offset)
        with self._lock:
            assert where not in self._buffers, f"{where} is read already"
            self._buffers[where] = buffer
        return buffer

    def remove(self, buffer: PartitionBuffer) -> None:
        """Its split has ended."""
        with self._changed:
            if self._buffers.pop(buffer.where, None) is not None and buffer.assigned:
                self._gone.append(buffer.where)
            self._release(buffer)
            self._changed.notify()

    def start(self, wake: Callable[[], None]) -> None:
        """Begin to fetch; ``wake`` is called when records have come."""
        if self._thread is None:
            self._wake = wake
            self._thread = threading.Thread(
                target=self._run, name=f"kafka {self._cluster.servers}", daemon=True
            )
            self._thread.start()

    def take(self, buffer: PartitionBuffer, limit: int) -> FetchedBatch | None:
        """Up to ``limit`` records; None: there are none now. Raises what has gone wrong."""
        buffer.polled_s = time.monotonic()
        if not buffer.batches:
            if self._failure is not None:
                raise self._failure
            if buffer.error is not None:
                raise buffer.error
            return None
        with self._changed:
            if not buffer.batches:  # it has just lost its place
                return None
            batch = buffer.batches.popleft()
            if len(batch) > limit:
                batch, rest = batch.divided(limit)
                buffer.batches.appendleft(rest)
            was_full = self._is_full()
            self._counted(buffer, -len(batch), -batch.bytes)
            buffer.next_offset = batch.next_offset
            if was_full:
                self._changed.notify()
        return batch

    def commit(self, where: KafkaTopicPartition, offset: int) -> None:
        """Tell the group that everything before an offset was read."""
        with self._lock:
            self._commits[where] = offset

    def close(self) -> None:
        """Returns when the consumer is closed, or does not close because a broker hangs."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is None:
            self._consumer.close()
            return
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            LOG.warning(
                "%s: a broker of %s does not answer; the consumer is left to close by itself when "
                "its requests have timed out (socket.timeout.ms)",
                self._thread.name,
                self._cluster.servers,
            )

    # The thread.

    def _run(self) -> None:
        try:
            while not self._closing:
                self._assign()
                self._send_commits()
                self._read_figures()
                if self._is_full():
                    self._wait_for_room()
                else:
                    self._fetch()
            self._send_last_commits()
        except Exception as error:
            self._failure = self._as_problem(error)
            self._wake()
        finally:
            self._consumer.close()

    def _wait_for_room(self) -> None:
        self._wake()  # readers that can read do, and those that are held back are seen
        with self._changed:
            self._give_back_places()
            if self._is_full() and not self._closing:
                self._changed.wait(WAIT_S)

    def _fetch(self) -> None:
        # A single one first: consume() waits until it has all that were asked for.
        found = self._sort(self._consumer.consume(1, WAIT_S))
        for _ in range(BATCHES if found else 0):
            if self._is_full() or not self._sort(self._consumer.consume(BATCH_RECORDS, 0)):
                break
        if found:
            self._wake()
        if self._watch.refused is not None:
            raise self._cluster.problem(self._watch.refused, "reading")

    def _sort(self, messages: list[Any]) -> bool:
        """Put them where their readers find them; False: there are none.

        Nobody else holds them, so that they are freed before others are made.
        """
        if not messages:
            return False
        messages, times, errors = timed(self._message, messages)
        start = 0
        for where, run in self._runs(messages):
            end = start + len(run)
            batch = batch_of(self._message, run, times[start:end], self._whole)
            start = end
            with self._lock:
                buffer = self._buffers.get(where)
                if buffer is not None and buffer.assigned:  # or it was fetched before it left
                    buffer.append(batch)
                    self._counted(buffer, len(batch), batch.bytes)
        for message in errors:  # an end comes after the records before it
            self._failed(message)
        return True

    def _runs(self, messages: list[Any]) -> Iterator[tuple[tuple[str, int], list[Any]]]:
        """Messages that follow each other and are of the same partition."""
        if not messages:
            return
        kind = self._message
        if len(set(map(kind.partition, messages))) == 1 and (
            self._topics == 1 or len(set(map(kind.topic, messages))) == 1
        ):  # mostly, for a broker's answer has many of each partition
            yield (messages[0].topic(), messages[0].partition()), messages
            return
        for partition, run in groupby(messages, kind.partition):
            for topic, part in groupby(run, kind.topic):
                yield (topic, partition), list(part)

    def _failed(self, message: Any) -> None:
        """A message that brings an error, of a partition or of all."""
        error, topic, number = message.error(), message.topic(), message.partition()
        buffer = self._buffers.get((topic, number))
        name = error.name()
        if name == "_PARTITION_EOF":
            if buffer is not None:
                buffer.end = message.offset()
        elif name in _OFFSET_GONE and buffer is not None:
            buffer.error = OffsetsLost(
                f"{self._cluster.user}: {buffer.where} has no record at offset "
                f"{max(0, buffer.next_offset)} any more, where the job would go on "
                f"({error_words(error)}); records were deleted before they were read. Set the "
                f"property auto.offset.reset to earliest (go on with the oldest record that is "
                f"left) or latest, or start the job afresh; to prevent it, let the topic keep its "
                f"records for longer"
            )
        elif not topic:
            self._watch.failed(error)
        else:
            problem = self._cluster.problem(error, f"reading {topic}-{number}", self._watch)
            if isinstance(problem, KafkaUnready):  # librdkafka goes on trying
                self._watch.failed(error)
                self._watch.log(logging.WARNING, "%s", problem)
            elif buffer is not None:
                buffer.error = problem
            else:
                self._failure = problem

    def _as_problem(self, error: Exception) -> BaseException:
        if isinstance(error, kafka(self._cluster.user).KafkaException):
            problem = self._cluster.problem(error, "reading", self._watch)
            problem.__cause__ = error
            return problem
        return error

    # What it is to read.

    def _assign(self) -> None:
        if not self._gone and len(self._reading) == len(self._buffers):
            return
        with self._lock:
            gone, self._gone = self._gone, []
            new = [buffer for buffer in self._buffers.values() if self._is_wanted(buffer)]
            for buffer in new:
                buffer.assigned = True
            starts = [(buffer.where, buffer.next_offset) for buffer in new]
        if gone or starts:
            self._reading -= set(gone)
            self._reading.update(where for where, _ in starts)
            self._topics = len({where.topic for where in self._reading})
        if gone:
            self._consumer.incremental_unassign(self._positions((where, 0) for where in gone))
        if starts:
            for topic in {where.topic for where, offset in starts if offset == BEGINNING}:
                self._learn_leaders(topic)
            self._consumer.incremental_assign(self._positions(starts))

    def _learn_leaders(self, topic: str) -> None:
        """Before its first offsets are looked for, which is tried again after half a second."""
        with suppress(kafka(self._cluster.user).KafkaException):
            self._consumer.list_topics(topic, timeout=WAIT_S)

    def _is_wanted(self, buffer: PartitionBuffer) -> bool:
        """Not assigned; if it has given back its place, only after it was polled again."""
        return not buffer.assigned and time.monotonic() - buffer.polled_s < STALLED_S

    def _give_back_places(self) -> None:
        """All is full: what nobody reads, while others are read, must not keep these waiting.

        When nobody reads anything, tasks downstream hold it up, and nothing is given back.
        """
        now_s = time.monotonic()
        silences_s = {buffer: now_s - buffer.polled_s for buffer in self._buffers.values()}
        if min(silences_s.values(), default=0.0) > STALLED_S / 2:
            return
        for buffer, silence_s in silences_s.items():
            if buffer.count and silence_s > STALLED_S:
                self._release(buffer)
                buffer.assigned = False
                self._gone.append(buffer.where)

    def _release(self, buffer: PartitionBuffer) -> None:
        self._counted(buffer, -buffer.count, -buffer.bytes)
        buffer.batches.clear()
        buffer.end = None

    def _counted(self, buffer: PartitionBuffer, records: int, size: int) -> None:
        buffer.count += records
        buffer.bytes += size
        self._count += records
        self._bytes += size

    def _is_full(self) -> bool:
        return self._count >= BUFFERED_RECORDS or self._bytes >= BUFFERED_BYTES

    def _positions(self, offsets: Iterable[tuple[KafkaTopicPartition, int]]) -> list[Any]:
        make = kafka(self._cluster.user).TopicPartition
        return [make(where.topic, where.partition, offset) for where, offset in offsets]

    # What it tells others.

    def _read_figures(self) -> None:
        now_s = time.monotonic()
        if now_s < self._figures_s:
            return
        self._figures_s = now_s + FIGURES_S
        for buffer in list(self._buffers.values()):
            if buffer.assigned:
                (position,) = self._positions([(buffer.where, BEGINNING)])
                _, high = self._consumer.get_watermark_offsets(position, cached=True)
                buffer.high = high if high >= 0 else None

    def _send_commits(self) -> None:
        with self._lock:
            commits, self._commits = self._commits, {}
        if commits:
            self._committing += 1
            try:
                offsets = self._positions(commits.items())
                self._consumer.commit(offsets=offsets, asynchronous=True)
            except Exception as error:
                self._committed(error, [])

    def _send_last_commits(self) -> None:
        """Wait for the answers, but not for long: the job's own offsets are in its checkpoints."""
        self._send_commits()
        give_up_s = time.monotonic() + LAST_COMMIT_S
        if self._committing:
            self._consumer.pause(self._consumer.assignment())
        while self._committing and time.monotonic() < give_up_s:
            self._consumer.consume(1, WAIT_S)

    def _committed(self, error: Any, offsets: list[Any]) -> None:
        self._committing -= 1
        failed = error or next((at.error for at in offsets if at.error is not None), None)
        if failed is not None:
            self._watch.log(
                logging.WARNING,
                "offsets were not committed to the group (%s); the job goes on, and commits "
                "again with its next checkpoint",
                error_words(failed),
            )


def _no_wake() -> None:
    """Nobody is to be woken yet."""
