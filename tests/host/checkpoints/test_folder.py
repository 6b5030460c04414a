"""Folders of checkpoints: what a user may name, files that appear in one step, errors that help."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyarrow import fs

from headgate.base.errors import CheckpointMissing, StorageUnusable
from headgate.host.checkpoints import folder as checkpoint_folder
from headgate.host.checkpoints.folder import Folder, open_folder
from headgate.host.files.private_files import PrivateFiles
from tests.host.checkpoint_kit import ObjectStore, folder_of


@pytest.fixture(autouse=True, scope="module")
def s3() -> None:
    """Its library keeps descriptors for good from its first use on: before a test counts them."""
    open_folder("s3://user:word@bucket/x?region=eu-west-1")


@pytest.fixture(params=["local", "tree", "memory", "objects"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Folder]:
    """A folder of each kind; the second and third give names by moving."""
    match request.param:
        case "local":
            yield open_folder(str(tmp_path / "a" / "b"))
        case "tree":
            yield folder_of(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "a/b")
        case "memory":
            yield folder_of(fs._MockFileSystem(), "a/b")
        case _:
            monkeypatch.setattr(checkpoint_folder, "FLAT", frozenset({"py::objects"}))
            yield folder_of(fs.PyFileSystem(ObjectStore()), "a/b")


def test_a_file_that_was_put_is_read_and_removed(folder: Folder) -> None:
    folder.make()
    assert folder.put("one", b"data")
    assert folder.read("one") == b"data"
    assert folder.has("one") and not folder.has("two")
    assert [(entry.name, entry.size) for entry in folder.entries()] == [("one", 4)]
    assert folder.parent().entries()[0].is_folder
    folder.remove("one")
    folder.remove("one")
    assert folder.entries() == []
    assert not folder.has("one")


def test_a_second_file_of_the_name_is_refused_and_the_first_stays(folder: Folder) -> None:
    folder.make()
    assert folder.put("one", b"first")
    assert not folder.put("one", b"second")
    assert folder.read("one") == b"first"
    assert [entry.name for entry in folder.entries()] == ["one"]


def test_a_folder_goes_with_what_is_in_it_and_only_once(folder: Folder) -> None:
    folder.make()
    folder.put("one", b"data")
    folder.remove_all()
    folder.remove_all()
    assert folder.entries() == []
    with pytest.raises(CheckpointMissing, match="one: is not there"):
        folder.read("one")


def test_of_many_that_put_one_name_at_once_one_succeeds(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda number: folder.put("one", b"%d" % number), range(40)))
    assert sum(done) == 1
    assert folder.read("one") == b"%d" % done.index(True)
    assert [entry.name for entry in folder.entries() if entry.name != "temp"] == ["one"]


def test_without_links_a_name_is_still_given_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*paths: str, **folders: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    folder = open_folder(str(tmp_path))
    assert folder.put("one", b"first")
    assert not folder.put("one", b"second")
    assert folder.read("one") == b"first"


def test_a_path_or_a_file_uri_names_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b").mkdir()
    plain = str(tmp_path / "a b")
    for where in (plain, "a b", f"{plain}/", f"file://{tmp_path}/a%20b", f"file:{tmp_path}/a%20b/"):
        assert open_folder(where).path == plain
        assert open_folder(where).uri == plain


def test_steps_in_a_uri_keep_its_options_and_hide_its_password() -> None:
    key = "s3://user:pass%2Fword@bucket/deep%20down/?region=eu-west-1"
    folder = open_folder(key)
    below = folder.child("a b%")
    assert below.path == "bucket/deep down/a b%"
    assert below.uri == "s3://user:pass%2Fword@bucket/deep%20down/a%20b%25?region=eu-west-1"
    assert open_folder(below.uri).path == below.path
    assert below.parent().uri == "s3://user:pass%2Fword@bucket/deep%20down?region=eu-west-1"
    assert "pass" not in below.shown
    assert below.at("f").startswith("s3://******@bucket/")
    assert open_folder("gs://bucket").child("x").path == "bucket/x"
    assert open_folder("abfs://box@account.dfs.core.windows.net/x").shown.startswith("abfs://box@a")


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        ("tape://reel/1", "Unrecognized filesystem type"),
        ("http://host/x", "Unrecognized filesystem type"),
        ("file://elsewhere/x", "Unsupported hostname"),
        ("s3:///x", "Missing bucket name"),
        ("", "no folder is named"),
    ],
)
def test_what_no_file_system_is_known_for_is_told(where: str, complaint: str) -> None:
    with pytest.raises(StorageUnusable, match=complaint) as caught:
        open_folder(where)
    assert "give a path of this machine, or file://, hdfs://, s3://" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_secret_in_an_unusable_address_is_not_told() -> None:
    with pytest.raises(StorageUnusable) as caught:
        open_folder("s3://user:secret@/x")
    assert "secret" not in caught.value.path


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for where in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageUnusable, match="a file stands where a folder must be"):
            open_folder(str(where)).make()
    with pytest.raises(StorageUnusable, match="a file stands"):
        open_folder(str(tmp_path / "file")).entries()


def test_a_path_that_is_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageUnusable, match=r"udcff.*is no text"):
        open_folder(os.fsdecode(bytes(tmp_path) + b"/\xff")).entries()


def test_a_failed_put_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: PrivateFiles, path: str) -> None:
        raise OSError(28, "No space left on device")

    folder = open_folder(str(tmp_path / "x"))
    folder.make()
    monkeypatch.setattr(PrivateFiles, "sync", full)
    with pytest.raises(StorageUnusable, match=r"No space left.*make room there"):
        folder.put("one", b"data")
    assert folder.entries() == []
