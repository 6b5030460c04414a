"""Every error Headgate raises on purpose. The type says who is guilty, the fields hold the facts.

HeadgateError
├── SettingsInvalid            a setting or a file it names is wrong
│   └── SettingsUnknown        nobody knows a setting, and headgate.strict is true
├── SparkUnready               the place where tasks run …
│   ├── SparkMissing           … PySpark is not installed, or not one that is known to work
│   ├── JavaMissing            … there is no Java for it
│   └── SessionFailed          … no session came about
├── PlanInvalid                a program that cannot become a job
├── MemoryShort                the arena is smaller than what was asked for
│   ├── InsufficientBuffers    a pool or channel asks for more than is left
│   └── JobExceedsMemory       the tasks of a slot need more than a task manager may have
├── PoolDestroyed              a request after the end of a pool
├── TaskCancelled              the reader or writer was closed by its own task
├── FlushFailed                a flush by time failed; told at the next emit
├── UserFunctionFailed         a user's function raised an exception
├── RecordUncopyable           a record that cannot be copied between two operators
├── StateBroken                state that cannot be written to a snapshot, or read from one
├── ConnectorError             a source or sink …
│   ├── PathUnusable           … names a file or folder that cannot be read or written
│   │   └── PartLost           … has lost a part file that a checkpoint names
│   ├── DatabaseUnready        … finds its database away, locked or too slow
│   ├── ServerUnreachable      … has no connection to its server
│   ├── LineTooLong            … got a line above the limit
│   └── LineUndecodable        … got bytes that are no text in its encoding
├── PartitionError             a task's output …
│   ├── PartitionNotFound      … is not (yet) there
│   ├── PartitionTaken         … is registered or read twice
│   ├── PartitionFinished      … takes no more data
│   └── ProducerFailed         … ended because its task failed
├── ElementBroken              bytes of a channel that are no element
│   └── ElementTooLarge        an element above the limit
├── EventUnclaimed             a task event that nobody receives
├── EventTooLarge              an event above the limit
├── EventsUnsent               more task events than a channel keeps for a producer to come
├── EventUnsendable            a task event that holds what cannot travel
└── TransportError             between two task managers …
    ├── ConnectFailed          … no connection came about
    ├── PeerLost               … the other side died, hung up or reset
    ├── PeerSilent             … the other side hangs
    ├── PeerUnproven           … the other side does not know the job's secret
    ├── PeerBusy               … the other side has no room for one more that is not proven
    ├── PeerReported           … the other side sent an error
    └── PeerBrokeProtocol      … the other side sent what it must not
        ├── FrameTooLong, FrameTruncated, FrameMalformed, FrameForged
        ├── WrongVersion, UnknownMessage, BeforeHandshake
        ├── UnknownReceiver, TooManyReceivers
        └── SequenceGap, CreditOverdrawn, EventsOverdrawn
"""

from collections.abc import Sequence

from headgate.base.ids import ChannelId, PartitionId, PeerName


class HeadgateError(Exception):
    """Base of all errors that Headgate raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # A worker's error reaches the driver pickled: message and facts, past the constructor.
        return _revive, (type(self), self.args), self.__dict__


def _revive(kind: type[HeadgateError], args: tuple[object, ...]) -> HeadgateError:
    return kind.__new__(kind, *args)


class SettingsInvalid(HeadgateError):
    """A setting, or a file that a setting names, cannot be used."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"setting {key}: {problem}")
        self.key = key
        self.problem = problem


class SettingsUnknown(SettingsInvalid):
    """Settings that have no effect, where ``headgate.strict`` wants none such."""

    def __init__(self, keys: Sequence[str], problems: Sequence[str]) -> None:
        told = "; ".join(problems)
        super().__init__(keys[0], f"{told} (refused, because headgate.strict is true)")
        self.keys = tuple(keys)


class SparkUnready(HeadgateError):
    """Tasks cannot run on Spark here and now; the message says what to change."""


class SparkMissing(SparkUnready):
    """PySpark is not installed, or is a version that Headgate does not know."""

    def __init__(self, found: str | None = None) -> None:
        what = f"PySpark {found} is not a known version" if found else "PySpark is not installed"
        super().__init__(f"{what}; run pip install 'headgate[spark]'")
        self.found = found


class JavaMissing(SparkUnready):
    """No Java that can run Spark; ``rejected`` says where was looked and why it did not do."""

    def __init__(self, rejected: tuple[str, ...]) -> None:
        super().__init__(
            "no Java that can run Spark: run pip install 'headgate[spark]', which brings one, "
            f"or set JAVA_HOME to a Java 17 or 21 (looked at {'; '.join(rejected)})"
        )
        self.rejected = rejected


class SessionFailed(SparkUnready):
    """Spark did not start, or cannot be used in the way it was started."""


class PlanInvalid(HeadgateError):
    """A program cannot be run as it was written; ``operator`` names the culprit if there is one."""

    def __init__(self, problem: str, operator: str | None = None) -> None:
        super().__init__(problem if operator is None else f"operator {operator!r} {problem}")
        self.problem = problem
        self.operator = operator


class MemoryShort(HeadgateError):
    """The arena of a task manager could not be allocated in full."""

    def __init__(self, required: int, allocated: int, unit: str = "bytes") -> None:
        self.required = required
        self.allocated = allocated
        self.missing = required - allocated
        super().__init__(
            f"network memory: {required} {unit} required, {allocated} allocated, "
            f"{self.missing} missing; lower taskmanager.memory.network.max "
            f"or give the worker more memory"
        )


class InsufficientBuffers(MemoryShort):
    """A pool, gate or connection needs more buffers than the task manager has left."""

    def __init__(self, who: str, required: int, available: int, total: int) -> None:
        HeadgateError.__init__(
            self,
            f"insufficient number of network buffers for {who}: {required} required, "
            f"{available} available of {total} in total; raise taskmanager.memory.network.min "
            f"and .max, or lower the parallelism",
        )
        self.who = who
        self.required = required
        self.allocated = self.available = available
        self.missing = required - available
        self.total = total


class JobExceedsMemory(MemoryShort):
    """A job's tasks cannot be set up within the exchange's memory; told before it starts."""

    def __init__(
        self, job: str, required: int, allocated: int, segment_bytes: int, parts: str
    ) -> None:
        self.required_bytes = required * segment_bytes
        HeadgateError.__init__(
            self,
            f"job {job!r} needs {required} network buffers of {segment_bytes} bytes in its busiest "
            f"task manager ({parts}), and taskmanager.memory.network.max allows {allocated}; raise "
            f"it to {self.required_bytes} bytes or more, or lower the parallelism",
        )
        self.job = job
        self.required = required
        self.allocated = allocated
        self.missing = required - allocated


class PoolDestroyed(HeadgateError):
    """A buffer was requested from a pool whose owner has ended."""


class TaskCancelled(HeadgateError):
    """A gate, channel or writer was used after its own task had closed it."""


class FlushFailed(HeadgateError):
    """A flush that was due by time failed earlier; raised at the next emit."""


class UserFunctionFailed(HeadgateError):
    """A user's function raised; its own exception is the cause."""

    def __init__(self, operator: str, error: BaseException, doing: str = "") -> None:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        super().__init__(f"operator {operator!r} failed{doing and ' ' + doing}: {what}")
        self.operator = operator


class RecordUncopyable(HeadgateError):
    """A mutable record is handed from operator to operator, and pickle cannot copy it."""

    def __init__(self, operator: str, error: BaseException) -> None:
        super().__init__(
            f"a record for operator {operator!r} cannot be copied ({error}); records must be "
            f"picklable, or turn copies off with pipeline.object-reuse: true"
        )
        self.operator = operator


class StateBroken(HeadgateError):
    """State cannot be written to a snapshot, or what was written cannot be read again."""


class ConnectorError(HeadgateError):
    """Trouble of a source or sink with the world that it meets."""

    operator = ""
    """Which one, once that is known."""


class PathUnusable(ConnectorError):
    """A file or folder cannot be found, read or written."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class PartLost(PathUnusable):
    """A part file that a checkpoint names is gone or cut, so that its records would be missing."""


class DatabaseUnready(ConnectorError):
    """A database cannot be reached, or does not take a transaction in time."""


class ServerUnreachable(ConnectorError):
    """The server of a source refuses, is unknown, or broke the connection."""

    def __init__(self, address: str, attempts: int, problem: str) -> None:
        super().__init__(
            f"no connection to {address} after {attempts} attempt{'s'[: attempts != 1]}: "
            f"{problem}; start the server first, or raise max_retry"
        )
        self.address = address
        self.attempts = attempts
        self.problem = problem


class LineTooLong(ConnectorError):
    """A line is longer than the ``max_line_bytes`` of its source."""

    def __init__(self, where: str, limit: int) -> None:
        super().__init__(
            f"{where}: a line of more than {limit} bytes; "
            f"raise max_line_bytes, or check the delimiter"
        )
        self.where = where
        self.limit = limit


class LineUndecodable(ConnectorError):
    """A line holds bytes that are no text in the encoding of its source."""

    def __init__(self, where: str, line: int, encoding: str, problem: str) -> None:
        super().__init__(
            f"{where}, line {line}: no {encoding} text ({problem}); "
            f"give the right encoding, or errors='replace'"
        )
        self.where = where
        self.line = line
        self.encoding = encoding


class PartitionError(HeadgateError):
    """Trouble with one task's output."""

    def __init__(self, partition: PartitionId, problem: str) -> None:
        super().__init__(f"partition {partition!r} {problem}")
        self.partition = partition


class PartitionNotFound(PartitionError):
    """The producer's process does not know the partition (not yet, or no more)."""

    def __init__(self, partition: PartitionId, where: str = "here") -> None:
        super().__init__(
            partition, f"not found {where}: its task has not started there, or was released"
        )


class PartitionTaken(PartitionError):
    """A partition was registered twice, or a pipelined subpartition read twice."""


class PartitionFinished(PartitionError):
    """Data was added to a partition that is finished or released."""


class ProducerFailed(PartitionError):
    """The task that wrote the partition failed; what it had sent is not the whole."""

    def __init__(self, partition: PartitionId, cause: str) -> None:
        super().__init__(partition, f"ended early because its producer failed: {cause}")
        self.cause = cause


class ElementBroken(HeadgateError):
    """The bytes of a channel do not form elements."""


class ElementTooLarge(ElementBroken):
    """An element is longer than ``exchange.max-element-bytes``."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"an element of {size} bytes exceeds the limit of {limit} bytes; "
            f"raise exchange.max-element-bytes or emit smaller records"
        )
        self.size = size
        self.limit = limit


class EventUnclaimed(HeadgateError):
    """A task event reached a producer that has no subscriber for it."""

    def __init__(self, partition: PartitionId, event: str) -> None:
        super().__init__(f"nobody receives task event {event} at partition {partition!r}")
        self.partition = partition


class EventTooLarge(HeadgateError):
    """An event is longer than ``exchange.max-event-bytes``; it is refused where it is sent."""

    def __init__(self, event: str, size: int, limit: int) -> None:
        super().__init__(
            f"event {event} has {size} bytes, the limit is {limit}; "
            f"raise exchange.max-event-bytes or send less in it"
        )
        self.size = size
        self.limit = limit


class EventsUnsent(HeadgateError):
    """A task sends events to a producer that is not there yet, and sends too many."""

    def __init__(self, partition: PartitionId, count: int) -> None:
        super().__init__(
            f"{count} task events wait for the producer of partition {partition!r}, which has not "
            f"started yet; send events when its data has arrived"
        )
        self.partition = partition
        self.count = count


class EventUnsendable(HeadgateError):
    """A task event has an attribute that is no plain data; it is refused where it is sent."""

    def __init__(self, event: str, attribute: str, problem: str) -> None:
        super().__init__(
            f"task event {event} cannot travel: its attribute {attribute!r} {problem}; let it hold "
            f"plain values, lists, tuples, sets and dicts, or override to_bytes and from_bytes"
        )
        self.event = event
        self.attribute = attribute


class TransportError(HeadgateError):
    """Trouble between two task managers; ``peer`` names the other side."""

    def __init__(self, peer: PeerName, problem: str) -> None:
        super().__init__(f"peer {peer}: {problem}")
        self.peer = peer
        self.problem = problem


class ConnectFailed(TransportError):
    """No connection to the peer came about."""


class PeerLost(TransportError):
    """The peer died, closed or reset the connection while it was in use."""


class PeerSilent(TransportError):
    """The peer's process hangs: nothing came from it for longer than the heartbeat time-out."""


class PeerUnproven(TransportError):
    """The peer could not prove that it knows the job's secret."""


class PeerBusy(TransportError):
    """The peer ended the connection because too many others wait there to be proven."""


class PeerReported(TransportError):
    """The peer answered a request with an error of its own."""


class PeerBrokeProtocol(TransportError):
    """The peer sent something that the protocol forbids."""


class FrameTooLong(PeerBrokeProtocol):
    """A frame announces more bytes than its type may have."""

    def __init__(self, peer: PeerName, length: int, limit: int, what: str) -> None:
        super().__init__(peer, f"{what} frame of {length} bytes, the limit is {limit}")
        self.length = length
        self.limit = limit


class FrameTruncated(PeerBrokeProtocol):
    """The connection ended in the middle of a frame."""


class FrameMalformed(PeerBrokeProtocol):
    """A frame whose bytes contradict its type."""


class FrameForged(PeerBrokeProtocol):
    """A frame does not carry the code that only the proven peer can make for it."""

    def __init__(self, peer: PeerName, number: int) -> None:
        super().__init__(
            peer,
            f"message {number} of this connection carries a wrong authentication code, so it was "
            f"changed, repeated, left out or invented on the way; find out what stands between "
            f"the two machines",
        )
        self.number = number


class WrongVersion(PeerBrokeProtocol):
    """The peer speaks another version of the protocol."""

    def __init__(self, peer: PeerName, theirs: int, ours: int) -> None:
        super().__init__(
            peer, f"speaks protocol version {theirs}, this side {ours}; install the same Headgate"
        )
        self.theirs = theirs
        self.ours = ours


class UnknownMessage(PeerBrokeProtocol):
    """A frame type that this side does not know, or that this side never receives."""


class BeforeHandshake(PeerBrokeProtocol):
    """A message that may only follow the handshake came before its end."""


class UnknownReceiver(PeerBrokeProtocol):
    """A message for a channel that was never requested on this connection."""

    def __init__(self, peer: PeerName, receiver: ChannelId, what: str) -> None:
        super().__init__(peer, f"{what} for channel {receiver}, which it never requested")
        self.receiver = receiver


class TooManyReceivers(PeerBrokeProtocol):
    """A peer has requested for more channels than any worker has, and ended none of them."""

    def __init__(self, peer: PeerName, limit: int) -> None:
        super().__init__(peer, f"it requested for more than {limit} channels")
        self.limit = limit


class SequenceGap(PeerBrokeProtocol):
    """A channel's buffers came out of order, or one is missing or doubled."""

    def __init__(self, peer: PeerName, channel: ChannelId, expected: int, got: int) -> None:
        super().__init__(peer, f"channel {channel} expected buffer {expected} and got {got}")
        self.channel = channel
        self.expected = expected
        self.got = got


class CreditOverdrawn(PeerBrokeProtocol):
    """A data buffer came for which no credit had been given."""


class EventsOverdrawn(PeerBrokeProtocol):
    """More events came in a channel than it keeps for its reader; they cost no credit."""

    def __init__(self, peer: PeerName, channel: ChannelId, waiting: int, size: int) -> None:
        super().__init__(
            peer,
            f"channel {channel} has {waiting} bytes of events that were not read, "
            f"and {size} more came",
        )
        self.channel = channel
        self.waiting = waiting
