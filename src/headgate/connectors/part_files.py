"""Part files: what each task of a file sink writes, and when others may see it.

A part is written under a hidden name and gets its own name when the input has ended, in one step.
Law: a part that is there under its name is whole, and of one attempt alone; a task that fails
leaves no part.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from headgate.api.source import SinkWriter
from headgate.base.elements import ByteLike, Record
from headgate.base.errors import PathUnusable, PlanInvalid
from headgate.connectors.files import AnyPath, local_path
from headgate.core.chain.context import TaskInfo


@dataclass(frozen=True)
class PartNames:
    """Where the parts of a sink stand: ``folder/prefix-subtask.suffix``."""

    folder: str
    prefix: str
    suffix: str
    overwrite: bool = False
    """Replace what an earlier job has left under the same names."""

    def part(self, subtask: int) -> str:
        return os.path.join(self.folder, f"{self.prefix}-{subtask}{self.suffix}")

    def unfinished(self, subtask: int, attempt: int) -> str:
        """Differs from attempt to attempt: a late one must not write into the next one's file."""
        name = f".{self.prefix}-{subtask}{self.suffix}.inprogress-{attempt}"
        return os.path.join(self.folder, name)


def part_names(folder: AnyPath, prefix: str, suffix: str, overwrite: bool) -> PartNames:
    """Checked in the driver, before anything runs."""
    if os.sep in prefix + suffix or prefix.startswith((".", "_")):
        raise PlanInvalid(
            f"part files cannot be called {prefix}-0{suffix}: give a prefix and suffix without "
            f"{os.sep}, and without . or _ in front, which would hide them"
        )
    return PartNames(os.path.abspath(local_path(folder)), prefix, suffix, overwrite)


class PartWriter(SinkWriter):
    """Writes the part of one task. The file is made with the first record."""

    def __init__(
        self,
        names: PartNames,
        task: TaskInfo,
        encode: Callable[[list[Record]], ByteLike],
        head: bytes = b"",
    ) -> None:
        self._part = names.part(task.subtask)
        self._unfinished = names.unfinished(task.subtask, task.attempt)
        self._encode = encode
        self._head = head
        self._file: BinaryIO | None = None
        self._finished = False
        try:
            os.makedirs(names.folder, exist_ok=True)
            for attempt in range(task.attempt):
                _remove(names.unfinished(task.subtask, attempt))
        except OSError as error:
            raise _unwritable(names.folder, error) from error
        # An attempt before this one may have finished its part; its records come again.
        if task.attempt == 0 and not names.overwrite and os.path.lexists(self._part):
            raise PathUnusable(
                self._part,
                "exists already; give the sink another folder or prefix, or overwrite=True",
            )

    def write(self, records: list[Record]) -> None:
        assert not self._finished, "a record after the end of the input"
        data = self._encode(records)
        try:
            if self._file is None:
                self._file = open(self._unfinished, "wb")  # noqa: SIM115 - see close
                self._file.write(self._head)
            self._file.write(data)
        except OSError as error:
            raise _unwritable(self._unfinished, error) from error

    def flush(self) -> None:
        """The input has ended: give the part its name."""
        if self._finished:
            return
        try:
            if self._file is None:
                _remove(self._part)  # of an attempt or job before, which had records
            else:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                os.replace(self._unfinished, self._part)
                self._file = None
        except OSError as error:
            raise _unwritable(self._part, error) from error
        self._finished = True

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # a full disk says so again
                file.close()
            with contextlib.suppress(OSError):
                _remove(self._unfinished)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def _unwritable(path: str, error: OSError) -> PathUnusable:
    return PathUnusable(
        path, f"cannot be written: {error.strerror}; check the folder's rights and space"
    )
