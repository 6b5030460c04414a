"""The client of a running job, where PyFlink has it."""

from headgate.api.job import JobClient

__all__ = ["JobClient"]
