"""The seam between a subpartition and its readers is kept by both kinds of views. Rows 80, 124."""

from collections.abc import Callable

import pytest

from headgate.base.ids import PartitionId
from headgate.core.buffers.buffer import Buffer, BufferConsumer
from headgate.core.egress.blocking import BlockingSubpartition
from headgate.core.egress.partition import PipelinedSubpartition
from headgate.core.exchange.view import View
from tests.core.exchange.kit import ListStore

PARTITION = PartitionId("p")


def pipelined() -> PipelinedSubpartition:
    return PipelinedSubpartition(PARTITION, 0)


def blocking() -> BlockingSubpartition:
    return BlockingSubpartition(PARTITION, 0, ListStore())  # type: ignore[arg-type]


Make = Callable[[], PipelinedSubpartition | BlockingSubpartition]


@pytest.fixture(params=[pipelined, blocking])
def subpartition(request: pytest.FixtureRequest) -> PipelinedSubpartition | BlockingSubpartition:
    make: Make = request.param
    made = make()
    for data, is_event in ((b"one", False), (b"\x02", True), (b"two", False)):
        made.add(BufferConsumer.of(Buffer(data, is_event=is_event)))
    made.finish()
    return made


def open_view(subpartition: PipelinedSubpartition | BlockingSubpartition) -> View:
    return subpartition.create_view(lambda: None)


def test_view_gives_buffers_in_order_with_what_follows(
    subpartition: PipelinedSubpartition | BlockingSubpartition,
) -> None:
    view, seen = open_view(subpartition), []
    while (polled := view.poll()) is not None:
        seen.append((bytes(polled.buffer.view), polled.more, polled.backlog, polled.next_is_event))
    assert seen == [
        (b"one", True, 1, True),
        (b"\x02", True, 1, False),
        (b"two", True, 0, True),
        (b"\x01", False, 0, False),
    ]


def test_data_needs_credit_and_events_do_not(
    subpartition: PipelinedSubpartition | BlockingSubpartition,
) -> None:
    view = open_view(subpartition)
    assert view.available(True) and not view.available(False)
    view.poll()
    assert view.available(True) and view.available(False)


def test_view_that_is_through_has_nothing(
    subpartition: PipelinedSubpartition | BlockingSubpartition,
) -> None:
    view = open_view(subpartition)
    while view.poll() is not None:
        pass
    assert not view.available(True) and view.backlog == 0
    assert not view.is_released


def test_released_view_gives_nothing_and_says_so(
    subpartition: PipelinedSubpartition | BlockingSubpartition,
) -> None:
    view = open_view(subpartition)
    view.release()
    view.release()
    assert view.is_released and view.poll() is None and not view.available(True)


def test_view_knows_why_its_producer_failed() -> None:
    made, why = pipelined(), ValueError("the task broke")
    view = open_view(made)
    made.release(why)
    assert view.is_released and view.failure is why
