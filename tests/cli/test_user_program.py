"""A script runs as Python itself would run it, and trouble is told from the user's side."""

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.cli.user_program import PACKAGE, without_machinery
from tests.cli.kit import headgate


def test_the_script_is_main_with_its_arguments_and_its_folder(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("NAME = 'helper'")
    script = tmp_path / "job.py"
    script.write_text(
        "import pickle, sys\nimport helper\n"
        "class Thing: pass\n"
        "print(__name__, sys.argv[1:], helper.NAME, __file__ == sys.argv[0])\n"
        "print(type(pickle.loads(pickle.dumps(Thing()))) is Thing)\n"
        "print(sys.path[0])\n"
    )
    words = ("a", "--flag", "-p")
    done = headgate("run", str(script), "--", *words)
    plain = subprocess.run(
        [sys.executable, str(script), *words], capture_output=True, text=True, check=True
    )
    assert done.stdout == plain.stdout
    assert done.stdout.startswith("__main__ ['a', '--flag', '-p'] helper True\nTrue\n")


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('no orders')", 1, "no orders\n"),
        ("x = (", 1, "SyntaxError"),
        ("1 // 0", 1, "ZeroDivisionError"),
        ("import headgate\nheadgate.Nothing", 1, "AttributeError"),
    ],
)
def test_the_exit_code_is_the_script_s(tmp_path: Path, text: str, code: int, message: str) -> None:
    (tmp_path / "job.py").write_text(text)
    done = headgate("run", "job.py", cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert "cli/user_program.py" not in done.stderr


def test_a_traceback_ends_where_headgate_begins(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import headgate\n\n\ndef go():\n"
        "    headgate.StreamExecutionEnvironment.get_execution_environment().execute()\n\n\ngo()\n"
    )
    done = headgate("run", "job.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("  File ") == 2
    assert "line 5, in go" in done.stderr
    assert "headgate: there are no operators" in done.stderr


TRACEBACK = f"""Traceback (most recent call last):
  File "{PACKAGE}/core/chain/outputs.py", line 68, in _hand_on
    self._operator.process(bundle, self._number)
              ^^^^^^^^
  File "job.py", line 3, in boom
    return 1 // x
           ~~^^~~
ZeroDivisionError: integer division or modulo by zero

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "{PACKAGE}/host/net/runner.py", line 126, in _run
    self._step_until_done()
headgate.base.errors.UserFunctionFailed: operator 'divide' failed: ZeroDivisionError
"""


def test_of_a_worker_s_traceback_the_user_sees_the_own_frames() -> None:
    assert without_machinery(TRACEBACK) == (
        "Traceback (most recent call last):\n"
        '  File "job.py", line 3, in boom\n'
        "    return 1 // x\n"
        "           ~~^^~~\n"
        "ZeroDivisionError: integer division or modulo by zero\n"
    )


def test_a_traceback_without_our_words_keeps_its_own_chain() -> None:
    text = TRACEBACK.replace("headgate.base.errors.UserFunctionFailed", "OSError")
    assert "OSError: operator" in without_machinery(text)
    assert "ZeroDivisionError" in without_machinery(text)
