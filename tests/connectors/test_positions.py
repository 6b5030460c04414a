"""Every source of the house: a reader that is cut anywhere goes on without loss or repetition."""

import importlib
import json
import pkgutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate.api
import headgate.connectors
from headgate.api.cached import CachedSource
from headgate.api.collection import collection_source
from headgate.base.errors import PlanInvalid
from headgate.connectors.arrow.table_source import ArrowTableSource
from headgate.connectors.dataframe.source import DataFrameSource
from headgate.connectors.delta.source import DeltaSource
from headgate.connectors.files.parquet_source import ParquetSource
from headgate.connectors.files.source import CsvSource, JsonLinesSource, TextFileSource
from headgate.connectors.function import FunctionSource
from headgate.connectors.generator import DataGeneratorSource, NumberSequenceSource
from headgate.connectors.iceberg.source import IcebergSource
from headgate.connectors.kafka.source import KafkaSource
from headgate.connectors.mqtt.source import MqttSource
from headgate.connectors.nats.source import NatsSource
from headgate.connectors.postgres.changes import PostgresChangesSource
from headgate.connectors.redis.source import RedisStreamSource
from headgate.connectors.socket import SocketTextSource
from headgate.connectors.streaming.source import StreamingInput
from headgate.core.chain.operator import PollResult
from headgate.core.operators.source import SourceOperator
from headgate.functions.context import SnapshotMoment
from headgate.functions.source import Source, why_not_rewound
from tests.core.chain.kit import context, open_operator
from tests.core.chain.restore_kit import restored, stored_state

TEXT = "".join(f"line {number}\r\n" if number % 3 else f"{number}\n" for number in range(40))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name in "abc":
        (folder / f"{name}.txt").write_text(TEXT.replace("line", name), newline="")
    rows = [{"n": n, "word": "x" * n} for n in range(20)]
    (folder / "rows.csv").write_text("n,word\n" + "".join(f"{n},w\n\n" for n in range(30)))
    (folder / "values.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with (folder / "rows.parquet").open("wb") as file:
        pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=6)
    return folder


Make = Callable[[Path], Source]
SOURCES: dict[str, Make] = {
    "numbers": lambda files: NumberSequenceSource(1, 50),
    "generator": lambda files: DataGeneratorSource(lambda index: index * 2, count=31),
    "collection": lambda files: collection_source(list("a collection"), None),
    "cached": lambda files: CachedSource(lambda: [(n, n) for n in range(30)]),
    "files": lambda files: TextFileSource(files / "*.txt"),
    "pieces of files": lambda files: TextFileSource(files / "*.txt", split_bytes=50),
    "CSV": lambda files: CsvSource(files / "rows.csv", header=True, split_bytes=60),
    "JSON lines": lambda files: JsonLinesSource(files / "values.jsonl", split_bytes=60),
    "Parquet": lambda files: ParquetSource(files / "rows.parquet", split_bytes=300),
}
ELSEWHERE = {
    ArrowTableSource: "arrow/test_table_source.py",
    FunctionSource: "test_function_positions.py",
    DataFrameSource: "test_dataframe_positions.py",
    DeltaSource: "delta/test_source.py",
    IcebergSource: "iceberg/test_source.py",
    KafkaSource: "kafka/test_source.py",
    MqttSource: "mqtt/test_source.py",
    NatsSource: "nats/test_source.py",
    PostgresChangesSource: "postgres/test_changes.py",
    RedisStreamSource: "redis/test_source.py",
    SocketTextSource: "below: it cannot rewind",
    StreamingInput: "streaming/test_input.py",
}


def read(operator: SourceOperator, output: Any, limits: list[int] | None = None) -> list[Any]:
    if limits is None:
        while operator.poll(7) is not PollResult.ENDED:
            pass
    else:
        for limit in limits:
            operator.poll(limit)
    operator.close()
    return list(output.records)


@pytest.mark.parametrize("name", SOURCES)
@given(st.lists(st.tuples(st.integers(1, 3), st.lists(st.integers(1, 12), max_size=6)), max_size=3))
def test_cut_anywhere_and_shared_out_anew_each_record_comes_once(
    files: Path, name: str, runs: list[tuple[int, list[int]]]
) -> None:
    source = SOURCES[name](files)
    splits = tuple(source.splits(2))
    whole = SourceOperator(source, splits)
    expected = read(whole, open_operator(whole))
    assert len(expected) > 10
    found: list[Any] = []
    states: Any = None
    for parallelism, limits in [(2, [3]), *runs, (2, None)]:  # type: ignore[list-item]
        tasks = []
        for subtask in range(parallelism):
            given_back = None if states is None else restored(states, subtask, parallelism)
            within = context(subtask=subtask, parallelism=parallelism)
            object.__setattr__(within, "restored", given_back)
            operator = SourceOperator(source, tuple(source.splits(parallelism)))
            tasks.append((operator, open_operator(operator, within=within)))
            for limit in limits or ():
                operator.poll(limit)
        states = [stored_state(operator) for operator, _ in tasks]
        for operator, output in tasks:
            found += read(operator, output, None if limits is None else [])
    assert sorted(found, key=str) == sorted(expected, key=str)


def sources_of_the_house() -> Iterator[type[Source]]:
    for room in (headgate.api, headgate.connectors):
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            importlib.import_module(module.name)
    yield from leaves(Source)


def leaves(kind: type[Source]) -> Iterator[type[Source]]:
    """Sources of ours that are no base of others; tests make their own."""
    ours = ("headgate.api.", "headgate.connectors.")
    inner = [below for below in kind.__subclasses__() if below.__module__.startswith(ours)]
    for below in inner:
        yield from leaves(below)
    if not inner and kind is not Source:
        yield kind


def test_no_source_is_forgotten(files: Path) -> None:
    covered = {type(make(files)) for make in SOURCES.values()}
    assert set(sources_of_the_house()) == covered | set(ELSEWHERE)


def test_every_source_says_what_other_splits_mean() -> None:
    for kind in sources_of_the_house():
        if kind is not SocketTextSource:
            assert kind.finds_more is not None, kind


def test_a_file_that_is_new_is_read_by_a_job_that_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n")
    source = TextFileSource(tmp_path)
    operator = SourceOperator(source, tuple(source.splits(1)))
    output = open_operator(operator)
    operator.poll(1)
    states = [stored_state(operator)]
    operator.close()
    (tmp_path / "b").write_text("4\n")
    within = context()
    object.__setattr__(within, "restored", restored(states, 0, 1))
    again = SourceOperator(source, tuple(source.splits(1)))
    rest = read(again, open_operator(again, within=within))
    assert output.records + rest == ["1", "2", "3", "4"]


def test_a_socket_cannot_rewind_and_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = SocketTextSource("127.0.0.1", server.getsockname()[1])
        reader = source.open("", None, context())
        assert reader.position_at(SnapshotMoment(1, 0)) is None
        reader.close()
    problem = why_not_rewound(source, "lines") or ""
    assert problem.startswith("source 'lines' cannot be read again from where a checkpoint was")
    assert "files or to a log" in problem


def test_a_generator_function_keeps_no_state() -> None:
    class Stateful:
        def initialize_state(self, context: object) -> None: ...

        def map(self, index: int) -> int:
            return index

    with pytest.raises(PlanInvalid, match="must follow from their index alone"):
        DataGeneratorSource(Stateful())  # type: ignore[arg-type]
