"""Values whose schemas a registry keeps, through a real HTTP server, both ways."""

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.base.errors import HeadgateError, KafkaRefused, KafkaUnready, PlanInvalid
from headgate.connectors.kafka.offsets import KafkaOffsetsInitializer
from headgate.connectors.kafka.schema_registry import SchemaRegistry
from tests.connectors.kafka.kit import MockCluster, text_source
from tests.connectors.kafka.registry_kit import RegistryServer
from tests.connectors.kit import read_to_end, task_context
from tests.servers import free_port

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "item", "type": "string"}, {"name": "count", "type": "long"}],
    }
)
JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["item"],
    }
)
ORDER = {"item": "tea", "count": 3}
ONCE = {"max.retries": 0}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    made = RegistryServer()
    yield made
    made.close()


def written(schema: Any, *values: Any) -> list[bytes]:
    schema = pickle.loads(pickle.dumps(schema))  # as it travels to a task
    schema.open()
    try:
        return [schema.serialize(value) for value in values]
    finally:
        schema.close()


def read(schema: Any, *messages: bytes) -> list[Any]:
    schema = pickle.loads(pickle.dumps(schema))
    schema.open()
    try:
        return [schema.deserialize(message) for message in messages]
    finally:
        schema.close()


def test_avro_is_written_and_read_by_schemas_of_the_registry(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    messages = written(registry.avro_serializer("orders", AVRO), ORDER, ORDER)
    assert messages[0][:5] == b"\x00\x00\x00\x00\x01"
    assert list(server.subjects) == ["orders-value"]
    server.asked.clear()
    assert read(registry.avro_deserializer(), *messages) == [ORDER, ORDER]
    assert server.asked == ["schemas/ids/1"], "a schema is asked for once"


def test_a_reader_may_have_a_later_schema(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    messages = written(registry.avro_serializer("orders", AVRO), ORDER)
    later = json.loads(AVRO)
    later["fields"][1] = {"name": "price", "type": "double", "default": 0.5}
    found = read(registry.avro_deserializer(json.dumps(later)), *messages)
    assert found == [{"item": "tea", "price": 0.5}]


def test_json_is_checked_against_its_schema(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    schema = registry.json_serializer("orders", JSON, is_key=True)
    messages = written(schema, ORDER)
    assert list(server.subjects) == ["orders-key"]
    assert read(registry.json_deserializer(), *messages) == [ORDER]
    assert read(registry.json_deserializer(JSON), *messages) == [ORDER]
    with pytest.raises(Exception, match="'item' is a required property"):
        written(schema, {"count": 1})


def order_message() -> Any:
    """The class that protoc would make of a message with an item and a count."""
    descriptors = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    file = descriptors.FileDescriptorProto(
        name="headgate_order.proto", package="shop", syntax="proto3"
    )
    message = file.message_type.add(name="Order")
    message.field.add(name="item", number=1, type=9, label=1)
    message.field.add(name="count", number=2, type=3, label=1)
    descriptor = descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(descriptor.message_types_by_name["Order"])


def test_protobuf_messages_come_back_as_they_were(server: RegistryServer) -> None:
    kind = order_message()
    registry = SchemaRegistry(server.url)
    writing = registry.protobuf_serializer("orders", kind)
    reading = registry.protobuf_deserializer(kind)
    for schema in (writing, reading):
        schema.open()
    assert reading.deserialize(writing.serialize(kind(**ORDER))) == kind(**ORDER)
    for schema in (writing, reading):
        schema.close()
    assert list(server.subjects) == ["orders-value"]


def test_a_source_reads_what_the_registry_describes(
    server: RegistryServer, cluster: MockCluster
) -> None:
    registry = SchemaRegistry(server.url)
    orders = [{"item": f"tea {n}", "count": n} for n in range(20)]
    messages = written(registry.avro_serializer("orders", AVRO), *orders)
    topic = cluster.new_topic()
    cluster.produce(topic, [message.decode("latin-1") for message in messages])
    schema = registry.avro_deserializer()
    source = text_source(cluster, topic, schema=schema, stop=KafkaOffsetsInitializer.latest())
    [split] = source.splits(1)
    reader = source.open(split, None, task_context())
    assert read_to_end(reader) == orders
    reader.close()


def test_a_registry_that_fails_is_not_taken_for_a_malformed_record(
    server: RegistryServer, cluster: MockCluster
) -> None:
    registry = SchemaRegistry(server.url, ONCE)
    [message] = written(registry.avro_serializer("orders", AVRO), ORDER)
    topic = cluster.new_topic()
    cluster.produce(topic, [message.decode("latin-1")])
    server.broken = True
    source = text_source(cluster, topic, schema=registry.avro_deserializer())
    [split] = source.splits(1)
    reader = source.open(split, None, task_context())
    with pytest.raises(KafkaUnready, match="does not answer: .*503"):
        read_to_end(reader)
    reader.close()


def test_bytes_without_a_schema_are_malformed(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url, ONCE)
    for message in (b"plain text", b"\x00\x00\x00\x00\x09rest", b""):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the client raises what it likes
            read(registry.avro_deserializer(), message)
        assert not isinstance(caught.value, KafkaUnready | KafkaRefused)


def test_a_registry_that_is_not_there_is_named() -> None:
    registry = SchemaRegistry(f"http://127.0.0.1:{free_port()}", ONCE)
    with pytest.raises(KafkaUnready, match="cannot be reached .*check its address, and that"):
        read(registry.avro_deserializer(), b"\x00\x00\x00\x00\x01x")


@pytest.mark.parametrize("address", ["http://{}@127.0.0.1:1", "htp://{}@host", "{}@host:1"])
def test_no_password_of_an_address_is_shown(address: str) -> None:
    with pytest.raises(HeadgateError) as caught:
        written(
            SchemaRegistry(address.format("me:sehr/geheim"), ONCE).avro_serializer("orders", AVRO),
            ORDER,
        )
    assert "geheim" not in str(caught.value)


def test_wrong_credentials_are_told() -> None:
    server = RegistryServer(user="me:secret")
    try:
        wrong = SchemaRegistry(server.url, {"basic.auth.user.info": "me:guess", **ONCE})
        with pytest.raises(KafkaRefused, match="refuses the credentials .*basic.auth.user.info"):
            written(wrong.avro_serializer("orders", AVRO), ORDER)
        right = SchemaRegistry(server.url, {"basic.auth.user.info": "me:secret"})
        assert written(right.avro_serializer("orders", AVRO), ORDER)
    finally:
        server.close()


def test_addresses_and_schemas_that_are_none_are_refused(server: RegistryServer) -> None:
    with pytest.raises(PlanInvalid, match="give http://host:port"):
        SchemaRegistry("registry:8081")
    with pytest.raises(PlanInvalid, match="name the topic"):
        SchemaRegistry(server.url).avro_serializer("", AVRO)
    with pytest.raises(PlanInvalid, match="cannot use a schema"):
        written(SchemaRegistry(server.url).avro_serializer("orders", "{"), ORDER)
