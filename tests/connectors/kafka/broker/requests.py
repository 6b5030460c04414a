"""The APIs that change or tell what the broker holds: a request's bytes in, the answer's out.

Each handler reads the versions that ``API`` lists. ``forced`` is an error that a test has asked
for: then nothing is done but to answer with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tests.connectors.kafka.broker import errors
from tests.connectors.kafka.broker.state import BrokerState
from tests.connectors.kafka.broker.wire import Reader, Writer


class Api(NamedTuple):
    name: str
    low: int
    high: int
    flexible: int = 99
    """From this version on."""
    changes: bool = False
    """Whether it is written to the journal."""


API = {
    0: Api("Produce", 0, 7, changes=True),
    1: Api("Fetch", 4, 6),
    2: Api("ListOffsets", 1, 3),
    3: Api("Metadata", 0, 5, changes=True),
    8: Api("OffsetCommit", 2, 3, changes=True),
    9: Api("OffsetFetch", 1, 7, 6),
    10: Api("FindCoordinator", 0, 2),
    11: Api("JoinGroup", 0, 2),
    12: Api("Heartbeat", 0, 2),
    13: Api("LeaveGroup", 0, 2),
    14: Api("SyncGroup", 0, 2),
    17: Api("SaslHandshake", 0, 1),
    18: Api("ApiVersions", 0, 3, 3),
    19: Api("CreateTopics", 0, 4, changes=True),
    20: Api("DeleteTopics", 0, 3, changes=True),
    21: Api("DeleteRecords", 0, 1, changes=True),
    22: Api("InitProducerId", 0, 4, 2, changes=True),
    24: Api("AddPartitionsToTxn", 0, 2, changes=True),
    25: Api("AddOffsetsToTxn", 0, 2, changes=True),
    26: Api("EndTxn", 0, 2, changes=True),
    28: Api("TxnOffsetCommit", 0, 3, 3, changes=True),
    36: Api("SaslAuthenticate", 0, 1),
    37: Api("CreatePartitions", 0, 1, changes=True),
}


@dataclass
class Request:
    key: int
    version: int
    body: Reader
    now_ms: int
    forced: int = 0
    replayed: bool = False
    """From the journal: it was allowed when it came."""
    changed: bool = False
    """Whether it has to be in the journal."""

    def answer(self) -> Writer:
        return Writer(self.body.flexible)


class Requests:
    """Answers at once; what may have to wait is in ``server``."""

    def __init__(self, state: BrokerState, host: str, port: int, auto_create: bool) -> None:
        self._state = state
        self._host = host
        self._port = port
        self._auto_create = auto_create
        self._handlers: dict[int, Callable[[Request], Writer | None]] = {
            0: self._produce,
            2: self._list_offsets,
            3: self._metadata,
            8: self._offset_commit,
            9: self._offset_fetch,
            10: self._find_coordinator,
            18: self._api_versions,
            19: self._create_topics,
            20: self._delete_topics,
            21: self._delete_records,
            22: self._init_producer,
            24: self._add_partitions,
            25: self._add_offsets,
            26: self._end_txn,
            28: self._txn_offset_commit,
            37: self._create_partitions,
        }

    def handles(self, key: int) -> bool:
        return key in self._handlers

    def handle(self, request: Request) -> Writer | None:
        """None: the client wants no answer."""
        request.changed = API[request.key].changes and not request.forced
        return self._handlers[request.key](request)

    def _produce(self, request: Request) -> Writer | None:
        body = request.body
        body.nullable_text()
        acks = body.int16()
        body.int32()

        def partition() -> tuple[int, bytes]:
            return body.int32(), body.data()

        topics = body.array(lambda: (body.text(), body.array(partition)))
        answer = request.answer()

        def write(topic: str, number: int, data: bytes) -> None:
            code, offset = request.forced, -1
            if not code:
                code, offset = self._state.produce(topic, number, data)
            answer.int32(number).int16(code).int64(offset).int64(-1)
            if request.version >= 5:
                answer.int64(0)

        def write_topic(found: tuple[str, list[tuple[int, bytes]]]) -> None:
            topic, partitions = found
            answer.text(topic).array(partitions, lambda part: write(topic, *part))

        answer.array(topics, write_topic).int32(0)
        return answer if acks else None

    def _list_offsets(self, request: Request) -> Writer:
        body = request.body
        body.int32()
        committed = request.version >= 2 and body.int8() == 1
        topics = body.array(lambda: (body.text(), body.array(lambda: (body.int32(), body.int64()))))
        answer = request.answer()
        if request.version >= 2:
            answer.int32(0)

        def write(topic: str, number: int, timestamp: int) -> None:
            log = self._state.partition(topic, number)
            code, found = errors.UNKNOWN_TOPIC_OR_PARTITION, (-1, -1)
            if log is not None:
                code, found = request.forced, log.offset_at(timestamp, committed)
            answer.int32(number).int16(code).int64(found[0]).int64(found[1])

        return answer.array(
            topics, lambda t: answer.text(t[0]).array(t[1], lambda part: write(t[0], *part))
        )

    def _metadata(self, request: Request) -> Writer:
        body, version, state = request.body, request.version, self._state
        wanted = body.nullable_array(body.text, plain=True)
        if wanted is None or (version == 0 and not wanted):
            wanted = list(state.topics)
        may_create = body.boolean() if version >= 4 else True
        unknown = [topic for topic in wanted if topic not in state.topics]
        request.changed = bool(unknown) and self._auto_create and may_create
        for topic in unknown if request.changed else ():
            state.create(topic, 1, {})
        answer = request.answer()
        if version >= 3:
            answer.int32(0)
        answer.int32(1).int32(1).text(self._host).int32(self._port)
        if version >= 1:
            answer.text(None)
        if version >= 2:
            answer.text("strict-broker")
        if version >= 1:
            answer.int32(1)

        def write_partition(number: int) -> None:
            answer.int16(0).int32(number).int32(1)
            for _ in range(2):
                answer.array([1], answer.int32, plain=True)
            if version >= 5:
                answer.array([], answer.int32, plain=True)

        def write_topic(topic: str) -> None:
            found = state.topics.get(topic)
            code = errors.UNKNOWN_TOPIC_OR_PARTITION if found is None else request.forced
            answer.int16(code).text(topic)
            if version >= 1:
                answer.boolean(False)
            answer.array(range(len(found.partitions) if found else 0), write_partition)

        return answer.array(wanted, write_topic)

    def _offset_commit(self, request: Request) -> Writer:
        body = request.body
        name, generation, member = body.text(), body.int32(), body.text()
        body.int64()

        def partition() -> tuple[int, int, str | None]:
            return body.int32(), body.int64(), body.nullable_text()

        topics = body.array(lambda: (body.text(), body.array(partition)))
        groups = self._state.groups
        code = request.forced
        if not request.replayed:
            code = code or groups.check(name, generation, member)
        request.changed = not code
        answer = request.answer()
        if request.version >= 3:
            answer.int32(0)

        def write(topic: str, number: int, offset: int, metadata: str | None) -> None:
            if not code:
                groups.group(name).offsets[topic, number] = (offset, metadata)
            answer.int32(number).int16(code)

        return answer.array(
            topics, lambda t: answer.text(t[0]).array(t[1], lambda part: write(t[0], *part))
        )

    def _offset_fetch(self, request: Request) -> Writer:
        body, version = request.body, request.version
        group = self._state.groups.group(body.text())
        topics = body.nullable_array(lambda: (body.text(), body.array(body.int32, plain=True)))
        must_be_stable = version >= 7 and body.boolean()
        unstable = group.unstable() if must_be_stable else set()
        if topics is None:
            names = sorted({topic for topic, _ in group.offsets})
            topics = [(name, [n for t, n in group.offsets if t == name]) for name in names]
        answer = request.answer()
        if version >= 3:
            answer.int32(0)

        def write(topic: str, number: int) -> None:
            offset, metadata = group.offsets.get((topic, number), (-1, ""))
            code = request.forced
            if (topic, number) in unstable:
                offset, code = -1, errors.UNSTABLE_OFFSET_COMMIT
            answer.int32(number).int64(offset)
            if version >= 5:
                answer.int32(-1)
            answer.text(metadata).int16(code)

        answer.array(
            topics, lambda t: answer.text(t[0]).array(t[1], lambda number: write(t[0], number))
        )
        if version >= 2:
            answer.int16(0)
        return answer.tags()

    def _find_coordinator(self, request: Request) -> Writer:
        answer = request.answer()
        if request.version >= 1:
            answer.int32(0)
        answer.int16(request.forced)
        if request.version >= 1:
            answer.text(None)
        return answer.int32(1).text(self._host).int32(self._port)

    def _api_versions(self, request: Request) -> Writer:
        answer = request.answer().int16(0)
        answer.array(
            API.items(),
            lambda item: answer.int16(item[0]).int16(item[1].low).int16(item[1].high),
        )
        if request.version >= 1:
            answer.int32(0)
        return answer.tags()

    def _create_topics(self, request: Request) -> Writer:
        body, version = request.body, request.version

        def topic() -> tuple[str, int, dict[str, str]]:
            name, partitions, _ = body.text(), body.int32(), body.int16()
            body.array(lambda: (body.int32(), body.array(body.int32, plain=True)))
            config = body.array(lambda: (body.text(), body.nullable_text()))
            return name, max(partitions, -partitions), {key: value or "" for key, value in config}

        topics = body.array(topic)
        answer = request.answer()
        if version >= 2:
            answer.int32(0)

        def write(found: tuple[str, int, dict[str, str]]) -> None:
            answer.text(found[0]).int16(request.forced or self._state.create(*found))
            if version >= 1:
                answer.text(None)

        return answer.array(topics, write)

    def _delete_topics(self, request: Request) -> Writer:
        body = request.body
        answer = request.answer()
        if request.version >= 1:
            answer.int32(0)

        def write(name: str) -> None:
            code = request.forced
            if not code and self._state.topics.pop(name, None) is None:
                code = errors.UNKNOWN_TOPIC_OR_PARTITION
            answer.text(name).int16(code)

        return answer.array(body.array(body.text, plain=True), write)

    def _delete_records(self, request: Request) -> Writer:
        body = request.body
        topics = body.array(lambda: (body.text(), body.array(lambda: (body.int32(), body.int64()))))
        answer = request.answer().int32(0)

        def write(topic: str, number: int, before: int) -> None:
            log = self._state.partition(topic, number)
            code, start = request.forced or errors.UNKNOWN_TOPIC_OR_PARTITION, -1
            if log is not None and not request.forced:
                code, start = errors.NONE, log.delete_before(before)
            answer.int32(number).int64(start).int16(code)

        return answer.array(
            topics, lambda t: answer.text(t[0]).array(t[1], lambda part: write(t[0], *part))
        )

    def _create_partitions(self, request: Request) -> Writer:
        body = request.body

        def topic() -> tuple[str, int]:
            name, count = body.text(), body.int32()
            body.nullable_array(lambda: body.array(body.int32, plain=True))
            return name, count

        answer = request.answer().int32(0)
        return answer.array(
            body.array(topic),
            lambda found: (
                answer.text(found[0]).int16(request.forced or self._state.widen(*found)).text(None)
            ),
        )

    def _init_producer(self, request: Request) -> Writer:
        body = request.body
        name, timeout_ms, producer, epoch = body.nullable_text(), body.int32(), -1, -1
        if request.version >= 3:
            producer, epoch = body.int64(), body.int16()
        found = (request.forced, -1, -1)
        if not request.forced:
            found = self._state.transactions.init(name, timeout_ms, producer, epoch, request.now_ms)
        code = found[0]
        if code == errors.PRODUCER_FENCED and request.version < 4:
            code = errors.INVALID_PRODUCER_EPOCH
        return request.answer().int32(0).int16(code).int64(found[1]).int16(found[2]).tags()

    def _add_partitions(self, request: Request) -> Writer:
        body = request.body
        name, producer, epoch = body.text(), body.int64(), body.int16()
        topics = body.array(lambda: (body.text(), body.array(body.int32, plain=True)))
        there = [(topic, number) for topic, numbers in topics for number in numbers]
        code = request.forced
        if not code and any(self._state.partition(*part) is None for part in there):
            code = errors.UNKNOWN_TOPIC_OR_PARTITION
        code = code or self._state.transactions.add_partitions(
            name, producer, epoch, there, request.now_ms
        )
        code = _fenced(request, code)
        answer = request.answer().int32(0)
        return answer.array(
            topics,
            lambda t: answer.text(t[0]).array(t[1], lambda n: answer.int32(n).int16(code)),
        )

    def _add_offsets(self, request: Request) -> Writer:
        body = request.body
        name, producer, epoch, group = body.text(), body.int64(), body.int16(), body.text()
        code = request.forced or self._state.transactions.add_group(
            name, producer, epoch, group, request.now_ms
        )
        return request.answer().int32(0).int16(_fenced(request, code))

    def _end_txn(self, request: Request) -> Writer:
        body = request.body
        name, producer, epoch, commit = body.text(), body.int64(), body.int16(), body.boolean()
        code = request.forced or self._state.transactions.end(
            name, producer, epoch, commit, request.now_ms
        )
        return request.answer().int32(0).int16(_fenced(request, code))

    def _txn_offset_commit(self, request: Request) -> Writer:
        body, version, state = request.body, request.version, self._state
        name, group, producer, epoch = body.text(), body.text(), body.int64(), body.int16()
        code = request.forced
        if version >= 3:
            generation, member = body.int32(), body.text()
            body.nullable_text()
            if not request.replayed:
                code = code or state.groups.check(group, generation, member)

        def partition() -> tuple[int, int, str | None]:
            number, offset = body.int32(), body.int64()
            if version >= 2:
                body.int32()
            return number, offset, body.nullable_text()

        topics = body.array(lambda: (body.text(), body.array(partition)))
        code = code or state.transactions.may_commit_offsets(name, producer, epoch, group)
        request.changed = not code
        answer = request.answer().int32(0)

        def write(topic: str, number: int, offset: int, metadata: str | None) -> None:
            if not code:
                pending = state.groups.group(group).pending.setdefault(producer, {})
                pending[topic, number] = (offset, metadata)
            answer.int32(number).int16(code)

        answer.array(
            topics, lambda t: answer.text(t[0]).array(t[1], lambda part: write(t[0], *part))
        )
        return answer.tags()


def _fenced(request: Request, code: int) -> int:
    """Later versions have a code of its own for producers whose id another one has taken."""
    newer = request.version >= 2 and code == errors.INVALID_PRODUCER_EPOCH
    return errors.PRODUCER_FENCED if newer else code
