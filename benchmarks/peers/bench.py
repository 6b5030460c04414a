"""``bench peers``: ordinary programs on Headgate, Java Flink and Bytewax, in turns.

They take turns, so that a busy hour of the machine hits all of them. A peer that cannot be had is
left out, and the result says so.
"""

import sys
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from benchmarks.peers.contenders import CONTENDERS, PEERS, Contender
from benchmarks.peers.tools import ToolMissing

COLUMNS: Final = {
    "headgate": ("Headgate", "records a second on two cores, start-up excluded"),
    "java": ("Java Flink", "the same of a mini cluster of two task managers"),
    "bytewax": ("Bytewax", "the same of two processes"),
    "vs_java": ("vs_java", "Headgate against Java Flink"),
    "vs_bytewax": ("vs_bytewax", "Headgate against Bytewax"),
}


def run_peers_bench(
    names: Sequence[str], rounds: int, peers: Sequence[str], scale: float
) -> dict[str, Any]:
    """Medians over the rounds of each program, and what had to be left out."""
    contenders, left_out = _at_hand(["headgate", *peers])
    programs = {name: _measured(name, contenders, rounds, scale) for name in names}
    return {"programs": programs, "left_out": left_out, "rounds": rounds, "scale": scale}


def _at_hand(names: Sequence[str]) -> tuple[dict[str, Contender], list[str]]:
    found: dict[str, Contender] = {}
    left_out = []
    for name in names:
        try:
            found[name] = CONTENDERS[name]()
        except ToolMissing as missing:
            left_out.append(f"left out: {missing}")
    return found, left_out


def _measured(
    name: str, contenders: Mapping[str, Contender], rounds: int, scale: float
) -> dict[str, Any]:
    able = {who: it for who, it in contenders.items() if name in it.programs}
    for contender in able.values():
        contender.check(name)
    rates: dict[str, list[float]] = {who: [] for who in able}
    for _ in range(rounds):
        for who, contender in able.items():
            rates[who].append(contender.rate(name, scale))
            print(f"{name}, {who}: {rates[who][-1]:,.0f} records/s", file=sys.stderr, flush=True)
    return figures(rates)


def figures(rates: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Medians, Headgate's as a multiple of each peer's, and all rates."""
    medians = {who: median(found) for who, found in rates.items()}
    return {
        **{who: round(rate) for who, rate in medians.items()},
        **{
            f"vs_{peer}": round(medians["headgate"] / medians[peer], 2)
            for peer in PEERS
            if peer in medians
        },
        "records_per_s_all": {who: [round(rate) for rate in rates[who]] for who in rates},
    }
