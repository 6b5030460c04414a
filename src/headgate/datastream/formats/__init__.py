"""Formats of rows, where PyFlink has them; re-exports only."""
