"""A sequence of numbers, where PyFlink has it."""

from headgate.connectors.number_sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
