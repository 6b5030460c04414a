"""A layered layout: boxes in columns from left to right, edges only between neighbouring columns.

An edge over several columns gets a lane in each one between, so that it never runs through a box.
Law: boxes of a column do not overlap, and the same input gives the same layout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

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
    behind: list[int] = field(default_factory=list)

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
    for one, other in pairwise(way):
        boxes[one].behind.append(other)
        boxes[other].before.append(one)
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
                near = boxes[index].before if forwards else boxes[index].behind
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
        ends = [(places[i], places[other]) for i in column for other in boxes[i].behind]
        count += sum(
            (one[0] - other[0]) * (one[1] - other[1]) < 0
            for place, one in enumerate(ends)
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
                near = boxes[index].before if forwards else boxes[index].behind
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
