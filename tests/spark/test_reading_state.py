"""State of a job on Spark, read by its program, by the command and over HTTP."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.base.errors import StateUnreadable
from headgate.common import Configuration, JobClient
from headgate.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from headgate.datastream.connectors import DataGeneratorSource
from headgate.datastream.state import MapStateDescriptor, ValueStateDescriptor
from tests.cli.kit import Done, in_process
from tests.spark.cluster import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Headgate = Callable[..., Done]


class Latest(KeyedProcessFunction):
    """How many there were of a key, and the last of each parity."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", None))
        self.last = runtime_context.get_map_state(MapStateDescriptor("last", None, None))

    def process_element(self, value: int, ctx: object) -> Iterable[int]:
        self.count.update((self.count.value() or 0) + 1)
        self.last.put("even" if value % 2 == 0 else "odd", value)
        return []


def slowly(number: int) -> int:
    time.sleep(0.001)
    return number


@pytest.fixture
def headgate(
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Headgate:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return partial(in_process, monkeypatch, capsys)


@pytest.fixture(params=["hashmap", "rocksdb"])
def client(headgate: Headgate, request: pytest.FixtureRequest) -> Iterator[JobClient]:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.configure(Configuration().set_string("state.backend.type", request.param))
    numbers = env.from_source(DataGeneratorSource(slowly, None), None, "numbers")
    keyed = numbers.key_by(lambda number: (number % 3, "key"))
    keyed.process(Latest()).uid("latest").add_sink(lambda number: None)
    client = env.execute_async("reading")
    yield client
    client.cancel()


def test_program_and_command_read_the_state_of_a_running_job(
    client: JobClient, headgate: Headgate
) -> None:
    keys = [(n, "key") for n in range(3)]

    def counts() -> list[object]:
        return client.get_states("latest", "count", keys, timeout_s=90).result()

    assert until(lambda: all(counts()), 90)
    first, second = counts(), counts()
    assert all(before <= after for before, after in zip(first, second, strict=True))  # type: ignore[operator]
    assert until(lambda: len(client.get_state("latest", "last", keys[1]).result()) == 2, 60)  # type: ignore[arg-type]
    assert client.get_state("latest", "last", "nobody").result() == {}
    with pytest.raises(StateUnreadable, match=r"it has 'count' \(value\), 'last' \(map\)"):
        client.get_state("latest", "sum", keys[0]).result()
    done = headgate("get", "reading", "latest", "last", '[1, "key"]', "--json")
    assert done.returncode == 0, done.stderr
    (value,) = json.loads(done.stdout)["values"]
    assert value["key"] == [1, "key"] and set(value["value"]) == {"even", "odd"}
    done = headgate("get", "reading", "latest", "count", "7")
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing at the key 7" in done.stderr
