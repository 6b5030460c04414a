"""What operators leave at a checkpoint, and what they get back of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.checkpoints import Stop
from headgate.base.errors import StateBroken
from headgate.core.chain.snapshots import (
    OperatorRestored,
    OperatorSnapshot,
    pack_parts,
    restored_parts,
)
from headgate.core.state.backend import StateSpec
from headgate.core.state.memory import MemoryBackend
from headgate.functions.context import SnapshotMoment


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
    assert type(backend._spaces["n"].plain.view) is dict


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


NAMES = st.sampled_from(["function", "fold", "event time"])


@given(st.lists(st.none() | st.dictionaries(NAMES, st.binary(max_size=9))), NAMES)
def test_each_part_gets_back_what_was_left_under_its_name(
    tasks: list[dict[str, bytes] | None], name: str
) -> None:
    restored = OperatorRestored(plain=tuple(pack_parts(parts or {}) for parts in tasks))
    assert restored_parts(restored, name) == tuple((parts or {}).get(name) for parts in tasks)


def test_nothing_is_left_where_there_is_nothing() -> None:
    assert pack_parts({}) is None
    assert restored_parts(None, "function") == ()
    assert restored_parts(OperatorRestored(), "function") == ()


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x93\x01\x02\x03", b"\x81\xa1\xffx"])
def test_bytes_that_are_no_parts_are_refused(data: bytes) -> None:
    with pytest.raises(StateBroken, match="without keys cannot be read"):
        restored_parts(OperatorRestored(plain=(data,)), "function")
