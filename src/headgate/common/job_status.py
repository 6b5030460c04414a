"""Where a job stands, where PyFlink has it."""

from headgate.api.job import JobStatus

__all__ = ["JobStatus"]
