"""Settings from outside of a program: the file, environment variables, and which of them counts."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from headgate.base.errors import SettingsInvalid, SettingsUnknown
from headgate.datastream import StreamExecutionEnvironment
from headgate.spark import configuration
from headgate.spark.configuration import (
    given_settings,
    read_folder,
    read_variables,
    read_yaml,
    set_flags,
)

KEY = "parallelism.default"
Warnings: TypeAlias = Callable[[], list[str]]


def test_keys_may_be_flat_or_one_in_the_other() -> None:
    text = """
    parallelism.default: 2
    execution:
      buffer-timeout:
        interval: 20ms
      runtime-mode: batch
    """
    assert read_yaml(text, "x") == {
        "parallelism.default": "2",
        "execution.buffer-timeout.interval": "20ms",
        "execution.runtime-mode": "batch",
    }


def test_values_stay_the_texts_that_they_are() -> None:
    text = "a: off\nb: true\nc: 1_000\nd: 08:30\ne: [x, y.py]\nf:\ng: ''"
    assert read_yaml(text, "x") == {
        "a": "off",
        "b": "true",
        "c": "1_000",
        "d": "08:30",
        "e": "x,y.py",
    }


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_says_nothing(text: str) -> None:
    assert read_yaml(text, "x") == {}


@pytest.mark.parametrize("text", ["a: [", "- a\n- b", "just words"])
def test_a_file_that_holds_no_keys_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"headgate\.yaml"):
        read_yaml(text, "headgate.yaml")


def test_two_underscores_are_a_dot_and_one_is_a_dash() -> None:
    assert read_variables(
        {
            "HEADGATE__EXECUTION__BUFFER_TIMEOUT__INTERVAL": "5",
            "HEADGATE_CONF_DIR": "elsewhere",
            "PATH": "x",
        }
    ) == {"execution.buffer-timeout.interval": "5"}


def test_a_folder_that_was_named_must_have_the_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="HEADGATE_CONF_DIR"):
        read_folder(str(tmp_path))


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "headgate.yaml").mkdir()
    with pytest.raises(SettingsInvalid, match="cannot be read"):
        read_folder(str(tmp_path))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADGATE_CONF_DIR", raising=False)
    monkeypatch.setattr("headgate.spark.configuration._flags", {})
    return tmp_path


def test_the_working_directory_is_looked_at_if_no_folder_is_named(folder: Path) -> None:
    assert KEY not in given_settings()
    (folder / "headgate.yaml").write_text("parallelism.default: 3")
    assert given_settings()[KEY] == "3"


def test_a_flag_counts_before_a_variable_before_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "conf").mkdir()
    (folder / "conf/headgate.yaml").write_text("parallelism.default: 1")
    (folder / "headgate.yaml").write_text("parallelism.default: 9")
    monkeypatch.setenv("HEADGATE_CONF_DIR", str(folder / "conf"))
    assert given_settings()[KEY] == "1"
    monkeypatch.setenv("HEADGATE__PARALLELISM__DEFAULT", "2")
    assert given_settings()[KEY] == "2"
    set_flags({KEY: "3"})
    assert given_settings()[KEY] == "3"


def test_a_new_environment_begins_with_them_and_what_it_sets_comes_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE__PARALLELISM__DEFAULT", "2")
    monkeypatch.setenv("HEADGATE__EXECUTION__BUFFER_TIMEOUT__INTERVAL", "7")
    env = StreamExecutionEnvironment.get_execution_environment()
    assert (env.get_parallelism(), env.get_buffer_timeout()) == (2, 7)
    env.set_parallelism(5)
    assert env.get_parallelism() == 5


def test_a_wrong_one_is_refused_when_the_environment_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE__PARALLELISM__DEFAULT", "many")
    with pytest.raises(SettingsInvalid, match="many"):
        StreamExecutionEnvironment.get_execution_environment()


# Keys that nobody knows.


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Warnings:
    monkeypatch.setattr(configuration, "_warned", set())
    caplog.set_level("WARNING", "headgate")
    return lambda: [record.getMessage() for record in caplog.records]


def test_an_unknown_key_is_told_once_with_its_place(
    warnings: Warnings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headgate.yaml").write_text("parallelism:\n  defualt: 2\n")
    monkeypatch.setenv("HEADGATE_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("HEADGATE__PIPELINE__OBJEKT_REUSE", "true")
    set_flags({"exchange.compresion": "lz4", "spark.headgate.heartbeat.intervall": "1"})
    try:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.get_configuration().set_string("state.backend.tpye", "rocksdb")
        texts = env.get_configuration().to_dict()
        configuration.check_known(texts)
        configuration.check_known(texts)
    finally:
        set_flags({})
    assert warnings() == [
        "parallelism.defualt is no setting; did you mean parallelism.default? It stands in "
        f"{tmp_path}/headgate.yaml, and has no effect",
        "pipeline.objekt-reuse is no setting; did you mean pipeline.object-reuse? It stands in "
        "the environment variable HEADGATE__PIPELINE__OBJEKT_REUSE, and has no effect",
        "exchange.compresion is no setting; did you mean exchange.compression? It stands in the "
        "flags of the command, and has no effect",
        "heartbeat.intervall is no setting; did you mean heartbeat.interval? It stands in the "
        "flags of the command, and has no effect",
        "state.backend.tpye is no setting; did you mean state.backend.type? It stands in the "
        "program's Configuration, and has no effect",
    ]


def test_known_keys_of_others_are_not_told(warnings: Warnings) -> None:
    configuration.check_known(
        {"taskmanager.numberOfTaskSlots": "4", "pipeline.jars": "x", "spark.ui.enabled": "false"}
    )
    assert warnings() == []


def test_strict_refuses_all_unknown_keys_before_spark_is_started(warnings: Warnings) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.get_configuration().set_boolean("headgate.strict", True).set_string("state.bckend", "x")
    env.from_collection([1]).print()
    with pytest.raises(SettingsUnknown, match=r"did you mean state\.backend\b.*Configuration"):
        env.execute()
    assert warnings() == []
