"""Slot sharing groups, where PyFlink has them."""

from headgate.api.slots import SlotSharingGroup

__all__ = ["SlotSharingGroup"]
