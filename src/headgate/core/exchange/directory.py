"""The directory: one connection to each task manager, shared by all channels that read from it.

Law: there is at most one usable link for an address; it is counted, and closed with its last user;
a link that has ended is replaced by a new one at the next request.
"""

from collections.abc import Callable
from typing import TypeAlias

from headgate.core.exchange.ends import ConsumerEnd

Address: TypeAlias = tuple[str, int]
"""Host and port of a task manager's data server."""


class Directory:
    """``dial`` makes a link and starts to connect it; it may fail later, through the link."""

    def __init__(self, dial: Callable[[Address], ConsumerEnd]) -> None:
        self._dial = dial
        self._links: dict[Address, ConsumerEnd] = {}

    def attach(self, address: Address) -> ConsumerEnd:
        """The link to ``address``; callers that come while it connects share it."""
        link = self._links.get(address)
        if link is None or not link.is_alive:
            link = self._links[address] = self._dial(address)
        link.users += 1
        return link

    def detach(self, link: ConsumerEnd) -> None:
        """One channel needs the link no more."""
        if link.detach():
            for address, known in list(self._links.items()):
                if known is link:
                    del self._links[address]

    def links(self) -> list[ConsumerEnd]:
        return list(self._links.values())
