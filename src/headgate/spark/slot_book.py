"""Who holds slots: Spark knows the tasks that run, this book also the jobs that are about to start.

Law: the jobs in the book fit into Spark together. A job that does not fit is refused at once if
jobs of this driver hold the slots; for tasks that are merely ending it waits a moment.
"""

import threading
import time
from typing import TYPE_CHECKING, Final

from headgate.base.errors import SlotsShort
from headgate.spark.session import slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDING_S: Final = 3.0
"""How long tasks of a job that has just ended may still count as busy."""


class SlotBook:
    """The slots of the running jobs of one driver. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}

    def reserve(self, session: "SparkSession", job: str, needed: int) -> None:
        """Enter a job; raises SlotsShort."""
        deadline = time.monotonic() + ENDING_S
        while True:
            with self._lock:
                found = slots(session)
                held = sum(self._held.values())
                busy = max(found.busy, held)
                if found.total - busy >= needed:
                    self._held[job] = needed
                    return
            if found.total - held < needed or time.monotonic() > deadline:
                raise SlotsShort(needed, found.total, busy)
            time.sleep(0.05)

    def give_back(self, job: str) -> None:
        """The job has ended. Idempotent."""
        with self._lock:
            self._held.pop(job, None)
