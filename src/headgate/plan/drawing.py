"""A drawing of a job graph as SVG: vertices with their operators, edges with how they ship.

Cards have their own background and lines are of a medium grey, so that the drawing is readable on
light and on dark pages. Law: no font, style or link from outside, and the same
graph gives the same text.

The layout is layered: boxes in columns from left to right, edges only between neighbouring columns.
An edge over several columns gets a lane in each one between, so that it never runs through a box.
Law: boxes of a column do not overlap.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from headgate.core.chain.spec import ChainSpec, ToOperator
from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex
from headgate.plan.stream_graph import DEFAULT_GROUP
from headgate.plan.table import cut, xml_text

MARGIN: Final = 20.0
COLUMN_GAP: Final = 64.0
HEAD_HEIGHT: Final = 26.0
LINE_HEIGHT: Final = 20.0
PADDING: Final = 12.0
INDENT: Final = 14.0
PORT_GAP: Final = 24.0
NAME_LETTERS: Final = 40
SOURCE_COLOUR: Final = "#0f766e"
INNER_COLOUR: Final = "#1d4ed8"
END_COLOUR: Final = "#7c3aed"
INK: Final = "#1e293b"
CARD: Final = "#ffffff"
LABEL: Final = "#e2e8f0"
LINE: Final = "#7c8899"
MARK: Final = "#fde68a"
ROW_GAP = 28.0
LANE_HEIGHT = 14.0
SWEEPS = 6
Point = tuple[float, float]


@dataclass(slots=True)
class Box:
    """A box, or a lane that an edge takes through a column; ``x`` and ``y`` are its upper left."""

    width: float
    height: float
    column: int = 0
    x: float = 0.0
    y: float = 0.0
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes as they were given, and for each edge the points where it leaves and enters columns."""

    boxes: list[Box]
    routes: list[list[Point]]
    width: float
    height: float


def draw_svg(job_graph: JobGraph, marked: Collection[int] = ()) -> str:
    """The whole drawing, ready to be a file or a part of a page.

    ``marked``: ids of operators that it points out.
    """
    edges = job_graph.edges
    labels = [_label(edge) for edge in edges]
    layout = layered(
        [_size(job_graph, vertex) for vertex in job_graph.vertices],
        [(edge.source, edge.target) for edge in edges],
        {number: _label_width(label) for number, label in enumerate(labels)},
        COLUMN_GAP,
    )
    width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="{-MARGIN:.0f} {-MARGIN:.0f} {width:.0f} {height:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{xml_text(job_graph.name)}</title>",
    ]
    for edge, label, route in zip(edges, labels, layout.routes, strict=True):
        lines += _draw_edge(edge, label, route)
    for vertex, box in zip(job_graph.vertices, layout.boxes, strict=True):
        lines += _draw_vertex(job_graph, vertex, box, marked)
    return "\n".join([*lines, "</svg>", ""])


def columns_and_rows(graph: JobGraph) -> list[tuple[int, int]]:
    """For each vertex where it stands: columns from left to right, in each of them rows."""
    edges = [(edge.source, edge.target) for edge in graph.edges]
    boxes = layered([(1.0, 1.0)] * len(graph.vertices), edges, {}, 0.0).boxes
    columns: dict[int, list[float]] = {}
    for box in boxes:
        columns.setdefault(box.column, []).append(box.y)
    return [(box.column, sorted(columns[box.column]).index(box.y)) for box in boxes]


def _size(graph: JobGraph, vertex: JobVertex) -> tuple[float, float]:
    """Wide enough for its words, high enough for its operators and for the ends of its edges."""
    widths = [_width(_head(vertex)) + _width(_tasks(vertex)) + 24]
    widths += [
        _width(cut(operator.name, NAME_LETTERS)) + INDENT * (depth + 1)
        for operator, depth in zip(vertex.chain.operators, _depths(vertex.chain), strict=True)
    ]
    words = HEAD_HEIGHT + PADDING + LINE_HEIGHT * len(vertex.chain.operators)
    ends = max(len(graph.inputs_of(vertex.id)), len(graph.outputs_of(vertex.id)))
    return max(widths) + 2 * PADDING, max(words, PORT_GAP * (ends + 1))


def _draw_vertex(
    graph: JobGraph, vertex: JobVertex, box: Box, marked: Collection[int]
) -> list[str]:
    if vertex.is_source:
        colour = SOURCE_COLOUR
    else:
        colour = INNER_COLOUR if graph.outputs_of(vertex.id) else END_COLOUR
    w, h = box.width, box.height
    lines = [
        f'<g transform="translate({box.x:.1f} {box.y:.1f})">',
        f"<title>{xml_text(vertex.name)}</title>",
        f'<rect width="{w:.1f}" height="{h:.1f}" rx="8" fill="{CARD}" stroke="{colour}" '
        f'stroke-width="1.5"/>',
        f'<path d="M0 {HEAD_HEIGHT} V8 a8 8 0 0 1 8 -8 H{w - 8:.1f} a8 8 0 0 1 8 8 '
        f'V{HEAD_HEIGHT} Z" fill="{colour}"/>',
        '<g fill="#ffffff" font-size="12">',
        f'<text x="{PADDING}" y="17.5">{xml_text(_head(vertex))}</text>',
        f'<text x="{w - PADDING:.1f}" y="17.5" text-anchor="end" font-weight="600">'
        f"{_tasks(vertex)}</text>",
        "</g>",
        f'<g fill="{INK}">',
    ]
    y = HEAD_HEIGHT + PADDING / 2 + LINE_HEIGHT / 2
    for operator, depth in zip(vertex.chain.operators, _depths(vertex.chain), strict=True):
        x = PADDING + INDENT * depth
        weight = ""
        if operator.id in marked:
            weight = ' font-weight="700"'
            lines.append(
                f'<rect x="4" y="{y - LINE_HEIGHT / 2:.1f}" width="{w - 8:.1f}" '
                f'height="{LINE_HEIGHT:.0f}" rx="5" fill="{MARK}"/>'
            )
        lines += [
            f'<circle cx="{x + 3:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>',
            f'<text x="{x + INDENT:.1f}" y="{y + 4.5:.1f}"{weight}>'
            f"<title>{xml_text(operator.name)}</title>"
            f"{xml_text(cut(operator.name, NAME_LETTERS))}</text>",
        ]
        y += LINE_HEIGHT
    return [*lines, "</g>", "</g>"]


def _draw_edge(edge: JobEdge, label: str, route: list[Point]) -> list[str]:
    """Curves from column to column, then a straight end with the label on it."""
    end_x, end_y = route[-1]
    width = _label_width(label)
    points = [*route[:-1], (end_x - width, end_y)]
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for place, ((from_x, from_y), (x, y)) in enumerate(pairwise(points)):
        if place % 2:
            path += f" L{x:.1f} {y:.1f}"  # along a lane
        else:
            half = (from_x + x) / 2
            path += f" C{half:.1f} {from_y:.1f} {half:.1f} {y:.1f} {x:.1f} {y:.1f}"
    dashes = "" if edge.kind.is_pipelined else ' stroke-dasharray="6 4"'
    label_x = end_x - width + 4
    return [
        f'<path d="{path} H{end_x - 6:.1f}" fill="none" stroke="{LINE}" stroke-width="1.8"'
        f"{dashes}/>",
        f'<path d="M{end_x - 9:.1f} {end_y - 5:.1f} L{end_x:.1f} {end_y:.1f} '
        f'L{end_x - 9:.1f} {end_y + 5:.1f} Z" fill="{LINE}"/>',
        f'<rect x="{label_x:.1f}" y="{end_y - 9:.1f}" width="{width - 18:.1f}" height="18" rx="9" '
        f'fill="{LABEL}"/>',
        f'<text x="{label_x + (width - 18) / 2:.1f}" y="{end_y + 4:.1f}" text-anchor="middle" '
        f'font-size="11" fill="{INK}">{xml_text(label)}</text>',
    ]


def _label(edge: JobEdge) -> str:
    parts = [edge.ship]
    if edge.input:
        parts.append(f"input {edge.input + 1}")
    if edge.tag is not None:
        parts.append(cut(edge.tag, NAME_LETTERS))
    if edge.selected is not None:
        parts.append(cut(", ".join(sorted(edge.selected)), NAME_LETTERS))
    return " · ".join(parts)


def _label_width(label: str) -> float:
    """From the end of the curve to the target: the label with its rims, and the arrow."""
    return _width(label) * 11 / 13 + 16 + 18


def _head(vertex: JobVertex) -> str:
    group = "" if vertex.group == DEFAULT_GROUP else f" · {cut(vertex.group, NAME_LETTERS)}"
    return f"vertex {vertex.id}{group}"


def _tasks(vertex: JobVertex) -> str:
    return f"×{vertex.parallelism}"  # noqa: RUF001 - the sign is meant


def _depths(chain: ChainSpec) -> list[int]:
    """How far to indent each operator: one step after every fork of the chain."""
    depths = [0] * len(chain.operators)
    for place, operator in enumerate(chain.operators):
        followers = [to.operator for to in operator.outputs if isinstance(to, ToOperator)]
        for follower in followers:
            depths[follower] = depths[place] + (len(followers) > 1)
    return depths


def _width(text: str) -> float:
    """About how wide a text of 13 pixels becomes; rather more, since the font is the reader's."""
    return sum(13.5 if c in "MW@%…→" or c > "\u2e7f" else 9.4 if c.isupper() else 7.4 for c in text)


def layered(
    sizes: Sequence[tuple[float, float]],
    edges: Sequence[tuple[int, int]],
    gaps: Mapping[int, float],
    gap: float,
) -> Layout:
    """Lay out boxes of the given sizes; edges lead from a smaller index to a greater one.

    ``gaps``: for each edge by its number the room that it needs in front of its target.
    """
    boxes = [Box(width, height) for width, height in sizes]
    _find_columns(boxes, edges)
    ways = [_add_lanes(boxes, source, target) for source, target in edges]
    columns: list[list[int]] = [[] for _ in range(1 + max(box.column for box in boxes))]
    for index, box in enumerate(boxes):
        columns[box.column].append(index)
    _order(boxes, columns)
    _stack(boxes, columns)
    room = [gap] * len(columns)
    for number, needed in gaps.items():
        column = boxes[edges[number][1]].column
        room[column] = max(room[column], gap + needed)
    right = _spread(boxes, columns, room)
    top = min(box.y for box in boxes)
    for box in boxes:
        box.y -= top
    height = max(box.y + box.height for box in boxes)
    return Layout(boxes[: len(sizes)], _routes(boxes, ways), right, height)


def _find_columns(boxes: list[Box], edges: Sequence[tuple[int, int]]) -> None:
    """Every box right of all it reads; one that reads nothing close to its first reader."""
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        assert source < target, "edges lead from a smaller index to a greater one"
        boxes[target].column = max(boxes[target].column, boxes[source].column + 1)
    targets = {target for _, target in edges}
    for index, box in enumerate(boxes):
        readers = [boxes[target].column for source, target in edges if source == index]
        if index not in targets and readers:
            box.column = min(readers) - 1


def _add_lanes(boxes: list[Box], source: int, target: int) -> list[int]:
    way = [source]
    for column in range(boxes[source].column + 1, boxes[target].column):
        way.append(len(boxes))
        boxes.append(Box(0.0, LANE_HEIGHT, column))
    way.append(target)
    for box, following in pairwise(way):
        boxes[box].after.append(following)
        boxes[following].before.append(box)
    return way


def _order(boxes: list[Box], columns: list[list[int]]) -> None:
    """Sort each column by where its neighbours stand, and keep the order with fewest crossings."""
    best, fewest = [column[:] for column in columns], _crossings(boxes, columns)
    for sweep in range(SWEEPS):
        forwards = sweep % 2 == 0
        for column in columns if forwards else reversed(columns):
            places = {index: place for line in columns for place, index in enumerate(line)}
            means: dict[int, float] = {}
            for index in column:
                near = boxes[index].before if forwards else boxes[index].after
                met = [places[other] for other in near] or [places[index]]
                means[index] = sum(met) / len(met)
            column.sort(key=means.__getitem__)
        crossings = _crossings(boxes, columns)
        if crossings < fewest:
            best, fewest = [column[:] for column in columns], crossings
    columns[:] = best


def _crossings(boxes: list[Box], columns: list[list[int]]) -> int:
    places = {index: place for column in columns for place, index in enumerate(column)}
    count = 0
    for column in columns:
        ends = [(places[i], places[other]) for i in column for other in boxes[i].after]
        count += sum(
            (end[0] - other[0]) * (end[1] - other[1]) < 0
            for place, end in enumerate(ends)
            for other in ends[:place]
        )
    return count


def _stack(boxes: list[Box], columns: list[list[int]]) -> None:
    """Draw every box towards its neighbours, as far as those above and below let it."""
    for column in columns:
        _settle(boxes, column, [0.0] * len(column))
    for sweep in range(SWEEPS):
        forwards = sweep % 2 == 0
        for column in columns if forwards else reversed(columns):
            wanted = []
            for index in column:
                near = boxes[index].before if forwards else boxes[index].after
                middles = [boxes[other].middle for other in near] or [boxes[index].middle]
                wanted.append(sum(middles) / len(middles))
            _settle(boxes, column, wanted)


def _settle(boxes: list[Box], column: list[int], wanted: list[float]) -> None:
    """Put the boxes below each other, near the wanted middles, none favoured."""
    floor = float("-inf")
    offsets = []
    for index, middle in zip(column, wanted, strict=True):
        box = boxes[index]
        box.y = max(middle - box.height / 2, floor)
        floor = box.y + box.height + ROW_GAP
        offsets.append(middle - box.middle)
    shift = sum(offsets) / len(offsets)
    for index in column:
        boxes[index].y += shift


def _spread(boxes: list[Box], columns: list[list[int]], room: list[float]) -> float:
    """Columns from left to right, their boxes of one width; answers where the last one ends."""
    right = 0.0
    for number, column in enumerate(columns):
        left = right + (room[number] if number else 0.0)
        width = max(boxes[index].width for index in column)
        for index in column:
            boxes[index].x = left
            boxes[index].width = width
        right = left + width
    return right


def _routes(boxes: list[Box], ways: list[list[int]]) -> list[list[Point]]:
    """From the right side of a box to the left side of the next; ends on one side keep apart."""
    leaving: dict[int, list[int]] = {}
    entering: dict[int, list[int]] = {}
    for number, way in enumerate(ways):
        leaving.setdefault(way[0], []).append(number)
        entering.setdefault(way[-1], []).append(number)
    starts, ends = {}, {}
    for index, numbers in leaving.items():
        numbers.sort(key=lambda number: boxes[ways[number][1]].middle)
        for place, number in enumerate(numbers, 1):
            starts[number] = boxes[index].y + boxes[index].height * place / (len(numbers) + 1)
    for index, numbers in entering.items():
        numbers.sort(key=lambda number: boxes[ways[number][-2]].middle)
        for place, number in enumerate(numbers, 1):
            ends[number] = boxes[index].y + boxes[index].height * place / (len(numbers) + 1)
    routes: list[list[Point]] = []
    for number, way in enumerate(ways):
        first, last = boxes[way[0]], boxes[way[-1]]
        route = [(first.x + first.width, starts[number])]
        for lane in map(boxes.__getitem__, way[1:-1]):
            route += [(lane.x, lane.middle), (lane.x + lane.width, lane.middle)]
        routes.append([*route, (last.x, ends[number])])
    return routes
