"""Values whose schema is kept by a Schema Registry: Avro, JSON Schema and Protobuf, both ways.

confluent-kafka's own serializers do the work. Law: the tasks of a process share one client for each
registry, which the last of them closes; a registry that cannot be asked is no fault of the record,
so that no policy about malformed records skips what was only not looked up.
"""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from headgate.api.types.types import TypeInformation, Types
from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, KafkaRefused, KafkaUnready, PlanInvalid
from headgate.base.redaction import plain_url, shown_setting
from headgate.connectors.formats.schemas import DeserializationSchema, SerializationSchema
from headgate.connectors.libraries import clause, library

TIMEOUT_S: Final = 10
"""For one request; the client itself would wait for ever."""

_HTTP: Final = ("httpx", "httpcore", "requests", "urllib3")
"""Where the errors of connections come from, in one version of the client or another."""

_PACKAGE: Final = "confluent_kafka.schema_registry"


class SchemaRegistry:
    """Where a registry is; makes schemas for sources and sinks.

    ::

        registry = SchemaRegistry("http://registry:8081")
        source = KafkaSource("broker:9092", "orders", schema=registry.avro_deserializer())

    ``properties`` are those of confluent-kafka's client: ``basic.auth.user.info``,
    ``ssl.ca.location``, ``timeout`` (seconds), ``max.retries`` and so on. Records are dicts, those
    of Protobuf are messages. A schema is asked for once, when the first record with it comes.
    """

    def __init__(self, url: str, properties: Mapping[str, Any] | None = None) -> None:
        if not str(url or "").startswith(("http://", "https://")):
            raise PlanInvalid(
                f"SchemaRegistry was given the address {shown_setting('url', str(url))!r}; give "
                f"http://host:port"
            )
        self.url = plain_url(url)
        """For messages: name and password, which the address may have, are left out."""
        self.properties = {"timeout": TIMEOUT_S, **(properties or {}), "url": url}

    def avro_deserializer(self, schema: str | None = None) -> "RegistryDeserializationSchema":
        """Avro; with ``schema`` (as JSON) records are turned into those of this one."""
        return RegistryDeserializationSchema(self, partial(_avro_reading, schema))

    def json_deserializer(self, schema: str | None = None) -> "RegistryDeserializationSchema":
        """JSON that its schema in the registry, or ``schema``, describes."""
        return RegistryDeserializationSchema(self, partial(_json_reading, schema))

    def protobuf_deserializer(self, message_type: Any) -> "RegistryDeserializationSchema":
        """Protobuf; ``message_type`` is the class that protoc has made."""
        return RegistryDeserializationSchema(self, partial(_protobuf_reading, message_type))

    def avro_serializer(
        self, topic: str, schema: str, *, is_key: bool = False
    ) -> "RegistrySerializationSchema":
        """Avro; the schema is registered under ``topic-value`` (``topic-key``) if it is new."""
        return RegistrySerializationSchema(self, partial(_avro_writing, schema), topic, is_key)

    def json_serializer(
        self, topic: str, schema: str, *, is_key: bool = False
    ) -> "RegistrySerializationSchema":
        """JSON, checked against a JSON Schema, which is registered if it is new."""
        return RegistrySerializationSchema(self, partial(_json_writing, schema), topic, is_key)

    def protobuf_serializer(
        self, topic: str, message_type: Any, *, is_key: bool = False
    ) -> "RegistrySerializationSchema":
        """Messages of Protobuf; their schema is registered if it is new."""
        return RegistrySerializationSchema(
            self, partial(_protobuf_writing, message_type), topic, is_key
        )


class RegistryDeserializationSchema(DeserializationSchema):
    """Reads bytes that begin with the number of their schema. Made by ``SchemaRegistry``."""

    def __init__(self, registry: SchemaRegistry, make: Callable[[Any], Any]) -> None:
        self._codec = RegistryCodec(registry, make)

    def deserialize(self, message: bytes) -> Record:
        return self._codec.call(message, None)

    def get_produced_type(self) -> TypeInformation:
        return Types.PICKLED_BYTE_ARRAY()

    def open(self) -> None:
        """Before the first record of a task."""
        self._codec.open()

    def close(self) -> None:
        """Once for each ``open``."""
        self._codec.close()


class RegistrySerializationSchema(SerializationSchema):
    """Writes bytes that begin with the number of their schema. Made by ``SchemaRegistry``."""

    def __init__(
        self, registry: SchemaRegistry, make: Callable[[Any], Any], topic: str, is_key: bool
    ) -> None:
        if not str(topic or ""):
            raise PlanInvalid(
                "SchemaRegistry: name the topic, under which the schema is registered"
            )
        self._codec = RegistryCodec(registry, make)
        self._topic = topic
        self._is_key = is_key

    def serialize(self, value: Record) -> bytes:
        data: bytes = self._codec.call(value, (self._topic, "key" if self._is_key else "value"))
        return data

    def open(self) -> None:
        """Before the first record of a task."""
        self._codec.open()

    def close(self) -> None:
        """Once for each ``open``."""
        self._codec.close()


class RegistryCodec:
    """A serializer or deserializer of the client, made in the tasks and shared by them."""

    def __init__(self, registry: SchemaRegistry, make: Callable[[Any], Any]) -> None:
        """``make`` is given the client of the registry."""
        self._registry = registry
        self._make = make
        self._lock = threading.Lock()
        self._users = 0
        self._codec: Callable[..., Any] | None = None
        self._client: Any = None

    def __getstate__(self) -> tuple[SchemaRegistry, Callable[[Any], Any]]:
        return self._registry, self._make

    def __setstate__(self, state: tuple[SchemaRegistry, Callable[[Any], Any]]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def open(self) -> None:
        with self._lock:
            if not self._users:
                self._client = join_client(self._registry)
                try:
                    self._codec = self._make(self._client)
                except Exception as error:
                    leave_client(self._registry)
                    raise _problem(self._registry, error) or PlanInvalid(
                        f"SchemaRegistry cannot use a schema: {type(error).__name__}: {error}"
                    ) from error
            self._users += 1

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._codec = self._client = None
                leave_client(self._registry)

    def call(self, value: Any, where: tuple[str, str] | None) -> Any:
        """Read or write one value; ``where`` is the topic, and whether it is key or value."""
        if self._codec is None:
            self.open()  # used outside of a connector, by ``map`` for instance
        assert self._codec is not None
        context = None
        if where is not None:
            serialization = library("confluent_kafka.serialization", "kafka", "SchemaRegistry")
            context = serialization.SerializationContext(*where)
        try:
            return self._codec(value, context)
        except Exception as error:
            problem = _problem(self._registry, error)
            if problem is None:
                raise
            raise problem from error


_LOCK: Final = threading.Lock()
_CLIENTS: Final[dict[tuple[tuple[str, str], ...], tuple[Any, int]]] = {}
"""By address and properties: the client, and how many use it."""


def join_client(registry: SchemaRegistry) -> Any:
    """The client of a registry, made for the first who needs it."""
    module = library(_PACKAGE, "kafka", "SchemaRegistry")
    key = _key(registry)
    with _LOCK:
        client, users = _CLIENTS.get(key, (None, 0))
        if client is None:
            try:
                client = module.SchemaRegistryClient(registry.properties)
            except (TypeError, ValueError) as error:
                raise PlanInvalid(f"SchemaRegistry {registry.url}: {error}") from error
        _CLIENTS[key] = client, users + 1
        return client


def leave_client(registry: SchemaRegistry) -> None:
    """The last one closes it."""
    key = _key(registry)
    with _LOCK:
        client, users = _CLIENTS.pop(key)
        if users > 1:
            _CLIENTS[key] = client, users - 1
            return
    client.__exit__(None, None, None)  # older ones have no close()


def _key(registry: SchemaRegistry) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in registry.properties.items()))


def _problem(registry: SchemaRegistry, error: BaseException) -> ConnectorError | None:
    """What to raise if the registry could not be asked; None: the value is at fault."""
    cause: BaseException | None = error
    while cause is not None:
        status = getattr(cause, "http_status_code", None)
        if status in (401, 403):
            return KafkaRefused(
                f"SchemaRegistry {registry.url} refuses the credentials ({clause(cause)}); check "
                f"basic.auth.user.info"
            )
        if status is not None and (status == 429 or status >= 500):
            return KafkaUnready(f"SchemaRegistry {registry.url} does not answer: {cause}")
        if type(cause).__module__.startswith(_HTTP):
            return KafkaUnready(
                f"SchemaRegistry {registry.url} cannot be reached "
                f"({type(cause).__name__}: {clause(cause)}); check its address, and that it runs"
            )
        cause = cause.__cause__ or cause.__context__
    return None


# What is made of the client, in the tasks.


def _no_subject(*asked: object) -> None:
    """Records are read by the number of their schema, whatever subjects it is under."""


_READING: Final = {"subject.name.strategy": _no_subject}


def _avro_reading(schema: str | None, client: Any) -> Any:
    return _module("avro").AvroDeserializer(client, schema, conf=_READING)


def _json_reading(schema: str | None, client: Any) -> Any:
    make = _module("json_schema").JSONDeserializer
    return make(schema, schema_registry_client=client, conf=_READING)


def _protobuf_reading(message_type: Any, client: Any) -> Any:
    make = _module("protobuf").ProtobufDeserializer
    conf = {"use.deprecated.format": False, **_READING}
    return make(message_type, conf, schema_registry_client=client)


def _avro_writing(schema: str, client: Any) -> Any:
    return _module("avro").AvroSerializer(client, schema)


def _json_writing(schema: str, client: Any) -> Any:
    return _module("json_schema").JSONSerializer(schema, client)


def _protobuf_writing(message_type: Any, client: Any) -> Any:
    make = _module("protobuf").ProtobufSerializer
    return make(message_type, client, {"use.deprecated.format": False})


def _module(name: str) -> Any:
    return library(f"{_PACKAGE}.{name}", "kafka", "SchemaRegistry")
