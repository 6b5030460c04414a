"""Slot sharing groups, where PyFlink has them."""

from headgate.api.slots import MemorySize, SlotSharingGroup

__all__ = ["MemorySize", "SlotSharingGroup"]
