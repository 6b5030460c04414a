"""The `headgate` command as a person or a script runs it: what it says, and small loads."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate import __version__
from tests.cli.kit import Headgate, write
from tests.cli.kit import headgate as run_command


def test_version_is_the_package_s() -> None:
    assert run_command("--version").stdout.strip() == f"headgate, version {__version__}"


@pytest.mark.parametrize("words", [(), ("bench",), ("bench", "exchange"), ("demo",), ("doctor",)])
def test_every_command_explains_itself(headgate: Headgate, words: tuple[str, ...]) -> None:
    done = headgate(*words, "--help")
    assert done.returncode == 0
    assert "Usage: headgate" in done.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("bench", "exchange", "--channels", "0"), "--channels"),
        (("bench", "nothing"), "nothing"),
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


def test_bench_exchange_prints_one_json_object_with_its_figures() -> None:
    done = run_command("bench", "exchange", "--json", "--rounds", "1", "--megabytes", "40")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["mb_per_s"] > 0
    assert result["plain_socket_mb_per_s"] > 0
    assert result["ratio"] == pytest.approx(
        result["mb_per_s"] / result["plain_socket_mb_per_s"], rel=0.01
    )
    assert result["buffers_per_s"] == pytest.approx(result["mb_per_s"] * 1e6 / 32768, rel=0.01)
    assert result["cpu_s_per_gb"] > 0


def test_bench_isolation_shows_that_only_credits_protect_the_neighbour() -> None:
    done = run_command("bench", "isolation", "--json", "--rounds", "1", "--seconds", "0.4")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    # No timing claim: with credits the neighbour moves at all, with TCP it stands still.
    assert result["credit_beside_mb_per_s"] > 0
    assert result["tcp_share"] < result["credit_share"]
    assert result["tcp_share"] < 0.1
    assert result["credit_block_ms"] >= 0
    assert result["tcp_block_ms"] >= 0


def test_bench_records_prints_cost_and_rate() -> None:
    done = run_command("bench", "records", "--json", "--rounds", "1", "--records", "100000")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    cost = result["sender_ns_per_record"] + result["receiver_ns_per_record"]
    assert result["cost_ratio"] == pytest.approx(
        cost / result["plain_pickle_ns_per_record"], rel=0.02
    )
    assert result["records_per_s"] > 0


def test_the_picture_of_isolation_is_plain_lines_without_a_terminal() -> None:
    done = run_command("bench", "isolation", "--live", "--seconds", "0.3")
    assert done.returncode == 0, done.stderr
    assert "credit-based flow control: one consumer has stopped" in done.stdout
    assert "\x1b[" not in done.stdout


def test_ctrl_c_ends_a_benchmark_and_its_child_with_130() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "headgate", "bench", "isolation", "--live", "--seconds", "30"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "warming up" in line:
                break
        children = child_pids(process.pid)
        assert children, "the benchmark has a child process"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 130
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < deadline, "the child outlived the benchmark"
        time.sleep(0.05)


def child_pids(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in found.read_text().split()]


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
