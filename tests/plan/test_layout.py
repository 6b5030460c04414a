"""The layout of drawings: nothing overlaps, edges lead to the right and through no box."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.plan.drawing import Layout, layered


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Layout, list[tuple[int, int]]]:
    count = draw(st.integers(1, 9))
    side = st.integers(20, 200).map(float)
    sizes = draw(st.lists(st.tuples(side, side), min_size=count, max_size=count))
    pairs = [(source, other) for other in range(count) for source in range(other)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=14)) if pairs else []
    return layered(sizes, edges, dict.fromkeys(range(len(edges)), 30.0), 40.0), edges


@given(layouts())
def test_boxes_do_not_overlap_and_stay_within_the_picture(
    made: tuple[Layout, list[tuple[int, int]]],
) -> None:
    layout, _ = made
    for place, box in enumerate(layout.boxes):
        assert box.x >= 0 and box.x + box.width <= layout.width + 0.01
        assert box.y >= -0.01 and box.y + box.height <= layout.height + 0.01
        for other in layout.boxes[:place]:
            apart_x = box.x >= other.x + other.width or other.x >= box.x + box.width
            apart_y = box.y >= other.y + other.height or other.y >= box.y + box.height
            assert apart_x or apart_y


@given(layouts())
def test_edges_lead_to_the_right_and_through_no_box(
    made: tuple[Layout, list[tuple[int, int]]],
) -> None:
    layout, edges = made
    for (source, target), route in zip(edges, layout.routes, strict=True):
        first, last = layout.boxes[source], layout.boxes[target]
        assert route[0][0] == first.x + first.width
        assert first.y < route[0][1] < first.y + first.height
        assert route[-1][0] == last.x
        assert last.y < route[-1][1] < last.y + last.height
        assert route == sorted(route, key=lambda point: point[0])
        assert route[-1][0] - route[-2][0] >= 70  # the gap and the room in front of the target
        for (x, y), (to_x, _) in zip(route[1:-1:2], route[2:-1:2], strict=True):
            for box in layout.boxes:
                if box.x < to_x and x < box.x + box.width:
                    assert not box.y < y < box.y + box.height


def test_a_source_stands_close_to_its_reader() -> None:
    sizes = [(10.0, 10.0)] * 4
    layout = layered(sizes, [(0, 1), (1, 3), (2, 3)], {}, 40.0)
    assert layout.boxes[2].x == layout.boxes[1].x


def test_lines_do_not_cross_where_they_need_not() -> None:
    sizes = [(10.0, 10.0)] * 4
    layout = layered(sizes, [(0, 3), (1, 2)], {}, 40.0)
    upper, lower = layout.routes
    assert (upper[0][1] < lower[0][1]) == (upper[-1][1] < lower[-1][1])
