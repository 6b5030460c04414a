"""The demonstration on real Spark: its result can be added up again."""

import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from headgate.cli.demo_pipeline import make_order, price
from tests.cli.kit import headgate

ORDERS = 3000


@pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")
def test_it_runs_says_what_was_slow_and_leaves_the_right_totals(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    words = ("--orders", str(ORDERS), "--seconds", "2", "--folder", str(folder))
    done = headgate("demo", *words)
    assert done.returncode == 0, done.stderr
    assert f"{ORDERS:,} orders in" in done.stdout
    assert str(folder) in done.stdout
    assert "slow look-up" in done.stdout
    assert "orders: finished after" in done.stderr
    assert "\x1b[" not in done.stdout + done.stderr
    expected: Counter[str] = Counter()
    for order in map(price, map(make_order, range(ORDERS))):
        expected[order["customer"]] += order["cents"]
    found: dict[str, int] = {}
    for part in folder.glob("totals*"):
        for line in part.read_text().splitlines():
            total = json.loads(line)
            found[total["customer"]] = max(total["cents"], found.get(total["customer"], 0))
    assert found == expected
