"""Servers of Spark Connect whose TLS cannot work: said at once, and without the token."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from headgate.base.errors import SessionFailed
from headgate.spark import connect

pytest.importorskip("cryptography")

from tests.host.certificates import Authority

SECRET = "planted-token-4711"


@contextmanager
def server(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Its port. It takes one client after the other; without TLS it answers with plain bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):  # the listening socket is closed
                while True:
                    client, _ = listening.accept()
                    with client, suppress(OSError):
                        if context is None:
                            client.sendall(b"plain words")
                        else:
                            context.wrap_socket(client, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("end", ["token={}", "use_ssl=true;token={}"])
def test_a_server_that_speaks_no_tls_is_said(end: str) -> None:
    with server() as port, pytest.raises(SessionFailed, match="speaks no TLS, which") as caught:
        connect._check_server(f"sc://127.0.0.1:{port}/;{end.format(SECRET)}")
    assert str(caught.value).startswith(f"sc://127.0.0.1:{port} speaks")
    assert SECRET not in str(caught.value)


def test_a_token_needs_no_tls_to_localhost_by_that_name() -> None:
    with server() as port:
        connect._check_server(f"sc://localhost:{port}/;token={SECRET}")


def test_a_certificate_has_to_be_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path, "authority")
    identity = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    with server(context) as port:
        remote = f"sc://127.0.0.1:{port}/;use_ssl=true"
        with pytest.raises(SessionFailed, match=r"is not trusted \(.*GRPC_DEFAULT_SSL_ROOTS_FILE"):
            connect._check_server(remote)
        monkeypatch.setenv(connect.ROOTS_VARIABLE, authority.path)
        connect._check_server(remote)
