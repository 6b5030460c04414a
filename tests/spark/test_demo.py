"""The demonstration on real Spark: its result adds up, its picture can be drawn, its page stays."""

import json
import re
import runpy
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen
from xml.etree import ElementTree

import pytest

from headgate.cli.demo_pipeline import make_order, price
from tests.cli.terminal_kit import Terminal

MAKER = Path(__file__).parent.parent.parent / "docs/make_picture.py"
ORDERS = 30_000
CTRL_C = b"\x03"
SHOW_CURSOR = "\x1b[?25h"
needs_spark = pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")


@needs_spark
def test_it_runs_says_what_was_slow_leaves_the_right_totals_and_is_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    maker = runpy.run_path(str(MAKER))
    words = ["--orders", str(ORDERS), "--seconds", "11", "--folder", str(folder)]
    written = maker["run_demo"](words)
    assert re.search(rf"orders: finished after [\d.]+ s, {ORDERS:,} records; bottleneck: ", written)
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
    assert "30,000 orders → price" in shown
    assert "orders  running" in shown
    assert "bottleneck: 'slow look-up -> Sink: files' limits the job" in shown
    assert "█" in shown
    assert "WARN" not in shown


@needs_spark
def test_in_a_terminal_the_page_stays_until_ctrl_c_and_nothing_else_does(tmp_path: Path) -> None:
    with terminal_with_demo(tmp_path, "--orders", "9000", "--seconds", "3") as terminal:
        terminal.await_text("the page stays until Ctrl-C")
        written = terminal.written
        assert page_answers(written)
        terminal.press(CTRL_C)
        assert terminal.await_end() == 0
    first, *others = closing_lines(written)
    assert first.startswith("orders: finished after")
    assert "bottleneck" in first
    assert "bottleneck" not in "".join(others)
    assert list(tmp_path.iterdir()) == []


@needs_spark
def test_ctrl_c_ends_the_running_job_and_says_what_limited_it(tmp_path: Path) -> None:
    with terminal_with_demo(tmp_path) as terminal:
        terminal.await_text("limits the job")
        assert page_answers(terminal.written)
        terminal.press(CTRL_C)
        assert terminal.await_end() == 0
    first, *others = closing_lines(terminal.written)
    assert first.startswith("orders: canceled after")
    assert "bottleneck" in first
    assert "bottleneck" not in "".join(others)
    assert any(line.startswith("  running totals  ") for line in others)
    assert list(tmp_path.iterdir()) == []


def terminal_with_demo(folder: Path, *options: str) -> Terminal:
    """All that the demonstration writes goes to the folder, the list of running jobs included."""
    places = {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": "", "HEADGATE__REST__ENABLED": "true"}
    return Terminal("demo", *options, **places)


def page_answers(written: str) -> bool:
    (address,) = re.findall(r"headgate: job orders: (http://[\w.:]+)/#/jobs/\w+", written)
    with urlopen(f"{address}/jobs/overview", timeout=10) as answer:
        return len(json.load(answer)["jobs"]) == 1


def closing_lines(written: str) -> list[str]:
    """What stays on the screen from the job's closing line on; the live picture has gone."""
    (closing,) = re.findall(r"orders: (?:finished|canceled) after [^\r]*", written)
    _, _, after = written.rpartition(SHOW_CURSOR)
    return [closing, *re.sub(r"\x1b\[\w+", "", after).splitlines()]
