"""Delta tables in an object store: S3's protocol, spoken by a server in a process of its own."""

import http.client
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.base.errors import PathUnusable, TableUnready
from tests.connectors.kit import read_to_end, task_context
from tests.connectors.lake_kit import checkpoint, feed, restored
from tests.core.chain.sink_lab import open_sink, sink_context
from tests.servers import ServerProcess, accepts, free_port

pytest.importorskip("deltalake")
pytest.importorskip("moto")

from headgate.connectors.delta.sink import DeltaSink
from headgate.connectors.delta.source import DeltaEnumerator, DeltaSource
from tests.connectors.delta import kit


def options_of(port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "max_retries": "0",
        "retry_timeout": "1s",
    }


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[ServerProcess, dict[str, str]]]:
    """With a bucket ``lake``."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = ServerProcess(command, lambda: accepts(port), tmp_path / "store.log")
    server.start()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("PUT", "/lake")
        assert connection.getresponse().status == 200
        connection.close()
        yield server, options_of(port)
    finally:
        server.kill()


def found(source: DeltaSource, enumerator: DeltaEnumerator) -> list[tuple[int, str]]:
    splits = enumerator.discover()
    rows = [
        row for split in splits for row in read_to_end(source.open(split, None, task_context()))
    ]
    return sorted((row["n"], row["word"]) for row in rows)


def test_tables_in_a_store_are_written_once_and_followed(
    store: tuple[ServerProcess, dict[str, str]],
) -> None:
    server, options = store
    place = {"schema": kit.SCHEMA, "create": True, "storage_options": options}
    append = DeltaSink("s3://lake/sales", partition_by=["word"], **place)  # type: ignore[arg-type]
    task = open_sink(append, sink_context())
    feed(task, (1, "a b"), (2, "c"))
    state = checkpoint(task, 1)
    task.checkpoint_completed(1)
    open_sink(append, sink_context(restored=restored(state))).close()
    source = DeltaSource("s3://lake/sales", follow=True, storage_options=options)
    enumerator = source.create_enumerator(1, None)
    assert found(source, enumerator) == [(1, "a b"), (2, "c")]
    feed(task, (3, "c"))
    checkpoint(task, 2)
    task.checkpoint_completed(2)
    task.close()
    assert found(source, enumerator) == [(3, "c")]
    upsert = DeltaSink("s3://lake/last", mode="upsert", keys=["n"], **place)  # type: ignore[arg-type]
    task = open_sink(upsert, sink_context())
    feed(task, (1, "a"), (2, "b"), (1, "z"))
    checkpoint(task, 1)
    task.checkpoint_completed(1)
    last = DeltaSource("s3://lake/last", storage_options=options)
    assert found(last, last.create_enumerator(1, None)) == [(1, "z"), (2, "b")]
    feed(task, (5, "e"))
    server.kill()
    with pytest.raises(PathUnusable, match=r"_headgate/changes-.* cannot be written: OSError: "):
        checkpoint(task, 2)
    task.close()


def test_a_store_that_does_not_answer_is_named() -> None:
    sink = DeltaSink("s3://lake/sales", storage_options=options_of(free_port()))
    with pytest.raises(TableUnready, match="the Delta table at s3://lake/sales cannot be opened"):
        open_sink(sink, sink_context())
