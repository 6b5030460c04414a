"""Mutual TLS: it carries everything, refuses strangers, and a wrong file fails the start."""

import gc
import socket
from pathlib import Path

import pytest

from headgate.base.errors import ConnectFailed, SettingsInvalid, TransportError
from headgate.base.settings import FlowControl, TransportKind
from headgate.core.task.environment import RemoteProducer
from headgate.host.net.exchange import Exchange
from tests.host.certificates import Authority, settings_of
from tests.host.conftest import MakeExchange
from tests.host.raw import raw_client, raw_server
from tests.host.rig import (
    SECRET,
    at,
    blobs,
    consume,
    count_polls,
    ends_in_memory,
    eventually,
    from_there,
    produce,
    quick,
)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@pytest.mark.parametrize("mode", list(FlowControl))
@pytest.mark.parametrize("segment_bytes", [100, 32768])
def test_everything_arrives_through_mutual_tls(
    make_exchange: MakeExchange,
    authority: Authority,
    transport: TransportKind,
    mode: FlowControl,
    segment_bytes: int,
) -> None:
    changes = {"flow_control": mode, "segment_bytes": segment_bytes, "transport": transport}
    a = make_exchange(settings_of(authority, authority.issue("a"), **changes))
    b = make_exchange(settings_of(authority, authority.issue("b"), **changes))
    records = blobs(200 if segment_bytes == 100 else 5000)
    producers = [produce(a, "from a", records), produce(b, "from b", records)]
    readers = [consume(b, [from_there(a, "from a")]), consume(a, [from_there(b, "from b")])]
    for task in (*producers, *readers):
        task.join()
    for reader in readers:
        assert reader.records == records


def test_a_slow_reader_in_tcp_mode_gets_what_waits_above_the_socket(
    make_exchange: MakeExchange, authority: Authority
) -> None:
    """Bytes that TLS has unpacked already are read when there is room again, without a poll."""
    settings = settings_of(
        authority, authority.issue("a"), flow_control=FlowControl.TCP, segment_bytes=512
    )
    a, b = make_exchange(settings), make_exchange(settings)
    records = blobs(300, 100)
    producer = produce(a, "p", records, timeout_ms=0)
    consumer = consume(b, [from_there(a, "p")], held=True)
    eventually(lambda: any(c.link.decoder.paused for c in b._connections), "reading stops")
    consumer.let_go(b)
    consumer.join()
    producer.join()
    assert consumer.records == records


def test_a_silent_server_makes_the_client_wait_and_not_spin(
    make_exchange: MakeExchange, authority: Authority
) -> None:
    settings = settings_of(authority, authority.issue("a"), connect_timeout_ms=400)
    exchange = make_exchange(settings)
    with raw_server() as (listening, address):
        consumer = consume(exchange, [at(RemoteProducer(address), "p")])
        sock, _ = listening.accept()
        polls = count_polls(exchange.loop)
        with sock, pytest.raises(ConnectFailed, match="no handshake"):
            consumer.join()
        assert polls() < 200


def test_a_peer_of_another_authority_is_refused(
    make_exchange: MakeExchange, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "another")
    a = make_exchange(settings_of(authority, authority.issue("a")))
    b = make_exchange(settings_of(other, other.issue("b")))
    c = make_exchange(settings_of(authority, other.issue("c")))  # trusts us, but we not it
    producer = produce(a, "p", range(10))
    for stranger in (b, c):
        with pytest.raises(TransportError) as caught:
            consume(stranger, [from_there(a, "p")]).join()
        assert caught.value.peer == "{}:{}".format(*a.address)
        assert "certificate" in str(caught.value) or "unknown ca" in str(caught.value).lower()
    friend = make_exchange(settings_of(authority, authority.issue("d")))
    reader = consume(friend, [from_there(a, "p")])
    reader.join()
    producer.join()
    assert reader.records == list(range(10))


def test_a_plain_client_gets_a_clean_error_from_a_tls_server(
    make_exchange: MakeExchange, authority: Authority
) -> None:
    tls, plain = make_exchange(settings_of(authority, authority.issue("a"))), make_exchange()
    for client, server in ((plain, tls), (tls, plain)):
        with pytest.raises(TransportError) as caught:
            consume(client, [from_there(server, "p")]).join()
        assert caught.value.peer == "{}:{}".format(*server.address)


@pytest.mark.parametrize("words", [b"", b"garbage that is no TLS at all\r\n", b"\x16\x03\x01"])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_strangers_who_cannot_greet_are_forgotten(
    make_exchange: MakeExchange, authority: Authority, words: bytes, how: str
) -> None:
    exchange = make_exchange(settings_of(authority, authority.issue("a")))
    for _ in range(3):
        with raw_client(exchange.address, exchange.settings) as peer:
            peer.send(words)
            if how == "reset":
                peer.reset()
    eventually(lambda: not exchange._connections, "the strangers are forgotten")


def test_strangers_at_a_tls_port_leave_nothing_behind_even_without_garbage_collection(
    make_exchange: MakeExchange, authority: Authority
) -> None:
    exchange = make_exchange(settings_of(authority, authority.issue("a")))
    gc.collect()
    gc.disable()
    try:
        before = ends_in_memory()
        for words in (b"", b"garbage that is no TLS at all\r\n", b"\x16\x03\x01") * 3:
            with raw_client(exchange.address, exchange.settings) as peer:
                peer.send(words)
        eventually(lambda: not exchange._connections, "the strangers are forgotten")
        with exchange.inside():
            assert ends_in_memory() == before
    finally:
        gc.enable()


def test_a_stranger_who_hangs_up_before_it_is_accepted_is_forgotten(
    make_exchange: MakeExchange, authority: Authority
) -> None:
    exchange = make_exchange(settings_of(authority, authority.issue("a")))
    with exchange.inside():  # nobody accepts now
        for words in (b"", b"some words"):
            with socket.create_connection(exchange.address) as sock:
                sock.sendall(words)
    eventually(lambda: not exchange._connections, "the strangers are forgotten")


class Files:
    """Settings, one of whose files is wrong."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        good = authority.issue("good")
        other = authority.issue("other")
        locked = authority.issue("locked", password=b"password")
        text = folder / "text"
        text.write_text("no certificate and no key")
        missing = str(folder / "missing")
        certificate, key, trust = good.certificate, good.key, authority.path
        self.cases: dict[str, tuple[tuple[str, str, str], str, str]] = {
            "no certificate": ((missing, key, trust), "certificate", missing),
            "no key": ((certificate, missing, trust), "key", missing),
            "no authority": ((certificate, key, missing), "authority", missing),
            "certificate is text": ((str(text), key, trust), "key", str(text)),
            "key is text": ((certificate, str(text), trust), "key", str(text)),
            "authority is text": ((certificate, key, str(text)), "authority", str(text)),
            "key of another": ((certificate, other.key, trust), "key", other.key),
            "encrypted key": ((locked.certificate, locked.key, trust), "key", locked.key),
            "a folder": ((str(folder), key, trust), "certificate", str(folder)),
            "certificate not set": (("", key, trust), "certificate", "not set"),
            "authority not set": ((certificate, key, ""), "authority", "not set"),
        }


CASES = [
    "no certificate", "no key", "no authority", "certificate is text", "key is text",
    "authority is text", "key of another", "encrypted key", "a folder", "certificate not set",
    "authority not set",
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_file_fails_the_start_by_its_name(
    authority: Authority, tmp_path: Path, case: str
) -> None:
    files = Files(tmp_path, authority)
    assert list(files.cases) == CASES
    (certificate, key, trust), setting, named = files.cases[case]
    settings = quick(
        tls_enabled=True, tls_certificate=certificate, tls_key=key, tls_authority=trust
    )
    with pytest.raises(SettingsInvalid) as caught:
        Exchange(settings, SECRET, segments=10)
    assert caught.value.key == f"security.ssl.internal.{setting}"
    assert named in str(caught.value)
    assert "password" not in str(caught.value)


def test_files_are_not_looked_at_while_tls_is_off(make_exchange: MakeExchange) -> None:
    make_exchange(quick(tls_certificate="nowhere"))
