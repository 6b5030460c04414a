"""What the Kafka source and sink share: configuration of clients, their log, their errors.

The client is confluent-kafka, on top of librdkafka. Law: it is loaded when a job starts, not when a
program is written; its lines go to ``logging``, each at most once a minute; what it reports becomes
an error of ours that names the servers and says what to do.
"""

import logging
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from headgate.base.errors import (
    ConnectorError,
    KafkaRefused,
    KafkaUnready,
    PlanInvalid,
    ServerUnfit,
)
from headgate.connectors.libraries import clause, library

LOG: Final = logging.getLogger("headgate.connectors.kafka")

TIMEOUT_KEY: Final = "default.api.timeout.ms"
TIMEOUT_MS: Final = 30_000
"""For so long a question to the brokers may take, connecting included."""

TRANSACTION_KEY: Final = "transaction.timeout.ms"
TRANSACTION_MS: Final = 60_000
"""For so long a transaction may be open; the client has the same default."""

REPEAT_S: Final = 60.0
"""A line of librdkafka is logged at most once in this time."""

_LINES: Final = 256
"""Different lines that are remembered for that."""

_JAVA_ONLY: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "default.api.timeout.ms",
        "key.deserializer",
        "key.serializer",
        "max.poll.records",
        "metric.reporters",
        "sasl.jaas.config",
        "value.deserializer",
        "value.serializer",
    }
)
"""Properties of Kafka's Java client that programs bring along and librdkafka has no use for."""

_JAAS: Final = re.compile(r"\b(username|password)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s;]+)")


_Builder = TypeVar("_Builder", bound="SettingsBuilder")
_ClientBuilder = TypeVar("_ClientBuilder", bound="ClientBuilder")


def kafka(user: str, module: str = "confluent_kafka") -> Any:
    """confluent-kafka, or a module of it; ``user`` is whom a message about its absence names."""
    return library(module, "kafka", user)


@dataclass(frozen=True)
class KafkaCluster:
    """Where the brokers are and how clients talk to them; it travels to the tasks."""

    user: str
    """Who talks to them, for messages: ``KafkaSource`` or ``KafkaSink``."""
    servers: str
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """As the user has set them, by librdkafka's names, of which most are those of Java."""

    def __post_init__(self) -> None:
        if not str(self.servers or "").strip():
            raise PlanInvalid(
                f"{self.user}: the bootstrap servers are {self.servers!r}; give host:port, several "
                f"with commas between them"
            )
        for key, value in self.properties.items():
            if not isinstance(value, str | int | float | bool):
                raise PlanInvalid(
                    f"{self.user}: the property {key!r} is of type {type(value).__name__}; give a "
                    f"text or a number"
                )
        self.timeout_s  # noqa: B018 - a wrong number is told when the program is written

    @property
    def timeout_s(self) -> float:
        """How long a question to the brokers may take."""
        return self.whole_number(TIMEOUT_KEY, TIMEOUT_MS, least=1) / 1000

    @property
    def transaction_s(self) -> float:
        """After so long the brokers abort a transaction of this sink."""
        return self.whole_number(TRANSACTION_KEY, TRANSACTION_MS, least=1) / 1000

    def whole_number(self, key: str, default: int, least: int) -> int:
        """A property that Headgate itself goes by."""
        value = self.properties.get(key, default)
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least:
            raise PlanInvalid(
                f"{self.user}: the property {key} is {value!r}; give a whole number from {least} on"
            )
        return number

    def flag(self, key: str, default: bool) -> bool:
        """A property that is true or false, which Headgate itself goes by."""
        value = str(self.properties.get(key, default)).lower()
        if value not in ("true", "false"):
            raise PlanInvalid(f"{self.user}: the property {key} is {value!r}; give true or false")
        return value == "true"

    def config(
        self,
        watch: "ClientWatch",
        defaults: Mapping[str, Any],
        forced: Mapping[str, Any],
        own: frozenset[str] = frozenset(),
    ) -> dict[str, Any]:
        """The configuration of a client.

        The user's properties count more than ``defaults`` and less than ``forced``; those in
        ``own`` are Headgate's, and no client sees them.
        """
        hidden = own | _JAVA_ONLY
        config = dict(defaults)
        config |= {key: value for key, value in self.properties.items() if key not in hidden}
        config |= _credentials(str(self.properties.get("sasl.jaas.config", "")), config)
        return {
            **config,
            "bootstrap.servers": self.servers,
            "error_cb": watch.failed,
            "logger": watch,
            **forced,
        }

    def create(self, make: Any, config: dict[str, Any]) -> Any:
        """A client (``Consumer``, ``Producer``, ``AdminClient``); a wrong property is told."""
        try:
            return make(config)
        except Exception as error:  # KafkaException, or ValueError and TypeError of its own
            raise PlanInvalid(
                f"{self.user}: the Kafka client refuses its configuration: {error_words(error)}; "
                f"give properties by librdkafka's names (CONFIGURATION.md of librdkafka lists them)"
            ) from error

    def problem(self, error: Any, doing: str, watch: "ClientWatch | None" = None) -> ConnectorError:
        """What to raise for an error of the client that it met while ``doing``.

        ``error`` is a KafkaError or a KafkaException. A mere timeout is explained by what the
        client has last said about its connections.
        """
        error = _kafka_error(error)
        text = f"{self.user}: {doing}: {self.servers}: {error_words(error)}"
        name = error.name() if error is not None else ""
        if watch is not None and name in _VAGUE and watch.last is not None:
            name, text = watch.last.name(), f"{text}; last seen: {error_words(watch.last)}"
        if name in _CREDENTIALS or name == "_SSL":
            return KafkaRefused(
                f"{text}; check security.protocol, sasl.mechanism, sasl.username and sasl.password"
            )
        if name.endswith("_AUTHORIZATION_FAILED"):
            return KafkaRefused(f"{text}; ask for the right on the topic, group or transaction")
        if name in _NO_TOPIC:
            return KafkaRefused(f"{text}; create the topic, or correct its name")
        if name in _NEVER:
            return ServerUnfit(f"{text}; {_NEVER[name]}")
        if name in _PASSING or (error is not None and error.retriable()):
            return KafkaUnready(
                f"{text}; check that the servers run and that the addresses that they advertise "
                f"can be reached from here"
            )
        return ConnectorError(text)


class SettingsBuilder:
    """Gathers settings by name."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}

    def _set(self: _Builder, name: str, value: object) -> _Builder:
        self._settings[name] = value
        return self


class ClientBuilder(SettingsBuilder):
    """Gathers the settings of a source or sink, under PyFlink's names."""

    def __init__(self) -> None:
        super().__init__()
        self._properties: dict[str, Any] = {}

    def set_bootstrap_servers(self: _ClientBuilder, bootstrap_servers: str) -> _ClientBuilder:
        """Where brokers are found: ``host:port``, several with commas between them."""
        return self._set("bootstrap_servers", bootstrap_servers)

    def set_property(self: _ClientBuilder, key: str, value: str) -> _ClientBuilder:
        """A property of the client, by librdkafka's name."""
        self._properties[key] = value
        return self

    def set_properties(self: _ClientBuilder, props: Mapping[str, str]) -> _ClientBuilder:
        """Several of them."""
        self._properties.update(props)
        return self


class ClientWatch:
    """What a client says beside its results: lines for the log, and errors of its connections.

    The client calls it from whatever thread is inside of one of its methods.
    """

    def __init__(self, whose: str) -> None:
        """``whose`` begins each line of the log."""
        self.last: Any = None
        """The KafkaError that was reported last; None: there was none."""
        self.refused: Any = None
        """A KafkaError that no waiting mends: wrong credentials, or a fatal one; None."""
        self._whose = whose
        self._lock = threading.Lock()
        self._logged: dict[str, float] = {}

    def failed(self, error: Any) -> None:
        """The client's ``error_cb``."""
        if error.name() != "_ALL_BROKERS_DOWN" or self.last is None:
            self.last = error  # that all are down explains less than why
        if error.fatal() or error.name() in _CREDENTIALS:
            self.refused = error

    def log(self, level: int, form: str, *values: object) -> None:
        """As ``logging.Logger`` has it; the same line comes at most once a minute."""
        text = form % values if values else form
        if self._is_new(text.partition(" (after ")[0]):
            LOG.log(min(level, logging.WARNING), "%s: %s", self._whose, text)

    def _is_new(self, text: str) -> bool:
        now = time.monotonic()
        with self._lock:
            if now < self._logged.get(text, now - 1):
                return False
            if len(self._logged) >= _LINES:
                self._logged = {line: end for line, end in self._logged.items() if end > now}
                if len(self._logged) >= _LINES:
                    return False
            self._logged[text] = now + REPEAT_S
            return True


def error_words(error: Any) -> str:
    """What a KafkaError or another error says, in words and with its code."""
    error = _kafka_error(error) or error
    if hasattr(error, "str") and hasattr(error, "name"):
        text = clause(error.str())
        return text if error.name() in text else f"{text} ({error.name()})"
    return f"{type(error).__name__}: {clause(error)}"


def _kafka_error(error: Any) -> Any:
    """The KafkaError of a KafkaException; None: there is none."""
    if isinstance(error, BaseException):
        error = error.args[0] if error.args else None
    return error if hasattr(error, "retriable") else None


def _credentials(jaas: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Name and password as Java programs have them, unless librdkafka's own names have come."""
    found = {key: value.strip("\"'") for key, value in _JAAS.findall(jaas)}
    names = {f"sasl.{key}": value for key, value in found.items()}
    return {key: value for key, value in names.items() if key not in config}


_CREDENTIALS: Final = frozenset(
    {
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "ILLEGAL_SASL_STATE",
        "_AUTHENTICATION",
    }
)
_NO_TOPIC: Final = frozenset(
    {"UNKNOWN_TOPIC_OR_PART", "TOPIC_EXCEPTION", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}
)
_NEWER: Final = "connect to newer brokers, or leave out the property that needs them"
_NEVER: Final = {
    "INVALID_TRANSACTION_TIMEOUT": (
        f"give the sink a {TRANSACTION_KEY} up to the brokers' transaction.max.timeout.ms, or "
        f"raise the latter"
    ),
    "UNSUPPORTED_VERSION": _NEWER,
    "_UNSUPPORTED_FEATURE": _NEWER,
}
"""What no broker does, however long one waits, and what to change."""
_VAGUE: Final = frozenset({"_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TRANSPORT", "_TIMED_OUT_QUEUE"})
_PASSING: Final = _VAGUE | {
    "BROKER_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "LEADER_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "NOT_COORDINATOR",
    "NOT_LEADER_FOR_PARTITION",
    "REQUEST_TIMED_OUT",
    "_RESOLVE",
    "_WAIT_COORD",
}
"""Errors that may be gone when the brokers are well again."""
