"""The packages that users import: complete, and quick to load."""

import subprocess
import sys
from importlib import import_module

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
