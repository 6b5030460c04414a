"""`make sim`: what it prints, and how it leaves."""

import pytest

from headgate.core.egress.pipelined import PipelinedSubpartition
from tests.sim.__main__ import main


def test_seeds_that_keep_the_laws_leave_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--start", "5"]) == 0
    printed = capsys.readouterr().out
    assert "exchange: 3 seeds kept every law" in printed
    assert "jobs: 3 seeds kept every law" in printed
    assert "recovery: 3 seeds kept every law" in printed


def test_jobs_can_be_simulated_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--jobs"]) == 0
    printed = capsys.readouterr().out
    assert "jobs: 2 seeds kept every law" in printed and "exchange" not in printed
    assert main(["--seed", "7", "--jobs"]) == 0
    assert "job graph of 'sim'" in capsys.readouterr().out


def test_jobs_that_recover_can_be_simulated_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--recovery"]) == 0
    printed = capsys.readouterr().out
    assert "recovery: 2 seeds kept every law" in printed and "jobs:" not in printed
    assert main(["--seed", "7", "--recovery"]) == 0
    assert "  checkpoints: " in capsys.readouterr().out


def test_one_seed_tells_what_it_draws(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7", "--verbose"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("seed 7: ")
    assert " task source0/0 " in printed


def test_a_failing_seed_is_printed_with_the_command_that_replays_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PipelinedSubpartition, "_tell_reader", lambda subpartition: None)
    assert main(["--seeds", "20"]) == 1
    printed = capsys.readouterr().out
    seed = printed.split("FAILED seed ")[1].split(":")[0]
    assert "no trouble explains that" in printed or "the run does not go on" in printed
    assert f"see it again: make sim SEED={seed}\n" in printed
    assert main(["--seed", seed]) == 1
    again = capsys.readouterr().out
    assert again.split("FAILED ")[1] == printed.split("FAILED ")[1]


def test_several_processes_print_what_one_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--seeds", "8", "--jobs"]) == 0
    alone = capsys.readouterr().out
    assert main(["--seeds", "8", "--jobs", "--processes", "2"]) == 0
    assert capsys.readouterr().out == alone
    monkeypatch.setattr(PipelinedSubpartition, "_tell_reader", lambda subpartition: None)
    assert main(["--seeds", "20"]) == 1
    failed = capsys.readouterr().out
    assert main(["--seeds", "20", "--processes", "2"]) == 1
    assert capsys.readouterr().out == failed
