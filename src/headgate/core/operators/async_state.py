"""What the operator that waits for asynchronous calls leaves at a checkpoint, and gets back.

Records whose results have not left are called again by the next run. Law: with the old number of
tasks each gets back its own, in order, with the watermarks between them; with another number each
record goes to one task, without these: sources tell event time anew.
"""

import pickle
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from headgate.base.elements import Record
from headgate.base.errors import StateBroken
from headgate.base.moved import loads
from headgate.core.chain.async_queue import Held, Note

Waiting: TypeAlias = "deque[tuple[Record, int | None] | Note]"
"""Records with their timestamps, and notes between them, in order."""


def write_calls(held: Sequence[Held], waiting: Waiting) -> bytes:
    """What the queue holds, and what waits behind it; raises StateBroken."""
    rows: list[tuple[Record, int | None] | Note] = []
    for records, times, notes in held:
        rows += zip(records, times, strict=True)
        rows += notes
    rows += waiting
    try:
        return pickle.dumps(rows, 5)
    except Exception as error:
        raise StateBroken(
            f"records in asynchronous calls cannot be written to a checkpoint "
            f"({type(error).__name__}: {error}); records must be picklable, and async_invoke() "
            f"must not change them"
        ) from error


def read_calls(left: Sequence[bytes | None], subtask: int, parallelism: int) -> Waiting:
    """What this task is to call again, of what all old tasks have left; raises StateBroken."""
    tasks = [[] if one is None else _rows(one) for one in left]
    if len(tasks) == parallelism:
        return deque(tasks[subtask])
    records = [row for rows in tasks for row in rows if isinstance(row, tuple)]
    count = len(records)
    return deque(records[count * subtask // parallelism : count * (subtask + 1) // parallelism])


def _rows(data: bytes) -> list[tuple[Record, int | None] | Note]:
    try:
        rows = loads(data)
        if not isinstance(rows, list):
            raise TypeError(f"{type(rows).__name__} is no list")
        return rows
    except (Exception, SystemExit) as error:  # a pickle can raise anything
        raise StateBroken(
            f"records in asynchronous calls cannot be read ({type(error).__name__}: {error}); "
            f"their classes must still be there under their old names"
        ) from error
