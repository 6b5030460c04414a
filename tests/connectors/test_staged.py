"""What a staging writer keeps for its commits: every message once, in order, numbered, bounded."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import ConnectorError
from headgate.connectors.staged import MessageLot, Staged, StagingWriter, batches_of, message_lot
from tests.connectors.kit import task_context

MOST = 3
STEPS = st.lists(st.integers(0, 8) | st.sampled_from(["flush", "checkpoint"]), max_size=20)


@given(STEPS)
def test_batches_hold_all_messages_in_order_and_are_counted_over_all_lots(
    steps: list[object],
) -> None:
    found: list[Staged] = []

    def lot(staged: Staged) -> MessageLot:
        found.append(staged)
        return message_lot(staged)

    writer = StagingWriter(list, task_context(), 1 << 20, lot=lot, batch_messages=MOST)
    written, lots = 0, []
    for step in (*steps, "checkpoint"):
        if isinstance(step, int):
            writer.write(list(range(written, written + step)))
            written += step
        else:
            writer.flush()
        if step == "checkpoint":
            lots += writer.prepare_commit(None)
    batches = list(batches_of(lots[::-1]))
    assert [number for _, number, _ in batches] == list(range(1, len(batches) + 1))
    assert list(chain.from_iterable(messages for *_, messages in batches)) == [*range(written)]
    assert all(0 < len(messages) <= MOST for *_, messages in batches)
    assert [staged.number for staged in found] == [*range(1, len(found) + 1)]


@given(st.lists(st.binary(max_size=9), max_size=20))
def test_batches_of_bytes_are_cut_by_their_size(messages: list[bytes]) -> None:
    writer = StagingWriter(list, task_context(), 1 << 20, batch_messages=MOST, batch_bytes=6)
    writer.write(messages)
    writer.flush()
    batches = [batch for *_, batch in batches_of(writer.prepare_commit(None))]
    assert list(chain.from_iterable(batches)) == messages
    assert all(len(batch) <= MOST for batch in batches)
    assert all(len(batch) == 1 or sum(map(len, batch)) <= 6 for batch in batches)


def test_what_waits_is_bounded_until_a_checkpoint_takes_it() -> None:
    writer = StagingWriter(list, task_context(), 100, batch_messages=1, advice="write less")
    for _ in range(3):
        writer.write([b"x" * 60])
        assert writer.prepare_commit(None)
    writer.write([b"x" * 60])
    with pytest.raises(ConnectorError, match=r"more than 100 bytes wait.*interval\), write less"):
        writer.write([b"x" * 60])
