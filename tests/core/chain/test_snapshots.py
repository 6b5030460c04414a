"""What operators leave at a checkpoint, and what they get back of one."""

from headgate.base.checkpoints import Stop
from headgate.core.chain.snapshots import OperatorRestored, OperatorSnapshot, SnapshotMoment
from headgate.core.state.backend import StateSpec
from headgate.core.state.memory import MemoryBackend


def test_closing_a_snapshot_gives_back_the_keyed_state_that_it_shares() -> None:
    backend = MemoryBackend(range(128), 128)
    state = backend.value_state(StateSpec("n", "value"))
    backend.cursor.key = "a"
    state.update([1])
    snapshot = OperatorSnapshot(keyed=backend.snapshot())
    shared = state.value()
    assert shared is state.value(), "after the first look it is the operator's own"
    snapshot.close()
    snapshot.close()
    assert type(backend._spaces["n"].plain).__name__ == "Table"


def test_closing_a_snapshot_without_keyed_state_does_nothing() -> None:
    OperatorSnapshot(plain=b"x").close()


def test_an_operator_that_left_nothing_gets_nothing() -> None:
    restored = OperatorRestored()
    assert list(restored.keyed()) == []
    assert (restored.plain, restored.source, restored.sinks) == ((), (), ())


def test_a_moment_is_that_of_a_checkpoint_unless_it_says_otherwise() -> None:
    moment = SnapshotMoment(3, 1_000)
    assert not moment.is_savepoint
    assert moment.stop is Stop.NO
