"""Which errors of Spark's are about a job of ours."""

from headgate.base.messages import Failure
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.spark.failures import MOST_KEPT, error_of, note_failure

FAILED = Outcome(
    JobState.FAILED,
    Failure("builtins.ValueError", "operator 'Map' failed: ValueError: 7", "Map", "Trace\n"),
    task="Map (1/2)",
)


def test_an_error_that_names_a_stage_of_ours_becomes_the_job_s() -> None:
    note_failure("app-1", "9", "orders", FAILED)
    for text in (
        "SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled because …\n\n(in stage 9)",
        "Job aborted due to stage failure: Task 1 in stage 9.0 failed 4 times",
        "ResultStage 12 (x) … in stage 12; Stage failed because barrier task ResultTask(9, 1)",
        "barrier task ShuffleMapTask(9, 0) finished unsuccessfully",
    ):
        error = error_of("app-1", text)
        assert error is not None, text
        assert error.summary == "job 'orders' failed in operator 'Map': ValueError: 7"


def test_errors_of_other_stages_and_sessions_are_left_alone() -> None:
    note_failure("app-1", "9", "orders", FAILED)
    assert error_of("app-1", "Task 1 in stage 90.0 failed") is None
    assert error_of("app-1", "AnalysisException: no column 9") is None
    assert error_of("app-2", "Task 1 in stage 9.0 failed") is None


def test_only_the_last_failures_are_kept() -> None:
    for stage in range(MOST_KEPT + 1):
        note_failure("app-3", str(stage), "orders", FAILED)
    assert error_of("app-3", "in stage 0.0") is None
    assert error_of("app-3", "in stage 1.0") is not None
    note_failure("app-4", "1", "orders", Outcome(JobState.FINISHED))
    assert error_of("app-4", "in stage 1.0") is None
