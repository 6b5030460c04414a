"""Buckets: by the clock, by columns, by a function; never outside the sink's folder."""

import pickle
from datetime import datetime, timezone
from typing import Any

import pytest

from headgate.api.row import Row
from headgate.base.errors import ConnectorError, PlanInvalid
from headgate.connectors.files.layout import BucketAssigner, FunctionBuckets, read_buckets

NOON_MS = int(datetime(2024, 2, 29, 12, 34, 56, tzinfo=timezone.utc).timestamp() * 1000)


@pytest.mark.parametrize(
    ("form", "bucket"),
    [
        ("yyyy-MM-dd--HH", "2024-02-29--12"),
        ("'day='yyyyMMdd/'at='HHmmss", "day=20240229/at=123456"),
        ("yyyy'%'", "2024%"),
    ],
)
def test_time_buckets_follow_the_clock(form: str, bucket: str) -> None:
    buckets = BucketAssigner.date_time_bucket_assigner(form, "UTC")
    assert list(buckets.split([1, 2], NOON_MS)) == [(bucket, [1, 2])]
    assert pickle.loads(pickle.dumps(buckets)) == buckets


def test_time_buckets_know_time_zones() -> None:
    tokyo = BucketAssigner.date_time_bucket_assigner(timezone_id="Asia/Tokyo")
    assert list(tokyo.split([1], NOON_MS)) == [("2024-02-29--21", [1])]
    here = BucketAssigner.date_time_bucket_assigner("HH")
    expected = datetime.fromtimestamp(NOON_MS / 1000).strftime("%H")
    assert list(here.split([1], NOON_MS)) == [(expected, [1])]


@pytest.mark.parametrize("form", ["", "yyyy-Q", "yy", "'open", "/yyyy", "'.'yyyy"])
def test_formats_that_mean_nothing_are_refused(form: str) -> None:
    with pytest.raises(PlanInvalid, match=r"is no format|cannot have the bucket"):
        BucketAssigner.date_time_bucket_assigner(form)


def test_time_zones_that_do_not_exist_are_refused() -> None:
    with pytest.raises(PlanInvalid, match="'Mars' is no time zone"):
        BucketAssigner.date_time_bucket_assigner(timezone_id="Mars")


def test_columns_make_folders_that_hive_and_spark_can_read() -> None:
    buckets = BucketAssigner.columns("land", "_at")
    rows = [
        Row(land="a/b", _at=1),
        {"land": None, "_at": ""},
        Row(land="a/b", _at=1),
        Row(land="..", _at=2),
    ]
    found = list(buckets.split(rows, 0))
    null = "__HIVE_DEFAULT_PARTITION__"
    assert [bucket for bucket, _ in found] == [
        "land=a%2Fb/%5Fat=1",
        f"land={null}/%5Fat={null}",
        "land=../%5Fat=2",
    ]
    assert found[0][1] == [rows[0], rows[2]]


@pytest.mark.parametrize("record", [{"other": 1}, 7, Row(1, 2), {"land": []}])
def test_a_record_without_the_column_is_an_error(record: Any) -> None:
    with pytest.raises(ConnectorError, match="buckets by land: a record has no such column"):
        list(BucketAssigner.columns("land").split([record], 0))


def test_a_function_says_the_path() -> None:
    buckets = BucketAssigner.by(lambda n: f"x/{n % 2}")
    assert list(buckets.split([1, 2, 3], 0)) == [("x/1", [1, 3]), ("x/0", [2])]


@pytest.mark.parametrize("path", ["/x", "x/", "../x", ".x", "x//y", "a/_b", 3, None])
def test_a_path_that_leads_out_or_is_hidden_is_an_error(path: Any) -> None:
    with pytest.raises(ConnectorError, match="cannot have the bucket"):
        list(FunctionBuckets(lambda record: path).split([1], 0))


def test_what_users_give_is_understood() -> None:
    assert read_buckets(None) is None
    assert read_buckets(BucketAssigner.base_path_bucket_assigner()) is None
    assert read_buckets("a") == BucketAssigner.columns("a")
    assert read_buckets(["a", "b"]) == BucketAssigner.columns("a", "b")
    assert read_buckets(str) == FunctionBuckets(str)
    for wrong in (7, [], [""], [3]):
        with pytest.raises(PlanInvalid):
            read_buckets(wrong)
