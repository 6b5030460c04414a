"""Archives, files and packages that travel with a job; and the batch that goes to disk on Spark."""

import os
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.base.errors import PathUnusable, SessionFailed
from headgate.datastream import KeyedProcessFunction, RuntimeContext, RuntimeExecutionMode
from headgate.datastream.state import ValueStateDescriptor
from tests.spark.programs import collected, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


def read(path: str) -> tuple[str, bool, str]:
    """What a file says, whether it can be run, and where that was."""
    text = Path(path).read_text().strip()
    return text, os.access(path, os.X_OK), str(Path(path).resolve())


def test_archives_and_files_lie_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("hello\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/one").write_text("within\n")
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.write(tmp_path / "words.txt", "deep/words.txt")
    with tarfile.open(tmp_path / "more.tar.gz", "w:gz") as packed:
        packed.add(tmp_path / "words.txt", "words.txt")
    env = environment(1)
    env.add_python_archive(str(tmp_path / "data.zip"))
    env.add_python_archive(str(tmp_path / "more.tar.gz"), "more")
    env.register_cached_file(str(tmp_path / "words.txt"), "tools/run", executable=True)
    env.register_cached_file(str(tmp_path / "folder"), "all")
    paths = ["data.zip/deep/words.txt", "more/words.txt", "tools/run", "all/one"]
    found = dict(zip(paths, collected_in_order(env.from_collection(paths).map(read)), strict=True))
    assert [text for text, *_ in found.values()] == ["hello", "hello", "hello", "within"]
    assert [executable for _, executable, _ in found.values()] == [False, False, True, False]
    assert not any(Path(path).exists() for *_, path in found.values()), "all is gone"
    after = collected(environment(1).from_collection([1]).map(lambda number: os.getcwd()))
    assert after == [os.getcwd()], "the worker is back where it was"


def collected_in_order(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return list(results)


def test_a_file_that_was_changed_travels_again(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    for version in ("one", "two"):
        path.write_text(version)
        env = environment(1)
        env.register_cached_file(str(path), "model.txt")
        stream = env.from_collection(["model.txt"]).map(lambda name: Path(name).read_text())
        assert collected(stream) == [version]


def test_a_dataframe_job_has_its_files_too(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "rates.txt").write_text("7")
    env = environment(1)
    env.register_cached_file(str(tmp_path / "rates.txt"), "rates")
    rows = env.from_dataframe(spark.range(2).coalesce(1))
    priced = rows.map(lambda row: row.id * int(Path("rates").read_text()))
    assert collected(priced) == [0, 7]


def make_wheel(folder: Path) -> None:
    """A package that nobody has, as pip takes it."""
    info = "hgtally-1.0.dist-info"
    with zipfile.ZipFile(folder / "hgtally-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("hgtally.py", "def tally(n):\n    return '|' * n\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: hgtally\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_packages_of_a_requirements_file_can_be_imported(tmp_path: Path) -> None:
    make_wheel(tmp_path)
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("hgtally==1.0\n")
    env = environment(1)
    env.set_python_requirements(str(requirements), str(tmp_path))

    def tally(number: int) -> str:
        from hgtally import tally  # type: ignore[import-not-found]

        return str(tally(number))

    assert collected(env.from_collection([1, 3]).map(tally)) == ["|", "|||"]


def test_what_cannot_travel_is_told_before_the_job_starts(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("hg-there-is-none==1.0\n")
    (tmp_path / "plain.txt").write_text("")

    def refused(problem: str, **settings: str) -> None:
        env = environment(1)
        for key, value in settings.items():
            env.get_configuration().set_string(key.replace("_", "."), value)
        env.from_collection([1]).print()
        with pytest.raises((PathUnusable, SessionFailed), match=problem):
            env.execute()

    refused("nowhere.zip: is not there", python_archives=str(tmp_path / "nowhere.zip"))
    refused("is no archive; give one that ends in .zip", python_archives=f"{tmp_path}/plain.txt")
    refused("none.txt: cannot be read", python_requirements=str(tmp_path / "none.txt"))
    refused(
        "cannot be installed; pip says: .*hg-there-is-none",
        python_requirements=f"{tmp_path}/requirements.txt#{tmp_path}",
    )
    refused("is no folder", python_requirements=f"{tmp_path}/requirements.txt#{tmp_path}/none")
    refused("the Spark session that runs already has", python_executable="/opt/another/python")


def test_the_python_of_the_session_may_be_named() -> None:
    env = environment(1)
    env.set_python_executable(sys.executable)
    found = collected(env.from_collection([1]).map(lambda number: sys.executable))
    assert found == [sys.executable]


class Last(KeyedProcessFunction[Any, Any, Any]):
    """The last record of each key by time, which only its timer tells."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.last.update(value)
        ctx.timer_service().register_event_time_timer(0)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), self.last.value()


def test_a_batch_larger_than_its_memory_is_sorted_on_disk() -> None:
    env = environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.get_configuration().set_string("execution.sorted-inputs.memory", "20 kb")
    stream = env.from_collection(range(5000)).key_by(lambda number: number % 10)
    assert collected(stream.process(Last())) == [(key, 4990 + key) for key in range(10)]
