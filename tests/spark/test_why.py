"""Jobs with planted causes on embedded Spark: every one is named rightly, three times in a row.

They run in a driver of their own with many slots, so that those that only sleep run side by side.
`make why` runs each of them alone, several times, and applies the suggestions of four.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from headgate.observe.analysis.diagnosis import Diagnosis
from headgate.observe.analysis.rules import Cause
from tests.spark.planted_jobs import JOBS, PlantedJob

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed"),
    pytest.mark.timeout(3600),
]

ROOT = Path(__file__).parent.parent.parent
CLOSE = 0.2
"""A measured rate may differ so much from the prediction."""


class Report:
    """What the driver has printed."""

    def __init__(self, lines: Iterator[str]) -> None:
        every = [json.loads(line) for line in lines]
        self.answers = [facts for facts in every if "answers" in facts]
        self.applied = [facts for facts in every if "measured" in facts]

    def rounds(self, job: str) -> list[list[Diagnosis]]:
        """The answers of each run of a job."""
        return [
            msgspec.convert(facts["answers"], list[Diagnosis])
            for facts in self.answers
            if facts["job"] == job
        ]


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    rounds: int = request.config.getoption("--why-rounds")
    words = ["--rounds", str(rounds), "--alone", "--apply", "all"] if rounds else []
    errors = tmp_path_factory.mktemp("why") / "stderr"
    with errors.open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.planted_driver", *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    assert done.returncode == 0, errors.read_text(encoding="utf-8")[-10_000:]
    return Report(iter(done.stdout.splitlines()))


@pytest.mark.parametrize("planted", JOBS, ids=lambda planted: planted.name.replace(" ", "-"))
def test_the_cause_is_named_three_times_in_a_row(planted: PlantedJob, report: Report) -> None:
    rounds = report.rounds(planted.name)
    assert rounds
    for answers in rounds:
        assert len(answers) >= 3
        for answer in answers:
            check_answer(planted, answer)


def check_answer(planted: PlantedJob, answer: Diagnosis) -> None:
    text = answer.summary
    assert answer.cause == planted.cause, text
    names = [advice.name for advice in answer.advice]
    if planted.vertex:
        assert planted.vertex in names[answer.vertex], text
        assert planted.vertex in text
    else:
        assert answer.vertex == -1, text
    for words in planted.says:
        assert words in text, text
    assert planted.line in answer.line, text
    if planted.next_vertex:
        assert planted.next_vertex in names[answer.next_vertex], text
    if planted.subtask >= 0:
        assert answer.subtask == planted.subtask, text
    if planted.key:
        key, share = answer.keys[0]
        assert planted.key in key and share > 1 / 3, text


def test_a_suggestion_that_is_applied_gives_the_predicted_rate(report: Report) -> None:
    assert report.applied
    for facts in report.applied:
        measured, predicted = facts["measured"], facts["predicted"]
        assert measured == pytest.approx(predicted, rel=CLOSE), facts


def test_every_cause_is_planted() -> None:
    assert {planted.cause for planted in JOBS} == {cause.value for cause in Cause}
    assert len(JOBS) >= 14
    assert sum(planted.applied for planted in JOBS) >= 4
