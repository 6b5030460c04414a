"""The name of a job, where PyFlink has it."""

from headgate.api.job import JobID

__all__ = ["JobID"]
