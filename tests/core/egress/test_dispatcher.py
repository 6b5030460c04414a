"""Task events find the subscribers of their partition. Rows 147, 148."""

import pytest

from headgate.base.errors import PartitionTaken
from headgate.base.events import TaskEvent
from headgate.base.ids import PartitionId
from headgate.core.egress.registry import EventDispatcher

HERE, THERE = PartitionId("here"), PartitionId("there")


class Slower(TaskEvent): ...


class MuchSlower(Slower): ...


class Faster(TaskEvent): ...


def test_an_event_goes_to_all_subscribers_of_its_partition_and_kind() -> None:
    dispatcher = EventDispatcher()
    got: list[tuple[str, TaskEvent]] = []
    for partition in (HERE, THERE):
        dispatcher.register(partition)
    dispatcher.subscribe(HERE, Slower, lambda event: got.append(("first", event)))
    dispatcher.subscribe(HERE, Slower, lambda event: got.append(("second", event)))
    dispatcher.subscribe(HERE, Faster, lambda event: got.append(("other kind", event)))
    dispatcher.subscribe(THERE, Slower, lambda event: got.append(("other partition", event)))
    event = Slower()
    assert dispatcher.publish(HERE, event)
    assert got == [("first", event), ("second", event)]


def test_a_subscriber_of_a_class_gets_exactly_that_class() -> None:
    dispatcher = EventDispatcher()
    dispatcher.register(HERE)
    got: list[TaskEvent] = []
    dispatcher.subscribe(HERE, Slower, got.append)
    assert not dispatcher.publish(HERE, MuchSlower())
    assert not dispatcher.publish(HERE, TaskEvent())
    assert got == []


def test_the_wire_finds_only_classes_that_are_subscribed_for() -> None:
    dispatcher = EventDispatcher()
    name = f"{__name__}:Slower"
    assert dispatcher.class_named(HERE, name) is None
    dispatcher.register(HERE)
    dispatcher.register(THERE)
    assert dispatcher.class_named(HERE, name) is None
    dispatcher.subscribe(HERE, Slower, lambda event: None)
    assert dispatcher.class_named(HERE, name) is Slower
    assert dispatcher.class_named(HERE, f"{__name__}:MuchSlower") is None
    assert dispatcher.class_named(HERE, "os:system") is None
    assert dispatcher.class_named(THERE, name) is None


def test_publishing_says_whether_there_was_a_receiver() -> None:
    dispatcher = EventDispatcher()
    assert not dispatcher.publish(HERE, Slower())
    dispatcher.register(HERE)
    assert not dispatcher.publish(HERE, Slower())
    dispatcher.subscribe(HERE, Slower, lambda event: None)
    assert not dispatcher.publish(HERE, Faster())
    assert dispatcher.publish(HERE, Slower())
    dispatcher.unregister(HERE)
    dispatcher.unregister(HERE)
    assert not dispatcher.publish(HERE, Slower())


def test_registering_a_partition_twice_is_an_error_and_keeps_the_subscribers() -> None:
    dispatcher = EventDispatcher()
    dispatcher.register(HERE)
    dispatcher.subscribe(HERE, Slower, lambda event: None)
    with pytest.raises(PartitionTaken, match="'here' is already registered"):
        dispatcher.register(HERE)
    assert dispatcher.publish(HERE, Slower())
    dispatcher.unregister(HERE)
    dispatcher.register(HERE)
    assert not dispatcher.publish(HERE, Slower())


def test_subscribing_to_a_partition_that_is_not_registered_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="'here' is not registered"):
        EventDispatcher().subscribe(HERE, Slower, lambda event: None)


def test_a_subscriber_may_subscribe_while_it_is_called() -> None:
    dispatcher = EventDispatcher()
    dispatcher.register(HERE)
    got: list[TaskEvent] = []
    dispatcher.subscribe(HERE, Slower, lambda event: dispatcher.subscribe(HERE, Slower, got.append))
    dispatcher.publish(HERE, Slower())
    assert got == []
    dispatcher.publish(HERE, Slower())
    assert len(got) == 1
