"""A consumer that leaves early does not fail its producer, in the process or over a socket.

Its data are dropped from then on; other consumers of the same partition get all of theirs.
"""

import pytest

from headgate.base.errors import TaskCancelled
from headgate.base.settings import TransportKind
from headgate.core.egress.partition import PipelinedSubpartition
from headgate.core.task.environment import Input
from headgate.host.net.exchange import Exchange
from tests.host.conftest import MakeExchange
from tests.host.rig import (
    Consumer,
    Producer,
    all_home,
    blobs,
    consume,
    eventually,
    from_here,
    from_there,
    produce,
    quick,
)

COUNT = 2000


def leave(exchange: Exchange, consumer: Consumer) -> None:
    """Cancel one task alone."""
    with exchange.inside():
        consumer.task_thread.cancel()
        consumer.task_thread.wake()
    with pytest.raises(TaskCancelled):
        consumer.join()


def has_to_wait(exchange: Exchange, producer: Producer) -> bool:
    """The pool is empty, and the consumer has come: of one who never comes nobody can know."""
    with exchange.inside():
        pool, [subpartition] = producer.partition.pool, producer.partition.subpartitions
        assert isinstance(subpartition, PipelinedSubpartition)
        return pool.lent >= pool.size and subpartition._on_data is not None


def end(producer: Producer, *exchanges: Exchange) -> None:
    producer.join()
    assert producer.closed_with == [None]
    assert producer.written == COUNT
    for exchange in exchanges:
        eventually(lambda: all_home(exchange), "every buffer is home")  # noqa: B023


@pytest.mark.parametrize("remote", [False, True])
def test_a_producer_goes_on_when_its_only_consumer_is_cancelled(
    make_exchange: MakeExchange, transport: TransportKind, remote: bool
) -> None:
    here = make_exchange(quick(transport=transport))
    there = make_exchange(quick(transport=transport)) if remote else here
    producer = produce(here, "p", blobs(COUNT), hold_after=160)
    consumer = consume(there, [from_there(here, "p") if remote else from_here("p")])
    eventually(lambda: bool(consumer.records), "something has arrived")
    leave(there, consumer)
    producer.let_go(here)
    end(producer, here, there)
    assert producer.partition.released


@pytest.mark.parametrize("remote", [False, True])
def test_a_producer_that_waits_for_a_buffer_goes_on_when_its_consumer_leaves(
    make_exchange: MakeExchange, transport: TransportKind, remote: bool
) -> None:
    here = make_exchange(quick(transport=transport))
    there = make_exchange(quick(transport=transport)) if remote else here
    producer = produce(here, "p", blobs(COUNT))
    consumer = consume(there, [from_there(here, "p") if remote else from_here("p")], held=True)
    eventually(lambda: has_to_wait(here, producer), "the producer has to wait")
    leave(there, consumer)
    end(producer, here, there)


def test_others_miss_nothing_when_one_consumer_leaves(
    make_exchange: MakeExchange, transport: TransportKind
) -> None:
    here, there = (
        make_exchange(quick(transport=transport)),
        make_exchange(quick(transport=transport)),
    )
    records = blobs(COUNT)
    producer = produce(here, "p", records, subpartitions=3, hold_after=160)
    inputs: list[tuple[Exchange, Input]] = [
        (here, from_here("p", 0)),
        (there, from_there(here, "p", 1)),
        (there, from_there(here, "p", 2)),
    ]
    stays_here, leaves, stays_there = [consume(exchange, [where]) for exchange, where in inputs]
    eventually(lambda: bool(leaves.records), "something has arrived")
    leave(there, leaves)
    producer.let_go(here)
    for consumer, offset in ((stays_here, 0), (stays_there, 2)):
        consumer.join()
        assert consumer.records == records[offset::3]
    end(producer, here, there)


def test_a_producer_goes_on_when_the_process_of_its_consumer_is_gone(
    make_exchange: MakeExchange, transport: TransportKind
) -> None:
    here, there = (
        make_exchange(quick(transport=transport)),
        make_exchange(quick(transport=transport)),
    )
    producer = produce(here, "p", blobs(COUNT), hold_after=160)
    consumer = consume(there, [from_there(here, "p")])
    eventually(lambda: bool(consumer.records), "something has arrived")
    there.close()
    with pytest.raises(TaskCancelled):
        consumer.join()
    producer.let_go(here)
    end(producer, here)
