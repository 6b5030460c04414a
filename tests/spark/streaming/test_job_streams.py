"""Where the logs of a job are: in its own folder, or in that of the job whose checkpoint it has."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from headgate.base.errors import PlanInvalid
from headgate.connectors.streaming.stream_log import StreamLog
from headgate.spark.streaming import job_streams
from headgate.spark.streaming.addresses import check_declared
from headgate.spark.streaming.job_streams import StreamHome
from tests.connectors.streaming.kit import attached_input, owner


def home(folder, job, origin=""):
    return job_streams._home(StreamHome(job, "shop", str(folder), origin, None, True)).uri


def test_a_job_that_begins_has_a_folder_of_its_own(tmp_path):
    assert home(tmp_path, "j1") == f"{tmp_path}/streams/j1"
    assert home(tmp_path, "j1", "j1") == f"{tmp_path}/streams/j1"


def test_jobs_go_on_with_the_folder_of_the_first_one(tmp_path):
    attached_input(tmp_path / "streams" / "j1" / "inputs" / "orders")

    assert home(tmp_path, "j2", "j1") == f"{tmp_path}/streams/j1"
    assert home(tmp_path, "j3", "j2") == f"{tmp_path}/streams/j1"
    assert home(tmp_path, "j3", "j3") == f"{tmp_path}/streams/j1"


def test_a_job_whose_origin_left_no_folder_begins_one(tmp_path):
    assert home(tmp_path, "j2", "elsewhere") == f"{tmp_path}/streams/j2"


def test_without_a_checkpoint_folder_it_is_private(tmp_path):
    assert "headgate-streams" in home("", "j1")


def test_the_log_of_a_query_that_ended_with_its_job_is_forgotten(tmp_path):
    attached_input(tmp_path)
    job_streams._forget_ended(str(tmp_path))
    assert StreamLog(str(tmp_path)).info() is not None

    StreamLog(str(tmp_path)).set_owner(owner(state="CANCELED"))
    job_streams._forget_ended(str(tmp_path))

    assert StreamLog(str(tmp_path)).info() is None


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (pa.uint8(), "uint8 in Arrow, is of a type that Spark's streams do not have"),
        (pa.time64("us"), "such values do not travel"),
        (pa.decimal256(50, 2), "is of a type that Spark's streams do not have"),
        (pa.timestamp("ms"), r"is timestamp\[ms\], and timestamp\[us\] in Spark; declare it so"),
        (pa.list_(pa.timestamp("ns")), "in Spark; declare it so"),
    ],
)
def test_columns_that_no_query_could_have_are_refused_when_the_job_is_launched(kind, problem):
    with pytest.raises(PlanInvalid, match=f"output 'totals': column 'at'.*{problem}"):
        check_declared(pa.schema([("at", kind)]), "output 'totals'")


@pytest.mark.spark_smoke
def test_columns_that_spark_has_are_taken():
    kinds = [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(38, 18), pa.date32()]
    nested = [pa.struct([("a", pa.list_(pa.string()))]), pa.map_(pa.string(), pa.int64())]
    wide = [pa.large_string(), pa.large_binary(), pa.bool_(), pa.int8(), pa.float32()]

    named = [(f"c{n}", kind) for n, kind in enumerate(kinds + nested + wide)]
    check_declared(pa.schema(named), "output 'totals'")
