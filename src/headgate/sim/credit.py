"""The credit law of every remote channel, seen from outside.

Credit at the sender, in grants and requests on the way, in data frames on the way, and not yet
announced: together that is exactly the number of free buffers that the channel keeps for it (one
that a frame is being read into counts as free until the frame is whole).
"""

from headgate.base.settings import FlowControl
from headgate.core.exchange.ends import ConsumerEnd, ProducerEnd
from headgate.core.exchange.frames import Kind
from headgate.core.ingress.remote import RemoteChannel
from headgate.sim.connection import SimConnection
from headgate.sim.ledger import CheckFailed
from headgate.sim.tap import Seen
from headgate.sim.worker import SimWorker


def check_credit(workers: list[SimWorker]) -> None:
    """Raise if a channel's credit does not add up, on any whole wire."""
    if any(
        worker.environment.settings.flow_control is not FlowControl.CREDIT for worker in workers
    ):
        return
    accepting = {
        connection.wire.name: connection
        for worker in workers
        for connection in worker.connections
        if not connection.is_consumer
    }
    for worker in workers:
        for connection in worker.connections:
            if connection.is_consumer and connection.wire.is_whole and connection.link.is_alive:
                _check_wire(connection, accepting.get(connection.wire.name))


def _check_wire(consuming: SimConnection, producing: SimConnection | None) -> None:
    link = consuming.link
    assert isinstance(link, ConsumerEnd)
    if producing is not None and not producing.link.is_alive:
        return
    early = link.session._early or []
    going = consuming.outgoing.frames([*link.outbox.unsent(), *early])
    coming: list[Seen] = []
    if producing is not None:
        coming = consuming.incoming.frames(producing.link.outbox.unsent())
    for channel in link.session.channels.values():
        assert isinstance(channel, RemoteChannel)
        sender = None if producing is None else producing.link
        assert sender is None or isinstance(sender, ProducerEnd)
        _check_channel(channel, link, sender, going, coming)


def _check_channel(
    channel: RemoteChannel,
    link: ConsumerEnd,
    sender: ProducerEnd | None,
    going: list[Seen],
    coming: list[Seen],
) -> None:
    reader = None if sender is None else sender.session.readers.get(channel.id)
    credit = None if reader is None else reader.credit
    granted = 0
    for seen in going:
        if seen.receiver != channel.id:
            continue
        if seen.kind is Kind.PARTITION_REQUEST:
            credit, granted = 0, seen.credit  # what was granted before it is void
        else:
            granted += seen.credit
    if credit is None:
        return  # the partition was not found or has ended, and the channel will learn it
    coming_data = sum(seen.receiver == channel.id for seen in coming)
    landing = link.decoder._buffer_head
    in_decoder = int(link.decoder._lease is not None and landing is not None
                     and landing[0] == channel.id)  # fmt: skip
    kept = channel.credit_statistics()
    free = kept.exclusive + kept.floating + in_decoder
    if credit < 0 or credit + granted + coming_data + kept.unannounced != free:
        raise CheckFailed(
            f"channel {channel.id} reading {channel.partition}: {credit} credits at the sender, "
            f"{granted} on the way there, {coming_data} buffers on the way back and "
            f"{kept.unannounced} unannounced are not the {free} buffers kept free "
            f"({kept.exclusive} exclusive, {kept.floating} floating, {in_decoder} being filled)"
        )
