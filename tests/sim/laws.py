"""What must hold after every step of any run, whatever its tasks do.

The machines assert their own laws; here is what can only be seen from outside: the census of
segments, the credit law, errors that reach whom they concern and nobody else, and that at the end
everything is home. They are looked at closely while a run is young and after trouble; what goes on
for long, goes on alike, and is looked at now and then.

The credit law, for every remote channel: credit at the sender, in grants and requests on the way,
in data frames on the way, and not yet announced is together exactly the number of free buffers that
the channel keeps for it (one that a frame is being read into counts as free until the frame is
whole).
"""

from collections.abc import Sequence
from typing import Final

from headgate.base.elements import ByteLike
from headgate.base.errors import TransportError
from headgate.base.settings import ExchangeSettings, FlowControl
from headgate.core.egress.partition import PipelinedSubpartition
from headgate.core.exchange.frames import Kind
from headgate.core.exchange.link import ConsumerEnd, ProducerEnd
from headgate.core.ingress.remote import RemoteChannel
from headgate.sim.faults import Faults
from headgate.sim.network import Pipe, SimConnection
from headgate.sim.worker import CheckFailed, SimWorker
from tests.core.ingress.credit import credit_of
from tests.sim.segments import Holder, count_segments
from tests.sim.tap import Seen, Tap

CLOSE_STEPS: Final = 1000
"""So many steps after the beginning and after each fault the cheap checks come after every step."""
CENSUS_EVERY: Final = 25
"""Steps between two looks at everything, meanwhile."""
LATER_EVERY: Final = 10
"""Afterwards all of this comes less often, by this factor: the cheap checks every 10 steps."""

FRAME_BYTES: Final = 64
"""More than the head of a frame, and than an event."""
CONTROL_BYTES: Final = 8192
"""More than all control messages that ever wait together in so small a run."""


class Laws:
    """Looks at the machines of a whole run. ``holders`` are the tasks of each worker by name."""

    def __init__(
        self, workers: list[SimWorker], faults: Faults, settings: ExchangeSettings
    ) -> None:
        self.holders: dict[str, Sequence[Holder]] = {worker.name: [] for worker in workers}
        self._workers = workers
        self._faults = faults
        self._struck = -1
        self._close_until = 0
        burst_bytes = (settings.burst_frames + 1) * (settings.segment_bytes + FRAME_BYTES)
        self._outbox_bytes = settings.high_water_bytes + burst_bytes + CONTROL_BYTES

    def after_step(self, step: int) -> None:
        struck = len(self._faults.struck)
        if struck != self._struck:
            self._struck, self._close_until = struck, step + CLOSE_STEPS
        every = 1 if step < self._close_until else LATER_EVERY
        if step % every:
            return
        for worker in self._workers:
            if worker.touched and not worker.dead:
                worker.touched = False
                self._check_machines(worker)
        if step % (CENSUS_EVERY * every) == 0:
            self.look_at_all()

    def look_closely(self) -> None:
        """Something new begins."""
        self._struck = -1

    def look_at_all(self) -> None:
        """The dear checks."""
        alive = self._alive()
        for worker in alive:
            count_segments(worker, self.holders[worker.name])
        check_credit(alive)

    def check_transport_error(
        self, worker: SimWorker, producer: str, error: TransportError
    ) -> None:
        """A fault explains it, and it names the right peer."""
        if not is_explained(self._faults, worker.name, producer):
            raise CheckFailed(f"nothing explains on {worker.name}: {error!r}")
        if not error.peer.startswith(f"{producer}:"):
            raise CheckFailed(f"{error!r} does not name {producer}")

    def at_end(self) -> None:
        """Nothing is held and nothing is left."""
        self.look_at_all()
        for worker in self._alive():
            environment = worker.environment
            pool = environment.pool
            if len(pool.free) != pool.total or pool.required or pool.pools:
                held = f"{pool.total - len(pool.free)} of {pool.total} segments are out"
                raise CheckFailed(f"{worker.name} does not have all its segments back: {held}")
            if len(environment.partitions):
                raise CheckFailed(
                    f"{worker.name} still knows {len(environment.partitions)} outputs"
                )
            if environment.directory._links:
                raise CheckFailed(f"{worker.name} still has connections in its directory")
            if worker.stores or worker.spills.open_now:
                raise CheckFailed(f"{worker.name} has {worker.stores} stores or spills left")

    def _alive(self) -> list[SimWorker]:
        return [worker for worker in self._workers if not worker.dead]

    def _check_machines(self, worker: SimWorker) -> None:
        worker.environment.pool.check()
        for connection in worker.connections:
            link = connection.link
            if isinstance(link, ProducerEnd):
                if link.outbox.pending_bytes > self._outbox_bytes:
                    raise CheckFailed(f"{connection.name}: {link.outbox.pending_bytes} bytes wait")
                link.session.check()
        for holder in self.holders[worker.name]:
            for writer in holder.writers:
                if not writer.partition.released:
                    for subpartition in writer.partition.subpartitions:
                        if isinstance(subpartition, PipelinedSubpartition):
                            subpartition.check()
            for gate in holder.gates:
                if not gate.closed:
                    gate.check()
                for channel in gate.channels:
                    if isinstance(channel, RemoteChannel):
                        self._check_channel(worker, channel)

    def _check_channel(self, worker: SimWorker, channel: RemoteChannel) -> None:
        """A lost connection is told to all channels that use it, and to no others."""
        channel.check()
        if channel._released:
            return
        link, error = channel._link, channel._error
        if error is None:
            if link is not None and not link.is_alive:
                raise CheckFailed(
                    f"channel {channel.id} of {worker.name} was not told that {link.peer} is lost"
                )
        elif isinstance(error, TransportError):
            self.check_transport_error(worker, channel.address[0], error)
            if link is None or link.is_alive:
                raise CheckFailed(f"channel {channel.id} has {error!r} on a living connection")


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
    going = _frames(consuming.outgoing, [*link.outbox.unsent(), *early])
    coming: list[Seen] = []
    if producing is not None:
        coming = _frames(consuming.incoming, producing.link.outbox.unsent())
    for channel in link.session.channels.values():
        assert isinstance(channel, RemoteChannel)
        sender = None if producing is None else producing.link
        assert sender is None or isinstance(sender, ProducerEnd)
        _check_credit_of(channel, link, sender, going, coming)


def _frames(pipe: Pipe, ahead: list[ByteLike]) -> list[Seen]:
    """Those that have not been read yet, and those in bytes that will be written next."""
    assert pipe.tap is None or isinstance(pipe.tap, Tap)
    return [] if pipe.tap is None else pipe.tap.peek(ahead)


def _check_credit_of(
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
    kept = credit_of(channel)
    free = kept.exclusive + kept.floating + in_decoder
    if credit < 0 or credit + granted + coming_data + kept.unannounced != free:
        raise CheckFailed(
            f"channel {channel.id} reading {channel.partition}: {credit} credits at the sender, "
            f"{granted} on the way there, {coming_data} buffers on the way back and "
            f"{kept.unannounced} unannounced are not the {free} buffers kept free "
            f"({kept.exclusive} exclusive, {kept.floating} floating, {in_decoder} being filled)"
        )


def is_explained(faults: Faults, consumer: str, producer: str) -> bool:
    """Whether a transport error between these two workers is to be expected."""
    if consumer in faults.frozen or producer in faults.frozen:
        return True
    return producer in faults.network.refused or any(
        wire.fault and (wire.consumer, wire.producer) == (consumer, producer)
        for wire in faults.network.wires
    )
