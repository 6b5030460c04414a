"""The bridge: every row once, bounded, never stuck, nothing left behind."""

import threading
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.base.errors import TaskCancelled
from headgate.connectors.dataframe.bridge import (
    BatchBridge,
    BatchSpill,
    Inlet,
    _inlets,
    _outlets,
    inlet_of,
    outlet_of,
)
from headgate.connectors.dataframe.source import RowReader
from tests.connectors.kit import read_some, read_to_end

ROWS = 100


def batch(start: int, rows: int = ROWS) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(range(start, start + rows), pa.int64())})


ROOM = 2 * batch(0).nbytes


def alternating(made: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of hundreds: even ones to the first inlet, odd ones to the second."""
    yield made.column(0)[0].as_py() // ROWS % 2, made


def to_first(made: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    yield 0, made


class Feeding:
    """A thread that feeds so many batches."""

    def __init__(self, bridge: BatchBridge, batches: int, sort: object = to_first) -> None:
        self.given = 0

        def give() -> Iterator[pa.RecordBatch]:
            for number in range(batches):
                self.given = number + 1
                yield batch(number * ROWS)

        self.thread = threading.Thread(target=lambda: bridge.feed(give(), sort))  # type: ignore[arg-type]
        self.thread.start()

    def __enter__(self) -> "Feeding":
        return self

    def __exit__(self, *error: object) -> None:
        self.thread.join(30)
        assert not self.thread.is_alive()


def numbers(inlet: Inlet) -> list[int]:
    return [row.n for row in read_to_end(RowReader(inlet, ["n"]))]


def test_rows_come_once_and_then_the_end() -> None:
    with BatchBridge(["in"], None) as bridge, Feeding(bridge, 5):
        assert numbers(inlet_of("in")) == list(range(5 * ROWS))
        bridge.check()


def test_small_polls_get_small_parts() -> None:
    with BatchBridge(["in"], None) as bridge, Feeding(bridge, 3):
        reader = RowReader(inlet_of("in"), ["n"])
        assert len(read_to_end(reader, limit=7)) == 3 * ROWS


def test_full_inlet_makes_spark_wait() -> None:
    with BatchBridge(["in"], None, ROOM) as bridge, Feeding(bridge, 50) as feeding:
        inlet = inlet_of("in")
        while not inlet.is_full:
            threading.Event().wait(0.001)
        assert inlet.held_bytes <= ROOM + batch(0).nbytes
        assert feeding.given < 50
        assert sorted(numbers(inlet)) == list(range(50 * ROWS))


def test_full_inlet_goes_on_in_a_file_while_another_starves() -> None:
    with BatchBridge(["a", "b"], None, ROOM) as bridge, Feeding(bridge, 60, alternating):
        first, second = inlet_of("a"), inlet_of("b")
        found = numbers(second)  # nobody reads the first one meanwhile
        assert len(found) == 30 * ROWS
        assert len(first.spill) > 0
        assert first.held_bytes <= ROOM + batch(0).nbytes
        assert sorted(found + numbers(first)) == list(range(60 * ROWS))
        bridge.check()


def test_rows_that_no_task_reads_are_noticed() -> None:
    with BatchBridge(["in"], None) as bridge:
        with Feeding(bridge, 1):
            pass
        with pytest.raises(AssertionError, match="no task here reads them"):
            bridge.check()


def test_input_that_breaks_reaches_the_task_after_its_rows() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        raise OSError("Spark hung up")

    with BatchBridge(["in"], None) as bridge:
        bridge.feed(broken(), to_first)
        reader = RowReader(inlet_of("in"), ["n"])
        assert read_some(reader) is not None
        with pytest.raises(OSError, match="Spark hung up"):
            read_some(reader)


def test_a_task_that_found_nothing_is_woken_by_rows_by_the_end_and_by_the_close() -> None:
    woken: list[int] = []
    with BatchBridge(["a", "b"], None) as bridge:
        for number, name in enumerate("ab"):
            inlet_of(name).wake = lambda number=number: woken.append(number)  # type: ignore[misc]
        bridge.feed([batch(0)], to_first)
        assert woken == [0, 0, 1]
    assert woken == [0, 0, 1, 0, 1]


def test_closed_inlet_lets_the_rest_pass() -> None:
    with BatchBridge(["in"], None, ROOM) as bridge, Feeding(bridge, 50):
        inlet_of("in").close()


def test_close_wakes_who_feeds_and_who_sends() -> None:
    with BatchBridge(["in"], "out", ROOM) as bridge:
        feeding = Feeding(bridge, 50)
        errors: list[BaseException] = []

        def send() -> None:
            try:
                while True:
                    bridge.send(batch(0))
            except TaskCancelled as error:
                errors.append(error)

        sender = threading.Thread(target=send)
        sender.start()
        bridge.close()
        sender.join(30)
        with feeding:
            pass
        assert len(errors) == 1
        with pytest.raises(TaskCancelled):
            bridge.take_from(bridge._inlets[0])


def test_outlet_is_bounded_and_ends_after_the_last_batch() -> None:
    with BatchBridge([], "out", ROOM) as bridge:

        def send() -> None:
            for number in range(40):
                outlet_of("out").send(batch(number * ROWS))
            bridge.end()

        sender = threading.Thread(target=send)
        sender.start()
        found: list[int] = []
        for out in bridge.outgoing():
            assert bridge._outgoing_bytes <= ROOM + batch(0).nbytes
            found += out.column(0).to_pylist()
        sender.join(30)
        assert found == list(range(40 * ROWS))


def test_rows_that_have_left_are_counted_and_the_rest_is_dropped_if_only_some_are_wanted() -> None:
    counts: list[int] = []
    with BatchBridge([], "out") as bridge:
        bridge.limited(5, counts.append)
        for number in range(4):
            bridge.send(batch(number * 3, 3))
        bridge.end()
        left = [value for made in bridge.outgoing() for value in made.column(0).to_pylist()]
    assert counts == [3, 6]
    assert left == list(range(6))


def test_the_input_is_not_read_to_its_end_if_only_some_rows_are_wanted() -> None:
    with BatchBridge(["in"], "out") as bridge:
        bridge.limited(1, lambda rows: None)
        bridge.end()
        with Feeding(bridge, 1000) as feeding:
            pass
        assert feeding.given == 1 and not bridge.is_fed


def test_rows_may_be_left_if_only_some_are_wanted() -> None:
    with BatchBridge(["in"], "out") as bridge:
        bridge.limited(1, lambda rows: None)
        with Feeding(bridge, 1):
            pass
        bridge.end()
        assert bridge.is_fed
        bridge.check()


def test_no_token_outlives_its_border() -> None:
    with BatchBridge(["in"], "out"):
        assert ([*_inlets], [*_outlets]) == (["in"], ["out"])
    assert ([*_inlets], [*_outlets]) == ([], [])
    with pytest.raises(AssertionError, match="only to tasks that Spark has started"):
        inlet_of("in")
    with pytest.raises(AssertionError, match="only from tasks that Spark has started"):
        outlet_of("out")


def test_spill_gives_back_what_it_took_and_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spill = BatchSpill()
    for round_ in range(2):
        for number in range(3):
            spill.put(batch(number + round_))
        assert spill.take() == batch(round_)
        spill.put(batch(7))
        assert [spill.take() for _ in range(3)] == [batch(1 + round_), batch(2 + round_), batch(7)]
        assert not spill
    assert spill._end == 0
    assert not list(tmp_path.iterdir())  # the file has no name
    spill.close()
    spill.close()


def test_a_thread_alone_puts_polls_and_takes_what_was_sent_without_waiting() -> None:
    with BatchBridge(["in"], "out", inf) as bridge:
        reader = RowReader(inlet_of("in"), ["n"])
        for number in range(3):
            bridge.put(0, batch(number * ROWS))
            rows = read_some(reader)
            assert rows is not None and len(rows) == ROWS
            outlet_of("out").send(batch(number, 1))
            outlet_of("out").send(batch(number, 1))
            assert [sent.num_rows for sent in bridge.sent()] == [1, 1]
            assert reader.poll(1) == bridge.sent() == []
        bridge.fed()
        assert read_to_end(reader) == []
        bridge.check()
