"""Tables of lakes in an object store, written and read through their own libraries."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import PathUnusable, TableUnready
from headgate.functions.sink import TwoPhaseCommittingSink
from tests.connectors.kit import read_to_end, task_context
from tests.connectors.lake_kit import checkpoint, feed, restored
from tests.core.chain.sink_lab import open_sink, sink_context
from tests.s3_kit import Store
from tests.servers import free_port

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("moto")

from headgate.connectors.delta.sink import DeltaSink
from headgate.connectors.delta.source import DeltaEnumerator, DeltaSource
from headgate.connectors.iceberg.sink import IcebergSink
from headgate.connectors.iceberg.source import IcebergSource
from tests.connectors.delta import kit

context = partial(sink_context, now_ms=kit.now_ms)
"""Tables that are created remember commits of the last month."""


def options_of(port: int, key: str = "test") -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": "topsecret",
        "AWS_REGION": "us-east-1",
        "max_retries": "0",
        "retry_timeout": "1s",
    }


def found(source: DeltaSource, enumerator: DeltaEnumerator) -> list[tuple[int, str]]:
    splits = enumerator.discover()
    rows = [
        row for split in splits for row in read_to_end(source.open(split, None, task_context()))
    ]
    return sorted((row["n"], row["word"]) for row in rows)


def test_tables_in_a_store_are_written_once_and_followed(store: Store) -> None:
    options = options_of(store.port, "fickle")
    place = {"schema": kit.SCHEMA, "create": True, "storage_options": options}
    append = DeltaSink("s3://shop/sales", partition_by=["word"], **place)  # type: ignore[arg-type]
    task = open_sink(append, context())
    feed(task, (1, "a b"), (2, "c"))
    state = checkpoint(task, 1)
    task.checkpoint_completed(1)
    open_sink(append, context(restored=restored(state))).close()
    source = DeltaSource("s3://shop/sales", follow=True, storage_options=options)
    enumerator = source.create_enumerator(1, None)
    assert found(source, enumerator) == [(1, "a b"), (2, "c")]
    feed(task, (3, "c"))
    checkpoint(task, 2)
    task.checkpoint_completed(2)
    task.close()
    assert found(source, enumerator) == [(3, "c")]
    upsert = DeltaSink("s3://shop/last", mode="upsert", keys=["n"], **place)  # type: ignore[arg-type]
    task = open_sink(upsert, context())
    feed(task, (1, "a"), (2, "b"), (1, "z"))
    checkpoint(task, 1)
    task.checkpoint_completed(1)
    last = DeltaSource("s3://shop/last", storage_options=options)
    assert found(last, last.create_enumerator(1, None)) == [(1, "z"), (2, "b")]
    feed(task, (5, "e"))
    store.refuse("fickle", "SlowDown", 503)
    with pytest.raises(
        PathUnusable, match=r"_headgate/changes-.* cannot be written: the store throttles "
    ):
        checkpoint(task, 2)
    task.close()


MakeSink = Callable[[str, str], TwoPhaseCommittingSink]
"""With an access key and a bucket."""


def delta_sink(store: Store, folder: Path, key: str, bucket: str) -> DeltaSink:
    place, options = f"s3://{bucket}/{folder.name}", options_of(store.port, key)
    return DeltaSink(place, schema=kit.SCHEMA, create=True, storage_options=options)


def iceberg_sink(store: Store, folder: Path, key: str, bucket: str) -> IcebergSink:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/{bucket}.db",
        "warehouse": f"s3://{bucket}/{folder.name}",
        "s3.endpoint": f"http://127.0.0.1:{store.port}",
        "s3.access-key-id": key,
        "s3.secret-access-key": "topsecret",
        "s3.region": "us-east-1",
    }
    return IcebergSink(catalog, "shop.sales", schema=kit.SCHEMA, create=True)


@pytest.fixture(params=[delta_sink, iceberg_sink])
def make_sink(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> MakeSink:
    """Of a table that is created with the first sink."""
    return partial(request.param, store, tmp_path)


def refused(sink: TwoPhaseCommittingSink) -> str:
    with pytest.raises(TableUnready) as caught:
        open_sink(sink, context())
    return str(caught.value)


def written(sink: Any) -> list[int]:
    source: Any
    if isinstance(sink, DeltaSink):
        source = DeltaSource(sink.address.uri, storage_options=sink.address.options)
    else:
        source = IcebergSource(sink.address.catalog, sink.address.table)
    enumerator = source.create_enumerator(1, None)
    numbers = [
        row["n"]
        for split in enumerator.discover()
        for row in read_to_end(source.open(split, None, task_context()))
    ]
    enumerator.close()
    return sorted(numbers)


def test_wrong_credentials_and_a_missing_bucket_are_told_in_a_sentence(
    store: Store, make_sink: MakeSink
) -> None:
    store.refuse("stranger", "InvalidAccessKeyId")
    store.refuse("liar", "SignatureDoesNotMatch")
    is_delta = isinstance(make_sink("right", "shop"), DeltaSink)
    unsaid = "the store refuses these credentials; check them, and that they may list, read,"
    sentences = {
        "stranger": "the access key is unknown to the store; check AWS_ACCESS_KEY_ID",
        "liar": "the secret key does not fit the access key; check AWS_SECRET_ACCESS_KEY",
    }
    for key, sentence in sentences.items():
        text = refused(make_sink(key, "shop"))
        assert (sentence if is_delta else unsaid) in text  # Arrow asks with HEAD
        assert "topsecret" not in text and "\n" not in text
    text = refused(make_sink("right", "nowhere"))
    assert "there is no such bucket; make the bucket, or name another one" in text


def test_rights_that_are_withdrawn_in_the_middle_cost_no_record(
    store: Store, make_sink: MakeSink, tmp_path: Path
) -> None:
    key = f"dismissed-{tmp_path.name}"
    task = open_sink(make_sink(key, "shop"), context())
    feed(task, (1, "a"))
    state = checkpoint(task, 1)
    feed(task, (2, "b"))
    store.refuse(key, "AccessDenied")
    with pytest.raises(TableUnready, match="cannot be opened: (access is denied|the store refuse)"):
        task.checkpoint_completed(1)
    with pytest.raises(PathUnusable, match="cannot be written: access is denied; allow these cr"):
        checkpoint(task, 2)
    task.close()
    sink = make_sink("right", "shop")
    task = open_sink(sink, context(restored=restored(state), attempt=1))
    feed(task, (2, "b"))
    checkpoint(task, 2)
    task.checkpoint_completed(2)
    task.close()
    assert written(sink) == [1, 2]


def test_a_store_that_does_not_answer_is_named() -> None:
    sink = DeltaSink("s3://shop/sales", storage_options=options_of(free_port()))
    with pytest.raises(TableUnready, match="the Delta table at s3://shop/sales cannot be opened"):
        open_sink(sink, context())
