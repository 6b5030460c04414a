"""Failing records: what is left out, what a dead letter says, and when the job fails after all."""

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, Record
from headgate.base.errors import (
    HeadgateError,
    JobCancelled,
    LineUndecodable,
    RecordsFailing,
    StateBroken,
    TaskCancelled,
    UserFunctionFailed,
)
from headgate.core.chain.left_out import (
    FIRST_PAUSE_MS,
    MOST_RAW_BYTES,
    MOST_REASON_CHARS,
    FailureStreak,
    RecordFailures,
    attempt,
    bundle_without,
    without,
)
from headgate.functions.error_policy import DeadLetter, ErrorPolicy, OnError
from headgate.functions.function import OutputTag
from tests.core.chain.kit import KeptOutput, context

LETTERS = ErrorPolicy.dead_letters(OutputTag("dead"))


class Bench:
    """The failures of one operator, what they emit and what they log."""

    def __init__(self, policy: ErrorPolicy = LETTERS, is_read: bool = True) -> None:
        self.output = KeptOutput()
        self.lines: list[tuple[str, BaseException | None]] = []
        self.now_ms = 0.0
        self.failures = RecordFailures(policy, "parse", self.output, is_read)
        self.failures.open(
            replace(
                context("parse", 1, 2),
                warn=lambda text, error: self.lines.append((text, error)),
                elapsed_ms=lambda: self.now_ms,
            )
        )
        self.streak = self.failures.streak()

    @property
    def letters(self) -> list[DeadLetter]:
        return self.output.side_records("dead")


def test_a_dead_letter_says_what_failed_where_and_why() -> None:
    bench = Bench()
    bench.streak.failed(ValueError("no number"), "x", 7)
    (letter,) = bench.letters
    assert letter == DeadLetter("x", None, "parse", 1, "no number", "ValueError", 7, "")
    assert bench.output.side[0][1].timestamps == [7]
    assert (bench.failures.skipped, bench.failures.dead_letters) == (0, 1)


def test_a_dead_letter_names_the_module_of_an_error_that_is_not_pythons_own() -> None:
    bench = Bench()
    bench.streak.failed(pickle.PicklingError("no"), "x")
    assert bench.letters[0].error_class == "_pickle.PicklingError"
    assert pickle.loads(pickle.dumps(bench.letters[0])) == bench.letters[0]


def test_raw_bytes_and_reasons_are_cut_and_the_letter_says_so() -> None:
    bench = Bench()
    bench.streak.malformed(b"a" * (MOST_RAW_BYTES + 1), ValueError("b" * 10_000))
    (letter,) = bench.letters
    assert letter.record is None and letter.raw == b"a" * MOST_RAW_BYTES
    assert letter.reason == "b" * MOST_REASON_CHARS
    assert letter.cut == (
        "raw: the first 65,536 bytes of 65,537 bytes; reason: the first 2,000 of 10,000 characters"
    )


@pytest.mark.parametrize("raw", [b"ab", bytearray(b"ab"), memoryview(b"ab"), "ab"])
def test_raw_bytes_are_bytes_whatever_the_reader_has(raw: Any) -> None:
    bench = Bench()
    bench.streak.malformed(raw, ValueError("no"))
    assert bench.letters[0].raw == b"ab" and bench.letters[0].cut == ""


@pytest.mark.parametrize("record", [{"a": 1}, "ab", b"ab", b"a" * (MOST_RAW_BYTES + 1)])
def test_a_writer_names_a_record_which_is_never_cut(record: Any) -> None:
    bench = Bench()
    bench.streak.unfit(record, ValueError("no"))
    assert bench.letters[0][:2] == (record, None) and bench.letters[0].cut == ""


def test_a_reader_may_name_an_object_instead_of_bytes() -> None:
    bench = Bench()
    bench.streak.malformed({"a": 1}, ValueError("no"))
    assert (bench.letters[0].record, bench.letters[0].raw) == ({"a": 1}, None)


def test_the_record_of_a_letter_belongs_to_its_receiver() -> None:
    bench = Bench()
    record = ["a"]
    bench.streak.failed(ValueError("no"), record)
    record.append("b")
    assert bench.letters[0].record == ["a"]


def test_a_record_that_cannot_be_copied_is_missing_and_the_letter_says_so() -> None:
    bench = Bench()
    bench.streak.failed(ValueError("no"), (value for value in ()))
    assert bench.letters[0].record is None
    assert bench.letters[0].cut.startswith("record: a generator, which cannot be copied")


def test_an_error_without_a_text_does_not_fail_the_letter() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

        __repr__ = __str__

    bench = Bench()
    bench.streak.failed(Mute(), "x")
    assert bench.letters[0].reason == "Mute"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        StateBroken("state"),
        TaskCancelled("stop"),
        JobCancelled("job", "wanted"),
        UserFunctionFailed("behind", ValueError("behind")),
        HeadgateError("ours"),
    ],
)
def test_errors_of_the_runtime_are_never_left_out(error: Exception) -> None:
    bench = Bench(ErrorPolicy.SKIP)
    with pytest.raises(type(error)):
        bench.streak.failed(error, "x")
    with pytest.raises(type(error)):
        bench.streak.malformed(b"x", error)
    with pytest.raises(type(error)):
        bench.streak.unfit("x", error)
    assert bench.failures.skipped == 0 and not bench.lines


def test_a_reader_reports_errors_of_its_own_kind() -> None:
    bench = Bench(ErrorPolicy.SKIP)
    bench.streak.malformed(b"\xff", LineUndecodable("f", 1, "utf-8", "bad"))
    assert bench.failures.skipped == 1


def test_an_assertion_of_the_runtime_is_never_left_out_but_one_of_the_user_is() -> None:
    bench = Bench(ErrorPolicy.SKIP)
    try:
        RecordFailures(ErrorPolicy.FAIL, "parse", bench.output, True)
    except AssertionError as ours:
        with pytest.raises(AssertionError):
            bench.streak.failed(ours, "x")
    try:
        raise AssertionError("of the user")
    except AssertionError as theirs:
        bench.streak.failed(theirs, "x")
    assert bench.failures.skipped == 1


def test_letters_that_nobody_reads_count_as_skipped() -> None:
    bench = Bench(is_read=False)
    bench.streak.failed(ValueError("no"), "x")
    assert not bench.output.side
    assert (bench.failures.skipped, bench.failures.dead_letters) == (1, 0)


def test_the_first_failure_is_logged_with_its_traceback_and_the_others_are_counted() -> None:
    bench = Bench(ErrorPolicy.SKIP)
    first = ValueError("first")
    for error in (first, ValueError("second"), ValueError("third")):
        bench.streak.failed(error, "x")
    assert [error for _, error in bench.lines] == [first]
    assert bench.lines[0][0] == (
        "operator 'parse' (2/2): the record 'x' was skipped because of ValueError: first; later "
        "ones are only counted"
    )
    bench.now_ms = FIRST_PAUSE_MS
    bench.streak.failed(ValueError("fourth"), "x")
    assert bench.lines[1][0].endswith(
        "3 more records were skipped, the last because of ValueError: fourth"
    )
    bench.streak.failed(ValueError("fifth"), "x")
    bench.failures.close()
    bench.failures.close()
    assert [text for text, _ in bench.lines[2:]] == [
        "operator 'parse' (2/2): 1 more record was skipped"
    ]


def test_the_line_of_the_first_failure_is_short_and_has_no_breaks() -> None:
    bench = Bench()
    bench.streak.malformed(b"<" + b"a" * 10_000, ValueError("no\nnumber"))
    text, _ = bench.lines[0]
    assert text.startswith("operator 'parse' (2/2): the record b'<aaa") and len(text) < 400
    assert "was sent to the dead letters 'dead' because of ValueError: no number;" in text


def test_too_many_skipped_in_a_row_fail_the_task() -> None:
    bench = Bench(replace(ErrorPolicy.SKIP, most_in_a_row=3))
    for _ in range(5):
        bench.streak.failed(ValueError("no"), "x")
        bench.streak.failed(ValueError("no"), "x")
        bench.streak.passed()
    bench.streak.failed(ValueError("no"), "x")
    bench.streak.failed(ValueError("no"), "x")
    with pytest.raises(RecordsFailing, match="'parse' has skipped 3 records in a row") as raised:
        bench.streak.failed(ValueError("no"), "x")
    assert isinstance(raised.value.__cause__, ValueError)


def test_letters_that_are_read_may_be_any_number() -> None:
    bench = Bench(replace(LETTERS, most_in_a_row=2))
    for _ in range(5):
        bench.streak.failed(ValueError("no"), "x")
    assert len(bench.letters) == 5


@given(st.lists(st.lists(st.booleans(), max_size=6), max_size=8), st.integers(1, 5))
def test_a_row_goes_on_from_bundle_to_bundle(bundles: list[list[bool]], most: int) -> None:
    bench = Bench(replace(ErrorPolicy.SKIP, most_in_a_row=most))
    verdicts = "".join("x" if fails else "." for bundle in bundles for fails in bundle)
    try:
        for fails in bundles:
            _attempt(fails, bench.streak)
        assert "x" * most not in verdicts
    except RecordsFailing:
        assert "x" * most in verdicts
        assert bench.failures.skipped == verdicts[: verdicts.index("x" * most) + most].count("x")


def _attempt(fails: list[bool], streak: FailureStreak) -> tuple[list[int], list[int]]:
    def check(fails: bool, place: int) -> int:
        if fails:
            raise ValueError(place)
        return place

    source = enumerate(fails)
    bundle = Bundle(list(range(len(fails))))
    return attempt(
        source, lambda pairs: (check(bad, place) for place, bad in pairs), bundle, streak
    )


@given(st.lists(st.booleans()))
def test_an_attempt_makes_every_record_once_in_order_or_names_its_place(fails: list[bool]) -> None:
    bench = Bench()
    results, failed = _attempt(fails, bench.streak)
    assert results == [place for place, bad in enumerate(fails) if not bad]
    assert failed == [place for place, bad in enumerate(fails) if bad]
    assert [letter.record for letter in bench.letters] == failed


def test_a_stop_iteration_of_the_users_is_an_error_like_any_other() -> None:
    bench = Bench()

    def call(record: Record) -> Record:
        if record == 1:
            raise StopIteration
        return record

    found, failed = attempt(
        iter([0, 1, 2]),
        lambda records: (call(record) for record in records),
        Bundle([0, 1, 2]),
        bench.streak,
    )
    assert (found, failed) == ([0, 2], [1])


def test_places_are_left_out_of_records_and_times() -> None:
    assert without(["a", "b", "c"], [0, 2]) == ["b"]
    assert bundle_without(Bundle([1, 2], [3, 4]), [0]) == Bundle([2], [4])
    assert bundle_without(Bundle([1, 2]), []) == Bundle([1, 2])


def test_policies_travel_and_refuse_what_is_no_tag() -> None:
    assert pickle.loads(pickle.dumps(LETTERS)) == LETTERS
    assert LETTERS.on_error is OnError.DEAD_LETTERS
    with pytest.raises(TypeError, match="give an OutputTag"):
        ErrorPolicy.dead_letters("dead")  # type: ignore[arg-type]
