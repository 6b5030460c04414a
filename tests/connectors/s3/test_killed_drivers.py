"""Lakes, streams and files in S3 are written once, wherever in a checkpoint a driver dies."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.connectors.driver_kit import kill_drivers
from tests.s3_kit import Store

pytest.importorskip("moto.server")
pytest.importorskip("obstore")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from tests.connectors import lake_sinks
from tests.connectors.delta import kit as delta
from tests.connectors.iceberg import kit as iceberg
from tests.connectors.streaming.kit import shown


def test_each_record_is_written_once_whichever_step_a_driver_dies_at(
    store: Store, tmp_path: Path
) -> None:
    delta.prepare(tmp_path)
    iceberg.prepare(tmp_path)

    def committed() -> Mapping[str, Sequence[int]]:
        names = [name for name in store.names("driven/out") if name[0] != "."]
        lines = b"".join(store.read(f"driven/out/{name}") for name in names).decode().splitlines()
        return {
            "delta": delta.numbers(tmp_path / "table"),
            "iceberg": iceberg.numbers(tmp_path),
            "files": [ast.literal_eval(line)[0] for line in lines],
            "stream": shown(tmp_path / "stream"),
        }

    places = {"tables": str(tmp_path), "files": store.at("driven/out")}
    where = store.at("driven/checkpoints")
    kill_drivers(lake_sinks.__name__, places, tmp_path, committed, where)
    assert not [name for name in store.names("driven/out") if name[0] == "."]
