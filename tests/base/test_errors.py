"""Errors name the guilty, keep the facts as fields and say what to change. Rows 47, 48, 65, 100."""

import inspect
import pickle
import re

import pytest

from headgate.base import errors
from headgate.base.ids import ChannelId, PartitionId, PeerName

PEER = PeerName("10.0.0.7:4711")
ORDERS = PartitionId("orders/map/3#0")


def error_types() -> list[type[Exception]]:
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in found if issubclass(kind, Exception)]


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert errors.__doc__
    named = set(re.findall(r"\w+", errors.__doc__))
    assert not [kind.__name__ for kind in error_types() if kind.__name__ not in named]


def test_every_error_is_a_headgate_error() -> None:
    assert all(issubclass(kind, errors.HeadgateError) for kind in error_types())


def test_short_memory_says_required_allocated_and_missing() -> None:
    error = errors.MemoryShort(required=100, allocated=30)
    assert (error.required, error.allocated, error.missing) == (100, 30, 70)
    assert "100 bytes required, 30 allocated, 70 missing" in str(error)
    assert "taskmanager.memory.network.max" in str(error)


def test_insufficient_buffers_say_required_available_and_total() -> None:
    error = errors.InsufficientBuffers("gate 'in'", required=9, available=4, total=20)
    assert (error.who, error.required, error.available) == ("gate 'in'", 9, 4)
    assert (error.total, error.missing) == (20, 5)
    assert "insufficient number of network buffers for gate 'in'" in str(error)
    assert "9 required, 4 available of 20 in total" in str(error)
    assert isinstance(error, errors.MemoryShort)


@pytest.mark.parametrize(
    ("error", "facts", "words"),
    [
        (errors.SettingsInvalid("a.b", "x is no y"), {"key": "a.b"}, "setting a.b: x is no y"),
        (errors.PlanInvalid("is odd", "map"), {"operator": "map"}, "operator 'map' is odd"),
        (errors.PlanInvalid("nothing to run"), {"operator": None}, "nothing to run"),
        (errors.SparkMissing("3.5.8"), {"found": "3.5.8"}, "PySpark 3.5.8 is not a known version"),
        (errors.JavaMissing(("PATH: none",)), {"rejected": ("PATH: none",)}, "set JAVA_HOME to"),
        (errors.PartitionNotFound(ORDERS), {"partition": ORDERS}, "'orders/map/3#0' not found"),
        (errors.ProducerFailed(ORDERS, "boom"), {"cause": "boom"}, "producer failed: boom"),
        (errors.ElementTooLarge(9, 5), {"size": 9, "limit": 5}, "exchange.max-element-bytes"),
        (errors.EventUnclaimed(ORDERS, "Slower"), {"partition": ORDERS}, "event Slower"),
        (errors.PathUnusable("a/b", "is no file"), {"path": "a/b"}, "a/b: is no file"),
        (errors.ServerUnreachable("h:9", 1, "no"), {"attempts": 1}, "h:9 after 1 attempt: no"),
        (errors.LineTooLong("h:9", 5), {"where": "h:9", "limit": 5}, "raise max_line_bytes"),
        (errors.LineUndecodable("a/b", 7, "utf-8", "bad"), {"line": 7}, "a/b, line 7: no utf-8"),
        (errors.PeerLost(PEER, "reset"), {"peer": PEER}, "peer 10.0.0.7:4711: reset"),
        (errors.FrameTooLong(PEER, 9, 5, "credit"), {"length": 9, "limit": 5}, "credit frame of 9"),
        (errors.WrongVersion(PEER, 2, 1), {"theirs": 2, "ours": 1}, "version 2, this side 1"),
        (errors.UnknownReceiver(PEER, ChannelId(4), "credit"), {"receiver": 4}, "for channel 4"),
        (
            errors.SequenceGap(PEER, ChannelId(4), expected=7, got=9),
            {"channel": 4, "expected": 7, "got": 9},
            "expected buffer 7 and got 9",
        ),
    ],
)
def test_an_error_keeps_its_facts(error: Exception, facts: dict[str, object], words: str) -> None:
    assert {name: getattr(error, name) for name in facts} == facts
    assert words in str(error)


@pytest.mark.parametrize(
    "error",
    [
        errors.SettingsInvalid("a.b", "x is no y"),
        errors.PlanInvalid("is odd", "map"),
        errors.MemoryShort(100, 30),
        errors.InsufficientBuffers("gate 'in'", 9, 4, 20),
        errors.PartitionNotFound(ORDERS, "at peer"),
        errors.ProducerFailed(ORDERS, "boom"),
        errors.ElementTooLarge(9, 5),
        errors.EventUnclaimed(ORDERS, "Slower"),
        errors.PathUnusable("a/b", "is no file"),
        errors.ServerUnreachable("h:9", 2, "no"),
        errors.LineTooLong("h:9", 5),
        errors.LineUndecodable("a/b", 7, "utf-8", "bad"),
        errors.PeerLost(PEER, "reset"),
        errors.FrameTooLong(PEER, 9, 5, "credit"),
        errors.WrongVersion(PEER, 2, 1),
        errors.UnknownReceiver(PEER, ChannelId(4), "credit"),
        errors.SequenceGap(PEER, ChannelId(4), 7, 9),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_sent_to_another_process(error: Exception) -> None:
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert str(copied) == str(error)
    assert vars(copied) == vars(error)


ADVICE = [
    (
        errors.FunctionUnpicklable("map", "map function", "x", "TypeError: no"),
        "create it in open()",
    ),
    (errors.CodeUnloadable("No module named 'm'", "m"), "module 'm' is not there"),
    (errors.CodeUnloadable("No module named 'msgspec'", "msgspec"), "may be another Python than"),
    (errors.CodeUnloadable("No module named 'pyarrow.lib'", "pyarrow.lib"), "PYSPARK_PYTHON"),
    (errors.CodeUnloadable("AttributeError: f"), "same system, Python and packages"),
    (errors.DriverUnreachable("h:1", "refused"), "set spark.driver.host"),
    (errors.DriverLost("h:1", "reset"), "the driver at h:1 is gone: reset"),
    (errors.RunRefused("over"), "refuses this task manager: over"),
    (errors.TaskStuck("1.0"), "with a time-out"),
    (errors.RunSuperseded(3), "slot 3"),
    (errors.TaskManagerLost("slot 1", "reset"), "slot 1 is lost: reset"),
    (
        errors.RestoreRefused(7, "it is wrong"),
        "the job cannot go on from checkpoint 7: it is wrong",
    ),
    (errors.ProgramDiffers(7, "words"), "it is of job 'words'"),
    (
        errors.StateUnclaimed(7, ("operator 'a'", "operator 'b'")),
        "state of operator 'a', operator 'b'",
    ),
    (errors.KeyGroupsDiffer(7, "sum", 128, 256), "call set_max_parallelism(128)"),
    (
        errors.ChannelsDiffer(7, "from 'a' to 'b'", "b is gone"),
        "take a savepoint with the old program",
    ),
    (
        errors.FinishedAlready(7, "sum", "'a' had not"),
        "operator 'sum' had finished there, and 'a' had",
    ),
    (errors.CheckpointUnsound(7, "it has task 0.0 twice"), "go on from another checkpoint"),
    (
        errors.StateUnstorable("f", "disk full", "sum"),
        "the state of operator 'sum' cannot be kept in f",
    ),
    (
        errors.StateUnstorable("f", "read-only"),
        "name another folder with state.backend.rocksdb.localdir",
    ),
    (errors.BackendMissing("in a worker"), "pip install '.[rocksdb]'"),
]


@pytest.mark.parametrize(("error", "words"), ADVICE, ids=lambda value: type(value).__name__)
def test_an_error_says_what_to_do_and_travels(error: errors.HeadgateError, words: str) -> None:
    assert words in str(error)
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))


def test_short_slots_say_how_many_subtasks_share_them() -> None:
    assert "needs 4 slots and Spark has 2 free" in str(errors.SlotsShort(4, 2, 0))
    shared = str(errors.SlotsShort(4, 2, 0, shared=13))
    assert "needs 4 slots (each for up to 13 subtasks of an operator) and Spark" in shared
