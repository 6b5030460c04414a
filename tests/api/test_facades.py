"""The packages that users import: complete, and quick to load."""

import ast
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_origin

import pytest

import headgate

FACADES = [
    "headgate.common",
    "headgate.common.completable_future",
    "headgate.common.config_options",
    "headgate.common.configuration",
    "headgate.common.execution_config",
    "headgate.common.job_client",
    "headgate.common.job_execution_result",
    "headgate.common.job_status",
    "headgate.common.restart_strategy",
    "headgate.common.serialization",
    "headgate.common.time",
    "headgate.common.typeinfo",
    "headgate.common.types",
    "headgate.datastream",
    "headgate.datastream.async_data_stream",
    "headgate.datastream.async_retry_predicates",
    "headgate.datastream.async_retry_strategies",
    "headgate.datastream.checkpoint_config",
    "headgate.datastream.checkpoint_storage",
    "headgate.datastream.checkpointing_mode",
    "headgate.datastream.connectors",
    "headgate.datastream.connectors.base",
    "headgate.datastream.connectors.file_system",
    "headgate.datastream.connectors.number_seq",
    "headgate.datastream.data_stream",
    "headgate.datastream.execution_mode",
    "headgate.datastream.externalized_checkpoint_retention",
    "headgate.datastream.formats.csv",
    "headgate.datastream.formats.json",
    "headgate.datastream.formats.parquet",
    "headgate.datastream.functions",
    "headgate.datastream.output_tag",
    "headgate.datastream.slot_sharing_group",
    "headgate.datastream.state",
    "headgate.datastream.state_backend",
    "headgate.datastream.stream_execution_environment",
    "headgate.datastream.time_domain",
    "headgate.datastream.timerservice",
    "headgate.datastream.window",
    "headgate.metrics",
]


@pytest.mark.parametrize("name", FACADES)
def test_facade_has_what_it_lists(name: str) -> None:
    facade = import_module(name)
    assert facade.__all__ == sorted(facade.__all__, key=_as_ruff_sorts)
    assert all(hasattr(facade, exported) for exported in facade.__all__)


def test_most_used_names_stand_at_the_top() -> None:
    for name in headgate.__all__:
        assert getattr(headgate, name) is not None
        assert name in dir(headgate)
    common, datastream = import_module("headgate.common"), import_module("headgate.datastream")
    assert headgate.Types is common.Types
    assert headgate.StreamExecutionEnvironment is datastream.StreamExecutionEnvironment
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = headgate.Nothing  # type: ignore[attr-defined]


NOT_AT_THE_TOP = {
    "async_retry_predicates": "a module",
    "BaseBroadcastProcessFunction": "a base of public classes that programs do not name",
    "AppendingState": "a base of public classes that programs do not name",
    "MergingState": "a base of public classes that programs do not name",
    "TypeSerializer": "only for programs that were written for PyFlink",
    "CountWindowSerializer": "only for programs that were written for PyFlink",
    "GlobalWindowSerializer": "only for programs that were written for PyFlink",
    "TimeWindowSerializer": "only for programs that were written for PyFlink",
    "ByteArraySchema": "part of connectors, which stand below headgate.datastream.connectors",
    "DeserializationSchema": "part of connectors",
    "Encoder": "part of connectors",
    "RowFieldExtractorSchema": "part of connectors",
    "SerializationSchema": "part of connectors",
    "SimpleStringSchema": "part of connectors",
}
"""Names of the packages after PyFlink that cannot be imported from headgate, and why."""


def test_names_of_the_packages_stand_at_the_top_too() -> None:
    packages = ["common", "datastream"]
    packages += [f"datastream.{part}" for part in ("functions", "state", "window")]
    for package in map(import_module, (f"headgate.{name}" for name in packages)):
        for name in package.__all__:
            if name not in NOT_AT_THE_TOP:
                assert getattr(headgate, name) is getattr(package, name), name
    assert not {*NOT_AT_THE_TOP} & {*headgate.__all__}


def test_type_checkers_see_the_names_at_the_top() -> None:
    tree = ast.parse(Path(headgate.__file__).read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.col_offset
        for alias in node.names
    }
    assert imported == {*headgate.__all__} - {"__version__"}


def test_generic_classes_are_the_same_with_and_without_parameters() -> None:
    late = headgate.OutputTag[int]("late")
    assert late == headgate.OutputTag("late") == pickle.loads(pickle.dumps(late))
    described = headgate.ValueStateDescriptor[int]("count", headgate.Types.INT())
    assert pickle.loads(pickle.dumps(described)).name == "count"
    for kind, parameters in [
        (headgate.DataStream, int),
        (headgate.KeyedStream, (int, str)),
        (headgate.ConnectedStreams, (int, str)),
        (headgate.WindowedStream, (int, str, headgate.TimeWindow)),
        (headgate.TypeInformation, int),
        (headgate.Source, int),
        (headgate.Sink, int),
    ]:
        assert get_origin(kind[parameters]) is kind


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import headgate", ["pyspark", "pyarrow", "msgspec", "headgate.api.environment"]),
        ("from headgate import StreamExecutionEnvironment, Types", ["pyspark", "pyarrow"]),
        ("import headgate.datastream.connectors", ["pyspark", "pyarrow"]),
    ],
)
def test_import_loads_nothing_heavy(statement: str, heavy: list[str]) -> None:
    script = f"import sys; {statement}; print([m for m in {heavy!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def _as_ruff_sorts(name: str) -> tuple[bool, bool, str]:
    return not name.isupper(), not name[0].isupper(), name
