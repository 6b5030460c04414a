"""What is left of a job, where PyFlink has it."""

from headgate.api.job import JobExecutionResult

__all__ = ["JobExecutionResult"]
