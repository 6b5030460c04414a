"""Files on an object store: S3's client of pyarrow against a server on this machine."""

import gzip
import io
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.api.row import Row
from headgate.base.errors import FileGone, PathUnusable
from headgate.connectors.files.parquet_source import ParquetSource
from headgate.connectors.files.source import TextFileSource
from headgate.connectors.files.splits import FileSplit
from tests.connectors.files_kit import read_source, read_splits, split_path
from tests.connectors.kit import task_context
from tests.s3_kit import Store

pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def bucket(store: Store) -> Store:
    """With some files in the folder ``logs``."""
    store.put("logs/a.txt", b"1\n2\n" * 20)
    store.put("logs/_b.txt", b"hidden\n")
    store.put("logs/deep/c.txt", b"3\n")
    store.put("logs/deep/d.gz", gzip.compress(b"4\n"))
    return store


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("logs", ["1", "2"] * 20 + ["3", "4"]),
        ("logs/*.txt", ["1", "2"] * 20),
        ("logs/**/*.txt", ["1", "2"] * 20 + ["3"]),
        ("logs/deep/*", ["3", "4"]),
        ("logs/deep/d.gz", ["4"]),
    ],
)
def test_folders_patterns_and_pieces_of_objects_are_read(
    bucket: Store, path: str, lines: list[str]
) -> None:
    source = pickle.loads(pickle.dumps(TextFileSource(bucket.at(path), split_bytes=30)))
    assert read_source(source) == lines


def test_no_password_is_in_splits_positions_names_and_errors(bucket: Store) -> None:
    source = TextFileSource(bucket.at("logs"), follow=True)
    finder = source.create_enumerator(1, None)
    splits = finder.discover()
    assert {split_path(split) for split in splits} == {
        "s3://shop/logs/a.txt",
        "s3://shop/logs/deep/c.txt",
    }
    missing = TextFileSource(bucket.at("nothing"))
    with pytest.raises(PathUnusable, match=r"^s3://shop/nothing: does not exist") as caught:
        missing.splits(1)
    reader = source.open(FileSplit("s3://shop/logs/gone"), None, task_context())
    with pytest.raises(FileGone, match=r"^s3://shop/logs/gone: cannot be read here") as gone:
        reader.poll(1)
    seen = [splits, finder.position(), source.default_name, caught.value, gone.value]
    assert "secret" not in repr(seen)


def test_new_objects_are_found(bucket: Store) -> None:
    source = TextFileSource(bucket.at("new*"), follow=True)
    finder = source.create_enumerator(1, None)
    assert finder.discover() == []
    bucket.put("new/a", b"1\n")
    assert read_splits(source, finder.discover()) == ["1"]
    finder = source.create_enumerator(1, pickle.loads(pickle.dumps(finder.position())))
    bucket.put("new/b", b"2\nunfinished")
    assert read_splits(source, finder.discover()) == ["2"]


def test_parquet_is_read_by_row_groups(bucket: Store) -> None:
    data = io.BytesIO()
    pq.write_table(pa.table({"n": range(1000)}), data, row_group_size=100)
    bucket.put("rows.parquet", data.getvalue())
    source = ParquetSource(
        bucket.at("rows.parquet"), row_filter=[("n", ">=", 700)], split_bytes=999
    )
    assert read_source(source) == [Row(n=number) for number in range(700, 1000)]
