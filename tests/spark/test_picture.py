"""The README's picture can be drawn anew, from the live display of a real job."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

MAKER = Path(__file__).parent.parent.parent / "docs/make_picture.py"


@pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")
def test_a_real_job_is_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "job.svg"
    words = [str(picture), "--orders", "10000", "--seconds", "5"]
    done = subprocess.run([sys.executable, str(MAKER), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    svg = picture.read_text(encoding="utf-8")
    shown = "".join(ElementTree.fromstring(svg).itertext()).replace("\N{NO-BREAK SPACE}", " ")
    assert "10,000 orders → price" in shown
    assert "orders  running" in shown
    assert "bottleneck: 'slow look-up -> Sink: files' limits the job" in shown
    assert "█" in shown
    assert "WARN" not in shown
