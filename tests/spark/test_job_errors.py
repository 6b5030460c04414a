"""What is made of Spark's own words about the end of its job."""

import pytest

from headgate.base.errors import DriverUnreachable, RestoreRefused, SlotsShort, TaskManagerLost
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.host.shipping.failures import describe
from headgate.spark.failures import cannot_restart, failure_error, spark_failure, with_absence

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
            "send it along with headgate run --ship, or install the same Headgate in the Python",
        ),
        (
            "ImportError: msgspec/_core.so: invalid ELF header",
            "invalid ELF header",
            "the same system, Python and packages",
        ),
        (
            "ModuleNotFoundError: No module named 'shop.orders'",
            "No module named 'shop.orders'",
            "ship it with env.add_python_file",
        ),
        (
            "AttributeError: Can't get attribute 'Contact' on <module 'headgate.host.net.contact'>",
            "Can't get attribute 'Contact'",
            "the same system, Python and packages",
        ),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python "
            "in worker has different version: 3.10 than that in driver: 3.12",
            "(the workers run Python 3.10, and the driver 3.12); let",
            "the same system, Python and packages",
        ),
        (
            "headgate.base.errors.WrongVersion: peer driver: speaks protocol version 3, this side "
            "2; install the same Headgate",
            "speaks protocol version 3",
            "the same system, Python and packages",
        ),
    ],
)
def test_a_worker_that_can_never_run_the_job_ends_it(last: str, said: str, advice: str) -> None:
    failure = spark_failure(RuntimeError(WORDS.format(last=last)))
    assert failure.is_final and not failure.is_consequence
    assert said in failure.message and advice in failure.message
    assert len(failure.message.splitlines()) == 1 and "scala" not in failure.message
    assert not failure.traceback, "one sentence"


def test_executors_without_the_python_of_the_settings_end_the_job() -> None:
    text = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from "
        "a failed barrier ResultStage. Most recent failure reason: Stage failed because barrier "
        'task ResultTask(0, 1) finished unsuccessfully.\njava.io.IOException: Cannot run program "'
        '/opt/python": error=2, No such file or directory\n\tat java.lang.ProcessBuilder.start(X)'
    )
    failure = spark_failure(RuntimeError(text))
    assert failure.is_final
    assert "(the workers have no program /opt/python); let" in failure.message
    assert "PYSPARK_PYTHON names" in failure.message


@pytest.mark.parametrize("last", ["ValueError: boom", "java.io.EOFException", "OSError: no disk"])
def test_everything_else_may_be_tried_again(last: str) -> None:
    failure = spark_failure(RuntimeError(WORDS.format(last=last)))
    assert not failure.is_final and failure.is_consequence
    assert failure.message.startswith("Spark ended the job: ")


def test_a_driver_that_workers_cannot_reach_is_told_with_its_address_and_setting() -> None:
    error = DriverUnreachable("192.0.2.7:4711", "timed out (9 attempts from far within 20 s)")
    last = f"headgate.base.errors.DriverUnreachable: {error}"
    failure = spark_failure(RuntimeError(WORDS.format(last=last)))
    assert not failure.is_final
    assert failure.message.startswith("Spark ended the job: a worker cannot reach the driver at ")
    assert "192.0.2.7:4711" in failure.message and "jobmanager.rpc.address" in failure.message


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


def test_a_server_that_is_gone_is_named_instead_of_the_workers_that_went_with_it() -> None:
    lost = describe(TaskManagerLost("the task manager of slot 0", "connection reset"))
    ended = with_absence(Outcome(JobState.FAILED, lost), lambda: "the server does not answer")
    text = str(failure_error("orders", ended.failure, ended.reason))
    assert text == "job 'orders' failed: the server does not answer, and the job's workers are lost"
    call = spark_failure(ConnectionError("the channel is closed"))  # the first to notice
    ended = with_absence(
        Outcome(JobState.FAILED, call), lambda: "the server does not answer", had_workers=False
    )
    assert ended.failure is not None
    assert ended.failure.message.endswith("does not answer, and the job's workers have not come")
    for failure, absence in ((describe(ValueError("seven")), "gone"), (lost, "")):
        outcome = Outcome(JobState.FAILED, failure)
        assert with_absence(outcome, lambda absence=absence: absence) is outcome


def test_what_a_connect_server_without_headgate_needs_is_said() -> None:
    """It takes no environment from its clients."""
    missing = "ModuleNotFoundError: No module named 'headgate'"
    message = spark_failure(RuntimeError(WORDS.format(last=missing))).message
    assert message.endswith("for the Python that the server has in PYSPARK_PYTHON)")
