"""``headgate plan``: the graph of a program, without Spark."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.kit import Headgate, write

WORDS = """
import sys
print("hello from the script")
words = env.from_collection(["a", "b"]).map(lambda w: (w, 1)).name("pair")
counts = words.key_by(lambda pair: pair[0]).sum(1).name("count")
"""


def test_all_stages_are_shown_and_nothing_runs(headgate: Headgate, tmp_path: Path) -> None:
    job = write(tmp_path, WORDS + "counts.print()\nenv.execute('words')\nprint('not reached')")
    done = headgate("plan", job, "-p", "2", "--svg", str(tmp_path / "plan.svg"))
    assert done.returncode == 0, done.stderr
    assert "stream graph of 'words'" in done.stdout
    assert "job graph of 'words'" in done.stdout
    assert "2 slots" in done.stdout
    assert "hello from the script" in done.stderr
    assert "not reached" not in done.stdout + done.stderr
    assert ElementTree.parse(tmp_path / "plan.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("stage", "first"),
    [("stream", "stream graph"), ("job", "job graph"), ("tasks", "job words"), ("slots", "1 slot")],
)
def test_one_stage_can_be_asked_for(
    headgate: Headgate, tmp_path: Path, stage: str, first: str
) -> None:
    job = write(tmp_path, WORDS + "env.set_parallelism(1)\ncounts.set_parallelism(1).print()\n"
                "words.set_parallelism(1)\nenv.execute('words')")  # fmt: skip
    done = headgate("plan", job, "-p", "1", "--stage", stage)
    assert done.stdout.startswith(first), done.stderr


def test_uids_are_told_with_where_they_come_from(headgate: Headgate, tmp_path: Path) -> None:
    job = write(tmp_path, WORDS + "counts.uid('sums').print()\nenv.execute('words')")
    done = headgate("plan", job, "--stage", "uids")
    title, head, *rows = done.stdout.splitlines()
    assert (title, head.split()) == ("uids of 'words'", ["node", "operator", "uid", "by"])
    (named,) = [row for row in rows if " count " in row]
    assert named.split()[-2:] == ["sums", "uid()"]
    (placed,) = [row for row in rows if " pair " in row]
    assert placed.endswith("its place") and len(placed.split()[-3]) == 32


def test_json_is_the_execution_plan_and_nothing_else(headgate: Headgate, tmp_path: Path) -> None:
    end = "try:\n    counts.execute_and_collect()\nexcept Exception:\n    print('caught')"
    done = headgate("plan", write(tmp_path, WORDS + end), "--json", "-D", "parallelism.default=3")
    nodes = json.loads(done.stdout)["nodes"]
    assert [node["type"] for node in nodes][:2] == ["Source: Collection Source", "pair"]
    assert nodes[1]["parallelism"] == 3


def test_a_program_that_executes_nothing_is_told(headgate: Headgate, tmp_path: Path) -> None:
    done = headgate("plan", write(tmp_path, WORDS))
    assert done.returncode == 1
    assert "executed nothing" in done.stderr


def test_a_plan_that_cannot_be_is_told_from_the_user_s_side(
    headgate: Headgate, tmp_path: Path
) -> None:
    job = write(tmp_path, "env.execute()")
    done = headgate("plan", job)
    assert done.returncode == 1
    assert "there are no operators" in done.stderr
    assert done.stderr.count("  File ") == 1
