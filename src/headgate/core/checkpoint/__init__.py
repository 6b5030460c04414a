"""Barriers of a task on both sides: alignment, in-flight records, what is restored."""
