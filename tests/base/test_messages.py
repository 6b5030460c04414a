"""Messages of the control connection travel whole."""

from typing import get_args

import msgspec
import pytest

from headgate.base.checkpoints import (
    CheckpointFigures,
    CheckpointKind,
    CheckpointOptions,
    OperatorState,
    Piece,
    SplitData,
    Stop,
    TaskRestore,
)
from headgate.base.checkpoints import SubtaskState as WrittenState
from headgate.base.inspections import (
    CancelAsked,
    ChannelFigures,
    ChannelTable,
    CountKeys,
    JobAnswer,
    JobQuestion,
    KeyCount,
    KeyCounts,
    PeekRecords,
    ReadChannels,
    ReadState,
    SampledActivity,
    SampledStack,
    SampleStacks,
    SavepointAnswer,
    SavepointAsked,
    ShownState,
    ShownValue,
    StackSamples,
    StateAsked,
    StateShown,
    StateValue,
    StateValues,
    WaitingEntry,
    WaitingRecords,
)
from headgate.base.job_records import LogLine
from headgate.base.messages import (
    Cancel,
    Challenge,
    ChannelOrder,
    CheckpointAborted,
    CheckpointAcked,
    CheckpointCompleted,
    CheckpointDeclined,
    CheckpointOrder,
    CheckpointTriggered,
    CheckpointWanted,
    ControlMessage,
    Deploy,
    Failure,
    Heartbeat,
    Hello,
    Inspect,
    Inspected,
    Logged,
    Metrics,
    OutputOrder,
    Placed,
    Proof,
    Refused,
    Register,
    RowsSent,
    Shutdown,
    SourceTimeAnnounced,
    SourceTimeReported,
    SplitsAssigned,
    SplitsWanted,
    StateLineOpened,
    TaskChanged,
    TaskFigures,
    TaskManagerFailed,
    TaskOrder,
    TaskState,
    TimeAnnounced,
    TimeReported,
    Welcome,
)

TASK = TaskOrder(
    "1.0",
    1,
    0,
    3,
    (OutputOrder("p", "BLOCKING", 2),),
    ((ChannelOrder("q", 1, "0.0"), ChannelOrder("r", 1, "0.1")), (ChannelOrder("s", 0, "0.0"),)),
    TaskRestore("1.0", 4, finished=True),
)
CHECKPOINTS = CheckpointOrder("s3://bucket", "job", overtake_after_ms=0, restored_from="chk-4")
WRITTEN = WrittenState(
    "1.0", 1, 0, 2, 128, (OperatorState("uid", "map", {7: Piece("f", 1, 2, 3)}),)
)
FAILURE = Failure("ValueError", "boom", "map", "Traceback …", b"\x80", True)
STACKS = StackSamples(
    3, 100.0, 20.0, (SampledStack(("run (a.py:1)", "map (b.py:2)"), 3, 20.0, 1),), 0, True
)
WAITING = WaitingEntry(1, "record", "('a', 1)", "'a'", 17, "producer")
CHANNEL = ChannelFigures(0, 1, "0.1", False, 1, 2, 3, 4, 5, 6, True, 7, 8)
ALL: list[ControlMessage] = [
    Hello(1, "job", bytes(32)),
    Challenge(bytes(32), bytes(32)),
    Proof(bytes(32)),
    Welcome(),
    Register("7", 3, ("10.0.0.1", 4711), 99, "host"),
    TaskManagerFailed("7", 3, FAILURE),
    TaskChanged("job/7/0", "1.0", TaskState.FAILED, FAILURE),
    Metrics("job/7/0", [TaskFigures("1.0", 1, 0, TaskState.RUNNING, input_watermarks_ms=(5, 6))]),
    Deploy("job/7/0", "job", 1, {"a": "b"}, [TASK], {"0.0": None, "0.1": ("10.0.0.2", 5)}, b"code"),
    Deploy("job/7/1", "job", 2, {}, [TASK], {}, None, CHECKPOINTS),
    TimeReported("job/7/0", "1.0", "group", -(2**63)),
    Placed("job/7/0", {"0.1": ("10.0.0.2", 5)}),
    TimeAnnounced("job/7/0", "group", None),
    SplitsWanted("job/7/0", "1.0", 2, 1),
    SourceTimeReported("job/7/0", "1.0", 2, 1_700_000_000_000, True),
    SourceTimeAnnounced("job/7/0", "1.0", 1_700_000_000_000, False, True),
    RowsSent("job/7/0", 1, 64),
    SplitsAssigned("job/7/0", "1.0", (SplitData(b"mark", b"split"),), True, False),
    CheckpointTriggered(
        "job/7/0", "1.0", 5, CheckpointOptions(9, CheckpointKind.SAVEPOINT, Stop.DRAIN)
    ),
    CheckpointCompleted("job/7/0", 5),
    CheckpointAborted("job/7/0", 5, "the disk is full"),
    CheckpointAcked("job/7/0", 5, WRITTEN, CheckpointFigures(1.0, 2.0, 3.0, 4, 5, True)),
    CheckpointDeclined("job/7/0", 5, "1.0", "it has ended", True),
    CheckpointWanted("job/7/0", "1.0"),
    JobQuestion(),
    SavepointAsked(None, Stop.SUSPEND),
    CancelAsked("enough"),
    JobAnswer("job", "orders", "RUNNING", 17, "busy"),
    SavepointAnswer("s3://bucket/savepoint-job-1", "FINISHED"),
    StateAsked("counts", "total", ["a", "7"], "string", 2.0),
    StateShown(
        ShownState("counts", "count", "total", "value", [ShownValue("a", True, {"n": [1]})]), "no"
    ),
    StateLineOpened("7", 3, 99, "host"),
    Inspect("run", 6, "1.0", ReadState("counts", "total", (b"k",), 10.0)),
    Inspected("run", 6, "1.0", StateValues("value", (StateValue(b"v"), StateValue(None, "no")))),
    Inspect("job/7/0", 1, "1.0", SampleStacks(2.5, 50)),
    Inspect("job/7/0", 2, "1.0", PeekRecords(1, None, 5)),
    Inspect("job/7/0", 3, "1.0", CountKeys(7)),
    Inspect("job/7/0", 4, "1.0", ReadChannels(None, 8)),
    Inspected("job/7/0", 1, "1.0", STACKS),
    Inspected("job/7/0", 2, "1.0", WaitingRecords(0, 2, (WAITING,), 1, 3, True)),
    Inspected("job/7/0", 3, "1.0", KeyCounts(9, 2, (KeyCount("'a'", 8),))),
    Inspected("job/7/0", 4, "1.0", ChannelTable(2, (CHANNEL,))),
    Inspected("job/7/0", 5, "1.0", None, "it has ended"),
    Logged(
        "job/7/0", [LogLine(0, 17, "WARNING", "shop", "no price", "map", 1, 2, "map", "a:7", "x")]
    ),
    Cancel("job/7/0", "enough"),
    Shutdown("job/7/0"),
    Refused("no"),
    Heartbeat(),
]


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_message_comes_out_as_it_went_in(message: ControlMessage) -> None:
    data = msgspec.msgpack.encode(message)
    assert msgspec.msgpack.decode(data, type=ControlMessage) == message


def test_every_message_has_its_test() -> None:
    assert set(get_args(ControlMessage)) == {type(message) for message in ALL}


def test_a_task_names_each_producer_once() -> None:
    assert TASK.producers == ["0.0", "0.1"]


def test_samples_are_counted_by_activity() -> None:
    idle = SampledStack(("wait (c.py:3)",), 4, activity=SampledActivity.IDLE)
    samples = StackSamples(7, 100.0, 20.0, (*STACKS.stacks, idle))
    assert samples.count(SampledActivity.IDLE) == 4
    assert samples.count(SampledActivity.BUSY) == 3
    assert samples.count(SampledActivity.BACKPRESSURED) == 0
