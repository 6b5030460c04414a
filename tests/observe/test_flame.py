"""Flame graphs: valid whatever frames are called, and with the user's code first."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.inspections import SampledActivity, SampledStack, StackSamples
from headgate.observe.flame import (
    DROPPED,
    FlameNode,
    FrameOwner,
    draw_flame,
    flame_tree,
    folded,
    hottest_frames,
    owner_of,
)

SVG = "{http://www.w3.org/2000/svg}"
RUN = "_run (threading.py:910)"
STEP = "Task.step (headgate/core/task/task.py:77)"
PARSE = "parse (job.py:12)"
SPLIT = "split (job.py:30)"
LOADS = "loads (json/__init__.py:346)"
EMIT = "emit (headgate/core/chain/outputs.py:5)"


def tree(name: str, value: float, *children: FlameNode) -> FlameNode:
    return FlameNode(name, value, list(children))


ROOT = tree(
    "root",
    100,
    tree(
        RUN,
        100,
        tree(
            STEP,
            90,
            tree(PARSE, 60, tree(LOADS, 40), tree(SPLIT, 10, tree(PARSE, 5))),
            tree(EMIT, 20),
        ),
    ),
)


def test_the_users_frames_come_first_then_what_they_called() -> None:
    frames = hottest_frames(ROOT)
    assert [(frame.name, frame.owner) for frame in frames] == [
        (PARSE, FrameOwner.USER),
        (SPLIT, FrameOwner.USER),
        (LOADS, FrameOwner.LIBRARY),
        (EMIT, FrameOwner.HEADGATE),
        (RUN, FrameOwner.HEADGATE),
        (STEP, FrameOwner.HEADGATE),
    ]
    parse = frames[0]
    assert (parse.own, parse.total) == (0.15, 0.60), "a frame that calls itself counts once"
    assert sum(frame.own for frame in frames) == 1.0


def test_frames_below_the_users_are_the_users_or_called_by_them() -> None:
    assert owner_of([RUN, STEP]) is FrameOwner.HEADGATE
    assert owner_of([RUN, STEP, PARSE, EMIT]) is FrameOwner.LIBRARY, "called by the user's code"
    assert owner_of([RUN, PARSE]) is FrameOwner.HEADGATE, "not called by Headgate"
    assert owner_of([RUN, STEP, "<lambda> (of (x)) (job.py:1)"]) is FrameOwner.USER


def test_folded_stacks_add_up_to_the_samples() -> None:
    lines = folded(ROOT).splitlines()
    assert f"{RUN};{STEP};{PARSE};{LOADS} 40" in lines
    assert f"{RUN} 10" in lines
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 100
    assert folded(tree("root", 1, tree("a;b\nc", 1))) == "a,b,c 1\n"
    assert folded(FlameNode("root")) == ""


def test_a_drawing_has_a_box_for_each_frame_as_wide_as_its_share() -> None:
    picture = ElementTree.fromstring(draw_flame(ROOT, "job: squares", "100 samples"))
    boxes = {}
    for group in picture.iter(f"{SVG}g"):
        title, box = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and box is not None and title.text is not None
        boxes.setdefault(title.text, box)
    assert "root: 100.0%" in boxes
    whole = float(boxes["root: 100.0%"].attrib["width"])
    parse = boxes[f"{PARSE}: 60.0% (your code)"]
    assert abs(float(parse.attrib["width"]) - 0.6 * whole) < 1
    assert len(list(picture.iter(f"{SVG}g"))) == 8
    assert draw_flame(ROOT, "job: squares") == draw_flame(ROOT, "job: squares")


def test_a_drawing_loads_and_runs_nothing() -> None:
    text = draw_flame(ROOT, "<script>", "&")
    assert "<script" not in text and "href" not in text and "@import" not in text
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme:dark" in text


def test_a_task_without_samples_has_a_drawing_that_says_so() -> None:
    assert "no samples" in draw_flame(FlameNode("root"), "x")
    assert hottest_frames(FlameNode("root")) == []


def test_ten_thousand_frames_stay_a_small_drawing() -> None:
    wide = tree("root", 10_000, *(tree(f"f{number} (a.py:1)", 1) for number in range(10_000)))
    assert draw_flame(wide, "x").count("<rect") < 10, "what is narrower than a pixel is left out"
    deep = tree("leaf", 1)
    for number in range(3_000):
        deep = tree(f"f{number}", 1, deep)
    ElementTree.fromstring(draw_flame(deep, "x"))
    assert len(folded(deep).splitlines()) == 1


nodes = st.recursive(
    st.builds(FlameNode, st.text(), st.floats(0, 1e9)),
    lambda inner: st.builds(FlameNode, st.text(), st.floats(0, 1e9), st.lists(inner, max_size=3)),
    max_leaves=8,
)


@given(nodes, st.text(), st.text())
def test_every_tree_is_drawn_as_valid_xml(root: FlameNode, title: str, subtitle: str) -> None:
    ElementTree.fromstring(draw_flame(root, title, subtitle))
    hottest_frames(root)
    for line in folded(root).splitlines():
        assert line.rpartition(" ")[2].isdigit()


SAMPLES = StackSamples(
    samples=10,
    wall_ms=100.0,
    cpu_ms=45.0,
    stacks=(
        SampledStack(("run", "work", "sum"), 4, 40.0),
        SampledStack(("run", "work"), 2, 5.0),
        SampledStack(("run", "wait"), 3, 0.0, activity=SampledActivity.IDLE),
    ),
    dropped=1,
)


@pytest.mark.parametrize(
    ("kind", "root", "work", "sums"),
    [("full", 10.0, 6.0, 4.0), ("on_cpu", 4.5, 4.5, 4.0), ("off_cpu", 4.5, 1.5, 0.0)],
)
def test_stacks_become_a_tree_of_all_time_or_of_that_on_a_cpu_or_off_it(
    kind: str, root: float, work: float, sums: float
) -> None:
    tree = flame_tree("task", [SAMPLES], kind)
    assert (tree.name, tree.value) == ("task", root)
    run = next(child for child in tree.children if child.name == "run")
    found = {child.name: child for child in run.children}
    assert found["work"].value == pytest.approx(work)
    below = {child.name: child.value for child in found["work"].children}
    assert below.get("sum", 0.0) == pytest.approx(sums)
    assert ("wait" in found) == (kind != "on_cpu")


def test_samples_of_several_tasks_are_added_up_the_heaviest_frames_first() -> None:
    tree = flame_tree("task", [SAMPLES, SAMPLES], "full")
    assert tree.value == 20.0
    assert [child.name for child in tree.children] == ["run", DROPPED]
    assert [child.name for child in tree.children[0].children] == ["work", "wait"]
