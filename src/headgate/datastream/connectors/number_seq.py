"""A sequence of numbers, where PyFlink has it."""

from headgate.connectors.generator import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
