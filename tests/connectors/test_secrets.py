"""Passwords in addresses are in no message, name or repr of a connector, however written."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from headgate.base.errors import HeadgateError, PlanInvalid
from headgate.connectors.files.remote_folder import open_system
from headgate.connectors.http.poster import HttpEndpoint
from headgate.connectors.kafka.schema_registry import SchemaRegistry
from headgate.connectors.libraries import clause
from headgate.connectors.mqtt.client import MqttBroker
from headgate.connectors.nats.client import NatsServers
from headgate.connectors.paths import local_path, short_place
from headgate.connectors.postgres.client import check_dsn, connect
from headgate.connectors.redis.client import RedisServer
from headgate.connectors.streaming.log_folder import LogFolder
from headgate.datastream import connectors
from headgate.host.checkpoints.folder import open_folder

PW = "hUnter2"


def redis(url: str) -> object:
    server = RedisServer("RedisStreamSource", url)
    return server.address, server.client("me"), server.problem(OSError(f"no {url}"), "reading")


def nats(url: str) -> object:
    servers = NatsServers.given("NatsSource", url, None)
    return servers.address, servers.problem(OSError(f"no {url}"), "reading")


def mqtt(url: str) -> object:
    broker = MqttBroker("MqttSource", url)
    return broker.address, broker.client(), broker.problem(OSError(f"no {url}"), "reading")


def postgres(dsn: str) -> object:
    return connect(check_dsn(dsn, "PostgresSink"), "PostgresSink", connect_timeout=1)


def http(url: str) -> object:
    return HttpEndpoint(url, "POST", {"Authorization": f"Bearer {PW}"})


def folder(uri: str) -> object:
    return open_system(uri)


@pytest.mark.parametrize(
    ("use", "url"),
    [
        *(
            (redis, f"redis://{login}@localhost:1/0")
            for login in (f":{PW}", f"u:a/{PW}", f"u:{PW}/a")
        ),
        *(
            (redis, f"redis://:{part}@localhost")
            for part in (f"{PW}?", f"#{PW}", f"a@{PW}", f"[{PW}")
        ),
        (redis, f"redis://localhost:{PW}"),
        (redis, f"redis://:\uff0f{PW}@localhost"),
        *(
            (nats, f"nats://{login}@localhost:1")
            for login in (PW, f"u:{PW}", f"u:{PW}/a", f"u:a@{PW}")
        ),
        (nats, f"nats://u:a,{PW}@localhost"),
        (nats, f"nats://localhost:{PW}"),
        *((mqtt, f"mqtt://u:{part}@localhost") for part in (PW, f"{PW}/a", f"a@{PW}")),
        (mqtt, f"mqtt://localhost:{PW}"),
        *(
            (postgres, f"postgresql://u:{part}@localhost:1/db")
            for part in (PW, f"{PW}/a", f"a@{PW}")
        ),
        (postgres, f"postgresql://u:a/{PW}@localhost:1/db"),
        (postgres, f"host=localhost port=1 password='a {PW}"),
        (postgres, f"host=localhost port=1 password=a {PW}"),
        (http, f"https://u:{PW}@localhost/x"),
        (http, f"https://u:a/{PW}@localhost/x"),
        (http, f"https://localhost/x?sig={PW}"),
        *(
            (use, uri)
            for use in (folder, LogFolder, open_folder)
            for uri in (f"s3://AKIAX:a/{PW}@bucket/x", f"nofs://u:{PW}@host/x")
        ),
        (SchemaRegistry, f"u:{PW}@localhost:1"),
        (SchemaRegistry, f"ftp://u:a/{PW}@localhost:1"),
    ],
)
def test_nothing_of_a_password_is_shown(use: Callable[[str], object], url: str) -> None:
    pytest.importorskip("redis")
    pytest.importorskip("nats")
    pytest.importorskip("paho.mqtt")
    pytest.importorskip("psycopg")
    try:
        said = repr(use(url))
    except HeadgateError as error:
        said = "".join(traceback.format_exception(error))
        said = "\n".join(line for line in said.splitlines() if not line.startswith(" "))
    assert PW not in said


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:p%2Fw@[::1]:6379/0?db=1",
        "redis://localhost",
        "redis://:p:w@h",
        "unix:///tmp/x.sock",
    ],
)
def test_proper_addresses_are_taken(url: str) -> None:
    pytest.importorskip("redis")
    server = RedisServer("RedisStreamSource", url)
    assert server.url == url
    server.client("me").connection_pool.make_connection()
    assert check_dsn("postgresql://h:5432/db?application_name=a@b", "PostgresSink")


def test_an_option_that_the_client_does_not_know_is_refused() -> None:
    pytest.importorskip("redis")
    with pytest.raises(PlanInvalid, match="cannot be used.*nonsense"):
        RedisServer("RedisStreamSource", "redis://localhost?nonsense=1").client("me")


PLACE = f"s3://AKIAX:{PW}@bucket/x?secret_key={PW}"
CATALOG = {"uri": f"postgresql://u:{PW}@h/db", "s3.secret-access-key": PW}
OPTIONS = {"AWS_SECRET_ACCESS_KEY": PW}
KAFKA = {"sasl.password": PW}


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        *((name, [PLACE], {}) for name in ("TextFileSource", "CsvSource", "JsonLinesSource")),
        *((name, [PLACE], {}) for name in ("TextFileSink", "CsvSink", "JsonLinesSink")),
        *((name, [PLACE], {}) for name in ("ParquetSource", "ParquetSink", "DeltaSource")),
        *(
            (name, ["s3://b/x"], {"storage_options": OPTIONS})
            for name in ("DeltaSource", "DeltaSink")
        ),
        *((name, [CATALOG, "a.b"], {}) for name in ("IcebergSource", "IcebergSink")),
        ("KafkaSource", [], {"bootstrap_servers": "h:1", "topics": "t", "properties": KAFKA}),
        ("NatsSource", [f"nats://u:{PW}@h", "subject", "stream"], {}),
        ("NatsSink", [f"nats://u:{PW}@h", "subject", str.encode], {}),
        *(
            (name, [f"redis://:{PW}@h", "s"], {})
            for name in ("RedisStreamSource", "RedisStreamSink")
        ),
        ("PostgresSink", [f"postgresql://u:{PW}@h/db", "t"], {}),
        ("PostgresChangesSource", [f"postgresql://u:{PW}@h/db", ["t"]], {}),
        ("HttpSink", [f"https://h/x?sig={PW}", str.encode], {"headers": {"Authorization": PW}}),
    ],
)
def test_no_repr_of_a_connector_shows_a_secret(
    name: str, arguments: list[Any], options: dict[str, Any]
) -> None:
    assert PW not in repr(getattr(connectors, name)(*arguments, **options))


def test_names_of_operators_show_no_secret() -> None:
    assert short_place(f"s3://AKIAX:a/{PW}@bucket/x?secret={PW}") == "s3://bucket/x"
    with pytest.raises(PlanInvalid) as caught:
        local_path(f"s3://AKIAX:a/{PW}@bucket/x")
    assert PW not in str(caught.value)


def test_what_a_library_says_is_shown_without_secrets() -> None:
    assert clause(f"cannot open s3://k:{PW}@bucket. ") == "cannot open s3://******@bucket"
