"""Arrow batches that found no room in memory, in a file that nobody else sees.

The file has no name and is gone with its process. Law: what was put in comes out once, first in
first out; an empty spill takes no room on the disk.
"""

import tempfile
from collections import deque
from typing import BinaryIO

import pyarrow as pa


class BatchSpill:
    """Batches of one schema. Whoever uses it sees to it that one thread at a time does."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._places: deque[tuple[int, int]] = deque()
        self._end = 0
        self._schema: pa.Schema | None = None

    def __len__(self) -> int:
        return len(self._places)

    def put(self, batch: pa.RecordBatch) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="headgate-")  # noqa: SIM115 - see close()
            self._schema = batch.schema
        data = batch.serialize()
        self._file.seek(self._end)
        self._file.write(data)
        self._places.append((self._end, data.size))
        self._end += data.size

    def take(self) -> pa.RecordBatch:
        assert self._file is not None, "nothing was spilled"
        start, size = self._places.popleft()
        self._file.seek(start)
        data = pa.py_buffer(self._file.read(size))
        if not self._places:
            self._file.truncate(0)
            self._end = 0
        return pa.ipc.read_record_batch(data, self._schema)

    def close(self) -> None:
        file, self._file = self._file, None
        self._places.clear()
        if file is not None:
            file.close()
