"""State in memory as somebody outside reads it, and values that make trouble."""

import pickle
import sys
from typing import Any

import pytest

from headgate.core.state.backend import ValueTooLarge
from headgate.core.state.keys import freeze
from headgate.core.state.memory import MemoryBackend
from headgate.core.state.reading import pickled
from headgate.functions.context import TimeDomain
from headgate.functions.state import ValueStateDescriptor
from tests.core.state.conformance import Make
from tests.core.state.kit import Lab
from tests.core.state.reading_conformance import ReadingConformance, problem_of, read, reader_of


class TestMemory(ReadingConformance):
    @pytest.fixture
    def make(self) -> Make:
        return MemoryBackend


class Leaves:
    """Ends the process of whoever pickles it."""

    def __reduce__(self) -> Any:
        sys.exit(3)


def test_a_value_that_cannot_be_pickled_is_a_sentence() -> None:
    lab = Lab()
    state = lab.open(ValueStateDescriptor("value", None))
    lab.at("k")
    state.update(Leaves())
    assert problem_of(lab, "value", "k") == "its value cannot be read: SystemExit(3)"
    state.update(lambda: 0)
    assert "cannot be read" in problem_of(lab, "value", "k")
    state.update(1)
    assert read(lab, "value", "k") == [1]


def test_a_key_that_cannot_be_read_is_a_sentence() -> None:
    lab = Lab()
    lab.open(ValueStateDescriptor("value", None))
    (found,) = reader_of(lab).read("value", [b"no pickle"]).values
    assert "the key cannot be read in the task" in found.problem


def test_state_of_windows_is_refused() -> None:
    lab = Lab(namespaced=True)
    lab.open(ValueStateDescriptor("value", None))
    assert problem_of(lab, "value", "k") == (
        "its state 'value' is kept for each window, and such a state cannot be read"
    )


def test_large_values_are_given_up_before_they_are_pickled_whole() -> None:
    writes = 0

    class Counted:
        def __reduce__(self) -> Any:
            nonlocal writes
            writes += 1
            return bytes, (b"%d" % writes * 70_000,)

    with pytest.raises(ValueTooLarge):
        pickled([Counted() for _ in range(1000)], 100)
    assert writes < 1000
    assert pickle.loads(pickled(["a", 1], 100)) == ["a", 1]


def test_timers_that_have_not_fired_are_shown_with_their_keys() -> None:
    lab = Lab()
    lab.backend.event_timers.register(20, "k")
    lab.backend.event_timers.register(10, freeze([1, 2]))
    lab.backend.processing_timers.register(5, "k")
    assert list(reader_of(lab).timers()) == [
        (20, "k", TimeDomain.EVENT_TIME),
        (10, [1, 2], TimeDomain.EVENT_TIME),
        (5, "k", TimeDomain.PROCESSING_TIME),
    ]
