"""What actions on DataFrames raise if the job behind them has failed or was cancelled.

The driver knows why a run has failed; Spark only knows that a stage has. PySpark turns errors of
Java into its own in one function, ``convert_exception``, whatever the action and however the
DataFrame was derived; here it first asks whether the failed stage was one of ours. Law: an error
that names no stage of ours goes PySpark's way, untouched.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from headgate.base.errors import JobCancelled, JobFailed, SessionFailed
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.spark.cluster import is_connect
from headgate.spark.connect_operations import note_operations
from headgate.spark.failures import failure_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_KEPT: Final = 256
"""How many failures are remembered; an action asks right after its stage has failed."""
MOST_CAUSES: Final = 10
_STAGE: Final = re.compile(r"\b(?:[Ss]tage |(?:Result|ShuffleMap)Task\()(\d+)")
"""How Spark names a stage; the reason that we give for its end names it, too."""
_failures: "OrderedDict[tuple[str, str], tuple[str, Outcome]]" = OrderedDict()
"""Of a Spark application and a stage, or an operation of Spark Connect: the job's name, and how its
run has ended."""
_failures_lock = threading.Lock()


def note_failure(application: str, stage: str, job: str, outcome: Outcome) -> None:
    """A run of a lazy job has failed or was cancelled; the action on the DataFrame is about to.

    With Spark Connect the operation stands behind the stage, and a colon between them.
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
