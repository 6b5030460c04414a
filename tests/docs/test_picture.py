"""The README's picture: which moment of a run is drawn, and what the stored file may hold.

`tests/spark/test_picture.py` draws one from a real run.
"""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent.parent
PICTURE = ROOT / "docs/running-job.svg"
MAX_BYTES = 100_000
MAKER = runpy.run_path(str(ROOT / "docs/make_picture.py"))

HEAD = "10 orders → files\r\n\r\nWARNING: a word of the JVM\r\n\x1b[?25l"
REDRAW = "\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K"
END = "\x1b[?25h\r\x1b[1A\x1b[2K\x1b[1A\x1b[2K"


def frame(body: str) -> str:
    return f"\x1b[1morders\x1b[0m  running\r\nvertex\r\n{body}"


def written(*bodies: str) -> str:
    """What a run writes to a terminal that draws these frames."""
    return HEAD + REDRAW.join(map(frame, bodies)) + END + "\r\nbottleneck 'look-up', in the end"


def test_the_middle_frame_with_all_tasks_running_is_drawn() -> None:
    found = MAKER["find_moment"](
        written("starting", "bottleneck 1", "bottleneck 2", "bottleneck 3", "bottleneck 4 ended")
    )
    assert found == (
        "$ headgate demo\n10 orders → files\n\n\x1b[1morders\x1b[0m  running\nvertex\nbottleneck 2"
    )


def test_a_run_without_such_a_frame_says_what_to_do() -> None:
    with pytest.raises(SystemExit, match="--seconds"):
        MAKER["find_moment"](written("starting", "no cause", "bottleneck ended"))


def test_colours_become_styles_and_no_font_is_downloaded() -> None:
    svg = MAKER["draw"]("\x1b[31m███\x1b[0m busy")
    assert "███" in texts_of(svg)
    assert "url(" not in svg.replace("url(#", "")
    assert "http" not in re.sub(r'xmlns="[^"]*"|<!--.*?-->', "", svg)


def test_the_readme_shows_the_stored_picture() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"!\[[^\]]{40,}\]\(docs/running-job\.svg\)", readme), "with an alt text"


def test_the_stored_picture_is_small_self_contained_and_of_the_demo() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    assert len(svg.encode()) < MAX_BYTES
    assert "url(" not in svg.replace("url(#", "")
    shown = texts_of(svg)
    for word in ("$ headgate demo", "running totals", "slow look-up", "bottleneck", "in/s"):
        assert word in shown


def texts_of(svg: str) -> str:
    """Everything that can be read in a picture."""
    words = ElementTree.fromstring(svg).itertext()
    return "".join(words).replace("\N{NO-BREAK SPACE}", " ")
