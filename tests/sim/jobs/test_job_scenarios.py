"""What a seed draws: a run can be repeated, and nothing is switched off by mistake."""

import os
import subprocess
import sys
from math import inf

import pytest

from headgate.base.settings import FlowControl
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.channel import UnknownChannel
from headgate.core.task.operator_mail import OperatorMail
from headgate.core.task.task import Task
from headgate.sim.jobs.threads import SimThread
from tests.sim.jobs import functions
from tests.sim.jobs.random_jobs import draw_job
from tests.sim.jobs.world import simulate_job
from tests.sim.outcome import Outcome

SEEDS = 25
DIGEST = """
import sys, zlib
from tests.sim.jobs.world import simulate_job
lines = []
simulate_job(int(sys.argv[1]), lines.append)
print(len(lines), zlib.crc32("\\n".join(lines).encode()))
"""
Patch = pytest.MonkeyPatch


def traced(seed: int) -> tuple[list[str], Outcome]:
    lines: list[str] = []
    outcome = simulate_job(seed, lines.append)
    return lines, outcome


@pytest.mark.parametrize("seed", [3, 12])
def test_a_seed_replays_exactly(seed: int) -> None:
    assert traced(seed) == traced(seed)


def test_other_seeds_are_other_runs() -> None:
    assert len({tuple(traced(seed)[0]) for seed in (3, 12, 18)}) == 3


def test_a_seed_replays_in_another_process_with_other_hashes() -> None:
    digests = [digest_in_process(12, hash_seed) for hash_seed in ("1", "2")]
    assert digests[0] == digests[1] != ""


def digest_in_process(seed: int, hash_seed: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", DIGEST, str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return run.stdout


def test_seeds_reach_every_corner() -> None:
    scenarios = [draw_job(seed) for seed in range(300)]
    kinds = {fault.kind for scenario in scenarios for fault in scenario.faults}
    assert kinds == {
        *("cut", "stall", "freeze", "kill", "refuse", "black-hole", "cancel", "doze", "stranger"),
    }
    edges = [edge for scenario in scenarios for edge in scenario.job_graph.edges]
    assert {edge.ship for edge in edges} == {
        *("FORWARD", "HASH", "REBALANCE", "RESCALE", "SHUFFLE", "GLOBAL", "BROADCAST", "CUSTOM"),
    }
    assert len({edge.kind for edge in edges}) == 2, "streaming and batch"
    assert any(edge.tag for edge in edges), "side outputs"
    vertices = [vertex for scenario in scenarios for vertex in scenario.job_graph.vertices]
    assert any(vertex.gate_inputs == (0, 0) for vertex in vertices), "unions"
    assert any(vertex.gate_inputs == (0, 1) for vertex in vertices), "two inputs"
    timeouts = {output.timeout_ms for vertex in vertices for output in vertex.chain.partitions}
    assert timeouts >= {-1, 0, 3, 20, 100}
    without_credits = [
        scenario
        for scenario in scenarios
        if scenario.settings.flow_control is FlowControl.TCP and scenario.workers > 1
    ]
    assert len(without_credits) >= 15
    assert sum(scenario.held == {} for scenario in scenarios) < 270, "tasks that begin late"
    assert sum(inf in scenario.held.values() for scenario in scenarios) >= 8, "or never"
    assert {scenario.settings.segment_bytes for scenario in scenarios} >= {1, 16, 2048}
    assert len({scenario.settings.compression for scenario in scenarios}) == 2
    assert {scenario.workers for scenario in scenarios} >= {1, 2, 3}
    assert any(scenario.run.behavior.fails for scenario in scenarios)
    assert 120 < sum(scenario.calm for scenario in scenarios) < 180


def test_seeds_reach_what_is_rare_in_a_real_run(monkeypatch: Patch) -> None:
    """Back pressure, waits within a step, records by reference, late places, timers, slow code."""
    seen = dict.fromkeys(
        ("wait", "spend", "_hand_over", "_write_bundle", "later", "waiting_for_buffer"), 0
    )
    unplaced = 0

    def count(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def counted(*arguments: object, **named: object) -> object:
            seen[name] += 1
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, counted)

    real_request = UnknownChannel.request

    def request(channel: UnknownChannel) -> None:
        nonlocal unplaced
        unplaced += 1
        real_request(channel)

    monkeypatch.setattr(UnknownChannel, "request", request)
    for owner, name in (
        *((SimThread, "wait"), (functions, "spend"), (RecordWriter, "_hand_over")),
        *((RecordWriter, "_write_bundle"), (OperatorMail, "later"), (Task, "waiting_for_buffer")),
    ):
        count(owner, name)
    for seed in range(SEEDS):
        simulate_job(seed)
    assert all(seen.values()), seen
    assert unplaced
