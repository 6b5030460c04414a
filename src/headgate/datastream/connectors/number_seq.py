"""A sequence of numbers, where PyFlink has it."""

from headgate.connectors.generator.number_sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
