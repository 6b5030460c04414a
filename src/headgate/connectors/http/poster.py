"""Sends a batch to an HTTP endpoint, again and again while that may help.

The client is urllib3. Law: every attempt of a batch has the same ``Idempotency-Key``; certificates
are verified; redirects are not followed; at most ``ANSWER_BYTES`` of an answer are read; messages
show neither headers nor what stands in the URL besides host and path.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakSet

from headgate.base.errors import ConnectorError, HttpRejected, PlanInvalid, ServerUnready
from headgate.connectors.checks import AMOUNT, check_settings
from headgate.connectors.libraries import library
from headgate.connectors.paths import split_url
from headgate.connectors.servers import LOOK_S, backoff_s, shut_down
from headgate.functions.context import ConnectorContext

AGAIN: Final = frozenset({429, 502, 503, 504})
"""Answers after which the same request may go well later."""
CONFLICT: Final = 409
NOT_THE_RECORDS: Final = frozenset({401, 403, 404, 405, 407})
"""Answers that any batch would get: they fail the job, whatever the error policy."""
ANSWER_BYTES: Final = 64 << 10
SHOWN_BYTES: Final = 300
KEY_HEADER: Final = "Idempotency-Key"


@dataclass(frozen=True)
class HttpLimits:
    """How long and how much: of one request, of all attempts of a batch, of what waits."""

    timeout_s: float = 30.0
    """For connecting, and for each part of an answer."""
    retry_s: float = 60.0
    """For all attempts of a batch; then the job is restarted."""
    in_flight: int = 1
    """Requests of a task at the same time; with more than 1, batches may change their order."""
    pending_bytes: int = 256 << 20
    """What may wait in a task for its checkpoint, with ``EXACTLY_ONCE``."""

    def __post_init__(self) -> None:
        check_settings(self, dict.fromkeys(vars(self), AMOUNT))


@dataclass(frozen=True)
class HttpEndpoint:
    """Where batches go; it travels to the tasks."""

    url: str = field(repr=False)
    method: str
    headers: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        parts = split_url("HttpSink", self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PlanInvalid(
                "HttpSink: the URL does not begin with http:// or https:// and a host"
            )
        if parts.username or parts.password:
            raise PlanInvalid(
                "HttpSink: leave user and password out of the URL; give the header Authorization"
            )

    @property
    def address(self) -> str:
        """Scheme, host and path; a query may hold a secret."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


class Poster:
    """The connections of one task; several threads may use it."""

    def __init__(
        self, endpoint: HttpEndpoint, limits: HttpLimits, whose: str, context: ConnectorContext
    ) -> None:
        urllib3 = library("urllib3", "http", "HttpSink")
        self._errors = urllib3.exceptions
        self._endpoint = endpoint
        self._limits = limits
        self._whose = whose
        self._sleep = context.sleep
        self._stop = threading.Event()
        parts = urlsplit(endpoint.url)
        self._target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        tls = {"cert_reqs": "CERT_REQUIRED"} if parts.scheme == "https" else {}
        # Not a PoolManager: that leaves the closing of connections to the garbage collector.
        self._pool = urllib3.connection_from_url(
            endpoint.url,
            maxsize=int(limits.in_flight),
            block=True,
            retries=False,
            timeout=urllib3.Timeout(connect=limits.timeout_s, read=limits.timeout_s),
            **tls,
        )
        self._connections: WeakSet[Any] = WeakSet()
        self._connect = self._pool.ConnectionCls
        self._pool.ConnectionCls = self._connected
        context.when_cancelled(self.abort)

    def post(self, body: bytes, key: str) -> None:
        """Raises HttpRejected if it is for the records, ConnectorError if any batch fares so,
        ServerUnready when ``retry_s`` is over.
        """
        deadline = time.monotonic() + self._limits.retry_s
        attempt = 0
        while True:
            wait_s, problem = self._attempt(body, key, attempt)
            if problem is None:
                return
            self._sleep(0)
            wait_s = max(wait_s, backoff_s(attempt))
            if time.monotonic() + wait_s > deadline or self._stop.is_set():
                raise ServerUnready(
                    f"{self._whose}: {self._endpoint.address} does not take a batch after "
                    f"{attempt + 1} attempt{'s'[: attempt > 0]}: {problem}"
                )
            attempt += 1
            self._pause(wait_s)

    def _pause(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0 and not self._stop.is_set():
            self._sleep(min(left_s, LOOK_S))

    def stop(self) -> None:
        """Attempts under way are the last."""
        self._stop.set()

    def abort(self) -> None:
        """Attempts under way fail; from any thread."""
        self._stop.set()
        for connection in list(self._connections):
            shut_down(connection.sock)

    def close(self) -> None:
        self._stop.set()
        self._pool.close()

    def _connected(self, *given: Any, **settings: Any) -> Any:
        connection = self._connect(*given, **settings)
        self._connections.add(connection)
        return connection

    def _attempt(self, body: bytes, key: str, attempt: int) -> tuple[float, str | None]:
        """How long to wait, and why the batch was not taken; None: it was."""
        endpoint = self._endpoint
        headers = {**endpoint.headers, KEY_HEADER: key}
        try:
            answer = self._pool.request(
                endpoint.method,
                self._target,
                body=body,
                headers=headers,
                preload_content=False,
                redirect=False,
                retries=False,
            )
            text = self._read(answer)
        except (self._errors.HTTPError, OSError) as error:
            if isinstance(error, self._errors.SSLError):
                raise ConnectorError(
                    f"{self._whose}: {endpoint.address}: the certificate or the TLS of the server "
                    f"is not accepted ({_words(error)}); let the workers trust who has signed it"
                ) from None
            return 0.0, _words(error)
        status: int = answer.status
        if 200 <= status < 300:
            return 0.0, None
        problem = f"status {status}: {text}"
        # Whoever knows the key answers so while the attempt before is still at work.
        if status in AGAIN or (status == CONFLICT and attempt > 0):
            return retry_after_s(answer.headers.get("Retry-After"), time.time()), problem
        text = f"{self._whose}: {endpoint.address} has rejected a batch: {problem}"
        if status >= 500:
            raise ServerUnready(text)
        if status < 400 or status in NOT_THE_RECORDS:
            raise ConnectorError(f"{text}; check the URL, and the rights that the headers give")
        raise HttpRejected(text, status)

    def _read(self, answer: Any) -> str:
        """The first bytes of an answer; the connection can be used again if that is all."""
        data: bytes = answer.read(ANSWER_BYTES)
        if len(data) < ANSWER_BYTES:
            answer.release_conn()
        else:
            answer.close()
        return repr(data[:SHOWN_BYTES].decode("utf-8", "replace"))


def retry_after_s(text: str | None, now_s: float) -> float:
    """What the header says, as seconds or as a date; 0 if it says nothing that can be read."""
    if not text:
        return 0.0
    try:
        return max(0.0, float(int(text)))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _words(error: Exception) -> str:
    """The kind and the reason; the client's own texts may hold the whole URL."""
    reason = getattr(error, "reason", None) or error.__cause__ or error
    kind = type(error).__name__
    if isinstance(reason, OSError) and reason.strerror:
        return f"{kind}: {reason.strerror}"
    return kind if reason is error else f"{kind}: {type(reason).__name__}"
