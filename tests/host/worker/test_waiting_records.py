"""Looking at what waits in front of running tasks: records, keys, channels; nothing changes."""

import functools
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.base.checkpoints import CheckpointKind
from headgate.base.elements import (
    Bundle,
    LatencyMarker,
    PickleSerializer,
    StreamStatus,
    Watermark,
    encode_element,
)
from headgate.base.events import (
    END_OF_PARTITION,
    CancelMarker,
    CheckpointBarrier,
    encode_event,
)
from headgate.base.inspections import (
    ChannelTable,
    CountKeys,
    Found,
    Inspection,
    KeyCount,
    KeyCounts,
    PeekRecords,
    ReadChannels,
    WaitingRecords,
)
from headgate.base.messages import Inspect, Inspected
from headgate.base.settings import Compression
from headgate.core.ingress.waiting import Place, WaitingPiece
from headgate.core.operators.one_input import MapOperator
from headgate.core.task.inspection import CopiedChannel, CopiedGate
from headgate.host.net.contact import DriverContact
from headgate.host.worker.inspections import (
    INSPECTION_THREADS,
    MAX_THREADS,
    Inspections,
    waiting_records,
)
from headgate.host.worker.state_line import StateQuestions
from headgate.plan import ship_strategies as ships
from tests.host.conftest import MakeExchange
from tests.host.local_job import Job, Run, reads
from tests.host.rig import PATIENCE_S, SECRET, eventually, quick


class Held:
    """A map that waits at its first record until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.go_on = threading.Event()

    def map(self, value: Any) -> Any:
        if not self.go_on.is_set():
            self.reached.release()
            assert self.go_on.wait(PATIENCE_S)
        return value


class Failing:
    def __repr__(self) -> str:
        raise SystemExit("no")


class Unloadable:
    """A record that cannot be unpickled, for a reason that is long and strange."""

    def __reduce__(self) -> tuple[Any, ...]:
        return fail_to_load, ()


def fail_to_load() -> Any:
    class Strange(Exception):
        def __repr__(self) -> str:
            return "\ud800" * 5000

    raise Strange


class Hanging:
    """A record whose ``repr`` returns when the test says so."""

    entered = threading.Semaphore(0)
    go_on = threading.Event()

    def __repr__(self) -> str:
        self.entered.release()
        assert self.go_on.wait(PATIENCE_S)
        return "at last"


def first(record: Any) -> Any:
    return record[0]


def always(record: Any) -> Any:
    return "all"


class Asker:
    """Asks one deployment, as the driver would."""

    def __init__(self, run: Run, slot: int = 0) -> None:
        self.run, self.slot = run, slot
        self.answers: list[Inspected] = []
        contact = DriverContact(("127.0.0.1", 9), "j", SECRET)
        current = "j", run.deployments[slot]
        reads = StateQuestions(
            run.exchanges[slot], contact, slot, lambda: current, self.answers.append
        )
        self.inspections = Inspections(self.answers.append, reads)
        self._asked = 0

    def ask(self, task: str, what: Inspection) -> None:
        self._asked += 1
        question = Inspect("j", self._asked, task, what)
        self.inspections.asked(question, "j", self.run.deployments[self.slot])

    def answer(self, task: str, what: Inspection) -> Inspected:
        self.ask(task, what)
        number = self._asked
        eventually(lambda: any(each.id == number for each in self.answers), f"answer to {what}")
        return next(each for each in self.answers if each.id == number)

    def found(self, task: str, what: Inspection) -> Found:
        answer = self.answer(task, what)
        assert answer.found is not None, answer.problem
        return answer.found


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    eventually(lambda: not inspection_threads(), "inspections end")


def inspection_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(INSPECTION_THREADS)]


def held_job(
    *splits: list[Any], keyed: bool = True, endless: bool = False, key_of: Any = first
) -> tuple[Job, Held, list[Any]]:
    job, held = Job(), Held()
    ship = ships.hash_by(key_of) if keyed else ships.rebalance()
    mapped = job.operator(
        functools.partial(MapOperator, held, key_of if keyed else None),
        reads(job.source(*splits, endless=endless), ship),
    )
    return job, held, job.collect(mapped)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_waiting_records_of_local_and_remote_channels_are_shown_and_stay(
    make_exchange: MakeExchange, compression: Compression
) -> None:
    settings = quick(compression=compression)
    splits = [[(f"key{n % 3}", n, "text " * 9) for n in range(at, 600, 2)] for at in (0, 1)]
    job, held, results = held_job(*splits, key_of=always)
    run = Run(job, make_exchange(settings), make_exchange(settings))
    run.deploy()
    assert held.reached.acquire(timeout=PATIENCE_S)
    task = next(task for task in run.graph.tasks if task.vertex == 1).id
    asker = Asker(run)

    def table() -> ChannelTable:
        found = asker.found(task, ReadChannels())
        assert isinstance(found, ChannelTable)
        return found

    eventually(
        lambda: all((row.queued_buffers and row.bytes_in) or row.is_local for row in table().rows),
        "something has come from the other process",
    )
    rows = sorted(table().rows, key=lambda row: row.channel)
    assert [(row.producer, row.is_local) for row in rows] == [("0.0", True), ("0.1", False)]
    assert [row.credit >= 0 for row in rows] == [False, True]
    assert all(row.is_placed and not row.has_ended and not row.blocked for row in rows)
    seen: dict[int, list[str]] = {}
    for channel in (0, 1):
        found = asker.found(task, PeekRecords(channel=channel, limit=40))
        assert isinstance(found, WaitingRecords)
        assert asker.found(task, PeekRecords(channel=channel, limit=40)) == found
        records = [entry for entry in found.entries if entry.kind == "record"]
        assert {entry.key for entry in records} == {"'all'"}
        assert found.records == len(records)
        assert found.channels == 2
        seen[channel] = [entry.text for entry in records]
    assert seen[1]
    waiting = asker.found(task, PeekRecords(limit=1000))
    assert isinstance(waiting, WaitingRecords)
    assert {entry.channel for entry in waiting.entries} >= {1}
    held.go_on.set()
    run.finish()
    assert Counter(results) == Counter(record for split in splits for record in split)
    for channel, shown in seen.items():
        of_channel = [repr(record) for record in results if record[1] % 2 == channel]
        start = of_channel.index(shown[0]) if shown else 0
        assert of_channel[start : start + len(shown)] == shown
    run.close()


def test_keys_are_counted_as_the_first_operator_selects_them(make_exchange: MakeExchange) -> None:
    records = [("rare" if n % 10 == 0 else "hot", n) for n in range(300)]
    job, held, _ = held_job(records)
    run = Run(job, make_exchange(local_only=True))
    run.deploy()
    assert held.reached.acquire(timeout=PATIENCE_S)
    asker = Asker(run)

    def counts() -> KeyCounts:
        found = asker.found("1.0", CountKeys())
        assert isinstance(found, KeyCounts)
        return found

    eventually(lambda: counts().distinct == 2, "both keys wait")
    found = counts()
    assert found.keys[0].key == "'hot'"
    assert found.sampled == sum(key.count for key in found.keys)
    assert found.keys[0].count > 4 * found.keys[1].count > 0
    only = asker.found("1.0", CountKeys(limit=1))
    assert isinstance(only, KeyCounts)
    assert only.keys == found.keys[:1]
    held.go_on.set()
    run.finish()
    run.close()


def test_what_cannot_be_looked_at_is_refused_with_a_sentence(make_exchange: MakeExchange) -> None:
    job, held, _ = held_job([("a", 1), ("b", 2)], keyed=False, endless=True)
    run = Run(job, make_exchange(local_only=True))
    run.deploy()
    assert held.reached.acquire(timeout=PATIENCE_S)
    asker = Asker(run)
    for task, what, problem in [
        ("1.0", CountKeys(), "its records have no keys: its first operator does not work by key"),
        ("0.0", PeekRecords(), "it is a source: nothing waits in front of it"),
        ("0.0", CountKeys(), "it is a source: nothing waits in front of it"),
        ("1.0", PeekRecords(gate=3), "it has gate 0 only, but no gate 3"),
        ("1.0", ReadChannels(gate=-1), "it has gate 0 only, but no gate -1"),
        ("1.0", PeekRecords(channel=7), "gate 0 has 1 channels, but no channel 7"),
        ("9.0", PeekRecords(), "it is not deployed in this task manager"),
    ]:
        answer = asker.answer(task, what)
        assert (answer.found, answer.problem) == (None, problem)
    held.go_on.set()
    run.close()
    assert asker.answer("1.0", PeekRecords()).problem == "it is cancelled"


def test_records_whose_repr_or_key_selector_raises_harm_nobody(make_exchange: MakeExchange) -> None:
    def key_of(record: Any) -> Any:
        if threading.current_thread().name in inspection_threads():
            raise ValueError("not for strangers")
        return "all"

    records = ["first", *(Failing() for _ in range(5)), "x" * 5000]
    job, held, results = held_job(list(records), key_of=key_of)
    run = Run(job, make_exchange(local_only=True))
    run.deploy()
    assert held.reached.acquire(timeout=PATIENCE_S)
    asker = Asker(run)
    eventually(
        lambda: len(asker.found("1.0", PeekRecords()).entries) >= 6,  # type: ignore[union-attr]
        "all records wait",
    )
    found = asker.found("1.0", PeekRecords())
    assert isinstance(found, WaitingRecords)
    texts = [entry.text for entry in found.entries if entry.kind == "record"]
    assert texts[0] == "<Failing whose repr() raises SystemExit>"
    assert len(texts[-1]) < 400
    assert {entry.key for entry in found.entries if entry.kind == "record"} == {
        "<the key selector raises ValueError>"
    }
    keys = asker.found("1.0", CountKeys())
    assert isinstance(keys, KeyCounts)
    assert keys.keys == (KeyCount("<the key selector raises ValueError>", 6),)
    held.go_on.set()
    run.finish()
    assert len(results) == len(records)
    run.close()


def test_inspections_that_do_not_return_are_bounded_and_the_job_goes_on(
    make_exchange: MakeExchange,
) -> None:
    job, held, results = held_job(["first", *(Hanging() for _ in range(5))], key_of=always)
    run = Run(job, make_exchange(local_only=True))
    run.deploy()
    assert held.reached.acquire(timeout=PATIENCE_S)
    asker = Asker(run)
    for _ in range(MAX_THREADS):
        asker.ask("1.0", PeekRecords(limit=1))
        assert Hanging.entered.acquire(timeout=PATIENCE_S)
    answer = asker.answer("1.0", ReadChannels())
    assert "still busy with 4 other inspections" in answer.problem
    held.go_on.set()
    run.finish()
    assert len(results) == 6
    run.close()
    Hanging.go_on.set()
    eventually(lambda: len(asker.answers) == MAX_THREADS + 1, "the others are answered")
    assert asker.answer("1.0", ReadChannels()).problem == "it is finished"


def test_what_stands_between_records_has_a_kind_of_its_own() -> None:
    things: list[Any] = [
        Bundle([("a", 1)], [70]),
        Watermark(77),
        StreamStatus(False),
        LatencyMarker(5, 2, 3),
        CheckpointBarrier(4, 99, unaligned=True),
        CheckpointBarrier(5, 99, kind=CheckpointKind.SAVEPOINT),
        CancelMarker(4),
        END_OF_PARTITION,
    ]
    pieces = [WaitingPiece(Place.ARRIVED, *piece_of(thing)) for thing in things]
    pieces.append(WaitingPiece(Place.ARRIVED, b"\xff", is_event=True))
    pieces.append(WaitingPiece(Place.ARRIVED, *piece_of(Bundle([Unloadable()]))))
    channel = CopiedChannel(3, pieces, True, PickleSerializer())
    found = waiting_records(CopiedGate(1, 8, 9, [channel], True, first, bytes), 10)
    assert [(entry.kind, entry.text, entry.timestamp_ms) for entry in found.entries[:-2]] == [
        ("record", "('a', 1)", 70),
        ("watermark", "77", 77),
        ("status", "idle", None),
        ("marker", "of subtask 3 of operator 2", 5),
        ("barrier", "checkpoint 4, unaligned", 99),
        ("barrier", "savepoint 5", 99),
        ("event", "checkpoint 4 is aborted", None),
        ("event", "EndOfPartition", None),
    ]
    assert [entry.kind for entry in found.entries[-2:]] == ["unreadable"] * 2
    assert len(found.entries[-1].text) == 300
    found.entries[-1].text.encode()
    assert found.entries[0].key == "'a'"
    assert (found.gate, found.channels, found.buffers, found.complete) == (1, 8, 9, True)
    none = waiting_records(CopiedGate(1, 8, 9, [channel], True, None, bytes), 0)
    assert (none.entries, none.complete) == ((), False)


def piece_of(thing: Any) -> tuple[bytes, None, bool]:
    if isinstance(thing, Bundle | Watermark | StreamStatus | LatencyMarker):
        prefix, body = encode_element(thing, PickleSerializer())
        return prefix + bytes(body), None, False
    return encode_event(thing), None, True
