"""Rows that wait in the task and in its checkpoints, until a commit writes them (``commits``).

Before a commit the server knows nothing of them, so a failure leaves nothing there.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InsertLot:
    """Rows that wait for their transaction; what the sink keeps in checkpoints."""

    writer: str
    number: int
    """Lots of a writer are counted from 1, and are committed in this order."""
    columns: tuple[str, ...]
    batches: tuple[bytes, ...]
    """Lists of rows, pickled."""
