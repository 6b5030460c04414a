"""Checkpoints for tests: whole ones of a few tasks, damage, and an object store in memory."""

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from headgate.base.checkpoints import (
    METADATA_VERSION,
    ChannelState,
    CheckpointKind,
    Metadata,
    OperatorState,
    Piece,
    SubtaskState,
)
from headgate.host.checkpoints.checkpoint_store import CheckpointStore, complete
from headgate.host.checkpoints.folder import Folder
from headgate.host.checkpoints.location import CheckpointLocation
from headgate.host.checkpoints.pieces import INLINE_BYTES, PartWriter, part_name

JOB = "orders"
LARGE = bytes(range(256)) * 256
"""Above what travels in the metadata."""


def metadata_of(
    checkpoint: int,
    tasks: tuple[SubtaskState, ...] = (),
    kind: CheckpointKind = CheckpointKind.CHECKPOINT,
    job: str = JOB,
) -> Metadata:
    return Metadata(
        METADATA_VERSION, checkpoint, kind, job, "count orders", 1_000, 2_000 + checkpoint, tasks
    )


def task_of(
    subtask: int,
    keyed: Mapping[int, Piece],
    files: tuple[Piece, ...] = (),
    channel: tuple[Piece, ...] = (),
) -> SubtaskState:
    named = {f"{number}.sst": piece for number, piece in enumerate(files)}
    operator = OperatorState("count", "Count", keyed=dict(keyed), files=named)
    channels = (ChannelState(True, 0, 1, channel),) if channel else ()
    return SubtaskState(f"count ({subtask + 1}/2)", 3, subtask, 2, 128, (operator,), channels)


def write_task(
    location: CheckpointLocation,
    subtask: int,
    groups: Mapping[int, bytes],
    shared: tuple[Path, ...] = (),
    reused: tuple[Piece, ...] = (),
    inline_bytes: int = INLINE_BYTES,
) -> SubtaskState:
    """One task's part, written and closed."""
    with PartWriter(location, part_name(3, subtask, 0), inline_bytes) as writer:
        pieces = {group: writer.append(data) for group, data in groups.items()}
        channel = (writer.append(b"in flight"),)
        files = tuple(writer.share(str(path)) for path in shared)
    return task_of(subtask, pieces, files + reused, channel)


def take(
    location: CheckpointLocation,
    checkpoint: int,
    kind: CheckpointKind = CheckpointKind.CHECKPOINT,
    *,
    shared: tuple[Path, ...] = (),
    reused: tuple[Piece, ...] = (),
    job: str = JOB,
) -> Metadata:
    """A complete checkpoint of two tasks."""
    states = tuple(
        write_task(
            location,
            subtask,
            {subtask * 64: LARGE + bytes([checkpoint]), subtask * 64 + 1: b"small"},
            shared if subtask == 0 else (),
            reused if subtask == 0 else (),
        )
        for subtask in range(2)
    )
    metadata = metadata_of(checkpoint, states, kind, job)
    complete(location, metadata)
    return metadata


def take_next(storage: CheckpointStore, job: str = JOB, **more: Any) -> Metadata:
    number = storage.next_id(job)
    return take(storage.location(job, number), number, job=job, **more)


def shared_pieces(metadata: Metadata) -> tuple[Piece, ...]:
    return tuple(metadata.tasks[0].operators[0].files.values())


def flip(path: Path, position: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= 1 << bit
    path.write_bytes(data)


def names(folder: Path) -> list[str]:
    """Of all files below, from the folder on; others may remove folders meanwhile."""
    return sorted(
        str(Path(place, name).relative_to(folder))
        for place, _, files in os.walk(folder)
        for name in files
    )


class _Upload(io.BytesIO):
    def __init__(self, store: "ObjectStore", key: str) -> None:
        super().__init__()
        self._store, self._key = store, key

    def close(self) -> None:
        if not self.closed:
            self._store.objects[self._key] = self.getvalue()
        super().close()


class ObjectStore(fs.FileSystemHandler):  # type: ignore[misc] # it has no types
    """Keys and bytes: an object appears when its stream is closed, folders are only prefixes."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def get_type_name(self) -> str:
        return "objects"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        prefix = f"{selector.base_dir}/"
        below = {key[len(prefix) :].split("/")[0] for key in self.objects if key.startswith(prefix)}
        return [self._info(prefix + name) for name in below]

    def delete_dir(self, path: str) -> None:
        self.objects = {k: v for k, v in self.objects.items() if not k.startswith(f"{path}/")}

    def delete_file(self, path: str) -> None:
        if path not in self.objects:
            raise FileNotFoundError(path)
        del self.objects[path]

    def open_input_file(self, path: str) -> Any:
        if path not in self.objects:
            raise FileNotFoundError(path)
        return pa.PythonFile(io.BytesIO(self.objects[path]), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> Any:
        return pa.PythonFile(_Upload(self, path), mode="w")

    def _info(self, path: str) -> fs.FileInfo:
        if path in self.objects:
            return fs.FileInfo(path, fs.FileType.File, size=len(self.objects[path]), mtime=1.0)
        if any(key.startswith(f"{path}/") for key in self.objects):
            return fs.FileInfo(path, fs.FileType.Directory)
        return fs.FileInfo(path, fs.FileType.NotFound)

    def _unused(self, *args: object) -> None:
        raise AssertionError("an object store is never asked for this")

    copy_file = create_dir = delete_dir_contents = delete_root_dir_contents = move = _unused
    open_append_stream = open_input_stream = _unused


def folder_of(system: Any, path: str) -> Folder:
    """A folder on a file system that no URI leads to."""
    return Folder(system, path, f"test://{path}")


FAILURES = 3
PART_RECORDS = 100


class FailsBehindCheckpoints:
    """Fails when a part that a new checkpoint names was ended since, and before the next one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest = self.passed = 0

    def __call__(self, number: int) -> int:
        if number % 10 < 2:
            self.look()
        self.passed += 1
        if self.passed == PART_RECORDS and self.newest:
            marks = list(self.folder.glob("mark-*"))
            mark = self.folder / f"mark-{self.newest}"
            if len(marks) < FAILURES and mark not in marks:
                mark.touch()
                raise ValueError(f"once after checkpoint {self.newest}")
        return number

    def look(self) -> None:
        found = (self.folder / "checkpoints").glob("*/chk-*/_metadata")
        newest = max((int(path.parent.name[4:]) for path in found), default=0)
        if newest > self.newest:
            self.newest, self.passed = newest, 0
