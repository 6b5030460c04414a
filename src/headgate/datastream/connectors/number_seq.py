"""A sequence of numbers, where PyFlink has it."""

from headgate.connectors.generator.source import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
