"""Slot sharing groups, where PyFlink has them."""

from headgate.api.operator_settings import MemorySize, SlotSharingGroup

__all__ = ["MemorySize", "SlotSharingGroup"]
