"""Why a job on Spark has failed: the error that its program or action gets, and Spark's own words.

Law: the cause comes first, with its own traceback and without pages of Java.

The driver knows why a run has failed; Spark only knows that a stage has. PySpark turns errors of
Java into its own in one function, ``convert_exception``, whatever the action and however the
DataFrame was derived; ``install_error_conversion`` makes it ask first whether the failed stage was
one of ours. Law: an error that names no stage of ours goes PySpark's way, untouched.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from headgate.base.errors import (
    CodeUnloadable,
    JobCancelled,
    JobFailed,
    RestoreRefused,
    SessionFailed,
    TaskManagerLost,
)
from headgate.base.messages import Failure
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.host.shipping.failures import describe, revive
from headgate.spark.cluster import is_connect
from headgate.spark.connect_operations import note_operations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MOST_KEPT: Final = 256
"""How many failures are remembered; an action asks right after its stage has failed."""
MOST_CAUSES: Final = 10
_STAGE: Final = re.compile(r"\b(?:[Ss]tage |(?:Result|ShuffleMap)Task\()(\d+)")
"""How Spark names a stage; the reason that we give for its end names it, too."""
_failures: "OrderedDict[tuple[str, str], tuple[str, Outcome]]" = OrderedDict()
"""By application and stage, or operation of Spark Connect: the job's name, and how its run has
ended."""
_failures_lock = threading.Lock()


def failure_error(job: str, failure: Failure | None, reason: str = "") -> JobFailed:
    """What to raise for a failed job: the cause's own traceback first, then where it was.

    ``reason``: why it was not restarted once more.
    """
    if failure is None:
        return JobFailed(job, "no cause was told")
    message = f"{failure.message} (no other restart: {reason})" if reason else failure.message
    trace = failure.frames
    if failure.record:
        trace = f"{failure.traceback.rstrip()}\nthe record: {failure.record}"
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


def with_absence(
    outcome: Outcome, absence: Callable[[], str], *, had_workers: bool = True
) -> Outcome:
    """Workers that are lost with the server of their session: it is the one to name.

    ``absence``: what is wrong with it, in words; it is asked only if the outcome may be due to it.
    ``had_workers``: False if none had come; Spark's call may fail before anybody looks for them.
    """
    failure = outcome.failure
    if failure is None or not (failure.kind == _LOST_MANAGER or failure.is_consequence):
        return outcome
    if not (problem := absence()):
        return outcome
    if not had_workers:
        return replace(outcome, failure=gone_failure(problem))
    message = f"{problem}, and the job's workers are lost"
    renamed = structs.replace(failure, message=message, traceback="", exception=None)
    return replace(outcome, failure=renamed)


def gone_failure(absence: str) -> Failure:
    """Spark is gone before any worker has come, and does not know the session if it comes back."""
    error = SessionFailed(f"{absence}, and the job's workers have not come")
    return structs.replace(describe(error), traceback="", is_final=True)


_LOST_MANAGER: Final = f"{TaskManagerLost.__module__}.{TaskManagerLost.__qualname__}"
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
    if _LOST not in short and (own := _OWN_ERROR.search(text)) is not None:
        short = f"a worker {own[1]}" if own[1].startswith("cannot ") else own[1]
    message = f"Spark ended the job: {(short or text)[:2000].strip()}"
    return Failure(
        kind=f"{type(error).__module__}.{type(error).__qualname__}",
        message=message,
        traceback="",
        is_consequence=True,
    )


_LOST: Final = "ExecutorLostFailure"
_TELLING: Final = (_LOST, "Exception", "Error")
"""What a line of Spark's says the most about an end, the best first."""
_OWN_ERROR: Final = re.compile(r"^headgate\.base\.errors\.\w+: (.+)", re.MULTILINE)
"""What a worker of ours has raised, in the midst of Spark's words."""
_MISSING: Final = re.compile(r"^ModuleNotFoundError: No module named '([^']+)'", re.MULTILINE)
_OTHER_CODE: Final = re.compile(
    r"^(?:ImportError: cannot import name|AttributeError: Can't get attribute) .*", re.MULTILINE
)
_OTHER_PLATFORM: Final = re.compile(
    r"^ImportError: .*(?:\.so\b|\.dylib\b|ELF|dlopen|shared object|GLIBC).*", re.MULTILINE
)
"""Compiled for another system than the worker's, as what a driver ships may be."""
_OTHER_PYTHON: Final = re.compile(r"\[PYTHON_VERSION_MISMATCH\] (.*)")
_PYTHONS: Final = re.compile(r"different version: ([\d.]+) than that in driver: ([\d.]*\d)")
_NO_PYTHON: Final = re.compile(r'IOException: Cannot run program "([^"]+)"')
_WRONG_VERSION: Final = re.compile(r"^headgate\.base\.errors\.WrongVersion: (.*)", re.MULTILINE)


def python_problem(text: str) -> str:
    """What is wrong with the Python of the workers, by Spark's words; nothing: they do not say."""
    if found := _NO_PYTHON.search(text):
        return f"the workers have no program {found[1]}"
    if (mismatch := _OTHER_PYTHON.search(text)) is None:
        return ""
    if (versions := _PYTHONS.search(mismatch[1])) is None:
        return mismatch[1]
    return f"the workers run Python {versions[1]}, and the driver {versions[2]}"


def _unfit_worker(text: str) -> CodeUnloadable | None:
    """Why no worker of this kind can ever run the job; None: Spark does not say so."""
    if problem := python_problem(text):
        return CodeUnloadable(problem)
    if "PythonException" not in text and "Traceback (most recent call last)" not in text:
        return None
    if found := _MISSING.search(text):
        return CodeUnloadable(found[0], found[1])
    for pattern in (_WRONG_VERSION, _OTHER_CODE, _OTHER_PLATFORM):
        if found := pattern.search(text):
            return CodeUnloadable(found[0].strip()[:500])
    return None


def note_failure(application: str, stage: str, job: str, outcome: Outcome) -> None:
    """A run of a lazy job has failed or was cancelled; the action on the DataFrame is about to.

    With Spark Connect ``stage`` is the stage and the operation, with a colon between them.
    """
    if outcome.state is JobState.FINISHED:
        return
    with _failures_lock:
        for name in filter(None, stage.split(":")):
            _failures[application, name] = (job, outcome)
        while len(_failures) > MOST_KEPT:
            _failures.popitem(last=False)


def error_of(application: str, text: str, operation: str = "") -> JobFailed | JobCancelled | None:
    """What to raise for an error of Spark's with this text; None: it is not about a job of ours.

    ``operation``: the one of Spark Connect that has failed, if it is known.
    """
    with _failures_lock:
        for name in (operation, *_STAGE.findall(text)):
            if (application, name) in _failures:
                job, outcome = _failures[application, name]
                if outcome.state is JobState.CANCELLED:
                    return JobCancelled(job, outcome.reason)
                return failure_error(job, outcome.failure)
    return None


def install_error_conversion(session: "SparkSession") -> None:
    """Ask us before PySpark makes an error of its own; idempotent."""
    if is_connect(session):
        _install_connect_conversion()
        return
    from pyspark.errors.exceptions import captured

    module: Any = captured
    usual: Callable[[Any], Any] | None = getattr(module, "convert_exception", None)
    if usual is None or hasattr(usual, "is_headgate"):  # none: a PySpark that we do not know
        return

    def convert_exception(error: Any) -> Any:
        failed = _error_of_java(error)
        if failed is None:
            return usual(error)
        failed.__suppress_context__ = True
        raise failed  # PySpark would raise it without its cause

    convert_exception.is_headgate = True  # type: ignore[attr-defined] # that is what it is for
    module.convert_exception = convert_exception


def _install_connect_conversion() -> None:
    """All errors of a Connect session go through one method of its client."""
    from pyspark.sql.connect.client.core import SparkConnectClient

    note_operations()
    client: Any = SparkConnectClient
    usual: Callable[..., Any] | None = getattr(client, "_handle_error", None)
    if usual is None or hasattr(usual, "is_headgate"):
        return

    @wraps(usual)  # whoever looks at its parameters sees PySpark's
    def handle_error(self: Any, error: Exception, *rest: Any, **named: Any) -> None:
        try:
            usual(self, error, *rest, **named)
        except Exception as converted:
            operation = str(getattr(converted, "_operation_id", ""))
            failed = error_of(str(self._session_id), str(converted), operation)
            if failed is not None:
                raise failed from failed.__cause__
            if problem := getattr(self, "given_up_by_headgate", ""):
                raise SessionFailed(f"{problem}, and its session was closed") from converted
            raise

    handle_error.is_headgate = True  # type: ignore[attr-defined] # that is what it is for
    client._handle_error = handle_error


def _error_of_java(error: Any) -> JobFailed | JobCancelled | None:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or not _failures:
        return None
    try:
        application = str(context.applicationId)
        texts: list[str] = []
        while error is not None and len(texts) < MOST_CAUSES:  # toPandas() has it in a cause
            texts.append(str(error.toString()))
            error = error.getCause()
        return error_of(application, "\n".join(texts))
    except Exception:  # Java cannot be asked: let PySpark say so
        return None
