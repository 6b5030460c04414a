"""Splits in the driver: each goes to one task, and every checkpoint has each of them once."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.base.checkpoints import SourceState, SplitData
from headgate.base.elements import MIN_WATERMARK_MS
from headgate.base.messages import SourceTimeAnnounced, SourceTimeReported, SplitsAssigned
from headgate.control.split_assignment import MESSAGE_BYTES, PlannedSource, SplitAssignment


def no_enumerator(position: bytes) -> object:
    raise AssertionError("the machine never makes one")


def planned(
    tasks: int = 2, by_demand: bool = True, restored: SourceState | None = None
) -> PlannedSource:
    slots = {f"0.{number}": number for number in range(tasks)}
    return PlannedSource("uid", "source", slots, by_demand, no_enumerator, restored)  # type: ignore[arg-type]


def splits(*names: str, size: int = 1) -> list[SplitData]:
    return [SplitData(name.encode(), bytes(size)) for name in names]


def shown(messages: list[tuple[int, SplitsAssigned]]) -> list[tuple[int, str, bool, bool]]:
    return [
        (slot, "".join(split.mark.decode() for split in m.splits), m.backlog, m.no_more)
        for slot, m in messages
    ]


def test_a_task_gets_what_it_asks_for_and_others_wait_their_turn() -> None:
    driver = SplitAssignment("run", planned())
    assert driver.wanted("0.0", 1, 0) == []
    assert driver.wanted("0.1", 1, 0) == []
    assert shown(driver.discovered(b"1", splits("a"), False)) == [
        (0, "a", False, False),
        (1, "", False, False),
    ]
    assert shown(driver.discovered(b"2", splits("b", "c"), False)) == [
        (0, "", True, False),
        (1, "b", True, False),
    ]
    assert driver.state() == SourceState("uid", "source", b"2", tuple(splits("c")))
    assert shown(driver.wanted("0.0", 1, 0)) == [(0, "c", False, False), (1, "", False, False)]


def test_when_there_are_no_more_all_tasks_learn_it() -> None:
    driver = SplitAssignment("run", planned())
    driver.wanted("0.0", 1, 0)
    assert shown(driver.discovered(b"1", splits("a", "b"), True)) == [(0, "a", True, False)]
    assert shown(driver.wanted("0.1", 1, 0)) == [(0, "", False, True), (1, "b", False, True)]
    assert driver.wanted("0.1", 1, 0) == []


def test_batches_get_smaller_towards_the_end() -> None:
    driver = SplitAssignment("run", planned(4))
    driver.discovered(b"", splits(*map(str, range(40))), True)
    sizes = []
    while driver.unassigned:
        ((_, message),) = driver.wanted("0.0", 8, 0)[:1]
        sizes.append(len(message.splits))
    assert sizes[:2] == [8, 8]
    assert sizes[-1] == 1 and sizes == sorted(sizes, reverse=True)


def test_splits_that_do_not_end_are_spread_evenly_once_all_tasks_are_there() -> None:
    driver = SplitAssignment("run", planned(3, by_demand=False))
    driver.wanted("0.0", 0, 2)  # restored
    driver.discovered(b"", splits("a", "b", "c", "d", "e"), False)
    driver.wanted("0.2", 0, 0)
    assert driver.unassigned == 5
    assert shown(driver.wanted("0.1", 0, 0)) == [
        (0, "e", False, False),
        (2, "bd", False, False),
        (1, "ac", False, False),
    ]
    assert shown(driver.discovered(b"", splits("f"), False)) == [(1, "f", False, False)]


def test_what_a_checkpoint_held_is_handed_out_before_anything_was_found() -> None:
    restored = SourceState("uid", "source", b"7", tuple(splits("a")))
    driver = SplitAssignment("run", planned(restored=restored))
    assert driver.state() == restored
    assert shown(driver.wanted("0.0", 1, 0)) == [(0, "a", True, False)]
    assert driver.state() == SourceState("uid", "source", b"7")


def test_large_splits_travel_in_several_messages() -> None:
    driver = SplitAssignment("run", planned(1, by_demand=False))
    driver.wanted("0.0", 0, 0)
    found = splits(*"abc", size=MESSAGE_BYTES * 2 // 3)
    assert shown(driver.discovered(b"", found, True)) == [
        (0, "a", True, False),
        (0, "b", True, False),
        (0, "c", False, True),
    ]


class Hearing:
    """The driver of a source with three tasks, and what each was told last of event time."""

    def __init__(self) -> None:
        self.driver = SplitAssignment("run", planned(3))
        for number in range(3):
            self.driver.wanted(f"0.{number}", 1, 0)
        self.sent = [0, 0, 0]
        self.heard: dict[int, tuple[int, bool, bool]] = {}

    def find(self, *names: str) -> None:
        for slot, message in self.driver.discovered(b"", splits(*names), False):
            self.sent[slot] += len(message.splits)

    def report(
        self, number: int, watermark_ms: int, *, rests: bool, behind: int = 0, asks: bool = True
    ) -> list[int]:
        """Returns who was told something; ``behind``: splits that have not arrived there.

        A task that rests also asks for a split, unless its own are idle only for a moment.
        """
        received = self.sent[number] - behind
        if rests and asks:
            assert self.driver.wanted(f"0.{number}", 1, 0) == []
        report = SourceTimeReported("run", f"0.{number}", received, watermark_ms, rests)
        return self.deliver(self.driver.time_reported(report))

    def deliver(self, messages: list[tuple[int, SourceTimeAnnounced]]) -> list[int]:
        for slot, message in messages:
            assert message.task == f"0.{slot}"
            self.heard[slot] = message.watermark_ms, message.all_rest, message.followed
        return [slot for slot, _ in messages]


def test_tasks_that_rest_are_told_how_far_the_slowest_of_the_others_is() -> None:
    tasks = Hearing()
    tasks.find("a", "b", "c")
    assert tasks.report(0, 5, rests=False) == [], "nobody rests"
    assert tasks.report(2, 9, rests=True) == [0, 1], "the others are to say how far they are"
    assert tasks.heard[0] == (MIN_WATERMARK_MS, False, True)
    assert tasks.report(1, 7, rests=False) == [2]
    assert tasks.heard[2] == (5, False, True)
    assert tasks.report(1, 8, rests=False) == [], "the other one is slower"
    assert tasks.report(0, 20, rests=False) == [2]
    assert tasks.heard[2] == (8, False, True)
    assert tasks.report(2, 8, rests=False) == [0, 1, 2], "nobody follows any more"


def test_when_all_tasks_rest_each_is_told_the_furthest_once() -> None:
    tasks = Hearing()
    tasks.find("a", "b", "c")
    for number in range(3):
        tasks.report(number, 10 * number, rests=True)
    assert tasks.heard == dict.fromkeys(range(3), (20, True, False))
    tasks.find("d")  # the first that has asked gets it
    assert tasks.report(0, 20, rests=False) == [0], "the others follow it"
    assert tasks.report(0, 20, rests=True) == [0], "the others rest there already"
    tasks.find("e")
    assert tasks.report(1, 20, rests=False) == [1]
    assert tasks.report(1, 25, rests=False) == [0, 2]
    assert tasks.report(1, 30, rests=True) == [0, 1, 2]
    assert tasks.heard == dict.fromkeys(range(3), (30, True, False))


def test_nothing_is_told_while_a_split_is_on_its_way_or_unassigned() -> None:
    tasks = Hearing()
    tasks.find("a", "b")
    tasks.report(0, 5, rests=False)
    tasks.report(2, MIN_WATERMARK_MS, rests=True)
    assert tasks.report(1, 5, rests=False) == [2]
    tasks.find("c")
    assert tasks.report(0, 9, rests=False) == []
    assert tasks.report(1, 9, rests=False) == []
    assert tasks.report(2, 5, rests=True, behind=1) == [], "said before it had the split"
    assert tasks.report(2, 6, rests=True) == [2], "the split was empty"
    assert tasks.heard[2] == (9, False, True)
    tasks.find("d", "e")
    assert tasks.report(2, 9, rests=True, asks=False) == [], "one is unassigned"
    assert tasks.report(0, 11, rests=False) == []
    assert tasks.report(1, 11, rests=False) == []


def test_a_task_that_has_ended_is_not_waited_for() -> None:
    tasks = Hearing()
    tasks.find("a", "b", "c")
    tasks.report(0, 5, rests=False)
    tasks.report(1, 7, rests=False)
    tasks.report(2, 1, rests=True)
    assert tasks.deliver(tasks.driver.task_ended("0.0")) == [2]
    assert tasks.heard[2] == (7, False, True)
    assert tasks.deliver(tasks.driver.task_ended("0.0")) == []
    assert tasks.report(0, 99, rests=False) == []
    assert tasks.deliver(tasks.driver.task_ended("0.1")) == [2]
    assert tasks.heard[2][1:] == (True, False), "it is the only one"


def test_a_task_that_is_not_run_gets_nothing() -> None:
    driver = SplitAssignment("run", planned(1))
    driver.discovered(b"", splits("a"), True)
    assert driver.wanted("0.7", 1, 0) == []
    assert driver.unassigned == 1


class Driven(RuleBasedStateMachine):
    """A driver and its tasks; checkpoints at any time, and restarts from them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.begin(2, True, None, {})
        self.stored: tuple[SourceState, dict[str, list[str]], int] | None = None

    def begin(
        self, tasks: int, by_demand: bool, state: SourceState | None, held: dict[str, list[str]]
    ) -> None:
        self.source = planned(tasks, by_demand, state)
        self.driver = SplitAssignment("run", self.source)
        self.held = {task: list(held.get(task, ())) for task in self.source.slots}
        self.heard = dict.fromkeys(self.source.slots, (True, False))
        self.waits: set[str] = set()
        self.is_last = False

    def deliver(self, messages: list[tuple[int, SplitsAssigned]]) -> None:
        for slot, message in messages:
            assert self.source.slots[message.task] == slot
            assert not self.heard[message.task][1], "there was to be no more"
            self.heard[message.task] = message.backlog, message.no_more
            self.held[message.task] += [split.mark.decode() for split in message.splits]
            if message.splits:
                self.waits.discard(message.task)

    @rule(number=st.integers(0, 3), count=st.integers(0, 5))
    def ask(self, number: int, count: int) -> None:
        task = f"0.{number}"
        if task in self.held and task not in self.waits:
            if count and self.source.by_demand:
                self.waits.add(task)
            wanted = count if self.source.by_demand else 0
            self.deliver(self.driver.wanted(task, wanted, len(self.held[task])))

    @rule(count=st.integers(0, 4), is_last=st.booleans())
    def find(self, count: int, is_last: bool) -> None:
        if not self.is_last:
            new = [f"s{len(self.found) + number}" for number in range(count)]
            self.found += new
            self.is_last = is_last
            position = b"%d" % len(self.found)
            self.deliver(self.driver.discovered(position, splits(*new), is_last))

    @rule()
    def take_checkpoint(self) -> None:
        held = {task: list(names) for task, names in self.held.items()}
        self.stored = self.driver.state(), held, len(self.found)

    @rule(tasks=st.integers(1, 4), by_demand=st.booleans())
    def restart(self, tasks: int, by_demand: bool) -> None:
        state, held, found = self.stored or (None, {}, 0)
        self.found = self.found[:found]  # they are found again
        everything = [name for names in held.values() for name in names]
        dealt = {f"0.{number}": everything[number::tasks] for number in range(tasks)}
        self.begin(tasks, by_demand, state, dealt)

    @invariant()
    def every_split_is_in_one_place(self) -> None:
        self.driver.check()
        state = self.driver.state()
        here = [split.mark.decode() for split in state.splits]
        there = [name for names in self.held.values() for name in names]
        assert sorted(here + there) == sorted(self.found)

    @invariant()
    def no_task_waits_for_nothing(self) -> None:
        if self.waits:
            assert not self.driver.unassigned


TestDriven = Driven.TestCase


def test_the_law_is_checked() -> None:
    driver = SplitAssignment("run", planned())
    driver.discovered(b"", splits("a"), False)
    driver._wanted["0.0"] = 1
    with pytest.raises(AssertionError, match="a task waits"):
        driver.check()
