"""Operators and what connects them: where a record is made, changed and ended."""
