"""What is made of Spark's own words about the end of its job."""

import pytest

from headgate.base.errors import RestoreRefused, SlotsShort
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.host.shipping.failures import describe
from headgate.spark.failures import cannot_restart, failure_error, spark_failure

WORDS = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.runJob.
: org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a \
failed barrier ResultStage. Most recent failure reason: Stage failed because barrier task \
ResultTask(0, 1) finished unsuccessfully.
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2044, in main
    func, profiler, deserializer, serializer = read_command(pickleSer, infile)
  File "/opt/spark/python/lib/pyspark.zip/pyspark/serializers.py", line 471, in loads
    return cloudpickle.loads(obj, encoding=encoding)
{last}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(X.scala:1)
\tat org.apache.spark.scheduler.Task.run(Task.scala:141)
"""


@pytest.mark.parametrize(
    ("last", "said", "advice"),
    [
        (
            "ModuleNotFoundError: No module named 'headgate'",
            "ModuleNotFoundError: No module named 'headgate'",
            "install the same Headgate in the Python of every worker",
        ),
        (
            "ModuleNotFoundError: No module named 'shop.orders'",
            "No module named 'shop.orders'",
            "ship it with env.add_python_file",
        ),
        (
            "AttributeError: Can't get attribute 'Contact' on <module 'headgate.host.net.contact'>",
            "Can't get attribute 'Contact'",
            "the same Python and packages",
        ),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python "
            "in worker has different version: 3.10 than that in driver: 3.12",
            "different version: 3.10",
            "the same Python and packages",
        ),
        (
            "headgate.base.errors.WrongVersion: peer driver: speaks protocol version 3, this side "
            "2; install the same Headgate",
            "speaks protocol version 3",
            "the same Python and packages",
        ),
    ],
)
def test_a_worker_that_can_never_run_the_job_ends_it(last: str, said: str, advice: str) -> None:
    failure = spark_failure(RuntimeError(WORDS.format(last=last)))
    assert failure.is_final and not failure.is_consequence
    assert said in failure.message and advice in failure.message
    assert len(failure.message.splitlines()) == 1 and "scala" not in failure.message
    assert not failure.traceback, "one sentence"


@pytest.mark.parametrize("last", ["ValueError: boom", "java.io.EOFException", "OSError: no disk"])
def test_everything_else_may_be_tried_again(last: str) -> None:
    failure = spark_failure(RuntimeError(WORDS.format(last=last)))
    assert not failure.is_final and failure.is_consequence
    assert failure.message.startswith("Spark ended the job: ")


def test_a_record_that_holds_such_words_ends_nothing() -> None:
    words = WORDS.format(last="ValueError: ModuleNotFoundError: No module named 'x'")
    assert not spark_failure(RuntimeError(words)).is_final


def test_a_lost_executor_is_told_with_its_reason() -> None:
    lost = (
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: "
        "Command exited with code 137"
    )
    failure = spark_failure(RuntimeError(WORDS.format(last=lost)))
    assert failure.message == f"Spark ended the job: {lost}"


def test_a_job_that_cannot_begin_anew_has_failed_for_what_ended_it() -> None:
    lost = describe(ConnectionError("the executor was killed"))
    ended = Outcome(JobState.FAILED, lost, slot=1, restart_in_ms=10)
    waiting = cannot_restart(ended, describe(SlotsShort(4, 2, 0)), 20)
    assert (waiting.failure, waiting.slot, waiting.restart_in_ms) == (lost, 1, 20)
    over = cannot_restart(waiting, describe(SlotsShort(4, 1, 0)), None)
    assert over.restart_in_ms is None
    text = str(failure_error("orders", over.failure, over.reason))
    assert text.index("the executor was killed") < text.index("it cannot begin anew")
    assert "2 found" not in text  # the last try tells


def test_a_checkpoint_that_does_not_fit_is_the_cause_itself() -> None:
    ended = Outcome(JobState.FAILED, describe(ConnectionError("lost")), restart_in_ms=10)
    refused = describe(RestoreRefused.__new__(RestoreRefused))
    over = cannot_restart(ended, refused, None)
    assert over.failure is refused
