"""The demonstration on real Spark: its result adds up, and its picture can be drawn."""

import json
import runpy
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headgate.cli.demo_pipeline import make_order, price

MAKER = Path(__file__).parent.parent.parent / "docs/make_picture.py"
ORDERS = 10_000


@pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")
def test_it_runs_says_what_was_slow_leaves_the_right_totals_and_is_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    maker = runpy.run_path(str(MAKER))
    words = ["--orders", str(ORDERS), "--seconds", "5", "--folder", str(folder)]
    written = maker["run_demo"](words)
    assert f"{ORDERS:,} orders in" in written
    assert f"in {folder}; the last lines of one:" in written

    expected: Counter[str] = Counter()
    for order in map(price, map(make_order, range(ORDERS))):
        expected[order["customer"]] += order["cents"]
    found: dict[str, int] = {}
    for part in folder.glob("totals*"):
        for line in part.read_text().splitlines():
            total = json.loads(line)
            found[total["customer"]] = max(total["cents"], found.get(total["customer"], 0))
    assert found == expected

    svg = maker["draw"](maker["find_moment"](written))
    shown = "".join(ElementTree.fromstring(svg).itertext()).replace("\N{NO-BREAK SPACE}", " ")
    assert "10,000 orders → price" in shown
    assert "orders  running" in shown
    assert "bottleneck: 'slow look-up -> Sink: files' limits the job" in shown
    assert "█" in shown
    assert "WARN" not in shown
