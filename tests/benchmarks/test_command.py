"""The benchmarks as a person or a script runs them: what they say, and small loads."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.commands import bench as command


def bench(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("name", sorted(command.commands))
def test_every_benchmark_explains_itself(name: str) -> None:
    result = CliRunner().invoke(command, [name, "--help"])
    assert result.exit_code == 0
    assert "--json" in result.output


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("exchange", "--channels", "0"), "--channels"),
        (("nothing",), "nothing"),
        (("peers", "no-program"), "no-program"),
        (("peers", "--peers", "java,storm"), "'storm' is not one of java, bytewax"),
    ],
)
def test_a_wrong_word_is_named_and_exits_with_2(words: tuple[str, ...], complaint: str) -> None:
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 2
    assert complaint in done.output


def test_bench_exchange_prints_one_json_object_with_its_figures() -> None:
    done = bench("exchange", "--json", "--rounds", "1", "--megabytes", "40")
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
    done = bench("isolation", "--json", "--rounds", "1", "--seconds", "0.4")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    # No timing claim: with credits the neighbour moves at all, with TCP it stands still.
    assert result["credit_beside_mb_per_s"] > 0
    assert result["tcp_share"] < result["credit_share"]
    assert result["tcp_share"] < 0.1
    assert result["credit_block_ms"] >= 0
    assert result["tcp_block_ms"] >= 0


def test_bench_records_prints_cost_and_rate() -> None:
    done = bench("records", "--json", "--rounds", "1", "--records", "100000")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    cost = result["sender_ns_per_record"] + result["receiver_ns_per_record"]
    assert result["cost_ratio"] == pytest.approx(
        cost / result["plain_pickle_ns_per_record"], rel=0.02
    )
    assert result["records_per_s"] > 0


def test_the_picture_of_isolation_is_plain_lines_without_a_terminal() -> None:
    done = bench("isolation", "--live", "--seconds", "0.3")
    assert done.returncode == 0, done.stderr
    assert "credit-based flow control: one consumer has stopped" in done.stdout
    assert "\x1b[" not in done.stdout


def test_ctrl_c_ends_a_benchmark_and_its_child_with_130() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "isolation", "--live", "--seconds", "30"],
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
