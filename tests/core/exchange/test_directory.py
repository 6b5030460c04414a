"""The directory: one counted connection for each address. Rows 109, 111."""

from headgate.base.errors import PeerLost
from headgate.base.ids import PeerName
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.exchange.link import Address, ConsumerEnd, Directory, LinkState
from tests.arena import assert_all_home, plain_pool
from tests.core.pair import SECRET, SMALL

A, B = ("a", 1), ("b", 2)


class Dialer:
    """Makes links and remembers them."""

    def __init__(self, pool: GlobalPool) -> None:
        self.pool = pool
        self.dialed: list[Address] = []

    def __call__(self, address: Address) -> ConsumerEnd:
        self.dialed.append(address)
        return ConsumerEnd(SMALL, SECRET, bytes(16), PeerName(address[0]), self.pool, 0.0)


def make() -> tuple[Directory, Dialer]:
    dialer = Dialer(plain_pool(10))
    return Directory(dialer), dialer


def test_all_users_of_an_address_share_one_link() -> None:
    directory, dialer = make()
    first = directory.attach(A)
    assert first.state is LinkState.CONNECTING
    assert directory.attach(A) is first  # while it still connects
    assert first.users == 2
    assert dialer.dialed == [A]


def test_addresses_have_links_of_their_own() -> None:
    directory, dialer = make()
    assert directory.attach(A) is not directory.attach(B)
    assert dialer.dialed == [A, B]
    assert len([*directory._links.values()]) == 2


def test_link_ends_with_its_last_user() -> None:
    directory, dialer = make()
    link = directory.attach(A)
    directory.attach(A)
    directory.detach(link)
    assert link.is_alive and [*directory._links.values()] == [link]
    directory.detach(link)
    assert not link.is_alive and [*directory._links.values()] == []
    assert_all_home(dialer.pool)


def test_next_user_after_the_last_gets_a_new_link() -> None:
    directory, dialer = make()
    link = directory.attach(A)
    directory.detach(link)
    assert directory.attach(A) is not link
    assert dialer.dialed == [A, A]


def test_link_that_failed_is_replaced_while_others_still_hold_it() -> None:
    directory, _ = make()
    lost = directory.attach(A)
    directory.attach(A)
    lost.fail(PeerLost(PeerName("a"), "gone"))
    new = directory.attach(A)
    assert new is not lost and new.users == 1
    directory.detach(lost)
    directory.detach(lost)
    assert new.is_alive and [*directory._links.values()] == [new]


def test_link_that_is_closing_is_replaced() -> None:
    directory, _ = make()
    link = directory.attach(A)
    link.connected(0.0)
    directory.detach(link)  # its hello is not sent yet
    assert link.state is LinkState.CLOSING
    assert directory.attach(A) is not link
