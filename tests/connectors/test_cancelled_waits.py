"""Sinks whose server is away, or does not answer, end with their task and not much later."""

import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headgate.connectors.sql import DbApiSink
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import DeliveryGuarantee
from tests.connectors.kit import PATIENCE_S, CancelledTask, nothing_leaks
from tests.servers import free_port

ENDLESS = (
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) INSERT INTO t SELECT x FROM n"
)


@pytest.fixture
def silent() -> Iterator[int]:
    """A port where connections come about, and nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


class DeafServer:
    """Takes a request, and never answers."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.asked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deaf server")
        self._thread.start()

    def _run(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            while connection.recv(4096):
                self.asked.set()

    def close(self) -> None:
        """When its client has gone."""
        self._thread.join(PATIENCE_S)
        self._server.close()


@pytest.fixture
def deaf(no_leaks: None) -> Iterator[DeafServer]:
    with closing(DeafServer()) as server:
        yield server


@pytest.fixture(autouse=True)
def no_leaks(silent: int) -> Iterator[None]:
    with nothing_leaks():
        yield


def written(
    make_writer: Callable[[ConnectorContext], Any],
    *records: object,
    when: Callable[[], bool] | None = None,
) -> None:
    """Written, flushed, and closed while the task is cancelled."""
    task = CancelledTask()
    writer = make_writer(task.context)

    def write() -> None:
        writer.write(list(records))
        writer.flush()

    try:
        task.cancel_while(write, when)
    finally:
        writer.close()


def test_a_lost_redis_server() -> None:
    pytest.importorskip("redis")
    from headgate.connectors.redis.sink import RedisStreamSink

    sink = RedisStreamSink(f"redis://127.0.0.1:{free_port()}/0", "words", schema=str.encode)
    written(sink.create_writer, "a")


def test_a_redis_server_that_does_not_answer(deaf: DeafServer) -> None:
    pytest.importorskip("redis")
    from headgate.connectors.redis.sink import RedisStreamSink

    sink = RedisStreamSink(f"redis://127.0.0.1:{deaf.port}/0", "words", schema=str.encode)
    written(sink.create_writer, "a", when=deaf.asked.is_set)


def test_an_endpoint_that_does_not_answer(deaf: DeafServer) -> None:
    pytest.importorskip("urllib3")
    from headgate.connectors.http.sink import HttpSink

    sink = HttpSink(f"http://127.0.0.1:{deaf.port}/", str.encode)
    written(sink.create_writer, "a", when=deaf.asked.is_set)


def test_an_endpoint_that_does_not_answer_when_a_checkpoint_is_committed(deaf: DeafServer) -> None:
    pytest.importorskip("urllib3")
    committed_to(f"http://127.0.0.1:{deaf.port}/", deaf.asked.is_set)


def test_a_silent_nats_server(silent: int) -> None:
    pytest.importorskip("nats")
    from headgate.connectors.nats.sink import NatsSink

    sink, task = NatsSink(f"nats://127.0.0.1:{silent}", "words", str.encode), CancelledTask()
    task.cancel_while(lambda: sink.create_writer(task.context))


@pytest.mark.parametrize("guarantee", ["AT_LEAST_ONCE", "EXACTLY_ONCE"])
def test_a_silent_kafka_broker(silent: int, guarantee: str) -> None:
    pytest.importorskip("confluent_kafka")
    from headgate.connectors.kafka.serialization import KafkaRecordSerializationSchema
    from headgate.connectors.kafka.sink import KafkaSink

    schema = KafkaRecordSerializationSchema.builder().set_topic("words")
    schema = schema.set_value_serialization_schema(str.encode).build()
    sink = KafkaSink(
        f"127.0.0.1:{silent}",
        schema,
        guarantee=DeliveryGuarantee[guarantee],
        transactional_id_prefix="test",
    )
    task = CancelledTask()
    task.cancel_while(lambda: sink.create_writer(task.context))


def test_an_endpoint_that_is_away() -> None:
    pytest.importorskip("urllib3")
    from headgate.connectors.http.sink import HttpSink

    sink = HttpSink(f"http://127.0.0.1:{free_port()}/", str.encode)
    written(sink.create_writer, "a")


def test_an_endpoint_that_is_away_when_a_checkpoint_is_committed() -> None:
    pytest.importorskip("urllib3")
    committed_to(f"http://127.0.0.1:{free_port()}/")


def committed_to(url: str, when: Callable[[], bool] | None = None) -> None:
    """A batch of a checkpoint, while the task is cancelled."""
    from headgate.connectors.http.sink import HttpSink

    sink = HttpSink(url, str.encode, guarantee=DeliveryGuarantee.EXACTLY_ONCE)
    task = CancelledTask()
    writer, committer = sink.create_writer(task.context), sink.create_committer(task.context)
    writer.write(["a"])
    writer.flush()
    lots = writer.prepare_commit(SnapshotMoment(1, 0))

    task.cancel_while(lambda: committer.commit(lots), when)

    writer.close()
    committer.close()


def test_a_lost_postgres_server() -> None:
    pytest.importorskip("psycopg")
    from headgate.connectors.postgres.client import Limits, SinkDatabase

    dsn, task = f"postgresql://127.0.0.1:{free_port()}/none", CancelledTask()
    database = SinkDatabase(dsn, "sink", Limits(1000, 1000), sleep=task.context.sleep)
    task.cancel_while(lambda: database.repeat(lambda connection: None))


def test_a_statement_that_does_not_end(tmp_path: Path) -> None:
    path = str(tmp_path / "test.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    connect = lambda: sqlite3.connect(path, check_same_thread=False)  # noqa: E731
    sink = DbApiSink(connect, f"{ENDLESS} WHERE ? > 0", exactly_once=False)
    written(sink.create_writer, (1,))
