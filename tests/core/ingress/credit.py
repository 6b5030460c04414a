"""What a remote channel has of credit, for laws about it."""

from dataclasses import dataclass

from headgate.core.ingress.remote import RemoteChannel


@dataclass(frozen=True, slots=True)
class Credit:
    """A moment of a remote channel's credit."""

    exclusive: int
    floating: int
    unannounced: int
    wanted: int


def credit_of(channel: RemoteChannel) -> Credit:
    return Credit(
        len(channel._exclusive), len(channel._floating), channel.unannounced, channel.wanted
    )
