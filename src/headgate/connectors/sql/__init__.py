"""Rows of a database by Python's DB-API, exactly once."""
