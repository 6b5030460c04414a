"""A Schema Registry for tests: a real HTTP server that speaks the part of REST that clients use."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RegistryServer:
    """Keeps schemas by number, and under the names of subjects."""

    def __init__(self, user: str = "") -> None:
        """``user``: name and password with a colon between them; empty: everybody may ask."""
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.broken = False
        """It answers everything with an error."""
        self.user = user
        registry = self

        class Handler(Answers):
            server_of = registry

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Its number, from 1 on."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Answers(BaseHTTPRequestHandler):
    """One connection; threads of the server end with it."""

    server_of: RegistryServer

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, format: str, *values: object) -> None:
        """Nobody reads it."""

    def _answer(self, body: bytes) -> None:
        path = self.path.partition("?")[0].strip("/").split("/")
        self.server_of.asked.append("/".join(path))
        status, answer = self._found(path, body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _found(self, path: list[str], body: bytes) -> tuple[int, Any]:
        registry = self.server_of
        wanted = base64.b64encode(registry.user.encode()).decode()
        if registry.user and self.headers.get("Authorization") != f"Basic {wanted}":
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if registry.broken:
            return 503, {"error_code": 50301, "message": "try again"}
        match path:
            case ["subjects", subject, "versions"]:
                return 200, {"id": registry.register(subject, json.loads(body))}
            case ["subjects", subject] if subject in registry.subjects:
                number = registry.register(subject, json.loads(body))
                version = registry.subjects[subject].index(number) + 1
                schema = registry.schemas[number - 1]
                return 200, {"subject": subject, "id": number, "version": version, **schema}
            case ["subjects", subject, "versions", version] if subject in registry.subjects:
                versions = registry.subjects[subject]
                at = len(versions) if version == "latest" else int(version)
                number = versions[at - 1]
                schema = registry.schemas[number - 1]
                return 200, {"subject": subject, "id": number, "version": at, **schema}
            case ["schemas", "ids", number] if 0 < int(number) <= len(registry.schemas):
                return 200, registry.schemas[int(number) - 1]
        return 404, {"error_code": 40403, "message": f"{'/'.join(path)} not found"}
