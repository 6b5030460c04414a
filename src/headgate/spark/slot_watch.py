"""Why a job that was submitted has no tasks yet: somebody else took the slots, or they are gone.

Slots are checked before a job is submitted, but jobs of Spark's own may take them in between, and
executors may be lost or excluded. Spark then waits without a word until all slots are free at the
same time. Law: what holds the job up is logged once it has lasted for two looks, again when it has
changed or after a minute, and is there to be shown as long as it lasts; so is a Spark that is gone.
Where Spark does not tell what others run, a job without tasks is taken to wait for slots after ten
seconds. Called by one thread, between the submission of a job and its first task manager.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from headgate.spark.cluster import Slots, SparkCluster

log = logging.getLogger(__name__)

LOOK_S: Final = 2.0
"""Between two looks; a shortage that is over in a moment is none."""
UNTOLD_LOOKS: Final = 5
"""How many of them the tasks may take to start where Spark does not tell who has the slots."""
REMIND_S: Final = 60.0


class SlotWatch:
    """Watches the slots of one run; one thread at a time."""

    def __init__(
        self,
        cluster: SparkCluster,
        job: str,
        needed: int,
        running: Callable[[], int],
        profile: object | None = None,
    ) -> None:
        """``running``: counts its tasks that run; ``profile``: the resources of its tasks."""
        self.reason = ""
        """What the run waits for, in words; nothing: not for slots, as far as is known."""
        self.absence = ""
        """Why it waits in vain, in words: Spark was not there at two looks, one after the other."""
        self._cluster = cluster
        self._running = running
        self._job = job
        self._needed = needed
        self._profile = profile
        self._seen = ""
        self._missed = ""
        self._looks = 0
        self._since_s: float | None = None
        self._remind_at_s = 0.0

    def look(self) -> None:
        """Ask Spark; its troubles are its own, but that it is gone."""
        self._looks += 1
        before, self._missed = self._missed, self._cluster.absence()
        self.absence = self._missed if before else ""
        try:
            if self._running() > 0:
                self._looks = 0
            found = self._shortage() if self._looks and not self._missed else ""
        except Exception as error:  # Spark is stopping, or Java is gone: the job will end, too
            log.debug("the slots of job %s are not known: %s", self._job, error)
            found = ""
        before, self._seen = self._seen, found
        if found and before:
            self._report(found)
        elif not found:
            self.ended()

    def ended(self) -> None:
        """It waits for slots no more. Idempotent."""
        if self._since_s is not None:
            waited_s = time.monotonic() - self._since_s
            log.info("job %s has waited %.0f s for slots", self._job, waited_s)
        self.reason, self._since_s = "", None

    def _shortage(self) -> str:
        slots = self._cluster.slots(self._profile)
        if found := shortage(self._needed, slots):
            return found
        if slots.tells_busy or self._looks < UNTOLD_LOOKS:
            return ""
        return (
            f"waiting for {self._needed} slots; other sessions of the server may have them, which "
            f"Spark Connect does not tell"
        )

    def _report(self, found: str) -> None:
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        if found != self.reason or now_s >= self._remind_at_s:
            self._remind_at_s = now_s + REMIND_S
            log.warning("job %s is %s", self._job, found)
        self.reason = found


def shortage(needed: int, found: Slots) -> str:
    """What a run without tasks waits for; nothing: Spark has room for it."""
    if found.free >= needed:
        return ""
    waits = f"waiting for {needed} slots"
    if found.total >= needed:
        taken = min(found.busy, found.total)  # several small tasks may hold one large slot
        return f"{waits}; {taken} of {found.total} are taken by other jobs of this application"
    names = ", ".join(map(str, found.excluded))
    some = f"executors {names} are" if found.excluded[1:] else f"executor {names} is"
    why = f"{some} excluded after failures" if found.excluded else "executors are lost"
    return f"{waits}; Spark has {found.total}, because {why}"
