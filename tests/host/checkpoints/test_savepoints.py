"""Where a savepoint goes is settled, and tried, before any task hears of it."""

from pathlib import Path

import pytest

from headgate.base.errors import SettingsInvalid, StorageUnusable
from headgate.host.checkpoints.location import prepare_savepoint


def test_each_savepoint_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    first = prepare_savepoint(str(tmp_path / "saved"), "elsewhere", "ab12cd34")
    second = prepare_savepoint(None, str(tmp_path / "saved"), "ab12cd34")
    assert first != second
    for path in map(Path, (first, second)):
        assert path.parent == tmp_path / "saved"
        assert path.name.startswith("savepoint-ab12cd-")
        assert list(path.iterdir()) == []


def test_a_uri_stays_one_that_workers_can_open(tmp_path: Path) -> None:
    path = prepare_savepoint(f"file://{tmp_path}", "", "ab12cd34")
    assert Path(path).is_dir()


def test_without_a_directory_the_setting_is_named() -> None:
    with pytest.raises(SettingsInvalid, match="name one, or set it") as refused:
        prepare_savepoint(None, "", "ab12cd34")
    assert refused.value.key == "execution.checkpointing.savepoint-dir"


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageUnusable, match="a file stands where a folder must be"):
        prepare_savepoint(str(tmp_path / "file"), "", "ab12cd34")
    with pytest.raises(StorageUnusable, match="Unrecognized filesystem type"):
        prepare_savepoint("tape://x", "", "ab12cd34")
