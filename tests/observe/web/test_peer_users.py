"""Who is at the other end of a connection: asked for one socket, and read from the list of all."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headgate.observe.web import access, connections
from headgate.observe.web.access import Address, CannotAsk, SocketList, asked_uid
from tests.observe.web.kit import ScriptedJob, five_vertices, serving

UNKNOWN_PROTOCOL = 31
"""Of netlink: what a sandbox without the kernel's answers amounts to."""


def listed_uid(ours: Address, theirs: Address) -> int | None:
    return asyncio.run(SocketList().uid(ours, theirs))


WAYS = [asked_uid, listed_uid]


@contextmanager
def connected(listening: str, called: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's socket, and the one of the server that has accepted it."""
    family = socket.AF_INET6 if ":" in listening else socket.AF_INET
    calls = socket.AF_INET6 if ":" in called else socket.AF_INET
    with socket.socket(family) as listener, socket.socket(calls) as client:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((listening, 0))
        listener.listen()
        client.connect((called, listener.getsockname()[1]))
        accepted, _ = listener.accept()
        with accepted:
            yield client, accepted


@pytest.mark.parametrize("uid", WAYS)
@pytest.mark.parametrize(
    ("listening", "called"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("::1", "::1"),
        ("::", "::1"),
        ("::", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
    ],
)
def test_the_owner_of_a_socket_is_found_whatever_its_family(
    uid: Callable[[Address, Address], int | None], listening: str, called: str
) -> None:
    with connected(listening, called) as (client, accepted):
        owner = 4711 if os.geteuid() == 0 else os.geteuid()
        os.fchown(client.fileno(), owner, -1)
        assert uid(accepted.getsockname(), accepted.getpeername()) == owner


@pytest.mark.parametrize("uid", WAYS)
def test_who_has_sent_everything_and_waits_for_the_answer_is_known(
    uid: Callable[[Address, Address], int | None],
) -> None:
    with connected("127.0.0.1", "127.0.0.1") as (client, accepted):
        client.shutdown(socket.SHUT_WR)
        assert uid(accepted.getsockname(), accepted.getpeername()) == os.geteuid()


@pytest.mark.parametrize("uid", WAYS)
def test_a_connection_that_its_process_has_closed_is_nobodys(
    uid: Callable[[Address, Address], int | None],
) -> None:
    with connected("127.0.0.1", "127.0.0.1") as (client, accepted):
        ends = accepted.getsockname(), accepted.getpeername()
        assert uid(*ends) == os.geteuid()
        client.close()
        assert uid(*ends) is None


@pytest.mark.parametrize("uid", WAYS)
def test_whoever_listens_at_the_port_of_a_peer_is_not_that_peer(
    uid: Callable[[Address, Address], int | None],
) -> None:
    with (
        connected("127.0.0.1", "127.0.0.1") as (_, accepted),
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        assert uid(accepted.getsockname(), other.getsockname()) is None


@pytest.mark.parametrize("uid", WAYS)
def test_another_machine_has_no_user_here(
    uid: Callable[[Address, Address], int | None],
) -> None:
    with connected("127.0.0.1", "127.0.0.1") as (_, accepted):
        assert uid(accepted.getsockname(), ("192.0.2.1", 5000)) is None


def test_a_kernel_that_does_not_know_our_own_socket_cannot_be_asked() -> None:
    with pytest.raises(CannotAsk):
        asked_uid(("127.0.0.1", 1), ("127.0.0.1", 2))


def test_a_page_whose_kernel_answers_no_questions_reads_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "_SOCK_DIAG", UNKNOWN_PROTOCOL)
    with pytest.raises(CannotAsk):
        asked_uid(("127.0.0.1", 1), ("127.0.0.1", 2))
    with serving(ScriptedJob(five_vertices())) as ask:
        assert ask("/jobs").status == 200


def test_many_that_ask_at_a_time_share_readings_of_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = []
    read = access._listed_users

    def counted() -> dict[tuple[str, str], int]:
        readings.append(1)
        return read()

    monkeypatch.setattr(access, "_listed_users", counted)

    async def ask(ends: tuple[Address, Address]) -> list[int | None]:
        sockets = SocketList()
        return await asyncio.gather(*(sockets.uid(*ends) for _ in range(200)))

    with connected("127.0.0.1", "127.0.0.1") as (_, accepted):
        ends = accepted.getsockname(), accepted.getpeername()
        assert set(asyncio.run(ask(ends))) == {os.geteuid()}
    assert len(readings) == 1


def test_a_connection_without_a_request_costs_no_reading_of_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = []
    monkeypatch.setattr(access, "_SOCK_DIAG", UNKNOWN_PROTOCOL)
    monkeypatch.setattr(access, "_listed_users", lambda: readings.append(1) or {})
    monkeypatch.setattr(connections, "STALL_S", 0.1)
    with serving(ScriptedJob(five_vertices())) as ask:
        with socket.create_connection(("127.0.0.1", ask.server.port)) as silent:
            assert silent.recv(1) == b"", "it is cut off"
        assert not readings
        assert ask("/jobs").status == 403
        assert readings
