"""A failure that comes again and again in the same way ends the job."""

from msgspec.structs import replace

from headgate.base.messages import Failure
from headgate.control.recovery import FAILURES_REMEMBERED, RepeatedFailures

AT_RECORD = Failure("builtins.ValueError", "boom", "map", "Traceback …", record="'bad'")
NOWHERE = Failure("builtins.ValueError", "boom <x at 0x7f01>", "map", "Traceback …")


def test_the_same_record_counts_though_a_checkpoint_was_completed_in_between() -> None:
    repeats = RepeatedFailures(3, 1000)
    problems = [repeats.failed(AT_RECORD, completed, completed) for completed in range(3)]
    assert problems[:2] == ["", ""]
    assert problems[2] == (
        "it has failed 3 times in the same way at the same record, and "
        "restart-strategy.max-identical-failures is 3"
    )


def test_records_that_look_the_same_after_much_progress_are_others() -> None:
    repeats = RepeatedFailures(2, 1e9)
    assert not any(repeats.failed(AT_RECORD, 100 * number, number) for number in range(50))


def test_without_a_record_a_completed_checkpoint_is_progress() -> None:
    repeats = RepeatedFailures(2, 1000)
    assert not repeats.failed(NOWHERE, 0, 0)
    assert not repeats.failed(NOWHERE, 1, 0)
    other_address = replace(NOWHERE, message="boom <x at 0x7f99>")
    assert "without a checkpoint in between" in repeats.failed(other_address, 1, 0)


def test_another_record_operator_or_error_is_another_failure() -> None:
    repeats = RepeatedFailures(2, 1000)
    for other in (
        AT_RECORD,
        replace(AT_RECORD, record="'other'"),
        replace(AT_RECORD, operator="filter"),
        replace(AT_RECORD, kind="builtins.KeyError"),
    ):
        assert not repeats.failed(other, 0, 0)
    assert repeats.failed(AT_RECORD, 0, 0), "others in between do not hide it"


def test_a_long_quiet_time_begins_anew() -> None:
    repeats = RepeatedFailures(2, 1000)
    assert not repeats.failed(AT_RECORD, 0, 0)
    assert not repeats.failed(AT_RECORD, 0, 1000)
    assert repeats.failed(AT_RECORD, 0, 1999)


def test_what_is_not_of_the_jobs_own_code_is_not_counted() -> None:
    repeats = RepeatedFailures(1, 1000)
    assert not repeats.failed(Failure("TaskManagerLost", "gone"), 0, 0)
    assert not repeats.failed(replace(AT_RECORD, is_outside=True), 0, 0)
    assert not repeats.failed(replace(AT_RECORD, is_consequence=True), 0, 0)
    assert repeats.failed(AT_RECORD, 0, 0)


def test_it_remembers_only_so_many() -> None:
    repeats = RepeatedFailures(2, 1e9)
    for number in range(FAILURES_REMEMBERED + 1):
        assert not repeats.failed(replace(AT_RECORD, record=str(number)), 0, 0)
    assert not repeats.failed(replace(AT_RECORD, record="0"), 0, 0), "forgotten"
    assert repeats.failed(replace(AT_RECORD, record=str(FAILURES_REMEMBERED)), 0, 0)
