"""What ``headgate run`` and ``python`` say about programs that execute nothing, and settings."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import HEAD, in_process, write

pytestmark = pytest.mark.usefixtures("fresh")

STREAMS = 'env.from_collection([1]).map(str).name("text").print()\n'
FORGOTTEN = (
    "streams were written, but nothing was executed; call env.execute() at the end of the program"
)


@pytest.mark.parametrize("end", ["", "raise SystemExit", "import sys; sys.exit(0)"])
def test_a_program_that_forgets_to_execute_says_so_and_exits_with_2(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = write(tmp_path, STREAMS + end)
    done = in_process(monkeypatch, capsys, "run", script)
    assert (done.returncode, done.stderr) == (2, f"headgate: {script}: {FORGOTTEN}\n")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (STREAMS + "raise SystemExit(7)", 7),
        (STREAMS + "env.close()", 0),
        ("print('no streams')", 0),
    ],
)
def test_other_endings_are_left_alone(
    tmp_path: Path,
    text: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = in_process(monkeypatch, capsys, "run", write(tmp_path, text))
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize(
    ("end", "last"),
    [
        ("env.from_collection([1]).map(3)", "headgate: map() was given 3; give a callable or"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_failure_is_the_last_that_is_said(tmp_path: Path, end: str, last: str) -> None:
    """At the exit of the process, too."""
    words = [sys.executable, "-m", "headgate", "run", write(tmp_path, STREAMS + end)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(last)


@pytest.mark.parametrize(
    ("text", "message"), [(STREAMS, f"{FORGOTTEN}\n"), (STREAMS + "env.close()", "")]
)
def test_plain_python_warns_at_its_end(tmp_path: Path, text: str, message: str) -> None:
    done = subprocess.run(
        [sys.executable, write(tmp_path, text)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, message)


def test_strict_refuses_unknown_settings_with_2_before_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = write(tmp_path, "print('it runs')")
    flag = ("-D", "paralelism.default=3")
    done = in_process(monkeypatch, capsys, "run", script, "--strict", *flag)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "headgate: setting paralelism.default: paralelism.default is no setting; did you mean "
        "parallelism.default? It stands in the flags of the command (refused, because "
        "headgate.strict is true)\n"
    )
    done = in_process(monkeypatch, capsys, "run", script, *flag)
    assert (done.returncode, done.stdout) == (0, "it runs\n")
    assert "did you mean parallelism.default?" in done.stderr


# Mistakes of a first day.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "--py-files", "nowhere.zip"), "Invalid value for --py-files: 'nowhere.zip' is"),
        (("plan", "--svg", "/nowhere/x.svg"), "/nowhere/x.svg cannot be written: No such file"),
    ],
)
def test_a_path_that_cannot_be_is_named_with_2(
    tmp_path: Path,
    words: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = write(tmp_path, STREAMS + "env.execute()")
    done = in_process(monkeypatch, capsys, *words, script)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plan_of_a_program_that_fails_shows_the_program_s_own_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = write(tmp_path, "open('/nowhere/orders.csv')")
    done = in_process(monkeypatch, capsys, "plan", script)
    assert done.returncode == 1
    assert "No such file or directory: '/nowhere/orders.csv'" in done.stderr
    assert "headgate/cli" not in done.stderr


LOCK = "import threading\nlock = threading.Lock()"
REFUSED = [
    ("env.from_collection([1]).map(3)", "PlanInvalid: map() was given 3; give a callable or"),
    (
        f"{LOCK}\nenv.from_collection([1]).map(lambda x: lock).print()\nenv.execute()",
        "FunctionUnpicklable: operator 'Map': its map",
    ),
]
RUNNERS = {
    "python": [sys.executable],
    "-m": [sys.executable, "-m"],
    "ipython": [sys.executable, "-m", "IPython", "--colors=NoColor"],
}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(("end", "last"), REFUSED)
def test_an_error_is_shown_with_the_program_s_frames_alone(
    tmp_path: Path, runner: str, end: str, last: str
) -> None:
    if runner == "ipython":
        pytest.importorskip("IPython")
    script = write(tmp_path, f"def go():\n    {end.replace(chr(10), chr(10) + '    ')}\n\n\ngo()\n")
    words = [*RUNNERS[runner], "job" if runner == "-m" else script]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    said = (done.stdout + done.stderr).rstrip().splitlines()
    assert said[-1].startswith(f"headgate.base.errors.{last}")
    frames = [line for line in said if line.startswith("  File ")]
    assert [frame.rpartition(", in ")[2] for frame in frames] == ["<module>", "go"]
    assert all("job.py" in frame for frame in frames)
    assert "The above exception" not in "".join(said)


@pytest.mark.parametrize(
    ("begin", "end", "shown"),
    [
        ("import sys\nsys.excepthook = lambda *error: print('mine')", REFUSED[0][0], "mine\n"),
        ("import logging\nlogging.basicConfig(level=10)", REFUSED[0][0], "in check_function"),
        ("", "env.from_collection([1]).map()", "TypeError: DataStream.map() missing 1 required"),
    ],
)
def test_hooks_of_others_debug_logs_and_other_errors_are_as_ever(
    tmp_path: Path, begin: str, end: str, shown: str
) -> None:
    script = tmp_path / "job.py"
    script.write_text(f"{begin}\n{HEAD}{end}\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert shown in done.stdout + done.stderr
