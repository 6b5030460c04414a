"""`make sim`: what it prints, and how it leaves."""

import pytest

from headgate.core.egress.partition import PipelinedSubpartition
from tests.sim.__main__ import main


def test_seeds_that_keep_the_laws_leave_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--start", "5"]) == 0
    printed = capsys.readouterr().out
    assert "jobs: 2 seeds kept every law" in printed
    assert "recovery: 2 seeds kept every law" in printed


@pytest.mark.parametrize(("scenario", "other"), [("jobs", "recovery"), ("recovery", "jobs")])
def test_a_scenario_can_be_simulated_alone(
    scenario: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--seeds", "1", "--scenario", scenario]) == 0
    printed = capsys.readouterr().out
    assert f"{scenario}: 1 seeds kept every law" in printed
    assert f"{other}:" not in printed


def test_one_seed_tells_what_it_draws(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "--verbose"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("seed 1: ")
    assert "job graph of 'sim'" in printed
    assert " task Source: source0" in printed
    assert main(["--seed", "0", "--scenario", "recovery"]) == 0
    assert "  checkpoints: " in capsys.readouterr().out


def test_a_failing_seed_is_printed_with_the_command_that_replays_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PipelinedSubpartition, "_tell_reader", lambda subpartition: None)
    assert main(["--seeds", "6"]) == 1
    printed = capsys.readouterr().out
    seed = printed.split("FAILED seed ")[1].split(":")[0]
    assert "the job does not go on" in printed
    assert f"see it again: make sim SCENARIO=jobs SEED={seed}\n" in printed
    assert main(["--seed", seed]) == 1
    again = capsys.readouterr().out
    assert again.split("FAILED ")[1] == printed.split("FAILED ")[1]
    assert main(["--seeds", "6", "--processes", "2"]) == 1
    assert capsys.readouterr().out == printed


def test_several_processes_print_what_one_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "8", "--scenario", "jobs"]) == 0
    alone = capsys.readouterr().out
    assert main(["--seeds", "8", "--scenario", "jobs", "--processes", "2"]) == 0
    assert capsys.readouterr().out == alone
