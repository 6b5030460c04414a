"""S3 on this machine: moto's server in a process of its own, and a proxy with faults before it.

Run as a program it is the server. Requests are answered one at a time, since moto checks the
condition of a put and puts in two steps. Access keys can be refused, by the server itself: clients
that hold Python's lock while they wait cannot use a proxy in the same process.
"""

import http.client
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyarrow import fs

from tests.servers import ServerProcess, accepts, free_port

BUCKET = "shop"
REFUSALS = "/_refusals"


class Store:
    """A running server with one bucket."""

    def __init__(self, port: int, server: ServerProcess) -> None:
        self.port = port
        self.server = server
        self.make_bucket(BUCKET)

    def make_bucket(self, name: str) -> None:
        self.request("PUT", f"/{name}")

    def request(self, method: str, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        assert answer.status < 300, (answer.status, data)
        return data

    def refuse(self, key: str, code: str, status: int = 403) -> None:
        """Answer all requests with this access key with an error, from now on."""
        self.request("PUT", f"{REFUSALS}/{key}/{status}/{code}")

    def at(self, path: str, port: int | None = None, bucket: str = BUCKET) -> str:
        """The address of a path, with all that both clients need."""
        options = f"endpoint_override=127.0.0.1:{port or self.port}&scheme=http&region=us-east-1"
        return f"s3://me:secret@{bucket}/{path}?{options}"

    def system(self) -> Any:
        return fs.FileSystem.from_uri(self.at(""))[0]

    def names(self, path: str) -> list[str]:
        """Of all objects below a path, without it."""
        root = f"{BUCKET}/{path}"
        selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
        found = self.system().get_file_info(selector)
        files = [info.path for info in found if info.type == fs.FileType.File]
        return sorted(name.removeprefix(f"{root}/") for name in files)

    def put(self, path: str, data: bytes) -> None:
        with self.system().open_output_stream(f"{BUCKET}/{path}", compression=None) as file:
            file.write(data)

    def read(self, path: str) -> bytes:
        with self.system().open_input_stream(f"{BUCKET}/{path}", compression=None) as file:
            return bytes(file.read())


@contextmanager
def running_store(log: Path) -> Iterator[Store]:
    port = free_port()
    server = ServerProcess(
        [sys.executable, "-m", "tests.s3_kit", str(port)], lambda: accepts(port), log
    )
    server.start()
    try:
        yield Store(port, server)
    finally:
        server.kill()


@dataclass(frozen=True)
class Fault:
    """What happens to a request instead of an answer, or before it."""

    status: int = 0
    code: str = ""
    resets: bool = False
    reaches_store: bool = False
    """Whether the store does it, and only the answer is lost."""
    waits_s: float = 0.0


Chooser = Callable[[str, str], Fault | None]


class Quiet(ThreadingHTTPServer):
    def handle_error(self, *given: Any) -> None:
        """A client that was killed, or has waited long enough."""


class FaultProxy:
    """Forwards requests to a store; ``choose(method, path)`` may give a fault for one."""

    def __init__(self, port: int) -> None:
        self.choose: Chooser = lambda method, path: None
        self.seen: list[tuple[str, str]] = []
        self._store_port = port
        self._server = Quiet(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def first(self, count: int, fault: Fault, method: str = "") -> None:
        """The next so many requests (of this method) meet the fault."""
        left = [count]

        def choose(met: str, path: str) -> Fault | None:
            if left[0] and met.startswith(method):
                left[0] -= 1
                return fault
            return None

        self.choose = choose

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def forward(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._store_port, timeout=30)
        try:
            headers = {
                name: value
                for name, value in request.headers.items()
                if name.lower() not in ("expect", "transfer-encoding", "content-length")
            }
            connection.request(request.command, request.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                handle(proxy, self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

            def log_message(self, *given: Any) -> None: ...

        return Handler


def error_answer(code: str) -> bytes:
    text = f"<Error><Code>{code}</Code><Message>as the test wants</Message></Error>"
    return text.encode()


def body_of(request: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in request.headers.get("Transfer-Encoding", ""):
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))
    body = bytearray()
    while length := int(request.rfile.readline().split(b";")[0], 16):
        body += request.rfile.read(length)
        request.rfile.readline()
    while request.rfile.readline().strip():
        pass
    return bytes(body)


def handle(proxy: FaultProxy, request: BaseHTTPRequestHandler) -> None:
    body = body_of(request)
    proxy.seen.append((request.command, request.path))
    fault = proxy.choose(request.command, request.path) or Fault()
    time.sleep(fault.waits_s)
    if fault.resets:
        if fault.reaches_store:
            proxy.forward(request, body)
        hard = struct.pack("ii", 1, 0)
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, hard)
        request.close_connection = True
        request.connection.close()
        return
    if fault.status:
        headers = [("Content-Type", "application/xml")]
        status, data = fault.status, error_answer(fault.code)
    else:
        status, headers, data = proxy.forward(request, body)
    request.send_response_only(status)
    for name, value in headers:
        if name.lower() not in ("content-length", "transfer-encoding", "connection"):
            request.send_header(name, value)
    if request.command == "HEAD":
        sizes = [value for name, value in headers if name.lower() == "content-length"]
        request.send_header("Content-Length", sizes[0] if sizes else "0")
        data = b""
    elif status != 204:
        request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)


def serve(port: int) -> None:
    import io

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    inner, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()
    refused: dict[str, tuple[str, str]] = {}

    def application(environ: Any, start_response: Any) -> Any:
        if environ["PATH_INFO"].startswith(f"{REFUSALS}/"):
            key, status, code = environ["PATH_INFO"].split("/")[2:]
            refused[key] = status, code
            start_response("200 OK", [])
            return []
        signature = re.search("Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        if signature is not None and signature[1] in refused:
            status, code = refused[signature[1]]
            start_response(f"{status} {code}", [("Content-Type", "application/xml")])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [error_answer(code)]
        if not environ.get("wsgi.input_terminated"):
            length = int(environ.get("CONTENT_LENGTH") or 0)
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with lock:
            return list(inner(environ, start_response))

    run_simple("127.0.0.1", port, application, threaded=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
