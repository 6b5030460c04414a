"""Questions to a job that runs, and their answers: to one of its tasks, or to its driver.

The driver puts a question about a task (stacks, waiting records, channels, state) into ``Inspect``,
and the task manager answers with ``Inspected``. Law: a question changes nothing in the task; every
answer is bounded, whatever was asked for: a task manager cuts what is beyond the limits below.

Whoever knows the job's secret may put a ``Question`` to the driver instead of registering as a task
manager, and gets one answer. An answer says in ``problem`` why there is no other one.
"""

from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

from headgate.base.checkpoints import Stop

MAX_SECONDS: Final = 60.0
MAX_HERTZ: Final = 500.0
MAX_STACKS: Final = 1_000
"""Distinct stacks of one answer; samples of rarer ones are only counted."""
MAX_ENTRIES: Final = 1_000
"""Waiting records, or keys, of one answer."""
MAX_CHANNELS: Final = 10_000
MAX_STATE_KEYS: Final = 1_000
"""Keys of one question about state."""
MAX_VALUE_BYTES: Final = 1024 * 1024
"""Largest size of one value, pickled."""
MAX_STATE_BYTES: Final = 4 * MAX_VALUE_BYTES
"""Largest size of all values of one answer."""


class SampleStacks(msgspec.Struct, frozen=True, tag=True):
    """Where does the task's thread spend its time?"""

    seconds: float = 2.0
    hertz: float = 100.0


class PeekRecords(msgspec.Struct, frozen=True, tag=True):
    """What waits in front of the task, in one of its gates?"""

    gate: int = 0
    channel: int | None = None
    """None: all channels of the gate, the longest queues first."""
    limit: int = 20
    """So many records at most."""


class CountKeys(msgspec.Struct, frozen=True, tag=True):
    """Which keys do the records have that wait in front of the task?"""

    limit: int = 10
    """So many keys at most, the most frequent first."""


class ReadChannels(msgspec.Struct, frozen=True, tag=True):
    """How are the channels of the task?"""

    gate: int | None = None
    limit: int = 100
    """So many channels at most, those with the largest backlog first."""


class ReadState(msgspec.Struct, frozen=True, tag=True):
    """What does a keyed state of the task hold at these keys, all at one moment?"""

    uid: str
    """The operator's."""
    state: str
    keys: tuple[bytes, ...]
    """Pickled, as the key selector returns them."""
    within_ms: float = 10_000.0
    """After this time nobody waits for the answer any more."""


Inspection: TypeAlias = SampleStacks | PeekRecords | CountKeys | ReadChannels | ReadState


class SampledActivity(Enum):
    """What a task was doing when a sample was taken."""

    BUSY = "busy"
    BACKPRESSURED = "backpressured"
    IDLE = "idle"


class SampledStack(msgspec.Struct, frozen=True, array_like=True):
    """A stack, and how often it was seen."""

    frames: tuple[str, ...]
    """Outermost first: ``function (file.py:line)``."""
    count: int
    cpu_ms: float = 0.0
    """CPU time of the thread between these samples and those before them."""
    user_at: int = -1
    """The first frame of the user's code; -1: there is none."""
    activity: SampledActivity = SampledActivity.BUSY


class StackSamples(msgspec.Struct, frozen=True, tag=True):
    """Answer to ``SampleStacks``; the most frequent stacks first."""

    samples: int
    """All of them; idle, back-pressured and dropped ones, too."""
    wall_ms: float
    cpu_ms: float
    """CPU time of the task's thread within ``wall_ms``."""
    stacks: tuple[SampledStack, ...]
    dropped: int = 0
    """Samples whose stacks were too many to be kept."""
    ended: bool = False
    """The task ended before the time was over."""

    def count(self, activity: SampledActivity) -> int:
        """Number of samples that were taken during this activity."""
        return sum(stack.count for stack in self.stacks if stack.activity is activity)


class WaitingEntry(msgspec.Struct, frozen=True, array_like=True):
    """One thing that waits in a channel."""

    channel: int
    kind: str
    """``record``, ``watermark``, ``status``, ``marker``, ``barrier``, ``event``, or ``unreadable``:
    bytes that cannot be decoded."""
    text: str
    """The record as ``repr`` shows it, cut; or what the entry says."""
    key: str | None = None
    """The record's key, in a keyed channel."""
    timestamp_ms: int | None = None
    place: str = "arrived"
    """``begun``: in the buffer that is being read; ``arrived``: in the receiver's queue;
    ``producer``: still in the subpartition of a producer in the same process."""


class WaitingRecords(msgspec.Struct, frozen=True, tag=True):
    """Answer to ``PeekRecords``, in the order in which each channel will be read."""

    gate: int
    channels: int
    """How many the gate has."""
    entries: tuple[WaitingEntry, ...]
    records: int
    """Records that were decoded; entries show the first of them."""
    buffers: int
    """Data buffers that wait, as far as the receiver knows, also with remote producers."""
    complete: bool
    """All that waits in this process was decoded; False: there is more."""


class KeyCount(msgspec.Struct, frozen=True, array_like=True):
    """A key, and how many records have it."""

    key: str
    count: int


class KeyCounts(msgspec.Struct, frozen=True, tag=True):
    """Answer to ``CountKeys``; the most frequent first."""

    sampled: int
    """Records that were looked at."""
    distinct: int
    keys: tuple[KeyCount, ...]


class ChannelFigures(msgspec.Struct, frozen=True, array_like=True):
    """One channel at one moment."""

    gate: int
    channel: int
    producer: str
    """The task that writes it."""
    is_local: bool
    queued_buffers: int
    """Arrived and not read; of a producer in the same process: written and not read."""
    queued_bytes: int
    backlog: int
    """Data buffers that wait at the producer, as it has announced."""
    credit: int
    """Free buffers that the producer knows of; -1: the channel needs none."""
    exclusive: int
    """Free exclusive buffers, and below the floating ones."""
    floating: int
    blocked: bool
    """Not read at the moment: a checkpoint is being aligned."""
    bytes_in: int
    buffers_in: int
    is_placed: bool = True
    """Its producer has been deployed."""
    has_ended: bool = False


class ChannelTable(msgspec.Struct, frozen=True, tag=True):
    """Answer to ``ReadChannels``; those with the largest backlog first."""

    channels: int
    """All of them, also those that are not listed."""
    rows: tuple[ChannelFigures, ...]


class StateValue(msgspec.Struct, frozen=True, array_like=True):
    """What a state holds at one key."""

    data: bytes | None = None
    """Pickled; None: nothing is there, or ``problem`` says why it cannot be shown."""
    problem: str = ""


class StateValues(msgspec.Struct, frozen=True, tag=True):
    """Answer to ``ReadState``: a value for each key, in the order of the question."""

    kind: str = ""
    """As the descriptor has it: ``value``, ``list``, ``map``, ``reducing``, ``aggregating``."""
    values: tuple[StateValue, ...] = ()
    problem: str = ""
    """Why there are none: the operator has no such state."""


class ShownValue(msgspec.Struct, frozen=True):
    """A value of a state, for people."""

    key: Any
    """As JSON, or as ``repr`` shows it."""
    found: bool
    """Whether there is anything at the key."""
    value: Any = None
    """As JSON, if it can be written so."""
    text: str = ""
    """As ``repr`` shows it, cut, if it is no JSON."""
    problem: str = ""
    """Why it cannot be shown."""


class ShownState(msgspec.Struct, frozen=True):
    """What a state holds at some keys, for people."""

    uid: str
    operator: str
    """Its name."""
    state: str
    kind: str
    values: list[ShownValue]
    """In the order of the keys."""


Found: TypeAlias = StackSamples | WaitingRecords | KeyCounts | ChannelTable | StateValues


class JobQuestion(msgspec.Struct, frozen=True, tag=True):
    """In which state is the job?"""


class SavepointAsked(msgspec.Struct, frozen=True, tag=True):
    """Take a savepoint, and perhaps end the job with it."""

    directory: str | None = None
    """It gets a folder of its own in there; None: where the job's settings say."""
    stop: Stop = Stop.NO


class CancelAsked(msgspec.Struct, frozen=True, tag=True):
    """End the job now."""

    reason: str


class StateAsked(msgspec.Struct, frozen=True, tag=True):
    """What does a keyed state hold at these keys?"""

    operator: str
    """Its uid or name."""
    state: str
    keys: list[str]
    """The keys as a person types them."""
    key_type: str = ""
    """The type of the keys, if the program does not declare it."""
    timeout_s: float = 5.0


class JobAnswer(msgspec.Struct, frozen=True, tag=True):
    """The state of the job; after ``CancelAsked``, how it has ended."""

    job: str
    name: str
    state: str
    """The name of a JobStatus."""
    since_ms: int
    """When it was started, in milliseconds since 1970."""
    problem: str = ""


class SavepointAnswer(msgspec.Struct, frozen=True, tag=True):
    """Where the savepoint is, and how the job is now."""

    path: str
    state: str
    problem: str = ""


class StateShown(msgspec.Struct, frozen=True, tag=True):
    """The state that was found; values are JSON where JSON has them."""

    found: ShownState | None
    problem: str = ""


Question: TypeAlias = JobQuestion | SavepointAsked | CancelAsked | StateAsked
Answer: TypeAlias = JobAnswer | SavepointAnswer | StateShown
