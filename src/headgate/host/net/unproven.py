"""Connections that have not proven themselves yet, and which of them goes if there are too many.

Law: there are never more than the limit. The one that goes is of the address that holds most of
them, so that a crowd from one machine does not push others out; of those rather one that has not
said its first word than one that has, and of these the oldest. A true peer speaks at once and is
proven as soon as its process gets a turn; if it is sent away all the same, it comes back.
"""

from collections import Counter
from collections.abc import Callable

from headgate.base.errors import PeerBusy
from headgate.core.exchange.ends import ProducerEnd
from headgate.core.exchange.link import LinkState
from headgate.host.net.connection import Connection


class UnprovenConnections:
    """Those of one data port, in the order in which they came."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._hosts: dict[Connection, str] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    def add(self, connection: Connection, host: str) -> None:
        """One more has connected; another one goes if there is no room."""
        if len(self._hosts) >= self._limit():
            self._drop_proven()
            while len(self._hosts) >= self._limit():
                self._send_away(self._next_to_go())
        self._hosts[connection] = host

    def forget(self, connection: Connection) -> None:
        """It has ended, or is proven."""
        self._hosts.pop(connection, None)

    def _drop_proven(self) -> None:
        self._hosts = {
            connection: host
            for connection, host in self._hosts.items()
            if connection.link.state is LinkState.GREETING
        }

    def _next_to_go(self) -> Connection:
        (crowd, _), *_ = Counter(self._hosts.values()).most_common(1)
        of_crowd = [connection for connection, host in self._hosts.items() if host == crowd]
        return min(of_crowd, key=_has_greeted)  # the first of the least, which is the oldest

    def _send_away(self, connection: Connection) -> None:
        link, count = connection.link, len(self._hosts)
        self.forget(connection)
        problem = f"{count} connections wait to be proven here, and it is not proven yet"
        link.fail(PeerBusy(link.peer, problem), last_words=f"{problem}; try again")
        connection.flush()
        connection.close()  # whether or not it takes its last words


def _has_greeted(connection: Connection) -> bool:
    assert isinstance(connection.link, ProducerEnd)
    return connection.link.has_greeted
