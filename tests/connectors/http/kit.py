"""A real HTTP server for tests, which answers as it is told and honours idempotency keys."""

import ssl
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]
OK: Answer = (200, {}, b"thanks")
HANG_UP: Answer = (0, {}, b"")
"""The connection is closed without an answer, after the batch was taken."""


class Endpoint:
    """Takes batches; ``answers`` are given first, then every batch is taken."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: list[Answer] = []
        self.requests: list[tuple[dict[str, str], bytes]] = []
        """Headers, with small letters, and bodies of all requests, in order."""
        self.taken: dict[str, bytes] = {}
        """What was taken, by key."""
        self.open_gate = threading.Event()
        """Clear it to let requests wait."""
        self.open_gate.set()
        self.at_once = 0
        """How many requests were there at the same time, at most."""
        self._now = 0
        self._lock = threading.Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                endpoint.handle(self)

            do_PUT = do_POST  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/events"

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = request.rfile.read(int(headers["content-length"]))
        with self._lock:
            self._now += 1
            self.at_once = max(self.at_once, self._now)
        self.open_gate.wait(20)
        with self._lock:
            self._now -= 1
            self.requests.append((headers, body))
            status, more, text = self.answers.pop(0) if self.answers else OK
            if status in (0, 200):
                self.taken.setdefault(headers["idempotency-key"], body)
        if status == 0:
            request.close_connection = True
            return
        request.send_response(status)
        for name, value in {**more, "Content-Length": str(len(text))}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(text)

    def lines(self) -> list[str]:
        """Of what was taken, each key once."""
        return [line for body in self.taken.values() for line in body.decode().splitlines()]

    def keys(self) -> Counter[str]:
        """How often each key came."""
        return Counter(headers["idempotency-key"] for headers, _ in self.requests)

    def close(self) -> None:
        self.open_gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
