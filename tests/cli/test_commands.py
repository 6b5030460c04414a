"""The `headgate` command as a person or a script runs it: what it says."""

import json
from pathlib import Path

import pytest

from headgate import __version__
from tests.cli.kit import Headgate, write
from tests.cli.kit import headgate as run_command


def test_version_is_the_package_s() -> None:
    assert run_command("--version").stdout.strip() == f"headgate, version {__version__}"


@pytest.mark.parametrize("words", [(), ("bench",), ("demo",), ("doctor",)])
def test_every_command_explains_itself(headgate: Headgate, words: tuple[str, ...]) -> None:
    done = headgate(*words, "--help")
    assert done.returncode == 0
    assert "Usage: headgate" in done.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("nothing",), "nothing"),
        (("demo", "--seconds", "soon"), "--seconds"),
    ],
)
def test_a_wrong_word_is_named_and_exits_with_2(
    headgate: Headgate, words: tuple[str, ...], complaint: str
) -> None:
    done = headgate(*words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-D", "parallelism.default=many"), "parallelism.default"),
        (("-D", "nonsense"), "KEY=VALUE"),
        (("--log-format", "xml"), "--log-format"),
    ],
)
def test_settings_that_cannot_be_exit_with_2_before_the_program_runs(
    headgate: Headgate, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = headgate("run", write(tmp_path, "raise ValueError"), *words)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "ValueError" not in done.stderr


def test_bench_names_the_command_for_a_clone(headgate: Headgate) -> None:
    done = headgate("bench", "keyed-count", "--json", "--rounds", 2)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "headgate: the benchmarks are not part of the package; in the root of a clone, "
        "run .venv/bin/python -m benchmarks keyed-count --json --rounds 2\n"
    )


LOGGING = """
import logging

logging.getLogger("shop").info("looks up %s", "tea")
logging.getLogger("shop").warning("no price of %s", "tea")
"""


@pytest.mark.parametrize(
    ("flags", "variables", "messages", "is_json"),
    [
        ((), {}, ["no price of tea"], False),
        (("--log-format", "json"), {}, ["no price of tea"], True),
        (("--log-level", "info"), {}, ["looks up tea", "no price of tea"], False),
        (("-D", "headgate.log.format=json"), {}, ["no price of tea"], True),
        ((), {"HEADGATE__HEADGATE__LOG__FORMAT": "json"}, ["no price of tea"], True),
        ((), {"HEADGATE_LOG_LEVEL": "error"}, [], False),
        (("--log-level", "warning"), {"HEADGATE_LOG_LEVEL": "error"}, ["no price of tea"], False),
    ],
)
def test_a_program_logs_as_flags_settings_and_variables_say(
    headgate: Headgate,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    flags: tuple[str, ...],
    variables: dict[str, str],
    messages: list[str],
    is_json: bool,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "job.py"
    script.write_text(LOGGING)
    lines = [line for line in headgate("run", *flags, script).stderr.splitlines() if "tea" in line]
    if is_json:
        assert [json.loads(line)["message"] for line in lines] == messages
    else:
        assert [line.partition(" shop ")[2] for line in lines] == messages
