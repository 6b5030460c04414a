"""The task managers of a run: who is here, who is gone, and whether all can still come.

Law: a slot is served once. A crew that has lost somebody, or to which somebody could not come, is
broken for good: whoever has started the task managers has to start all of them again.
"""

from headgate.base.messages import Address


class TaskManagers:
    """Slots by number, with the address of the data port that serves them."""

    def __init__(self, slots: int) -> None:
        self.here: dict[int, Address] = {}
        self.is_broken = False
        self.register_by_ms: float | None = None
        """When the last one must have come."""
        self._slots = slots
        self._gone: list[int] = []

    def knows(self, slot: int) -> bool:
        """Whether one has registered for the slot, also one that is lost."""
        return slot in self.here or slot in self._gone

    def refusal(self, slot: int) -> str | None:
        """Why nobody may register for this slot; None: somebody may."""
        if not 0 <= slot < self._slots:
            return f"there is no slot {slot}; the job has {self._slots}"
        return f"slot {slot} is taken" if self.knows(slot) else None

    def registered(self, slot: int, address: Address, all_by_ms: float) -> None:
        """One has come; the first one says by when the others must."""
        if not self.here:
            self.register_by_ms = all_by_ms
        self.here[slot] = address

    def lost(self, slot: int) -> bool:
        """One is gone; says whether that is news."""
        if slot not in self.here:
            return False
        del self.here[slot]
        self.is_broken = True
        self._gone.append(slot)
        return True
