"""Why a job on Spark has failed: the error that its program gets, and what Spark itself says.

Law: the cause comes first, with its own traceback and without pages of Java.
"""

import re
from dataclasses import replace
from typing import Final

from msgspec import structs

from headgate.base.errors import CodeUnloadable, JobFailed, RestoreRefused
from headgate.base.messages import Failure
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.host.shipping.failures import describe, revive


def failure_error(job: str, failure: Failure | None, reason: str = "") -> JobFailed:
    """What to raise for a failed job: the cause's own traceback first, then where it was.

    ``reason``: why it was not restarted once more.
    """
    if failure is None:
        return JobFailed(job, "no cause was told")
    message = f"{failure.message} (no other restart: {reason})" if reason else failure.message
    trace = failure.traceback.rstrip()
    if failure.record:
        trace += f"\nthe record: {failure.record}"
    error = JobFailed(job, message, failure.operator, trace)
    error.__cause__ = revive(failure)
    return error


def cannot_restart(ended: Outcome, failure: Failure, restart_in_ms: float | None) -> Outcome:
    """A run that was to follow another one could not begin: what ended that one is the cause.

    ``restart_in_ms``: when it is tried again; None: it is not, and the job has failed.
    """
    if ended.failure is None or failure.kind == _REFUSED:
        return Outcome(JobState.FAILED, failure, restart_in_ms=restart_in_ms)
    reason = f"it cannot begin anew: {failure.message}"
    return replace(ended, state=JobState.FAILED, reason=reason, restart_in_ms=restart_in_ms)


_REFUSED: Final = f"{RestoreRefused.__module__}.{RestoreRefused.__qualname__}"


def spark_failure(error: BaseException) -> Failure:
    """Spark's own words about the end of its job, without pages of Java.

    What a worker has met before Headgate's code ran there is known from these words only.
    """
    try:
        text = str(getattr(error, "java_exception", None) or error)
    except Exception:  # Java itself has gone, and cannot be asked
        text = f"{type(error).__name__}: Java has ended"
    if (unfit := _unfit_worker(text)) is not None:
        return structs.replace(describe(unfit), traceback="")  # it was raised nowhere
    lines = [line for line in text.splitlines() if line.strip()]
    telling = [line for word in _TELLING for line in lines if word in line]
    short = telling[0] if telling else ""
    message = f"Spark ended the job: {(short or text)[:2000].strip()}"
    return Failure(
        kind=f"{type(error).__module__}.{type(error).__qualname__}",
        message=message,
        traceback="",
        is_consequence=True,
    )


_TELLING: Final = ("ExecutorLostFailure", "Exception", "Error")
"""What a line of Spark's says the most about an end, the best first."""
_MISSING: Final = re.compile(r"^ModuleNotFoundError: No module named '([^']+)'", re.MULTILINE)
_OTHER_CODE: Final = re.compile(
    r"^(?:ImportError: cannot import name|AttributeError: Can't get attribute) .*", re.MULTILINE
)
_OTHER_PYTHON: Final = re.compile(r"^.*\[PYTHON_VERSION_MISMATCH\] (.*)", re.MULTILINE)
_WRONG_VERSION: Final = re.compile(r"^headgate\.base\.errors\.WrongVersion: (.*)", re.MULTILINE)


def _unfit_worker(text: str) -> CodeUnloadable | None:
    """Why no worker of this kind can ever run the job; None: Spark does not say so."""
    if "PythonException" not in text and "Traceback (most recent call last)" not in text:
        return None
    if found := _MISSING.search(text):
        return CodeUnloadable(found[0], found[1])
    for pattern in (_OTHER_PYTHON, _WRONG_VERSION, _OTHER_CODE):
        if found := pattern.search(text):
            return CodeUnloadable(found[0].strip()[:500])
    return None
