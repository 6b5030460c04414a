"""Streaming DataFrames: where their queries keep checkpoints, and servers with other files."""

from pathlib import Path
from typing import cast

import pytest

pytest.importorskip("pyspark")

from headgate.base.errors import FrameInvalid
from headgate.connectors.streaming.log_folder import LogFolder
from headgate.connectors.streaming.stream_log import StreamLog
from headgate.spark.cluster import SparkCluster
from headgate.spark.streaming.job_streams import check_driver, query_checkpoints, spark_address
from tests.connectors.streaming.kit import attached_input


class ServerElsewhere:
    """Behind a session of a server on another machine."""

    is_driven_here = False


def test_a_server_elsewhere_cannot_read_an_output_of_this_machine() -> None:
    with pytest.raises(FrameInvalid) as refused:
        check_driver(cast("SparkCluster", ServerElsewhere()), "totals")
    text = str(refused.value)
    assert text.startswith("to_streaming_dataframe() gives the Spark Connect server a file")
    assert "sink_to(StreamingOutput('totals', …, path=…))" in text


@pytest.mark.parametrize(
    ("folder", "place"),
    [
        ("/shared/a?b c", "file:///shared/a?b c/query"),
        ("file:///shared", "file:///shared/query"),
        (
            "s3://me:secret@shop/logs/?endpoint_override=127.0.0.1:1&scheme=http&region=x",
            "s3a://shop/logs/query",
        ),
        ("s3://shop/logs?region=x", "s3a://shop/logs/query"),
    ],
)
def test_spark_gets_addresses_that_its_own_file_systems_know(folder: str, place: str) -> None:
    assert spark_address(LogFolder(folder).below("query").uri) == place


def test_a_log_that_is_made_anew_has_a_query_that_begins_anew(tmp_path: Path) -> None:
    attached_input(tmp_path)
    log = StreamLog(str(tmp_path))
    before = query_checkpoints(log)
    assert before == query_checkpoints(log) and before.startswith(f"file://{tmp_path}/query/")

    log.folder.remove_all()
    attached_input(tmp_path)

    assert query_checkpoints(log) != before
