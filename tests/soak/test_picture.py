"""The picture is whole, and shows every fault in every panel."""

from xml.etree import ElementTree

from tests.soak.faults import WEIGHTS, schedule
from tests.soak.picture import COLORS, PANELS, draw
from tests.soak.samples import Sample

SPACE = "{http://www.w3.org/2000/svg}"


def test_every_panel_has_its_curve_and_every_fault_a_line() -> None:
    names = [name for name, _ in PANELS]
    samples = [Sample(float(turn), True, dict.fromkeys(names, turn)) for turn in range(10)]
    strikes = schedule(1, 200, 15)
    root = ElementTree.fromstring(draw(samples, strikes))
    curves = root.findall(f"{SPACE}polyline")
    assert [len(curve.attrib["points"].split()) for curve in curves] == [10] * len(PANELS)
    faults = [line for line in root.iter(f"{SPACE}line") if line.get("class") == "fault"]
    assert len(faults) == len(PANELS) * len(strikes)


def test_every_kind_of_fault_has_a_color() -> None:
    assert COLORS.keys() == WEIGHTS.keys()


def test_figures_that_are_zero_can_be_drawn() -> None:
    samples = [Sample(0.0, True, dict.fromkeys([name for name, _ in PANELS], 0.0))]
    assert draw(samples, []).count("<polyline") == len(PANELS)
