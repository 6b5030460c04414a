"""Keyed state in RocksDB, on a local Spark from end to end."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import BackendMissing, HeadgateError, SettingsInvalid
from headgate.common import Configuration
from headgate.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from headgate.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tests.spark.programs import collected

pytestmark = pytest.mark.usefixtures("spark")


class Everything(KeyedProcessFunction):
    """Keeps what it sees in every kind of state, and tells it with the 100th record of a key."""

    def open(self, runtime_context: Any) -> None:
        context = runtime_context
        self.count = context.get_state(ValueStateDescriptor("count"))
        self.seen = context.get_list_state(ListStateDescriptor("seen"))
        self.by_digit = context.get_map_state(MapStateDescriptor("by digit"))
        self.most = context.get_reducing_state(ReducingStateDescriptor("most", max))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.seen.add(value)
        self.by_digit[value % 10] = (self.by_digit[value % 10] or 0) + 1
        self.most.add(value)
        if count == 100:
            digits = sorted(self.by_digit.items())
            yield ctx.get_current_key(), list(self.seen.get()), digits, self.most.get()


def by_seven(value: int) -> int:
    return value % 7


def environment(folder: Path, **settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("state.backend.type", "rocksdb")
    configuration.set_string("state.backend.rocksdb.memory", "16mb")
    configuration.set_string("state.backend.rocksdb.localdir", str(folder))
    for key, text in settings.items():
        configuration.set_string(key, text)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(2)


def test_every_kind_of_state_is_kept_in_files_of_the_workers(tmp_path: Path) -> None:
    numbers = environment(tmp_path).from_collection([*range(700)])
    found = collected(numbers.key_by(by_seven).process(Everything()))
    expected = []
    for key in range(7):
        seen = [*range(key, 700, 7)]
        digits = sorted(Counter(number % 10 for number in seen).items())
        expected.append((key, seen, digits, max(seen)))
    assert found == expected
    assert [*tmp_path.iterdir()] == [], "a worker has left files"


def test_a_folder_that_is_not_there_fails_the_job_with_operator_and_setting(
    tmp_path: Path,
) -> None:
    env = environment(tmp_path / "nowhere")
    stream = env.from_collection([1, 2]).key_by(by_seven).process(Everything()).name("summing")
    with pytest.raises(HeadgateError, match=r"nowhere.*state\.backend\.rocksdb\.localdir"):
        collected(stream)


def test_a_driver_without_rocksdict_refuses_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = environment(tmp_path).from_collection([1]).key_by(by_seven).process(Everything())
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(BackendMissing, match=r"pip install '\.\[rocksdb\]'"):
        collected(stream)


def test_a_backend_that_nobody_knows_is_refused_before_spark_is_asked(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"state.backend.type": "filesystem"})
    stream = env.from_collection([1]).key_by(by_seven).process(Everything())
    with pytest.raises(SettingsInvalid, match="none of hashmap, rocksdb"):
        collected(stream)
