"""Files on an object store: S3's client of pyarrow against a server on this machine."""

import gzip
import io
import pickle
import sys
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from headgate.api.row import Row
from headgate.base.errors import FileGone, PathUnusable
from headgate.connectors.files.parquet_source import ParquetSource
from headgate.connectors.files.source import TextFileSource
from headgate.connectors.files.splits import FileSplit
from tests.connectors.files_kit import read_source, read_splits, split_path
from tests.connectors.kit import task_context
from tests.servers import ServerProcess, accepts, free_port

pytest.importorskip("moto.server")


class Bucket:
    """A bucket whose server is reached with a password."""

    def __init__(self, port: int) -> None:
        self._options = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        self._system, _ = fs.FileSystem.from_uri(self.at("", "&allow_bucket_creation=true"))
        self._system.create_dir("shop")

    def at(self, path: str, options: str = "") -> str:
        return f"s3://me:secret@shop{path}?{self._options}{options}"

    def put(self, path: str, data: bytes) -> None:
        with self._system.open_output_stream(f"shop{path}", compression=None) as file:
            file.write(data)


@pytest.fixture
def _leaves_nothing_behind() -> None:
    """Not checked here: the client keeps connections open, and closes them when it likes."""


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    log = tmp_path_factory.mktemp("moto") / "log"
    server = ServerProcess(command, lambda: accepts(port), log)
    server.start()
    try:
        yield filled(Bucket(port))
    finally:
        server.kill()


def filled(bucket: Bucket) -> Bucket:
    bucket.put("/logs/a.txt", b"1\n2\n" * 20)
    bucket.put("/logs/_b.txt", b"hidden\n")
    bucket.put("/logs/deep/c.txt", b"3\n")
    bucket.put("/logs/deep/d.gz", gzip.compress(b"4\n"))
    return bucket


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("/logs", ["1", "2"] * 20 + ["3", "4"]),
        ("/logs/*.txt", ["1", "2"] * 20),
        ("/logs/**/*.txt", ["1", "2"] * 20 + ["3"]),
        ("/logs/deep/*", ["3", "4"]),
        ("/logs/deep/d.gz", ["4"]),
    ],
)
def test_folders_patterns_and_pieces_of_objects_are_read(
    bucket: Bucket, path: str, lines: list[str]
) -> None:
    source = pickle.loads(pickle.dumps(TextFileSource(bucket.at(path), split_bytes=30)))
    assert read_source(source) == lines


def test_no_password_is_in_splits_positions_names_and_errors(bucket: Bucket) -> None:
    source = TextFileSource(bucket.at("/logs"), follow=True)
    finder = source.create_enumerator(1, None)
    splits = finder.discover()
    assert {split_path(split) for split in splits} == {
        "s3://shop/logs/a.txt",
        "s3://shop/logs/deep/c.txt",
    }
    missing = TextFileSource(bucket.at("/nothing"))
    with pytest.raises(PathUnusable, match=r"^s3://shop/nothing: does not exist") as caught:
        missing.splits(1)
    reader = source.open(FileSplit("s3://shop/logs/gone"), None, task_context())
    with pytest.raises(FileGone, match=r"^s3://shop/logs/gone: cannot be read here") as gone:
        reader.poll(1)
    seen = [splits, finder.position(), source.default_name, caught.value, gone.value]
    assert "secret" not in repr(seen)


def test_new_objects_are_found(bucket: Bucket) -> None:
    source = TextFileSource(bucket.at("/new*"), follow=True)
    finder = source.create_enumerator(1, None)
    assert finder.discover() == []
    bucket.put("/new/a", b"1\n")
    assert read_splits(source, finder.discover()) == ["1"]
    finder = source.create_enumerator(1, pickle.loads(pickle.dumps(finder.position())))
    bucket.put("/new/b", b"2\nunfinished")
    assert read_splits(source, finder.discover()) == ["2"]


def test_parquet_is_read_by_row_groups(bucket: Bucket) -> None:
    data = io.BytesIO()
    pq.write_table(pa.table({"n": range(1000)}), data, row_group_size=100)
    bucket.put("/rows.parquet", data.getvalue())
    source = ParquetSource(
        bucket.at("/rows.parquet"), row_filter=[("n", ">=", 700)], split_bytes=999
    )
    assert read_source(source) == [Row(n=number) for number in range(700, 1000)]
