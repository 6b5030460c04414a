"""What an action on a DataFrame raises if the job behind it fails: JobFailed, as ``execute`` does.

The driver knows why a run has ended; Spark only knows that a stage has. PySpark turns errors of
Java into its own in one function, ``convert_exception``, whatever the action and however the
DataFrame was derived. It is asked first here whether the stage that failed was one of ours. Law:
an error that names no stage of ours goes PySpark's way, untouched.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from headgate.base.errors import JobFailed
from headgate.control.run_effects import Outcome
from headgate.spark.job import failure_error

MOST_KEPT: Final = 256
"""Failures of so many stages are remembered; an action asks right after its stage has failed."""
MOST_CAUSES: Final = 10
_STAGE: Final = re.compile(r"\b(?:[Ss]tage |(?:Result|ShuffleMap)Task\()(\d+)")
"""How Spark names a stage; we name it, too, in the reason for its end."""

_failures: "OrderedDict[tuple[str, int], tuple[str, Outcome]]" = OrderedDict()
"""Of a Spark application and a stage: the job's name, and how its run has ended."""
_lock = threading.Lock()


def note_failure(application: str, stage: int, job: str, outcome: Outcome) -> None:
    """A run of a lazy job has failed; the action on the DataFrame is about to."""
    if outcome.failure is None:
        return
    with _lock:
        _failures[application, stage] = (job, outcome)
        while len(_failures) > MOST_KEPT:
            _failures.popitem(last=False)


def error_of(application: str, text: str) -> JobFailed | None:
    """What to raise for an error of Spark's with this text; None: it is not about a job of ours."""
    with _lock:
        for stage in _STAGE.findall(text):
            if (application, int(stage)) in _failures:
                job, outcome = _failures[application, int(stage)]
                return failure_error(job, outcome.failure)
    return None


def install() -> None:
    """Ask us before PySpark makes an error of its own; idempotent."""
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


def _error_of_java(error: Any) -> JobFailed | None:
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
