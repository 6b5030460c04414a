"""What the Redis source and sink share: the client, its limits, and what its errors mean.

The client is redis-py. Law: it is loaded when a job starts; no message shows a password; trouble
that may pass (no connection, a server that loads its data, no memory) is ServerUnready.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from headgate.base.errors import ConnectorError, PlanInvalid, ServerUnfit
from headgate.connectors.libraries import clause, library
from headgate.connectors.servers import UrlServer

TIMEOUT_S: Final = 30.0
"""How long an answer may take, beyond what a blocking command waits."""
CONNECT_S: Final = 10.0
_OURS: Final = ("decode_responses", "encoding", "protocol")
_PASSING: Final = (
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
)
"""Answers of a server that may be well again soon."""
_DENIED: Final = ("NOAUTH", "WRONGPASS", "NOPERM")


@dataclass(frozen=True)
class RedisServer(UrlServer):
    """Where the server is; it travels to the tasks."""

    login = "user, password and rights in the URL"
    ports = MappingProxyType({"redis": 6379, "rediss": 6379, "unix": 0})

    def __post_init__(self) -> None:
        super().__post_init__()
        taken = [name for name in parse_qs(urlsplit(self.url).query) if name in _OURS]
        if taken:
            raise PlanInvalid(f"{self.user}: leave {taken[0]} out of the URL, it is set here")

    @property
    def address(self) -> str:
        parts = urlsplit(self.url)
        return parts.path if parts.scheme == "unix" else super().address

    def client(self, whose: str) -> Any:
        """One that opens a connection with the first command, and tries nothing twice."""
        redis = library("redis", "redis", self.user)
        no_retries = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        name = "".join(sign if sign.isalnum() else "-" for sign in f"headgate {whose}")
        over_tcp = {} if urlsplit(self.url).scheme == "unix" else {"socket_keepalive": True}
        try:
            client = redis.Redis.from_url(
                self.url,
                protocol=2,
                retry=no_retries,
                client_name=name[:60].encode("ascii", "replace").decode(),
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=CONNECT_S,
                **over_tcp,
            )
            pool = client.connection_pool
            pool.connection_class(**pool.connection_kwargs)  # it refuses what it does not know
        except (TypeError, ValueError) as error:
            raise PlanInvalid(f"{self.user}: the URL cannot be used: {clause(error)}") from None
        return client

    def problem(self, error: Exception, doing: str) -> Exception:
        """What to raise for an error of the client that it met while ``doing``."""
        redis = library("redis", "redis", self.user)
        if not isinstance(error, redis.RedisError | OSError):
            return error
        return super().problem(error, doing)

    def refusal(self, error: Exception, text: str) -> Exception | None:
        if str(error).startswith(("MOVED", "ASK", "CROSSSLOT")):
            return ServerUnfit(f"{text}; Redis Cluster is not supported, give a single server")
        if "WRONGTYPE" in str(error):
            return ConnectorError(f"{text}; give the key of a stream, or one that is free")
        return None

    def may_pass(self, error: Exception) -> bool:
        """Whether another attempt may go well."""
        redis = library("redis", "redis", self.user)
        if self.is_denied(error):
            return False
        if isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
            return True
        # redis-py takes off the first word of some answers, and keeps what it says in the class.
        kinds = (
            redis.exceptions.BusyLoadingError,
            redis.exceptions.ReadOnlyError,
            redis.exceptions.ClusterDownError,
            redis.exceptions.TryAgainError,
        )
        words = str(error)
        return isinstance(error, kinds) or (
            isinstance(error, redis.RedisError)
            and (words.startswith(_PASSING) or "used memory" in words)
        )

    def is_denied(self, error: Exception) -> bool:
        """Wrong credentials, or missing rights."""
        redis = library("redis", "redis", self.user)
        kinds = (
            redis.exceptions.AuthenticationError,
            redis.exceptions.AuthorizationError,
            redis.exceptions.NoPermissionError,
        )
        return isinstance(error, kinds) or str(error).startswith(_DENIED)
