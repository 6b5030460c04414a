"""What the tests of file sources share: files to read, and sources read to their end."""

from pathlib import Path
from typing import Any

from headgate.connectors.files.source import FilesSource
from headgate.connectors.files.splits import FileSplit
from tests.connectors.kit import read_to_end, task_context


def make(folder: Path, *paths: str) -> None:
    """Files of one line, which says where it stands."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"in {path}\n")


def split_path(split: object) -> str:
    if isinstance(split, str):
        return split
    assert isinstance(split, FileSplit)
    return split.path


def read_splits(source: FilesSource, splits: Any, limit: int = 1000) -> list[Any]:
    """The records of these splits, in order."""
    records: list[Any] = []
    for split in splits:
        reader = source.open(split, None, task_context())
        try:
            records += read_to_end(reader, limit)
        finally:
            reader.close()
    return records


def read_source(source: FilesSource, limit: int = 1000) -> list[Any]:
    """All records, split after split."""
    return read_splits(source, source.splits(2), limit)
